"""How the self-test of a Samba artifact draws the inputs of its entries."""

from collections.abc import Mapping

from trainc.core.selftest import Draw
from trainc.frontends.samba.config_file import SambaRunConfig
from trainc.frontends.samba.state import NAMES
from trainc.frontends.tracing.common import COMMON_DRAWS
from trainc.frontends.tracing.probes import PROBE_DRAWS

_EMBEDDINGS = Draw("uniform", -0.035, 0.035)
_DT_BIAS = Draw("uniform", -4.0, -2.0)
_NEAR_ONE = Draw("uniform", 0.5, 1.5)
_ANY_STATE = Draw("uniform", -1.0, 1.0)


def selftest_draws(run: SambaRunConfig) -> dict[str, Draw]:
    """Return the draws of a model: weights as widely spread as its initial ones, but none of them constant.

    Args:
        run: The model and the shapes of its entries.
    """
    ids, positions = run.model.vocab, run.decode
    tokens = run.batch.rows // run.batch.accumulation_steps * run.batch.length
    return {
        "params": _NEAR_ONE,
        **_weights(run),
        **COMMON_DRAWS,
        NAMES.old: _ANY_STATE,
        NAMES.cache: _ANY_STATE,
        "ids": Draw("integers", 0, ids),
        "targets": Draw("targets", 0, ids),
        "divisor": Draw("constant", tokens),
        "dropout_key": Draw("integers", 0, 2**31 - 1),
        "prefill:length": Draw("constant", max(1, positions.prefill - 1)),
        "prefill:position": Draw("constant", min(5, positions.max_tokens - positions.prefill)),
        "decode:length": Draw("constant", 1),
        "decode:position": Draw("constant", min(70, positions.max_tokens - 1)),
        **PROBE_DRAWS,
    }


def _weights(run: SambaRunConfig) -> Mapping[str, Draw]:
    """Return the draws of the weights that are not spread around one."""
    draws = {}
    for name, shape in run.model.registry():
        if name in ("embed.weight", "lm_head.weight"):
            draws[f"params:{name}"] = _EMBEDDINGS
        elif name.endswith("dt_bias"):
            draws[f"params:{name}"] = _DT_BIAS
        elif len(shape) == 2 and name.endswith(".weight"):
            draws[f"params:{name}"] = Draw("uniform", -(shape[1] ** -0.5), shape[1] ** -0.5)
    return draws
