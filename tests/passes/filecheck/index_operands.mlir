// PASS: index-operands
// CHECK-LABEL: func.func @positions
// CHECK: %[[COLUMNS:.*]] = "train.constant"() {dtype = "i32", value = dense<[0, 1, 2]> : tensor<3xi32>}
// CHECK: "train.map"(%arg0, %[[COLUMNS]]) ({
// CHECK: ^bb0(%[[X:.*]]: f32, %[[I:.*]]: i32):
// CHECK-NOT: train.index
// CHECK: arith.cmpi eq, %[[I]]
// CHECK: spec = "ab,b->ab"
func.func @positions(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %0 = "train.map"(%x) ({
  ^bb0(%e: f32):
    %i = "train.index"() {dim = 1 : i64} : () -> i32
    %j = "train.index"() {dim = 1 : i64} : () -> i32
    %c = arith.cmpi eq, %i, %j : i32
    %n = arith.negf %e : f32
    %s = arith.select %c, %e, %n : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 2, 3>, spec = "ab->ab"} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %0 : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @of_one_scalar
// CHECK: "train.map"(%arg0, %{{.*}})
// CHECK: spec = ".,a->a"
func.func @of_one_scalar(%x: tensor<i32>) -> tensor<4xi32> {
  %0 = "train.map"(%x) ({
  ^bb0(%e: i32):
    %i = "train.index"() {dim = 0 : i64} : () -> i32
    %s = arith.addi %i, %e : i32
    "train.yield"(%s) : (i32) -> ()
  }) {sizes = array<i64: 4>, spec = ".->a"} : (tensor<i32>) -> tensor<4xi32>
  return %0 : tensor<4xi32>
}

// A flat count stays computed, and so does what has no position.
// CHECK-LABEL: func.func @long_and_none
// CHECK-NOT: train.constant
// CHECK: "train.index"() {dim = 0 : i64}
func.func @long_and_none(%x: tensor<3xf32>) -> (tensor<70000xi32>, tensor<3xf32>) {
  %0 = "train.map"() ({
    %i = "train.index"() {dim = 0 : i64} : () -> i32
    "train.yield"(%i) : (i32) -> ()
  }) {sizes = array<i64: 70000>, spec = "->a"} : () -> tensor<70000xi32>
  %1 = "train.map"(%x) ({
  ^bb0(%e: f32):
    %s = arith.negf %e : f32
    "train.yield"(%s) : (f32) -> ()
  }) {sizes = array<i64: 3>, spec = "a->a"} : (tensor<3xf32>) -> tensor<3xf32>
  return %0, %1 : tensor<70000xi32>, tensor<3xf32>
}
