"""SambaStack without a compiled step: how it is built, its weights, and every input it refuses."""

import array
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.samba import stacks
from tests.samba.stacks import MAMBA, PLAIN, TINY, Halving, batch, snapshot, stack
from trainc.core.errors import NotFiniteError, UnsupportedError
from trainc.frontends.generator import Generator
from trainc.frontends.samba.buckets import LoadedShapes, Shape, piece
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.init import initial_weights
from trainc.frontends.samba.stack import SambaStack
from trainc.runtime.program import Program

IDS, TARGETS = batch()


def odd_heads() -> SambaConfig:
    return SambaConfig(61, 36, ("attention",), n_heads=4, head_dim=9, intermediate=8)


def uneven_groups() -> SambaConfig:
    return SambaConfig(61, 32, ("attention",), n_heads=4, n_kv_heads=3, intermediate=8)


# The types that golden/samba.json lists under "errors" for stacks, and the other refusals of the constructor.
@pytest.mark.parametrize(
    ("error", "config", "options"),
    [
        (ValueError, TINY, {}),  # stack none
        (ValueError, TINY, {"weights": {}, "generator": Generator(0)}),
        (TypeError, {"vocab": 61}, {"generator": Generator(0)}),  # stack cfg type
        (ValueError, odd_heads(), {"generator": Generator(0)}),  # odd head_dim
        (ValueError, uneven_groups(), {"generator": Generator(0)}),
        (TypeError, TINY, {"generator": np.random.default_rng(0)}),
        (TypeError, TINY, {"weights": [1.0]}),
        (ValueError, TINY, {"weights": {}}),
        (ValueError, TINY, {"generator": Generator(0), "accumulation_steps": 3}),
        (ValueError, TINY, {"generator": Generator(0), "accumulation_steps": 0}),
        (ValueError, TINY, {"generator": Generator(0), "accumulation_steps": 2.0}),
        (TypeError, TINY, {"generator": Generator(0), "lr_schedule": 0.1}),  # sched no lr_at
        (ValueError, TINY, {"generator": Generator(0), "max_norm": 0.0}),
        (ValueError, TINY, {"generator": Generator(0), "betas": (0.9, 1.0)}),
        (ValueError, TINY, {"generator": Generator(0), "lr": float("nan")}),
        (ValueError, TINY, {"generator": Generator(0), "numeric_mode": "bogus"}),  # numeric_mode bogus
        (NotImplementedError, TINY, {"generator": Generator(0), "numeric_mode": "identical"}),
    ],
)
def test_the_constructor_refuses(error: type[Exception], config: Any, options: dict[str, Any]) -> None:
    with pytest.raises(error):
        SambaStack(config, **options)
    generator = options.get("generator")
    if isinstance(generator, Generator):
        assert generator.counter == 0


def test_identical_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="'identical'"):
        stack(numeric_mode="identical")


def test_the_generator_draws_the_weights_and_stays_the_stack_s() -> None:
    generator = Generator(3)
    made = SambaStack(TINY, generator=generator)
    wanted = initial_weights(TINY, Generator(3))
    assert made.generator is generator
    assert generator.counter == 12  # embedding, head, three of the mamba3 layer, seven of the attention layer
    assert {name: view.tobytes() for name, view in made.parameters().items()} == {
        name: value.tobytes() for name, value in wanted.items()
    }


def test_given_weights_are_copied_and_draw_from_seed_0() -> None:
    weights = initial_weights(MAMBA, Generator(3))
    made = SambaStack(MAMBA, weights)
    weights["embed.weight"][:] = 0
    assert made.parameters()["embed.weight"].any()
    assert made.generator.state_dict() == {"seed": 0, "counter": 0}


