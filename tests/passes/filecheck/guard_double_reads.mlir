// PASS: guard-double-reads
// CHECK-LABEL: func.func @two_readings_get_a_barrier
// CHECK: %[[SUM:.*]] = "train.reduce"
// CHECK-NEXT: %[[SAFE:.*]] = "train.barrier"(%[[SUM]])
// CHECK: "train.map"(%[[SAFE]], %[[SAFE]])
func.func @two_readings_get_a_barrier(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "train.map"(%0, %0) ({
  ^bb0(%a: f32, %b: f32):
    %s = arith.subf %a, %b : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4, 4>, spec = "a,b->ab"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @through_another_map
// CHECK: %[[SUM:.*]] = "train.reduce"
// CHECK-NEXT: %[[SAFE:.*]] = "train.barrier"(%[[SUM]])
// CHECK: %[[NEG:.*]] = "train.map"(%[[SAFE]])
// CHECK: "train.map"(%[[SAFE]], %[[NEG]])
func.func @through_another_map(%x: tensor<4x8xf32>) -> tensor<4x4xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "train.map"(%0) ({
  ^bb0(%a: f32):
    %s = arith.negf %a : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4>, spec = "a->a"} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "train.map"(%0, %1) ({
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4, 4>, spec = "a,b->ab"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @one_reading_needs_none
// CHECK-NOT: train.barrier
func.func @one_reading_needs_none(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "train.map"(%0, %x) ({
  ^bb0(%a: f32, %b: f32):
    %s = arith.subf %b, %a : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4, 8>, spec = "a,ab->ab"} : (tensor<4xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @an_argument_needs_none
// CHECK-NOT: train.barrier
func.func @an_argument_needs_none(%x: tensor<4xf32>) -> tensor<4x4xf32> {
  %1 = "train.map"(%x, %x) ({
  ^bb0(%a: f32, %b: f32):
    %s = arith.subf %a, %b : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4, 4>, spec = "a,b->ab"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return %1 : tensor<4x4xf32>
}
