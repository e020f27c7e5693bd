// PASS: pack-panels
// CHECK-LABEL: func.func @wide
// CHECK: %[[LEFT:.*]] = "train.barrier"(%arg0)
// CHECK: %[[APART:.*]] = "train.reshape"(%[[LEFT]]){{.*}} -> tensor<512x256x8xf32>
// CHECK: "train.map"(%[[APART]]){{.*}}
// CHECK: spec = "kjp->jkp"
// CHECK: %[[PANELS:.*]] = "train.barrier"
// CHECK: %[[OUT:.*]] = "train.matmul"(%[[PANELS]], %arg1) {spec = "jkp,kn->jpn"}
// CHECK: "train.reshape"(%[[OUT]]){{.*}} -> tensor<2048x16xf32>
func.func @wide(%a: tensor<512x2048xf32>, %b: tensor<512x16xf32>) -> tensor<2048x16xf32> {
  %0 = "train.matmul"(%a, %b) {spec = "tn,tk->nk"} : (tensor<512x2048xf32>, tensor<512x16xf32>) -> tensor<2048x16xf32>
  return %0 : tensor<2048x16xf32>
}

// CHECK-LABEL: func.func @continued
// CHECK: %[[START:.*]] = "train.reshape"(%arg2){{.*}} -> tensor<256x8x16xf32>
// CHECK: "train.matmul"({{.*}}, %arg1, %[[START]]) {spec = "jkp,kn->jpn"}
func.func @continued(%a: tensor<512x2048xf32>, %b: tensor<512x16xf32>, %c: tensor<2048x16xf32>) -> tensor<2048x16xf32> {
  %0 = "train.matmul"(%a, %b, %c) {spec = "tn,tk->nk"} : (tensor<512x2048xf32>, tensor<512x16xf32>, tensor<2048x16xf32>) -> tensor<2048x16xf32>
  return %0 : tensor<2048x16xf32>
}

// A left side that is not transposed, one of short rows, one of few rows, and one that makes no whole panels.
// CHECK-LABEL: func.func @others
// CHECK-NOT: jkp
func.func @others(%a: tensor<2048x512xf32>, %b: tensor<512x16xf32>, %c: tensor<512x1024xf32>, %d: tensor<64x2048xf32>, %e: tensor<64x16xf32>, %f: tensor<512x2052xf32>) -> (tensor<2048x16xf32>, tensor<1024x16xf32>, tensor<2048x16xf32>, tensor<2052x16xf32>) {
  %0 = "train.matmul"(%a, %b) {spec = "tk,kn->tn"} : (tensor<2048x512xf32>, tensor<512x16xf32>) -> tensor<2048x16xf32>
  %1 = "train.matmul"(%c, %b) {spec = "tn,tk->nk"} : (tensor<512x1024xf32>, tensor<512x16xf32>) -> tensor<1024x16xf32>
  %2 = "train.matmul"(%d, %e) {spec = "tn,tk->nk"} : (tensor<64x2048xf32>, tensor<64x16xf32>) -> tensor<2048x16xf32>
  %3 = "train.matmul"(%f, %b) {spec = "tn,tk->nk"} : (tensor<512x2052xf32>, tensor<512x16xf32>) -> tensor<2052x16xf32>
  return %0, %1, %2, %3 : tensor<2048x16xf32>, tensor<1024x16xf32>, tensor<2048x16xf32>, tensor<2052x16xf32>
}
