// PASS: lower-matmul,lower-reduce,tile-cpu
// CHECK-LABEL: func.func @product_gets_tiles
// CHECK: linalg.generic
// CHECK-SAME: compilation_info = #{{.*}}
func.func @product_gets_tiles(%a: tensor<2048x256xf32>, %b: tensor<256x512xf32>) -> tensor<2048x512xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "tk,kn->tn"} : (tensor<2048x256xf32>, tensor<256x512xf32>) -> tensor<2048x512xf32>
  return %0 : tensor<2048x512xf32>
}

// CHECK-LABEL: func.func @a_reduction_gets_none
// CHECK: linalg.generic
// CHECK-NOT: compilation_info
// CHECK: return
func.func @a_reduction_gets_none(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
