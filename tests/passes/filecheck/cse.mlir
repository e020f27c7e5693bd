// PASS: cse
// CHECK-LABEL: func.func @equal_ops_merge
// CHECK: %[[R:.*]] = "train.reduce"
// CHECK-NOT: "train.reduce"
// CHECK: return %[[R]], %[[R]]
func.func @equal_ops_merge(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @another_attribute_stays
// CHECK: kind = "sum"
// CHECK: kind = "max"
func.func @another_attribute_stays(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "train.reduce"(%x) {kind = "max", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @regions_are_compared
// CHECK: %[[A:.*]] = "train.map"
// CHECK: arith.addf
// CHECK: %[[B:.*]] = "train.map"
// CHECK: arith.mulf
// CHECK-NOT: "train.map"
// CHECK: return %[[A]], %[[B]], %[[A]]
func.func @regions_are_compared(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = "train.map"(%x) ({
  ^bb0(%a: f32):
    %s = arith.addf %a, %a : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4>, spec = "a->a"} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "train.map"(%x) ({
  ^bb0(%a: f32):
    %s = arith.mulf %a, %a : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4>, spec = "a->a"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "train.map"(%x) ({
  ^bb0(%a: f32):
    %s = arith.addf %a, %a : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4>, spec = "a->a"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
