"""The Samba model continuing from a state: prefill and, with one new token, the decode step.

Shapes as in graph.py, with T new tokens and M cached positions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trainc.core.state_table import StateTable, StateTensor
from trainc.frontends.samba.config import MAMBA_NORM_EPS, SambaConfig
from trainc.frontends.samba.layer_state import StateNames
from trainc.frontends.samba.tracing.graph import (
    Weights,
    attention_inputs,
    attention_outputs,
    head_logits,
    layer_weights,
)
from trainc.ir import scalar
from trainc.ir.builder import layer
from trainc.ir.ops.add import add
from trainc.ir.ops.cached_attention import cache_write, cached_attention
from trainc.ir.ops.embedding import embedding
from trainc.ir.ops.linear import linear
from trainc.ir.ops.mamba3 import mamba3_continue
from trainc.ir.ops.rms_norm import rms_norm
from trainc.ir.ops.rope import rope
from trainc.ir.ops.take_last import take_last
from trainc.ir.primitives import map_
from trainc.ir.program import Argument, Result
from trainc.ir.tensor import Aval, Tensor

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class StatePorts:
    """The arguments and results of an entry that its state is.

    Attributes:
        tables: Layout of each flat buffer, by argument.
        names: What the buffers are called.
    """

    tables: Mapping[str, StateTable]
    names: StateNames

    def arguments(self) -> list[Argument]:
        """Return the state's tensors as arguments."""
        return [Argument(t.name, Aval(t.shape), buffer) for buffer, t in self._tensors(self.names.old)]

    def named(self, given: Sequence[Tensor]) -> State:
        """Return the tensors of `arguments` by name."""
        return {t.name: tensor for (_, t), tensor in zip(self._tensors(self.names.old), given, strict=True)}

    def results(self, new: State) -> list[Result]:
        """Return the new state as results."""
        return [Result(t.name, new[t.name], buffer) for buffer, t in self._tensors(self.names.new)]

    def _tensors(self, turn: str) -> Iterator[tuple[str, StateTensor]]:
        buffers = (name for name in (turn, self.names.cache) if name in self.tables)
        return ((name, tensor) for name in buffers for tensor in self.tables[name].tensors)


def continue_sequence(
    config: SambaConfig,
    weights: Weights,
    state: State,
    ids_BT: Tensor,
    length: Tensor,
    position: Tensor,
    *,
    every: bool = False,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run T new tokens from a state.

    Args:
        config: The model's shape.
        weights: Every parameter, by registry name.
        state: Tensors of the state's `decode_tables`, by name.
        ids_BT: i32 ids of the new tokens; those from `length` on are padding.
        length: i32 (), how many of the T tokens count, in [1, T].
        position: i32 (), tokens already in the state.
        every: Whether to give the logits of every token.

    Returns:
        Logits (B, V) after the last counted token, or (B, T, V) after every one; and the new state.
    """
    with layer("embed"):
        x_BTD = embedding(weights["embed.weight"], ids_BT)
    new_state: dict[str, Tensor] = {}
    for number, kind in enumerate(config.layers):
        with layer(f"layers.{number}"):
            here = layer_weights(state, number)
            x_BTD, changed = CONTINUE[kind](config, layer_weights(weights, number), here, x_BTD, length, position)
        new_state |= {f"layers.{number}.{name}": tensor for name, tensor in changed.items()}
    read = x_BTD if every else take_last(x_BTD, length)
    with layer("norm_f"):
        read = rms_norm(read, weights["norm_f.weight"], config.norm_eps)
    return head_logits(weights, read), new_state


def _continue_mamba3(
    config: SambaConfig, w: Weights, state: State, x_BTD: Tensor, length: Tensor, position: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    names = ("theta", "h", "k_last", "v_last")
    u = linear(rms_norm(x_BTD, w["block_norm.weight"], MAMBA_NORM_EPS), w["in_proj.weight"])
    small = [w[name] for name in ("dt_bias", "B_norm.weight", "C_norm.weight", "B_bias", "C_bias", "D")]
    operands = [u, *small, *(state[name] for name in names), length]
    mixed, *changed = mamba3_continue(*operands)
    return add(x_BTD, linear(mixed, w["out_proj.weight"])), dict(zip(names, changed, strict=True))


def _continue_attention(
    config: SambaConfig, w: Weights, state: State, x_BTD: Tensor, length: Tensor, position: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    max_tokens = state["k_cache"].shape[2]
    positions = map_(".->t", lambda p: p + scalar.index(0), position, sizes={"t": x_BTD.shape[1]})
    q, k, v = attention_inputs(config, w, x_BTD)
    q, k = (rope(x, positions, max_positions=max_tokens + x_BTD.shape[1]) for x in (q, k))
    k_cache = cache_write(state["k_cache"], k, position, length)
    v_cache = cache_write(state["v_cache"], v, position, length)
    out = cached_attention(q, k_cache, v_cache, position)
    return attention_outputs(w, x_BTD, out), {"k_cache": k_cache, "v_cache": v_cache}


Continue = Callable[[SambaConfig, Weights, State, Tensor, Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]
CONTINUE: dict[str, Continue] = {"mamba3": _continue_mamba3, "attention": _continue_attention}
"""One layer over new tokens: (config, weights, state, x, length, position) to its output and new state, by kind."""
