// PASS: lower-map
// CHECK-DAG: #[[ROW:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG: #[[SWAP:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-DAG: #[[SAME:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @reads_by_notation
// CHECK: linalg.generic {indexing_maps = [#[[ROW]], #[[SWAP]], #[[SAME]], #[[SAME]]], iterator_types = ["parallel", "parallel"]}
// CHECK: arith.mulf
// CHECK: linalg.yield %{{.*}}, %{{.*}} : f32, f32
func.func @reads_by_notation(%r: tensor<4xf32>, %x: tensor<8x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %0:2 = "train.map"(%r, %x) ({
  ^bb0(%a: f32, %b: f32):
    %s = arith.mulf %a, %b : f32
    "train.yield"(%s, %b) : (f32, f32) -> ()
  }) {sizes = array<i64: 4, 8>, spec = "a,ba->ab"} : (tensor<4xf32>, tensor<8x4xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>)
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<4x8xf32>
}

// CHECK-LABEL: func.func @position
// CHECK: linalg.index 1 : index
// CHECK: arith.index_cast
func.func @position() -> tensor<2x3xi32> {
  %0 = "train.map"() ({
    %i = "train.index"() {dim = 1 : i64} : () -> i32
    "train.yield"(%i) : (i32) -> ()
  }) {sizes = array<i64: 2, 3>, spec = "->ab"} : () -> tensor<2x3xi32>
  return %0 : tensor<2x3xi32>
}

// CHECK-LABEL: func.func @other_ops_stay
// CHECK: "train.barrier"
func.func @other_ops_stay(%a: tensor<3xf32>) -> tensor<3xf32> {
  %0 = "train.barrier"(%a) : (tensor<3xf32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}
