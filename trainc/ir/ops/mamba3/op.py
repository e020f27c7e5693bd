"""mamba3 and mamba3_continue: the mixer of a Mamba-3 block as layer ops.

The backward op repeats the forward pass op by op before its own work: the cse pass then finds every one of those
computed already by the forward op of the same program, so nothing is computed twice.
"""

from collections.abc import Sequence

from trainc.core.errors import ShapeError
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_shape
from trainc.ir.ops.mamba3.backward import backward
from trainc.ir.ops.mamba3.forward import forward, weights
from trainc.ir.ops.mamba3.parts import parts
from trainc.ir.ops.mamba3.reference import continue_reference, mamba3_reference
from trainc.ir.ops.mamba3.resume import next_state, starting_state
from trainc.ir.ops.mamba3.sizes import ANGLES, HEAD, STATE, Sizes
from trainc.ir.ops.mamba3.step import step
from trainc.ir.ops.mamba3.tokens import tokens
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor

_WEIGHTS = ("dt_bias", "b_norm", "c_norm", "b_bias", "c_bias", "d")


def _sizes(u: Aval | Tensor, d: Aval | Tensor) -> Sizes:
    return Sizes(u.shape[0], u.shape[1], d.shape[0])


def _infer(u: Aval, dt_bias: Aval, b_norm: Aval, c_norm: Aval, b_bias: Aval, c_bias: Aval, d: Aval) -> list[Aval]:
    expect_float("u", u)
    expect_rank("u", u, 3, "(B, L, W)")
    expect_rank("d", d, 1, "(H,)")
    sizes = _sizes(u, d)
    if u.shape[2] != sizes.width:
        raise ShapeError(f"expected u (B, L, {sizes.width}) for {sizes.heads} heads, got {u.shape}")
    per_head, per_channel, both = (sizes.heads,), (STATE,), (sizes.heads, STATE)
    shapes = (per_head, per_channel, per_channel, both, both, per_head)
    for name, operand, shape in zip(_WEIGHTS, (dt_bias, b_norm, c_norm, b_bias, c_bias, d), shapes, strict=True):
        expect_dtype(name, operand, u.dtype)
        expect_shape(name, operand, shape)
    return [Aval((*u.shape[:2], sizes.inner), u.dtype)]


def _decompose(
    u: Tensor, dt_bias: Tensor, b_norm: Tensor, c_norm: Tensor, b_bias: Tensor, c_bias: Tensor, d: Tensor
) -> Tensor:
    sizes = _sizes(u, d)
    part, weight = parts(u, sizes), weights(dt_bias, b_norm, c_norm, b_bias, c_bias, d)
    return forward(part, weight, tokens(part, dt_bias, sizes), sizes).o


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    (d_o,) = d_results
    assert d_o is not None
    return emit(MAMBA3_GRAD, [*call.operands, d_o])


MAMBA3 = register(
    OpDef("mamba3", ("u", *_WEIGHTS), _infer, reference=mamba3_reference, decompose=_decompose, backward=_backward)
)


def mamba3(
    u: Tensor, dt_bias: Tensor, b_norm: Tensor, c_norm: Tensor, b_bias: Tensor, c_bias: Tensor, d: Tensor
) -> Tensor:
    """Return the Mamba-3 mixer of a whole sequence, from the zero state (spec section 2).

    With B, C, x, z and the per-token dt, A, lam and angle cut out of u, per head:

        k_t = Rot(norm(B_t) + b_bias, theta_t),   q_t = Rot(norm(C_t) + c_bias, theta_t),   v_t = x_t
        h_t = alpha_t h_{t-1} + beta_t v_{t-1} k_{t-1}^T + gamma_t v_t k_t^T
        o_t = (h_t q_t + d v_t) silu(z_t)
        alpha_t = exp(A_t dt_t),   beta_t = (1 - lam_t) dt_t alpha_t,   gamma_t = lam_t dt_t

    Args:
        u: (B, L, W), float, W = 2*64*H + 2*128 + 3*H + 32: z, x, B, C, dd_dt, dd_A, trap and angle.
        dt_bias: (H), added to dd_dt before softplus.
        b_norm: (128), weight of the norm of B.
        c_norm: (128), weight of the norm of C.
        b_bias: (H, 128), added to the normed B.
        c_bias: (H, 128), added to the normed C.
        d: (H), weight of the direct term.

    Returns:
        o (B, L, 64*H).

    Raises:
        ShapeError: The width of u does not fit the number of heads, or a weight has another shape.
        DtypeError: The operands are not floats of one dtype.
    """
    return emit(MAMBA3, [u, dt_bias, b_norm, c_norm, b_bias, c_bias, d])[0]


