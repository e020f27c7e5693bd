// PASS: add-rows-by-product
// CHECK-LABEL: func.func @embedding_gradient
// CHECK-NOT: train.scatter_add
// CHECK: %[[ROWS:.*]] = "train.barrier"({{.*}}tensor<9xi32>
// CHECK: %[[ZERO:.*]] = "train.fill"() {{.*}}tensor<9x4xf32>
// CHECK: %[[GOES:.*]] = "train.map"({{.*}}, %[[ROWS]])
// CHECK: arith.cmpi eq
// CHECK: "train.matmul"(%[[GOES]], {{.*}}, %[[ZERO]]) {spec = "nr,nc->rc"}
func.func @embedding_gradient(%x: tensor<6x4xf32>, %ids: tensor<6xi32>) -> tensor<9x4xf32> {
  %0 = "train.scatter_add"(%x, %ids) {rows = 9 : i64} : (tensor<6x4xf32>, tensor<6xi32>) -> tensor<9x4xf32>
  return %0 : tensor<9x4xf32>
}

// 2**24 elements of the matrix at a time: 128 rows, and what is left.
// CHECK-LABEL: func.func @large_vocabulary
// CHECK: -> tensor<128x131072xf32>
// CHECK: %[[FIRST:.*]] = "train.matmul"({{.*}}tensor<128x131072xf32>
// CHECK: -> tensor<72x131072xf32>
// CHECK: "train.matmul"({{.*}}, %[[FIRST]]) {{.*}}tensor<72x131072xf32>
func.func @large_vocabulary(%x: tensor<200x4xf32>, %ids: tensor<200xi32>) -> tensor<131072x4xf32> {
  %0 = "train.scatter_add"(%x, %ids) {rows = 131072 : i64} : (tensor<200x4xf32>, tensor<200xi32>) -> tensor<131072x4xf32>
  return %0 : tensor<131072x4xf32>
}