def test_the_attributes_describe_the_flat_form() -> None:
    made = stack(numeric_mode="deterministic")
    assert [*zip(made.names, made.shapes, strict=True)] == TINY.registry()
    assert made.n_total == TINY.parameter_count == made.flat.size
    flat = made.flat
    for name, shape, offset, view in zip(made.names, made.shapes, made.offsets, made.arrays, strict=True):
        part = flat[offset : offset + view.size].reshape(shape)
        assert part.tobytes() == made.parameters()[name].tobytes() == view.tobytes()
    assert (made.max_norm, made.numeric_mode, made.last_, made.optimizer.t) == (None, "deterministic", None, 0)
    assert made.optimizer.exp_avg.shape == made.optimizer.exp_avg_sq.shape == (made.n_total,)
    with pytest.raises(ValueError, match="read-only"):
        flat[0] = 1.0


def test_parameters_are_live_views() -> None:
    made = stack(MAMBA)
    made.parameters()["layers.0.D"][:] = 5.0
    assert made.parameters()["layers.0.D"].tolist() == [5.0]
    assert made.flat[made.offsets[made.names.index("layers.0.D")]] == 5.0


def test_load_weights_takes_any_float32_buffers() -> None:
    made = stack(MAMBA)
    weights: dict[str, Any] = initial_weights(MAMBA, Generator(8))
    wanted = {name: value.tobytes() for name, value in weights.items()}
    weights["norm_f.weight"] = array.array("f", weights["norm_f.weight"])
    weights["embed.weight"] = np.asfortranarray(weights["embed.weight"])
    made.load_weights(weights)
    assert {name: value.tobytes() for name, value in made.parameters().items()} == wanted


def test_load_weights_of_its_own_views_crosswise() -> None:
    made = stack(MAMBA)
    weights = made.parameters()
    norms = ("layers.0.B_norm.weight", "layers.0.C_norm.weight")
    for value, name in enumerate(norms):
        weights[name][:] = value
    made.load_weights({**weights, norms[0]: weights[norms[1]], norms[1]: weights[norms[0]]})
    assert [float(made.parameters()[name][0]) for name in norms] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (TypeError, lambda w: list(w.values())),
        (ValueError, lambda w: {name: w[name] for name in list(w)[1:]}),
        (ValueError, lambda w: w | {"more": w["norm_f.weight"]}),
        (ValueError, lambda w: w | {"embed.weight": w["embed.weight"].T.copy()}),
        (ValueError, lambda w: w | {"embed.weight": w["embed.weight"].ravel()}),
        (TypeError, lambda w: w | {"norm_f.weight": w["norm_f.weight"].astype(np.float64)}),
        (TypeError, lambda w: w | {"norm_f.weight": w["norm_f.weight"].astype(np.float16)}),
        (TypeError, lambda w: w | {"norm_f.weight": w["norm_f.weight"].tolist()}),
        (NotFiniteError, lambda w: w | {"norm_f.weight": np.full(32, np.nan, np.float32)}),
        (ValueError, lambda w: w | {"norm_f.weight": np.full(32, np.inf, np.float32)}),
    ],
)
def test_load_weights_refuses_and_changes_nothing(error: type[Exception], change: Any) -> None:
    made = stack(MAMBA)
    before = snapshot(made)
    with pytest.raises(error):
        made.load_weights(change(initial_weights(MAMBA, Generator(8))))
    assert snapshot(made) == before


BAD_IDS = {
    "float ids": IDS.astype(np.float32),
    "bools": IDS > 3,
    "list of floats": [[1.0, 2.0]],
    "ids>=vocab": np.full((4, 8), TINY.vocab),
    "negative": np.full((4, 8), -1),
    "one row": IDS[0],
    "three axes": IDS[None],
    "no rows": np.zeros((0, 8), int),
    "no tokens": np.zeros((4, 0), int),
    "ragged": [[1, 2], [3]],
    "huge": np.full((4, 8), 2**63, np.uint64),
}