def _infer_grad(
    u: Aval, dt_bias: Aval, b_norm: Aval, c_norm: Aval, b_bias: Aval, c_bias: Aval, d: Aval, d_o: Aval
) -> list[Aval]:
    operands = [u, dt_bias, b_norm, c_norm, b_bias, c_bias, d]
    (o,) = _infer(*operands)
    expect_dtype("d_o", d_o, o.dtype)
    expect_shape("d_o", d_o, o.shape)
    return operands


def _decompose_grad(
    u: Tensor, dt_bias: Tensor, b_norm: Tensor, c_norm: Tensor, b_bias: Tensor, c_bias: Tensor, d: Tensor, d_o: Tensor
) -> tuple[Tensor, ...]:
    sizes = _sizes(u, d)
    part, weight = parts(u, sizes), weights(dt_bias, b_norm, c_norm, b_bias, c_bias, d)
    token = tokens(part, dt_bias, sizes)
    return backward(part, weight, token, forward(part, weight, token, sizes), d_o, sizes)


MAMBA3_GRAD = register(OpDef("mamba3_grad", ("u", *_WEIGHTS, "d_o"), _infer_grad, decompose=_decompose_grad))


def _infer_continue(
    u: Aval,
    dt_bias: Aval,
    b_norm: Aval,
    c_norm: Aval,
    b_bias: Aval,
    c_bias: Aval,
    d: Aval,
    theta: Aval,
    h: Aval,
    k_last: Aval,
    v_last: Aval,
    length: Aval,
) -> list[Aval]:
    results = _infer(u, dt_bias, b_norm, c_norm, b_bias, c_bias, d)
    pair = (u.shape[0], d.shape[0])
    state = {
        "theta": (theta, (ANGLES,)),
        "h": (h, (HEAD, STATE)),
        "k_last": (k_last, (STATE,)),
        "v_last": (v_last, (HEAD,)),
    }
    for name, (operand, shape) in state.items():
        expect_dtype(name, operand, u.dtype)
        expect_shape(name, operand, (*pair, *shape))
    expect_dtype("length", length, "i32")
    expect_shape("length", length, ())
    return [*results, theta, h, k_last, v_last]


def _decompose_continue(
    u: Tensor,
    dt_bias: Tensor,
    b_norm: Tensor,
    c_norm: Tensor,
    b_bias: Tensor,
    c_bias: Tensor,
    d: Tensor,
    theta: Tensor,
    h: Tensor,
    k_last: Tensor,
    v_last: Tensor,
    length: Tensor,
) -> tuple[Tensor, ...]:
    sizes = _sizes(u, d)
    if sizes.length == 1:  # then length is 1, too
        return step(u, dt_bias, b_norm, c_norm, b_bias, c_bias, d, theta, h, k_last, v_last, sizes)
    part, weight = parts(u, sizes), weights(dt_bias, b_norm, c_norm, b_bias, c_bias, d)
    token = tokens(part, dt_bias, sizes, length)
    start = starting_state(token, sizes, theta, h, k_last, v_last)
    done = forward(part, weight, token, sizes, start)
    return done.o, *next_state(part, done, sizes, length)


MAMBA3_CONTINUE = register(
    OpDef(
        "mamba3_continue",
        ("u", *_WEIGHTS, "theta", "h", "k_last", "v_last", "length"),
        _infer_continue,
        reference=continue_reference,
        decompose=_decompose_continue,
    )
)


def mamba3_continue(
    u: Tensor,
    dt_bias: Tensor,
    b_norm: Tensor,
    c_norm: Tensor,
    b_bias: Tensor,
    c_bias: Tensor,
    d: Tensor,
    theta: Tensor,
    h: Tensor,
    k_last: Tensor,
    v_last: Tensor,
    length: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the mixer of more rows of a sequence, and the state after them; `mamba3` has the formulas.

    All zeros are the state before a sequence. There is no gradient.

    Args:
        u: (B, T, W), float.
        dt_bias: (H).
        b_norm: (128).
        c_norm: (128).
        b_bias: (H, 128).
        c_bias: (H, 128).
        d: (H).
        theta: (B, H, 32), angles of the last row so far.
        h: (B, H, 64, 128), state after it, in the channel order of B and C.
        k_last: (B, H, 128), its rotated key, in the same order.
        v_last: (B, H, 64), its value.
        length: i32 scalar in [1, T], rows of u that count; the caller checks it.

    Returns:
        o (B, T, 64*H), finite but meaningless on rows from `length` on, and theta (in [0, 2 pi)), h, k_last and
        v_last after row length - 1.

    Raises:
        ShapeError: An operand's shape does not fit.
        DtypeError: The operands are not floats of one dtype, or length is not i32.
    """
    operands = [u, dt_bias, b_norm, c_norm, b_bias, c_bias, d, theta, h, k_last, v_last, length]
    o, theta, h, k_last, v_last = emit(MAMBA3_CONTINUE, operands)
    return o, theta, h, k_last, v_last
