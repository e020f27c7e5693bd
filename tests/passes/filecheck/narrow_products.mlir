// PASS: lower-map,lower-matmul,lower-barrier,narrow-products,tile-cpu
// CHECK-DAG: #[[LHS:.*]] = affine_map<(d0, d1, d2) -> (d2, d0)>
// CHECK-DAG: #[[RHS:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-LABEL: func.func @operands_are_narrow_and_sums_are_not
// CHECK-SAME: %[[START:arg2]]: tensor<64x96xf32>
// CHECK: %[[A:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<256x64xf32>) outs(%{{.*}} : tensor<256x64xbf16>)
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: %[[B:.*]] = linalg.generic {{.*}} ins(%arg1 : tensor<256x96xf32>)
// CHECK: linalg.generic {indexing_maps = [#[[LHS]], #[[RHS]], #{{.*}}], {{.*}}} ins(%[[A]], %[[B]] : {{.*}}) outs(%[[START]] : tensor<64x96xf32>) attrs = {iree.opt.data_tiling}
// CHECK: ^bb0(%[[X:.*]]: bf16, %[[Y:.*]]: bf16, %[[SUM:.*]]: f32):
// CHECK-DAG: %[[WX:.*]] = arith.extf %[[X]] : bf16 to f32
// CHECK-DAG: %[[WY:.*]] = arith.extf %[[Y]] : bf16 to f32
// CHECK: %[[P:.*]] = arith.mulf %[[WX]], %[[WY]] : f32
// CHECK: arith.addf %[[SUM]], %[[P]] : f32
// CHECK: iree_tensor_ext.compute_barrier.start
func.func @operands_are_narrow_and_sums_are_not(%a: tensor<256x64xf32>, %b: tensor<256x96xf32>, %start: tensor<64x96xf32>) -> tensor<64x96xf32> {
  %0 = "train.matmul"(%a, %b, %start) {spec = "tm,tn->mn"} : (tensor<256x64xf32>, tensor<256x96xf32>, tensor<64x96xf32>) -> tensor<64x96xf32>
  return %0 : tensor<64x96xf32>
}

// Packing costs more than the product wins: few rows (decoding), a vector, a product of many small matrices.
// CHECK-LABEL: func.func @others_stay
// CHECK-NOT: bf16
// CHECK-COUNT-2: compilation_info
// CHECK-NOT: bf16
func.func @others_stay(%few: tensor<8x256xf32>, %w: tensor<256x512xf32>, %v: tensor<256xf32>, %x: tensor<8x64x64xf32>) -> (tensor<8x512xf32>, tensor<512xf32>, tensor<8x64x64xf32>) {
  %0 = "train.matmul"(%few, %w) {spec = "tk,kn->tn"} : (tensor<8x256xf32>, tensor<256x512xf32>) -> tensor<8x512xf32>
  %1 = "train.matmul"(%v, %w) {spec = "k,kn->n"} : (tensor<256xf32>, tensor<256x512xf32>) -> tensor<512xf32>
  %2 = "train.matmul"(%x, %x) {spec = "xik,xkj->xij"} : (tensor<8x64x64xf32>, tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  return %0, %1, %2 : tensor<8x512xf32>, tensor<512xf32>, tensor<8x64x64xf32>
}

// A transposed weight is rounded where it lies: what its barrier holds is not written in float32 first. A barrier with
// other readers stays.
// CHECK-LABEL: func.func @a_barrier_of_the_product_alone_goes
// CHECK-SAME: %[[X:arg0]]: tensor<128x64xf32>, %[[W:arg1]]: tensor<96x64xf32>
// CHECK: %[[TURNED:.*]] = linalg.generic {{.*}} ins(%[[W]] : tensor<96x64xf32>)
// CHECK: %[[KEPT:.*]] = iree_tensor_ext.compute_barrier.start %[[X]]
// CHECK-DAG: ins(%[[KEPT]] : tensor<128x64xf32>) outs(%{{.*}} : tensor<128x64xbf16>)
// CHECK-DAG: ins(%[[TURNED]] : tensor<64x96xf32>) outs(%{{.*}} : tensor<64x96xbf16>)
func.func @a_barrier_of_the_product_alone_goes(%x: tensor<128x64xf32>, %w: tensor<96x64xf32>) -> (tensor<128x96xf32>, tensor<128x64xf32>) {
  %0 = "train.map"(%w) ({
  ^bb0(%e: f32):
    "train.yield"(%e) : (f32) -> ()
  }) {sizes = array<i64: 64, 96>, spec = "nk->kn"} : (tensor<96x64xf32>) -> tensor<64x96xf32>
  %1 = "train.barrier"(%0) : (tensor<64x96xf32>) -> tensor<64x96xf32>
  %2 = "train.barrier"(%x) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  %3 = "train.matmul"(%2, %1) {spec = "tk,kn->tn"} : (tensor<128x64xf32>, tensor<64x96xf32>) -> tensor<128x96xf32>
  return %3, %2 : tensor<128x96xf32>, tensor<128x64xf32>
}
