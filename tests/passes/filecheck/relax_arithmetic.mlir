// PASS: lower-map,lower-reduce,relax-arithmetic
// CHECK-LABEL: func.func @arithmetic_is_free
// CHECK: math.exp %{{.*}} fastmath<reassoc,arcp,contract,afn>
// CHECK: arith.divf %{{.*}} fastmath<reassoc,arcp,contract,afn>
// CHECK: arith.addf %{{.*}} fastmath<reassoc,arcp,contract,afn>
func.func @arithmetic_is_free(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = "train.map"(%x) ({
  ^bb0(%e: f32):
    %1 = math.exp %e : f32
    %2 = arith.divf %1, %e : f32
    "train.yield"(%2) : (f32) -> ()
  }) {sizes = array<i64: 4, 8>, spec = "ab->ab"} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = "train.reduce"(%0) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %3 : tensor<4xf32>
}

// CHECK-LABEL: func.func @chosen_roundings_stay
// CHECK-NOT: fastmath
func.func @chosen_roundings_stay(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "train.map"(%x) ({
  ^bb0(%e: f32):
    %1 = arith.mulf %e, %e : f32
    %2 = math.fma %e, %1, %e : f32
    "train.yield"(%2) : (f32) -> ()
  }) {sizes = array<i64: 4>, spec = "a->a"} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
