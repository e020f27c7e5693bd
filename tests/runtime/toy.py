"""A small artifact of kind "toy" from hand-written MLIR, its driver, and the same mathematics in NumPy.

The model is a bigram table: logits = one_hot(ids) @ W + b.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np

from trainc.core.adamw import COEFFICIENT_NAMES, coefficients
from trainc.core.manifest import Argument, Entry, Manifest, ModuleFile, Result, Target
from trainc.core.state_table import StateTable
from trainc.runtime.driver import BoundEvaluation, BoundStep, RandomState

VOCAB, MICRO_ROWS, LENGTH = 32, 2, 8
DECODE_ROWS, PREFILL, MAX_TOKENS = 2, 4, 24
PARAMS = StateTable.build("params", [("W", (VOCAB, VOCAB)), ("b", (VOCAB,))])
DECODE = StateTable.build("decode", [("sum", (DECODE_ROWS, VOCAB))])
OPTIMIZER = {"lr": 0.05, "betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.01, "max_norm": 1.0}
SCHEDULE = {"kind": "cosine", "peak_lr": 0.05, "warmup_steps": 3, "total_steps": 40, "min_lr": 0.001}
FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O2",
)
# What Mesa's device in software can do: subgroups of 8, and SPIR-V of a version that validates.
VULKAN_FLAGS = (
    '--iree-hal-target-device=#hal.device.target<"vulkan", [#hal.executable.target<"vulkan-spirv", "vulkan-spirv-fb", '
    '{iree_codegen.target_info = #iree_gpu.target<arch = "lavapipe", features = "spirv:v1.3,cap:Shader", wgp = <'
    "compute = fp32|int32, storage = b32, subgroup = shuffle|arithmetic, dot = none, mma = [], "
    "subgroup_size_choices = [8], max_workgroup_sizes = [1024, 1024, 1024], max_thread_count_per_workgroup = 1024, "
    "max_workgroup_memory_bytes = 32768, max_workgroup_counts = [65535, 65535, 65535]>>}>]>",
)


def mlir_text() -> str:
    here = Path(__file__).parent
    decode = (here / "decode.mlir.in").read_text()
    parts = [decode.replace("@NAME", f"@{n}").replace("@C", str(c)) for n, c in (("prefill", PREFILL), ("decode", 1))]
    text = (here / "toy.mlir.in").read_text().replace("@DECODE", "\n".join(parts))
    values = {
        "@ROWS": MICRO_ROWS,
        "@PAD": 64 - VOCAB,
        "@WB": 4 * VOCAB * VOCAB,
        "@BB": 4 * VOCAB,
        "@SB": 4 * DECODE_ROWS * VOCAB,
    }
    values |= {"@T": MICRO_ROWS * LENGTH, "@V": VOCAB, "@L": LENGTH, "@N": PARAMS.size, "@K": PARAMS.size // 64}
    values |= {"@R": DECODE_ROWS}
    for name, value in values.items():
        text = text.replace(name, str(value))
    return text


def compile_toy(out: Path, flags: tuple[str, ...] = FLAGS) -> None:
    compiler = Path(sys.executable).with_name("iree-compile")
    command = [compiler, "-", "-o", out, *flags]
    run = subprocess.run(command, input=mlir_text(), capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr


def state(name: str, table: StateTable = PARAMS) -> Argument:
    return Argument(name, "state", (table.size,), "f32", table.name)


def tensor(name: str, *shape: int) -> Argument:
    return Argument(name, "tensor", shape, "i32")


def scalar(name: str, dtype: str = "f32") -> Argument:
    return Argument(name, "scalar", (), dtype)


def written(*names: str) -> tuple[Result, ...]:
    return tuple(Result(name, "state", (1,), "f32") for name in names)


def entries() -> dict[str, Entry]:
    loss, batch = Result("loss", "tensor", (), "f32"), (MICRO_ROWS, LENGTH)
    blocks = [Result(name, "tensor", (PARAMS.size // 64,), "f32") for name in ("block_max", "block_sumsq")]
    logits = Result("logits", "tensor", (DECODE_ROWS, VOCAB), "f32")
    ids = (tensor("ids", *batch), tensor("targets", *batch))
    decode = (state("params"), state("decode_in", DECODE), state("decode_out", DECODE))
    position = (scalar("length", "i32"), scalar("position", "i32"))
    scalars = tuple(map(scalar, COEFFICIENT_NAMES))
    args_and_results = {
        "gradients": ((state("params"), state("grads"), *ids, scalar("divisor")), (loss, *written("W", "b"))),
        "accumulate": ((state("grads"), state("accum")), written("grads")),
        "norms": ((state("grads"),), tuple(blocks)),
        "update": ((*map(state, ("params", "m", "v", "grads")), *scalars), written("params", "m", "v")),
        "eval_loss": ((state("params"), *ids), (Result("nll", "tensor", (), "f32"),)),
        "prefill": ((*decode, tensor("ids", DECODE_ROWS, PREFILL), *position), (logits, *written("sum"))),
        "decode": ((*decode, tensor("ids", DECODE_ROWS, 1), *position), (logits, *written("sum"))),
    }
    return {name: Entry(name, "toy", args, results) for name, (args, results) in args_and_results.items()}


def write_toy(
    folder: Path, module: bytes, accumulation_steps: int = 2, vulkan_module: bytes | None = None, **settings
) -> Path:
    """An artifact folder around the compiled module, and around one for Vulkan."""
    targets = {"cpu": Target("local-task", "host", (), (), {"toy": write_module(folder, "cpu", module)})}
    if vulkan_module is not None:
        file = write_module(folder, "lavapipe", vulkan_module)
        targets["lavapipe"] = Target("vulkan", "lavapipe", (), (8,), {"toy": file})
    batch = {"rows": MICRO_ROWS * accumulation_steps, "length": LENGTH, "accumulation_steps": accumulation_steps}
    decode = {"rows": DECODE_ROWS, "prefill": PREFILL, "max_tokens": MAX_TOKENS}
    manifest = Manifest(
        trainc_version="0",
        kind="toy",
        config={"vocab": VOCAB},
        settings={"optimizer": OPTIMIZER, "schedule": SCHEDULE, "batch": batch, "decode": decode, **settings},
        numeric_mode="deterministic",
        precision="f32",
        state={"params": PARAMS, "decode": DECODE},
        entries=entries(),
        targets=targets,
        compiler={"version": "3.13.0", "flags": {"cpu": list(FLAGS)}},
    )
    (folder / "manifest.json").write_text(manifest.to_text())
    return folder


def write_module(folder: Path, target: str, module: bytes) -> ModuleFile:
    place = f"modules/{target}/toy.vmfb"
    (folder / place).parent.mkdir(parents=True)
    (folder / place).write_bytes(module)
    return ModuleFile(place, hashlib.sha256(module).hexdigest(), len(module))


class ToyDriver:
    kind, length, vocab = "toy", LENGTH, VOCAB

    def __init__(self, manifest: Manifest) -> None:
        self.accumulation_steps = manifest.settings["batch"]["accumulation_steps"]
        self.rows = manifest.settings["batch"]["rows"]

    def initial_parameters(self, seed):
        rng = np.random.default_rng(seed)
        arrays = {t.name: rng.normal(0, 0.1, t.shape).astype(np.float32) for t in PARAMS.tensors}
        return arrays, RandomState(seed, 2)

    def inputs(self, windows):
        ids = windows.astype(np.int32)
        return {"ids": ids[:, :-1], "targets": ids[:, 1:]}

    def bind_step(self, inputs, random):
        ids, targets = (np.ascontiguousarray(inputs[name]) for name in ("ids", "targets"))
        count = int((targets >= 0).sum())
        calls = [
            {"ids": ids[r : r + MICRO_ROWS], "targets": targets[r : r + MICRO_ROWS], "divisor": float(max(count, 1))}
            for r in range(0, self.rows, MICRO_ROWS)
        ]
        return BoundStep(calls, ids.size, count == 0, RandomState(random.seed, random.counter + 1))

    def bind_evaluation(self, inputs):
        missing = -len(inputs["ids"]) % MICRO_ROWS
        ids = np.pad(inputs["ids"], ((0, missing), (0, 0)))
        targets = np.pad(inputs["targets"], ((0, missing), (0, 0)), constant_values=-100)
        calls = [
            {
                "ids": np.ascontiguousarray(ids[r : r + MICRO_ROWS]),
                "targets": np.ascontiguousarray(targets[r : r + MICRO_ROWS]),
            }
            for r in range(0, len(ids), MICRO_ROWS)
        ]
        return BoundEvaluation(calls, int((targets >= 0).sum()))


def reference_loss_and_gradients(params, ids, targets):
    """Mean loss and gradients in float64."""
    w, b = params["W"].astype(np.float64), params["b"].astype(np.float64)
    ids, targets = ids.reshape(-1), targets.reshape(-1)
    counted = targets >= 0
    logits = w[ids] + b
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    count = max(int(counted.sum()), 1)
    d = p * counted[:, None]
    d[np.flatnonzero(counted), targets[counted]] -= 1
    d /= count
    d_w = np.zeros_like(w)
    np.add.at(d_w, ids, d)
    loss = -np.log(p[np.flatnonzero(counted), targets[counted]]).sum() / count
    return loss, {"W": d_w, "b": d.sum(0)}


def reference_update(params, m, v, grads, settings, lr, step):
    """One AdamW step in float64, in place; returns the norm."""
    total = np.sqrt(sum(np.sum(g**2) for g in grads.values()))
    clip = min(1.0, settings.max_norm / (total + 1e-6)) if settings.max_norm else 1.0
    c = {name: float(value) for name, value in coefficients(settings, lr, step, clip).items()}
    for name, g in grads.items():
        g = g * c["clip"]
        m[name] = c["b1"] * m[name] + c["c1"] * g
        v[name] = c["b2"] * v[name] + c["c2"] * g * g
        params[name] = params[name] * c["decay"] - c["step"] * (m[name] / (np.sqrt(v[name]) / c["rb"] + c["eps"]))
    return total


def text_bytes(count: int, seed: int = 0) -> bytes:
    """Bytes below the vocabulary with something to learn in them."""
    rng = np.random.default_rng(seed)
    steps = rng.choice([1, 1, 1, 2, 5], count)
    return (np.cumsum(steps) % VOCAB).astype(np.uint8).tobytes()
