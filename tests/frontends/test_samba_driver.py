"""The Samba driver: batches cut into microbatches, dropout streams, and ids that are refused."""

import dataclasses
import hashlib

import numpy as np
import pytest

from trainc.core.errors import ArtifactError, DtypeError, ShapeError, UsageError
from trainc.core.manifest import Argument, Entry, Manifest, Result
from trainc.core.state_table import StateTable
from trainc.frontends.drivers import driver_for
from trainc.frontends.generator import Generator, StreamsExhaustedError
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.driver import SambaDriver
from trainc.frontends.samba.init import initial_weights
from trainc.frontends.samba.state import decode_tables
from trainc.runtime.driver import RandomState

ROWS, LENGTH, STEPS, VOCAB, WIDTH = 4, 6, 2, 11, 8


def manifest(dropout: float = 0.0, kind: str = "samba", **batch) -> Manifest:
    config = SambaConfig(VOCAB, WIDTH, ("attention",), n_heads=2, intermediate=16, dropout=dropout)
    table = StateTable.build("params", config.registry())
    shape = (ROWS // STEPS, LENGTH)
    args = [Argument("ids", "tensor", shape, "i32"), Argument("targets", "tensor", shape, "i32")]
    args += [Argument("divisor", "scalar", (), "f32")]
    if dropout:
        args.append(Argument("dropout_key", "tensor", (5,), "i32"))
    entry = Entry("gradients", "train", tuple(args), (Result("loss", "tensor", (), "f32"),))
    return Manifest(
        trainc_version="9.9",
        kind=kind,
        config=config.to_dict(),
        settings={"batch": {"rows": ROWS, "length": LENGTH, "accumulation_steps": STEPS} | batch},
        numeric_mode="deterministic",
        precision="f32",
        state={"params": table},
        entries={"gradients": entry},
        targets={},
    )


def batch(rows: int = ROWS) -> dict:
    ids, targets = np.random.default_rng(0).integers(0, VOCAB, (2, rows, LENGTH))
    targets[0, :3] = -100
    return {"ids": ids, "targets": targets}


def test_the_driver_is_found_by_kind():
    assert isinstance(driver_for(manifest()), SambaDriver)
    with pytest.raises(ArtifactError, match=r"kind 'encoder'; this trainc knows: samba; .*\(9\.9\)"):
        driver_for(manifest(kind="encoder"))


def test_settings_must_fit_the_entries():
    with pytest.raises(ArtifactError, match=r"needs ids of shape \(1, 6\)"):
        SambaDriver(manifest(accumulation_steps=4))
    with pytest.raises(ArtifactError, match=r"settings\.batch must have"):
        SambaDriver(manifest(length=None))
    with pytest.raises(ArtifactError, match=r"settings\.batch must have"):
        SambaDriver(manifest(accumulation_steps=0))


def test_an_impossible_model_is_a_damaged_artifact():
    damaged = dataclasses.replace(manifest(), config=manifest().config | {"vocab": "many"})
    with pytest.raises(ArtifactError, match=r"config\.vocab must be"):
        SambaDriver(damaged)


def test_caches_must_hold_the_tokens_that_the_settings_allow():
    whole = manifest()
    tables = {t.name: t for t in decode_tables(SambaConfig.from_dict(whole.config), 1, 32).values()}
    for max_tokens, fits in ((32, True), (33, False), (10**9, False), (True, False), (None, False)):
        settings = whole.settings | {"decode": {"rows": 1, "prefill": 8, "max_tokens": max_tokens}}
        changed = dataclasses.replace(whole, settings=settings, state={**whole.state, **tables})
        if fits:
            SambaDriver(changed)
        else:
            with pytest.raises(ArtifactError, match=r"settings\.decode"):
                SambaDriver(changed)


def test_initial_parameters_are_those_of_the_generator():
    driver = SambaDriver(manifest())
    weights, random = driver.initial_parameters(7)
    generator = Generator(7)
    expected = initial_weights(driver.config, generator)
    assert random == RandomState(7, generator.counter)
    assert {n: hashlib.sha256(w.tobytes()).digest() for n, w in weights.items()} == {
        n: hashlib.sha256(w.tobytes()).digest() for n, w in expected.items()
    }


def test_windows_become_ids_and_the_next_bytes():
    inputs = SambaDriver(manifest()).inputs(np.arange(14, dtype=np.uint8).reshape(2, 7))
    np.testing.assert_array_equal(inputs["ids"], [[0, 1, 2, 3, 4, 5], [7, 8, 9, 10, 11, 12]])
    np.testing.assert_array_equal(inputs["targets"], inputs["ids"] + 1)


def test_microbatches_are_consecutive_rows_with_one_divisor():
    inputs = batch()
    bound = SambaDriver(manifest()).bind_step(inputs, RandomState(3, 4))
    assert len(bound.calls) == STEPS
    for k, call in enumerate(bound.calls):
        for name in ("ids", "targets"):
            np.testing.assert_array_equal(call[name], inputs[name][2 * k : 2 * k + 2])
            assert call[name].dtype == np.int32
            assert call[name].flags.c_contiguous
        assert call["divisor"] == ROWS * LENGTH - 3
        assert set(call) == {"ids", "targets", "divisor"}
    assert (bound.tokens, bound.ignored_all, bound.random) == (24, False, RandomState(3, 4))


def test_all_ignored_has_divisor_1():
    inputs = batch()
    inputs["targets"][:] = -100
    bound = SambaDriver(manifest()).bind_step(inputs, RandomState())
    assert bound.ignored_all
    assert {call["divisor"] for call in bound.calls} == {1.0}


def test_a_step_with_dropout_takes_one_stream():
    seed = 0x89ABCDEF_01234567
    bound = SambaDriver(manifest(dropout=0.1)).bind_step(batch(), RandomState(seed, 2**32 - 2))
    keys = [call["dropout_key"].view(np.uint32).tolist() for call in bound.calls]
    assert keys[0] == [0x01234567, 0x89ABCDEF, 2**32 - 2, 0, 0]
    assert keys[1] == [0x01234567, 0x89ABCDEF, 2**32 - 2, 2 * LENGTH * WIDTH, 0]
    assert bound.random == RandomState(seed, 2**32 - 1)
    last = SambaDriver(manifest(dropout=0.1)).bind_step(batch(), bound.random).random
    with pytest.raises(StreamsExhaustedError):
        SambaDriver(manifest(dropout=0.1)).bind_step(batch(), last)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_evaluation_fills_up_with_ignored_targets(rows):
    bound = SambaDriver(manifest(dropout=0.1)).bind_evaluation(batch(rows))
    assert bound.targets == rows * LENGTH - 3
    assert len(bound.calls) == -(-rows // 2)
    assert sum(int((call["targets"] != -100).sum()) for call in bound.calls) == bound.targets
    assert all(set(call) == {"ids", "targets"} and call["ids"].shape == (2, LENGTH) for call in bound.calls)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"ids": np.full((4, 6), 11)}, UsageError, r"ids must lie in 0\.\.10, got 11 in row 0, column 0"),
        ({"ids": np.full((4, 6), -100)}, UsageError, "ids must lie"),
        ({"targets": np.full((4, 6), -1)}, UsageError, r"targets must lie in 0\.\.10 or be -100, got -1"),
        ({"targets": np.full((4, 6), 2**32 + 5)}, UsageError, "targets must lie"),
        ({"ids": np.zeros((4, 6))}, DtypeError, "ids must be integers, got float64"),
        ({"ids": np.zeros((4, 6), bool)}, DtypeError, "integers"),
        ({"ids": np.zeros((4, 5), int)}, ShapeError, r"ids must have shape \(rows, 6\)"),
        ({"ids": np.zeros((2, 6), int)}, ShapeError, "one shape"),
        ({"lengths": np.zeros(4)}, UsageError, "got ids, targets, lengths"),
    ],
)
def test_what_is_refused(change, error, text):
    driver = SambaDriver(manifest())
    with pytest.raises(error, match=text):
        driver.bind_step(batch() | change, RandomState())
    with pytest.raises(error, match=text):
        driver.bind_evaluation(batch() | change)


def test_a_step_has_all_its_rows():
    with pytest.raises(ShapeError, match="4 rows, got 2"):
        SambaDriver(manifest()).bind_step(batch(2), RandomState())
