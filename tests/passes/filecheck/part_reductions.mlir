// PASS: part-reductions
// CHECK-LABEL: func.func @sum_and_reader
// CHECK: %[[ALONE:.*]] = "train.barrier"(%arg0)
// CHECK: %[[SUM:.*]] = "train.reduce"(%[[ALONE]])
// CHECK-NEXT: %[[KEPT:.*]] = "train.barrier"(%[[SUM]])
// CHECK: "train.map"(%[[KEPT]])
func.func @sum_and_reader(%a: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = "train.reduce"(%a) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "train.map"(%0) ({
  ^bb0(%e: f32):
    %s = arith.negf %e : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 4>, spec = "a->a"} : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// CHECK-LABEL: func.func @other_ops_stay
// CHECK-NOT: train.barrier
func.func @other_ops_stay(%a: tensor<4x8xf32>) -> tensor<32xf32> {
  %0 = "train.reshape"(%a) {shape = array<i64: 32>} : (tensor<4x8xf32>) -> tensor<32xf32>
  return %0 : tensor<32xf32>
}

// CHECK-LABEL: func.func @product
// CHECK: %[[OUT:.*]] = "train.matmul"(%arg0, %arg1)
// CHECK-NEXT: %[[KEPT:.*]] = "train.barrier"(%[[OUT]])
// CHECK: return %[[KEPT]]
func.func @product(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "mk,kn->mn"} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
