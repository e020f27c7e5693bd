// PASS: part-shared
// CHECK-LABEL: func.func @read_twice
// CHECK: %[[OUT:.*]] = "train.matmul"
// CHECK-NEXT: %[[KEPT:.*]] = "train.barrier"(%[[OUT]])
// CHECK: %[[FLAT:.*]] = "train.reshape"(%[[KEPT]])
// CHECK: %[[NEGATED:.*]] = "train.map"(%[[FLAT]])
// CHECK: return %[[KEPT]], %[[NEGATED]]
func.func @read_twice(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) -> (tensor<4x2xf32>, tensor<8xf32>) {
  %0 = "train.matmul"(%a, %b) {spec = "mk,kn->mn"} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %1 = "train.reshape"(%0) {shape = array<i64: 8>} : (tensor<4x2xf32>) -> tensor<8xf32>
  %2 = "train.map"(%1) ({
  ^bb0(%e: f32):
    %s = arith.negf %e : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 8>, spec = "a->a"} : (tensor<8xf32>) -> tensor<8xf32>
  return %0, %2 : tensor<4x2xf32>, tensor<8xf32>
}

// CHECK-LABEL: func.func @read_once
// CHECK-NOT: train.barrier
func.func @read_once(%a: tensor<4x8xf32>, %b: tensor<8x2xf32>) -> tensor<8xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "mk,kn->mn"} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
  %1 = "train.reshape"(%0) {shape = array<i64: 8>} : (tensor<4x2xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// Only the ops it was told of: other results are computed by each reader again, or with it.
// CHECK-LABEL: func.func @another_op
// CHECK-NOT: train.barrier
func.func @another_op(%a: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<2x2xf32>) {
  %0 = "train.reduce"(%a) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  %1 = "train.reshape"(%0) {shape = array<i64: 2, 2>} : (tensor<4xf32>) -> tensor<2x2xf32>
  return %0, %1 : tensor<4xf32>, tensor<2x2xf32>
}
