from pathlib import Path

import pytest

from trainc.core.errors import ConfigError
from trainc.core.schedules import WarmupCosineLR
from trainc.frontends.samba.config_file import BatchConfig, DecodeConfig, config_from_document, load_config

EXAMPLES = Path(__file__).parents[2] / "examples"


def document(**tables: dict) -> dict:
    base = {
        "model": {
            "vocab": 256, "d_model": 64, "layers": ["mamba3", "attention"], "n_heads": 4, "intermediate": 128,
        },
        "batch": {"rows": 4, "length": 64},
    }  # fmt: skip
    return {**base, **{name: {**base.get(name, {}), **table} for name, table in tables.items()}}


def test_examples() -> None:
    tiny = load_config(EXAMPLES / "samba_tiny.toml")
    assert (tiny.model.d_model, tiny.model.layers, tiny.batch.rows, tiny.batch.length) == (
        64, ("mamba3", "attention"), 4, 64,
    )  # fmt: skip
    small = load_config(EXAMPLES / "samba_small.toml")
    assert small.model.layers == ("mamba3", "attention") * 2
    assert (small.model.vocab, small.model.d_model, small.model.n_heads, small.model.intermediate) == (256, 256, 4, 512)
    assert (small.batch.rows, small.batch.length, small.optimizer.max_norm) == (8, 256, 1.0)


def test_every_example_loads() -> None:
    for path in EXAMPLES.glob("samba_*.toml"):
        load_config(path)


def test_defaults_and_settings() -> None:
    config = config_from_document(document())
    assert config.schedule is None
    assert config.decode == DecodeConfig(rows=1, prefill=64, max_tokens=1024)
    assert config.settings() == {
        "optimizer": config.optimizer.to_dict(),
        "schedule": None,
        "batch": {"rows": 4, "length": 64, "accumulation_steps": 1},
        "decode": {"rows": 1, "prefill": 64, "max_tokens": 1024},
    }


def test_every_table() -> None:
    config = config_from_document(
        document(
            model={"layers": "2*(mamba3, attention), mamba3"},
            batch={"accumulation_steps": 2},
            optimizer={"lr": 3e-4, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0, "max_norm": 1},
            schedule={"kind": "cosine", "peak_lr": 3e-4, "warmup_steps": 10, "total_steps": 100, "min_lr": 1e-5},
            decode={"rows": 2, "prefill": 32, "max_tokens": 128},
        )
    )
    assert config.model.layers == ("mamba3", "attention", "mamba3", "attention", "mamba3")
    assert config.batch.accumulation_steps == 2
    assert config.schedule == WarmupCosineLR(3e-4, 10, 100, 1e-5)
    assert config.settings()["schedule"] == config.schedule.config()
    assert config.decode == DecodeConfig(rows=2, prefill=32, max_tokens=128)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": {"d_modle": 64}}, r"model\.d_modle .*did you mean d_model.*fields: vocab, d_model, layers"),
        ({"model": {"vocab": "256"}}, r"model\.vocab must be an integer.*'256'"),
        ({"model": {"d_model": 48}}, r"model\.d_model .*multiple of 32"),
        ({"model": {"layers": "2*(mamba3"}}, r"model\.layers: .*column 10"),
        ({"model": {"layers": "mamba4"}}, r"model\.layers\[0\] .*mamba4"),
        ({"model": {"n_kv_heads": 3}}, r"model\.n_kv_heads must divide n_heads"),
        ({"model": {"dropout": 1.0}}, r"model\.dropout "),
        ({"batch": {"rows": 0}}, r"batch\.rows .*at least 1, got 0"),
        ({"batch": {"length": 64.0}}, r"batch\.length .*integer"),
        ({"batch": {"length": 8193}}, r"batch\.length .*8192"),
        ({"batch": {"accumulation_steps": 3}}, r"batch\.accumulation_steps .*power of two"),
        ({"batch": {"accumulation_steps": 8}}, r"batch\.accumulation_steps .*divides rows \(4\)"),
        ({"batch": {"size": 8}}, r"batch\.size is not a known field; fields: rows, length, accumulation_steps"),
        ({"optimizer": {"lr": -1}}, r"optimizer\.lr "),
        ({"optimizer": {"betas": [0.9]}}, r"optimizer\.betas "),
        ({"optimizer": {"max_norm": 0}}, r"optimizer\.max_norm "),
        ({"optimizer": {"momentum": 0.9}}, r"optimizer\.momentum .*fields: lr, betas, eps, weight_decay, max_norm"),
        ({"schedule": {"kind": "cosine"}}, r"schedule\.peak_lr is missing"),
        ({"schedule": {"kind": "step", "peak_lr": 1e-3}}, r"schedule\.kind .*constant, linear, cosine"),
        ({"schedule": {"kind": "linear", "peak_lr": 1e-3, "warmup": 2}}, r"schedule\.warmup .*warmup_steps"),
        ({"schedule": {"kind": "linear", "peak_lr": 1, "warmup_steps": 9, "total_steps": 8}}, r"schedule\.total_steps"),
        ({"decode": {"prefill": 2000}}, r"decode\.prefill .*max_tokens"),
        ({"decode": {"max_tokens": 10**6}}, r"decode\.max_tokens .*8192"),
        ({"decode": {"rows": True}}, r"decode\.rows "),
        ({"modle": {}}, r"unknown table \[modle\] \(did you mean model\?\); tables: model, batch"),
    ],
)
def test_refusals_name_table_and_field(tables: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        config_from_document(document(**tables))


@pytest.mark.parametrize("name", ["model", "batch"])
def test_missing_tables_and_fields(name: str) -> None:
    whole = document()
    del whole[name]
    with pytest.raises(ConfigError, match=rf"\[{name}\] is missing"):
        config_from_document(whole)
    with pytest.raises(ConfigError, match=rf"^{name}\.\w+ is missing"):
        config_from_document({**document(), name: {}})
    with pytest.raises(ConfigError, match=rf"\[{name}\] must be a table"):
        config_from_document({**document(), name: 3})


def test_long_sequences_need_no_positions_without_attention() -> None:
    model = {"vocab": 256, "d_model": 64, "layers": ["mamba3"]}
    config = config_from_document({"model": model, "batch": {"rows": 1, "length": 10000}})
    assert config.batch == BatchConfig(rows=1, length=10000)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[model\n", "not valid TOML.*line 1"),
        (b"\xff\xfe", "UTF-8"),
        (b"[model]\nvocab = 1\nd_model = 32\nlayers = ['mamba3']\n[batch]\nrows = 1\nlength = 1\n", r"model\.vocab"),
    ],
)
def test_file_errors_name_the_file(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"bad\.toml: .*{message}"):
        load_config(path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot read"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path)
