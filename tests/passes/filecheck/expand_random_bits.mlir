// PASS: expand-random-bits
// CHECK-LABEL: func.func @words
// CHECK-NOT: train.random_bits
// CHECK-COUNT-5: "train.slice"
// CHECK: "train.map"
// CHECK: train.index
// CHECK-COUNT-20: arith.muli
// CHECK-NOT: arith.muli
func.func @words(%key: tensor<5xi32>) -> tensor<3x5xi32> {
  %0 = "train.random_bits"(%key) {shape = array<i64: 3, 5>} : (tensor<5xi32>) -> tensor<3x5xi32>
  return %0 : tensor<3x5xi32>
}

// CHECK-LABEL: func.func @words_of_a_length_that_each_call_chooses
// CHECK-NOT: train.random_bits
// CHECK: "train.map"({{.*}}, %arg1)
func.func @words_of_a_length_that_each_call_chooses(%key: tensor<5xi32>, %like: tensor<?xf32>) -> tensor<?xi32> {
  %0 = "train.random_bits"(%key, %like) {shape = array<i64: -1>} : (tensor<5xi32>, tensor<?xf32>) -> tensor<?xi32>
  return %0 : tensor<?xi32>
}
