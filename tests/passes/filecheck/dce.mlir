// PASS: dce
// CHECK-LABEL: func.func @dead_chain_goes
// CHECK-NOT: train.reduce
// CHECK-NOT: train.barrier
// CHECK: return %arg0
func.func @dead_chain_goes(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "train.barrier"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "train.reduce"(%0) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %x : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @used_stays
// CHECK: %[[R:.*]] = "train.reduce"
// CHECK: return %[[R]]
func.func @used_stays(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %1 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}
