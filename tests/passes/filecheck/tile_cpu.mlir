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

// The loops are c, y, p, d: what one of them is in the product decides its tile, not its place.
// CHECK-LABEL: func.func @states_carried_over_chunks
// CHECK: linalg.generic
// CHECK-SAME: compilation_info = #[[CARRY:.*]]}
func.func @states_carried_over_chunks(%a: tensor<64x4x3xf32>, %b: tensor<3x64x8192xf32>) -> tensor<4x64x8192xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "ycd,dyp->cyp"} : (tensor<64x4x3xf32>, tensor<3x64x8192xf32>) -> tensor<4x64x8192xf32>
  return %0 : tensor<4x64x8192xf32>
}
