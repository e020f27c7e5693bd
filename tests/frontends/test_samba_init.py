import hashlib
import time

import numpy as np
import pytest

from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.init import initial_weights

STACKS = ["mamba3_attn_tied", "doc_example_2xmamba3_acc1", "mamba3_L70"]


@pytest.mark.parametrize("name", STACKS)
def test_golden_weights_are_bit_equal(golden, name: str) -> None:
    case = golden("samba")["samba"][name]
    generator = Generator(case["rng_after_init"]["seed"])
    weights = initial_weights(SambaConfig.from_dict(case["config"]), generator)
    assert list(weights) == [tensor for tensor, _ in case["registry"]]
    for tensor, expected in case["init"].items():
        assert [f"{b:08x}" for b in weights[tensor].view(np.uint32).ravel()[:8]] == expected["first8"], tensor
        assert hashlib.sha256(weights[tensor].astype("<f4").tobytes()).hexdigest() == expected["sha256"], tensor
    assert generator.state_dict() == case["rng_after_init"]


def test_every_golden_stack_is_checked(golden) -> None:
    assert sorted(golden("samba")["samba"]) == sorted(STACKS)


def test_shapes_dtypes_and_the_untied_head() -> None:
    config = SambaConfig(61, 32, ("mamba3",), tie_embeddings=False)
    weights = initial_weights(config, Generator(7))
    assert {name: array.shape for name, array in weights.items()} == dict(config.registry())
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    # Embedding, in_proj, dt_bias and out_proj take streams 0 to 3, so the head takes stream 4.
    head = Generator(7)
    head.load_state_dict({"seed": 7, "counter": 4})
    assert weights["lm_head.weight"].tobytes() == head.normal((61, 32), 0.0, 0.02).tobytes()


def test_ten_million_weights_take_seconds() -> None:
    config = SambaConfig(8192, 512, ("mamba3", "attention", "mamba3"), n_heads=8, intermediate=1024)
    assert config.parameter_count > 10_000_000
    start = time.process_time()
    initial_weights(config, Generator(0))
    # Measured at 0.8 s; the bound is the requirement. Of processor time, which other work does not lengthen.
    assert time.process_time() - start < 3.0