@pytest.mark.parametrize("name", BAD_IDS)
def test_bad_ids_are_value_errors_everywhere(name: str) -> None:
    made, bad = stack(), BAD_IDS[name]
    before = snapshot(made)
    state = made.allocate_state(4, 16)
    calls = [
        lambda: made.forward(bad),
        lambda: made.forward(bad, state),
        lambda: made.forward(bad, lengths=[8] * 4),
        lambda: made.loss(bad, TARGETS),
        lambda: made.loss_and_grads(bad, TARGETS),
        lambda: made.train_step(bad, TARGETS),
    ]
    if name not in ("one row",):
        calls.append(lambda: made.step(bad, state))
    for call in calls:
        with pytest.raises(ValueError):
            call()
    assert snapshot(made) == before
    assert state.position == 0


@pytest.mark.parametrize(
    "targets",
    [TARGETS[:, :-1], TARGETS[:2], TARGETS.astype(float), np.full((4, 8), TINY.vocab), np.full((4, 8), -1)],
)
def test_bad_targets_are_value_errors(targets: Any) -> None:
    made = stack()
    for call in (made.loss, made.loss_and_grads, made.train_step):
        with pytest.raises(ValueError):
            call(IDS, targets)


@pytest.mark.parametrize("lengths", [[8] * 3, [0, 8, 8, 8], [9, 8, 8, 8], [-1, 8, 8, 8], [1.0, 2, 3, 4], 8, [[8] * 4]])
def test_bad_lengths_are_refused(lengths: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        stack().forward(IDS, lengths=lengths)


@pytest.mark.parametrize(
    "options",
    [
        {"num_items": 0},
        {"num_items": 1.5},
        {"num_items": 2**63},
        {"num_items": 10**400},
        {"dropout_stream": -1},
        {"dropout_stream": 2**32},
        {"token_offset": -1},
        {"token_offset": 2**60},
    ],
)
def test_bad_options_of_loss_and_grads_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        stack().loss_and_grads(IDS, TARGETS, **options)


def test_a_mean_over_no_target_is_refused() -> None:
    made = stack()
    for call in (made.loss, made.loss_and_grads):
        with pytest.raises(ValueError, match="-100"):
            call(IDS, np.full((4, 8), -100))


def test_rows_that_cannot_be_cut_are_refused() -> None:
    made = stack(accumulation_steps=2)
    with pytest.raises(ValueError, match="accumulation_steps=2, got 3"):
        made.train_step(IDS[:3], TARGETS[:3])


def test_attention_has_positions_for_8192_tokens() -> None:
    made = stack(PLAIN)
    with pytest.raises(ValueError, match="8192"):
        made.forward(np.zeros((1, 8193), int))
    with pytest.raises(ValueError, match="8192"):
        made.allocate_state(1, 8193)


def test_loaded_kernels_are_bounded() -> None:
    loads: list[int] = []

    def load(shape: Shape) -> Program:
        loads.append(shape.tokens)
        return object()  # type: ignore[return-value]

    loaded = LoadedShapes(2, load)
    for tokens in (1, 2, 1, 3, 1, 2):
        loaded.get(Shape(MAMBA, "deterministic", "forward", 1, tokens))
    assert loads == [1, 2, 3, 2]  # 2 was used least recently when 3 came, 3 when 2 came again
    assert len(loaded) == 2


@pytest.mark.parametrize(
    ("tokens", "capacity", "size"),
    [(1, 64, 1), (2, 64, 16), (16, None, 16), (17, None, 32), (60, 64, 64), (130, 192, 192), (130, None, 256)],
)
def test_pieces_come_in_few_sizes(tokens: int, capacity: int | None, size: int) -> None:
    assert piece(tokens, capacity) == size


def test_importing_the_stack_loads_no_iree() -> None:
    code = "import sys, trainc.frontends.samba.stack; print(any(m.split('.')[0] == 'iree' for m in sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert run.stdout.strip() == "False"


def test_an_external_schedule_is_any_object_with_lr_at() -> None:
    made = stack(lr_schedule=Halving())
    assert made.optimizer.lr_schedule is not None
    assert made.state_dict()["schedule"] == {"kind": "external"}
    assert stacks.TINY is made.config
