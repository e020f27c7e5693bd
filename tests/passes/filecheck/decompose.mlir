// PASS: decompose
// CHECK-LABEL: func.func @layer_op_becomes_primitives
// CHECK-NOT: train.add
// CHECK: "train.map"(%arg0, %arg1)
// CHECK: arith.addf
func.func @layer_op_becomes_primitives(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.add"(%a, %b) : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @primitive_stays
// CHECK: "train.barrier"
func.func @primitive_stays(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.barrier"(%a) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
