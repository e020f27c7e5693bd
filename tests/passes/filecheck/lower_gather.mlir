// PASS: lower-gather
// CHECK-LABEL: func.func @rows_by_index
// CHECK: linalg.generic
// CHECK: tensor.extract %arg0
func.func @rows_by_index(%t: tensor<7x4xf32>, %ids: tensor<3xi32>) -> tensor<3x4xf32> {
  %0 = "train.gather"(%t, %ids) {axis = 0 : i64} : (tensor<7x4xf32>, tensor<3xi32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @sums_into_rows
// CHECK: iree_linalg_ext.scatter
// CHECK-SAME: unique_indices(false)
// CHECK: arith.addf
func.func @sums_into_rows(%u: tensor<3x4xf32>, %ids: tensor<3xi32>) -> tensor<7x4xf32> {
  %0 = "train.scatter_add"(%u, %ids) {rows = 7 : i64} : (tensor<3x4xf32>, tensor<3xi32>) -> tensor<7x4xf32>
  return %0 : tensor<7x4xf32>
}

// CHECK-LABEL: func.func @rows_put_in
// CHECK: tensor.extract %arg2
// CHECK: tensor.insert_slice %arg1 into %arg0[0, %{{.*}}] [3, 2] [1, 1]
func.func @rows_put_in(%t: tensor<3x7xf32>, %rows: tensor<3x2xf32>, %start: tensor<i32>) -> tensor<3x7xf32> {
  %0 = "train.put_rows"(%t, %rows, %start) {axis = 1 : i64} : (tensor<3x7xf32>, tensor<3x2xf32>, tensor<i32>) -> tensor<3x7xf32>
  return %0 : tensor<3x7xf32>
}

// CHECK-LABEL: func.func @other_ops_stay
// CHECK: "train.barrier"
func.func @other_ops_stay(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.barrier"(%a) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
