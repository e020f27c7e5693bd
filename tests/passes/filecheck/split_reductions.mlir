// PASS: split-reductions
// CHECK-LABEL: func.func @long
// CHECK: %[[RUNS:.*]] = "train.reshape"({{.*}} -> tensor<4x68x1024xf32>
// CHECK: %[[FIRST:.*]] = "train.reduce"(%[[RUNS]]) {kind = "sum"{{.*}} -> tensor<4x68xf32>
// CHECK: %[[REST:.*]] = "train.reduce"({{.*}}tensor<4x368xf32>) -> tensor<4xf32>
// CHECK: %[[ALL:.*]] = "train.concat"(%[[FIRST]], {{.*}} -> tensor<4x69xf32>
// CHECK: "train.reduce"(%[[ALL]]) {kind = "sum", spec = "ab->a"}
func.func @long(%x: tensor<4x70000xf32>) -> tensor<4xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x70000xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Two short dimensions that are long together: one after the other.
// CHECK-LABEL: func.func @long_together
// CHECK: %[[ROWS:.*]] = "train.reduce"(%arg0) {kind = "max", spec = "abc->ab"} : {{.*}} -> tensor<100x5xf32>
// CHECK: "train.reduce"(%[[ROWS]]) {kind = "max", spec = "ab->b"}
func.func @long_together(%x: tensor<100x5x1000xf32>) -> tensor<5xf32> {
  %0 = "train.reduce"(%x) {kind = "max", spec = "abc->b"} : (tensor<100x5x1000xf32>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// CHECK-LABEL: func.func @short
// CHECK-NOT: train.reshape
// CHECK: "train.reduce"(%arg0) {kind = "max", spec = "ab->b"}
func.func @short(%x: tensor<8192x3xf32>) -> tensor<3xf32> {
  %0 = "train.reduce"(%x) {kind = "max", spec = "ab->b"} : (tensor<8192x3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// A product over many tokens: each piece goes on from the one before.
// CHECK-LABEL: func.func @long_product
// CHECK: %[[A:.*]] = "train.matmul"({{.*}}) {spec = "km,kn->mn"} : (tensor<8192x3xf32>, tensor<8192x2xf32>)
// CHECK: %[[B:.*]] = "train.matmul"({{.*}}, %[[A]]) {spec = "km,kn->mn"} : (tensor<8192x3xf32>
// CHECK: "train.matmul"({{.*}}, %[[B]]) {spec = "km,kn->mn"} : (tensor<616x3xf32>
func.func @long_product(%a: tensor<17000x3xf32>, %b: tensor<17000x2xf32>) -> tensor<3x2xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "km,kn->mn"} : (tensor<17000x3xf32>, tensor<17000x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}

// CHECK-LABEL: func.func @short_product
// CHECK-NOT: train.slice
// CHECK: "train.matmul"(%arg0, %arg1)
func.func @short_product(%a: tensor<8192x3xf32>, %b: tensor<8192x2xf32>) -> tensor<3x2xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "km,kn->mn"} : (tensor<8192x3xf32>, tensor<8192x2xf32>) -> tensor<3x2xf32>
  return %0 : tensor<3x2xf32>
}
