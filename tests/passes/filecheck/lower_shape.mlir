// PASS: lower-shape
// CHECK-LABEL: func.func @reshape_across_groups
// CHECK: tensor.collapse_shape %arg0 {{\[}}[0, 1], [2]]
// CHECK: tensor.expand_shape %{{.*}} {{\[}}[0], [1, 2]]
func.func @reshape_across_groups(%x: tensor<2x3x4xf32>) -> tensor<6x2x2xf32> {
  %0 = "train.reshape"(%x) {shape = array<i64: 6, 2, 2>} : (tensor<2x3x4xf32>) -> tensor<6x2x2xf32>
  return %0 : tensor<6x2x2xf32>
}

// CHECK-LABEL: func.func @strided_slice
// CHECK: tensor.extract_slice %arg0[1] [2] [3]
func.func @strided_slice(%x: tensor<8xf32>) -> tensor<2xf32> {
  %0 = "train.slice"(%x) {sizes = array<i64: 2>, starts = array<i64: 1>, strides = array<i64: 3>} : (tensor<8xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// CHECK-LABEL: func.func @join
// CHECK: tensor.insert_slice %arg0 into %{{.*}}[0] [2] [1]
// CHECK: tensor.insert_slice %arg1 into %{{.*}}[2] [3] [1]
func.func @join(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<5xf32> {
  %0 = "train.concat"(%a, %b) {axis = 0 : i64} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK-LABEL: func.func @zeros_around
// CHECK: tensor.pad %arg0 low[1] high[2]
func.func @zeros_around(%a: tensor<2xf32>) -> tensor<5xf32> {
  %0 = "train.pad"(%a) {high = array<i64: 2>, low = array<i64: 1>} : (tensor<2xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK-LABEL: func.func @other_ops_stay
// CHECK: "train.barrier"
func.func @other_ops_stay(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.barrier"(%a) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// CHECK-LABEL: func.func @reshape_beside_a_dynamic_dimension
// CHECK: %[[ROWS:.*]] = tensor.dim %arg0, %c0
// CHECK: tensor.expand_shape %arg0 {{\[}}[0], [1, 2]] output_shape [%[[ROWS]], 3, 4]
func.func @reshape_beside_a_dynamic_dimension(%x: tensor<?x12xf32>) -> tensor<?x3x4xf32> {
  %0 = "train.reshape"(%x) {shape = array<i64: -1, 3, 4>} : (tensor<?x12xf32>) -> tensor<?x3x4xf32>
  return %0 : tensor<?x3x4xf32>
}
