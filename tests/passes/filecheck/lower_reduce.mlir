// PASS: lower-reduce
// CHECK-LABEL: func.func @sum_starts_at_zero
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: linalg.fill ins(%[[ZERO]]
// CHECK: iterator_types = ["parallel", "reduction"]
// CHECK: arith.addf
func.func @sum_starts_at_zero(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @maximum_starts_at_minus_infinity
// CHECK: arith.constant 0xFF800000 : f32
// CHECK: arith.maximumf
func.func @maximum_starts_at_minus_infinity(%x: tensor<4x8xf32>) -> tensor<8xf32> {
  %0 = "train.reduce"(%x) {kind = "max", spec = "ab->b"} : (tensor<4x8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// CHECK-LABEL: func.func @other_ops_stay
// CHECK: "train.barrier"
func.func @other_ops_stay(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.barrier"(%a) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
