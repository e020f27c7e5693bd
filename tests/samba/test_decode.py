"""Decoding equals the full forward pass."""

import numpy as np
import pytest

from tests.samba.harness import Compiled, build, random_batch, run_config
from trainc.frontends.samba.tracing.entries import MODEL
from trainc.runtime.decode import Decoder, generate
from trainc.runtime.sampling import SamplingOptions

LENGTH = 70
PROMPT = 60

# Both ways add the same float32 terms in other orders; 1e-5 is what docs/numerics.md promises, measured 1e-6.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    run = run_config(
        {
            "vocab": 61,
            "d_model": 64,
            "layers": ["mamba3", "attention", "mamba3"],
            "n_heads": 4,
            "n_kv_heads": 2,
            "intermediate": 96,
        },
        rows=2,
        length=LENGTH,
        decode={"rows": 2, "prefill": 64, "max_tokens": 96},
    )
    model = build(run, tmp_path_factory.mktemp("decode"), (MODEL,))
    rng = np.random.default_rng(1)
    model.params.write(
        {name: (w + 0.1 * rng.standard_normal(w.shape)).astype(np.float32) for name, w in model.weights.items()}
    )
    return model


def test_prefill_and_single_steps_equal_one_forward(model: Compiled) -> None:
    ids, _ = random_batch(model.run, seed=5)
    wanted = model.call("forward", ids=ids)["logits"]
    decoder = Decoder(model.program, model.params)
    found = [decoder.feed(np.ascontiguousarray(ids[:, :PROMPT]))]
    found += [decoder.feed(np.ascontiguousarray(ids[:, t : t + 1])) for t in range(PROMPT, LENGTH)]
    np.testing.assert_allclose(np.stack(found, 1), wanted[:, PROMPT - 1 :], rtol=0, atol=TOLERANCE)


def test_a_long_prompt_goes_in_pieces(model: Compiled) -> None:
    ids, _ = random_batch(model.run, seed=6)
    wanted = model.call("forward", ids=ids)["logits"][:, -1]
    decoder = Decoder(model.program, model.params)
    np.testing.assert_allclose(decoder.feed(ids), wanted, rtol=0, atol=TOLERANCE)


def test_reset_forgets(model: Compiled) -> None:
    ids, _ = random_batch(model.run, seed=7)
    decoder = Decoder(model.program, model.params)
    first = decoder.feed(np.ascontiguousarray(ids[:, :5]))
    decoder.feed(np.ascontiguousarray(ids[:, 5:9]))
    decoder.reset()
    assert decoder.feed(np.ascontiguousarray(ids[:, :5])).tobytes() == first.tobytes()


def test_temperature_zero_is_argmax_over_forward(model: Compiled) -> None:
    ids, _ = random_batch(model.run, seed=8)
    prompt = ids[0, :10].tolist()
    results = generate(Decoder(model.program, model.params), prompt, 12, SamplingOptions(temperature=0.0))
    text = list(prompt)
    for _ in range(12):
        padded = np.zeros((2, LENGTH), np.int32)
        padded[:, : len(text)] = text
        logits = model.call("forward", ids=padded)["logits"][0, len(text) - 1]
        text.append(int(logits.argmax()))
    assert [result.tokens for result in results] == [text[10:]] * 2
