import json

import numpy as np
import pytest

from trainc.core.errors import ConfigError
from trainc.frontends.samba.config import SambaConfig

BOTH = {"vocab": 256, "d_model": 64, "layers": ("mamba3", "attention"), "n_heads": 4, "intermediate": 128}


def test_golden_configs_and_registries(golden) -> None:
    for case in golden("samba")["samba"].values():
        config = SambaConfig.from_dict(case["config"])
        assert config.to_dict() == case["config"]
        assert [[name, list(shape)] for name, shape in config.registry()] == case["registry"]


def test_positional_order_and_defaults() -> None:
    config = SambaConfig(256, 64, ["attention"], 4, 2, 16, 128, False, 1e-6, 0.1)
    assert config.to_dict() == {
        "vocab": 256, "d_model": 64, "layers": ["attention"], "n_heads": 4, "n_kv_heads": 2, "head_dim": 16,
        "intermediate": 128, "tie_embeddings": False, "norm_eps": float(np.float32(1e-6)),
        "dropout": float(np.float32(0.1)),
    }  # fmt: skip
    plain = SambaConfig(61, 32, ("mamba3",))
    assert (plain.n_heads, plain.n_kv_heads, plain.head_dim, plain.intermediate) == (None, None, None, None)
    assert (plain.tie_embeddings, plain.norm_eps, plain.dropout) == (True, 9.999999747378752e-06, 0.0)


def test_round_trip_through_json() -> None:
    config = SambaConfig(**BOTH, dropout=0.25)
    assert SambaConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert hash(SambaConfig.from_dict(config.to_dict())) == hash(config)


def test_numpy_integers_become_ints() -> None:
    config = SambaConfig(np.int64(7), np.int32(32), ("mamba3",))
    assert type(config.vocab) is int
    assert type(config.d_model) is int


def test_block_shapes() -> None:
    config = SambaConfig(**{**BOTH, "n_kv_heads": 2})
    assert config.block_shapes("mamba3") == [
        ("block_norm.weight", (64,)), ("in_proj.weight", (550, 64)), ("dt_bias", (2,)), ("B_norm.weight", (128,)),
        ("C_norm.weight", (128,)), ("B_bias", (2, 128)), ("C_bias", (2, 128)), ("D", (2,)),
        ("out_proj.weight", (64, 128)),
    ]  # fmt: skip
    assert config.block_shapes("attention") == [
        ("input_layernorm.weight", (64,)), ("post_attention_layernorm.weight", (64,)), ("q_proj.weight", (64, 64)),
        ("k_proj.weight", (32, 64)), ("v_proj.weight", (32, 64)), ("o_proj.weight", (64, 64)),
        ("gate_proj.weight", (128, 64)), ("up_proj.weight", (128, 64)), ("down_proj.weight", (64, 128)),
    ]  # fmt: skip


def test_block_shapes_refusals() -> None:
    with pytest.raises(ConfigError, match="kind"):
        SambaConfig(**BOTH).block_shapes("mamba2")
    with pytest.raises(ConfigError, match="intermediate"):
        SambaConfig(256, 64, ("mamba3",)).block_shapes("attention")
    with pytest.raises(ConfigError, match="d_model"):
        SambaConfig(256, 48, ("attention",), 4, intermediate=64).block_shapes("mamba3")


def test_untied_head_is_last() -> None:
    assert SambaConfig(**BOTH, tie_embeddings=False).registry()[-1] == ("lm_head.weight", (256, 64))
    assert SambaConfig(**BOTH).registry()[-1] == ("norm_f.weight", (64,))


def test_derived_widths() -> None:
    config = SambaConfig(**{**BOTH, "n_kv_heads": 2})
    assert (config.mamba_width, config.mamba_heads, config.mamba_in_proj) == (128, 2, 550)
    assert (config.query_heads, config.kv_heads, config.head_width, config.mlp_width) == (4, 2, 16, 128)
    assert (config.query_width, config.kv_width) == (64, 32)
    assert config.parameter_count == sum(int(np.prod(shape)) for _, shape in config.registry())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"vocab": 1}, "vocab"),
        ({"vocab": 256.0}, "vocab"),
        ({"vocab": True}, "vocab"),
        ({"d_model": 0}, "d_model"),
        ({"d_model": 48}, "d_model"),
        ({"layers": ()}, "layers"),
        ({"layers": "mamba3"}, "layers"),
        ({"layers": 2}, "layers"),
        ({"layers": ("mamba3", "mamba2")}, r"layers\[1\]"),
        ({"layers": (["mamba3"],)}, r"layers\[0\]"),
        ({"n_heads": None}, "n_heads"),
        ({"n_heads": 0}, "n_heads"),
        ({"n_heads": 5}, "n_heads"),
        ({"n_kv_heads": 0}, "n_kv_heads"),
        ({"head_dim": 8}, "head_dim"),
        ({"intermediate": None}, "intermediate"),
        ({"intermediate": -1}, "intermediate"),
        ({"tie_embeddings": 1}, "tie_embeddings"),
        ({"norm_eps": -1e-5}, "norm_eps"),
        ({"norm_eps": float("nan")}, "norm_eps"),
        ({"norm_eps": "1e-5"}, "norm_eps"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
        ({"dropout": 0.99999999}, "dropout"),
        ({"dropout": float("nan")}, "dropout"),
    ],
)
def test_refusals_name_the_field(changes: dict, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} "):
        SambaConfig(**{**BOTH, **changes})


@pytest.mark.parametrize(
    ("changes", "name"), [({"n_kv_heads": 3}, "n_kv_heads"), ({"n_heads": 64, "head_dim": 1}, "head_dim")]
)
def test_what_only_building_asks_for(changes: dict, name: str) -> None:
    config = SambaConfig(**{**BOTH, **changes})
    with pytest.raises(ConfigError, match=f"^{name} "):
        config.check_buildable()


def test_from_dict_refusals() -> None:
    with pytest.raises(ConfigError, match=r"^d_modle "):
        SambaConfig.from_dict({**BOTH, "d_modle": 64})
    with pytest.raises(ConfigError, match=r"^layers is missing"):
        SambaConfig.from_dict({"vocab": 2, "d_model": 32})
