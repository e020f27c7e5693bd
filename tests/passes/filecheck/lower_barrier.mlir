// PASS: lower-barrier
// CHECK-LABEL: func.func @compute_barrier
// CHECK-NOT: util.optimization_barrier
// CHECK: iree_tensor_ext.compute_barrier.start %arg0
func.func @compute_barrier(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.barrier"(%a) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @other_ops_stay
// CHECK: "train.reduce"
func.func @other_ops_stay(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
