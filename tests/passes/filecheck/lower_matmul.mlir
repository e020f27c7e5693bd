// PASS: lower-matmul
// CHECK-DAG: #[[LHS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1)>
// CHECK-DAG: #[[RHS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
// CHECK-DAG: #[[OUT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @batched_transposed_left
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #[[OUT]]], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
// CHECK: %[[P:.*]] = arith.mulf
// CHECK: arith.addf %{{.*}}, %[[P]]
func.func @batched_transposed_left(%a: tensor<2x8x4xf32>, %b: tensor<2x8x5xf32>) -> tensor<2x4x5xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "xki,xkj->xij"} : (tensor<2x8x4xf32>, tensor<2x8x5xf32>) -> tensor<2x4x5xf32>
  return %0 : tensor<2x4x5xf32>
}

// CHECK-LABEL: func.func @other_ops_stay
// CHECK: "train.barrier"
func.func @other_ops_stay(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.barrier"(%a) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @continued_sum
// CHECK-NOT: linalg.fill
// CHECK: linalg.generic {{.*}} outs(%arg2
func.func @continued_sum(%a: tensor<3x4xf32>, %b: tensor<4x5xf32>, %start: tensor<3x5xf32>) -> tensor<3x5xf32> {
  %0 = "train.matmul"(%a, %b, %start) {spec = "tk,kn->tn"} : (tensor<3x4xf32>, tensor<4x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}
