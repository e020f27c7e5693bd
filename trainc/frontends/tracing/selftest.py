"""The values of a self-test: every entry run on the float64 references, before anything is lowered.

They are worked out in a process of their own beside the compiler, by `python -m trainc.frontends.tracing.selftest`.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import trainc
from trainc.compiler.cache import CompileCache, content_key, key_parts
from trainc.core.errors import CompileError, VerifyError
from trainc.core.selftest import (
    Draw,
    Expected,
    Fingerprint,
    SelfTest,
    draw_argument,
    draw_state,
    fingerprint,
    least_norms,
    relative_error,
)
from trainc.core.state_table import StateTable
from trainc.frontends.kernels import source_digest
from trainc.ir.decompose import decompose_function
from trainc.ir.interpret import interpret
from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.program import WHOLE, Port, Program, ports

MARGIN = 32.0
"""How many times the error of float32 arithmetic in NumPy an output's error may be: a device's sums are longer, its
elementary functions less exact."""

SMALLEST_TOLERANCE = {"f32": 2.0**-20, "bf16": 2.0**-5}
"""By precision: 16 roundings of float32, 8 of bfloat16 in entries with matrix products."""

LARGEST_TOLERANCE = 0.25

_PRODUCTS = ("train.matmul", "train.scatter_add")

# Each product is small: more threads would only wait for each other, and take processors from the compiler.
_ONE_THREAD = {name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}


@contextmanager
def selftest_beside(
    programs: Mapping[str, Program], tables: Mapping[str, StateTable], draws: Mapping[str, Draw], precision: str
) -> Iterator[Callable[[], SelfTest | None]]:
    """Run `make_selftest` in a process of its own while something else is done; the compile cache keeps what it gave.

    Args:
        programs: As for `make_selftest`.
        tables: As for `make_selftest`.
        draws: As for `make_selftest`; without any there is no self-test.
        precision: As for `make_selftest`.

    Yields:
        A function that waits for the self-test. Leaving without calling it ends the process.
    """
    if not draws:
        yield lambda: None
        return
    request = _to_text(programs, tables, draws, precision)
    key = content_key(
        key_parts(program=request, flags=(), compiler=source_digest(), pipeline=("selftest", np.__version__))
    )
    kept = CompileCache().get(key)
    if kept is not None:
        yield lambda: SelfTest.from_json(json.loads(kept))
        return
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        given.write(request.encode())
        given.seek(0)
        process = _start(given, answer, errors)

        def result() -> SelfTest:
            if process.wait():
                errors.seek(0)
                last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise CompileError(f"the values of the self-test cannot be worked out: {last or 'the process died'}")
            answer.seek(0)
            found = answer.read()
            CompileCache().put(key, found)
            return SelfTest.from_json(json.loads(found))

        try:
            yield result
        finally:
            process.kill()
            process.wait()


def make_selftest(
    programs: Mapping[str, Program], tables: Mapping[str, StateTable], draws: Mapping[str, Draw], precision: str
) -> SelfTest:
    """Work out what every entry must give.

    Args:
        programs: Traced programs by module name.
        tables: Layout of each flat buffer they name.
        draws: How each of their inputs is drawn.
        precision: What the operands of large matrix products are rounded to.

    Raises:
        VerifyError: A buffer that is read is not drawn, or an output is not finite.
        ArtifactError: An argument is not drawn.
    """
    with scope():
        found = [(program, f.name.value) for program in programs.values() for f in functions(program.module)]
    return SelfTest(dict(draws), {name: _outputs(program, name, tables, draws, precision) for program, name in found})


def _outputs(
    program: Program, function: str, tables: Mapping[str, StateTable], draws: Mapping[str, Draw], precision: str
) -> dict[str, Expected]:
    """Return the expected outputs of one entry."""
    with scope():
        arguments, results = ports(program.function(function))
    inputs = _inputs(function, arguments, tables, draws)
    names = [port.name if port.state is None else f"{port.state}.{port.name}" for port in results]

    def run(dtype: Any) -> list[Fingerprint]:
        with warnings.catch_warnings():  # NumPy's notes on overflow: what is not finite is refused below
            warnings.simplefilter("ignore", RuntimeWarning)
            return [fingerprint(array) for array in interpret(program, function, inputs, dtype)]

    smallest = SMALLEST_TOLERANCE[precision if _has_products(program, function) else "f32"]
    exact_values = dict(zip(names, run(np.float64), strict=True))
    least = least_norms(exact_values)
    expected = {}
    for (name, exact), rounded in zip(exact_values.items(), run(np.float32), strict=True):
        noise = relative_error(exact, rounded, least[name])
        if not np.isfinite(noise):
            raise VerifyError(
                f"self-test: {name} of entry {function!r} must be finite, in float32 too; change its draws"
            )
        tolerance = max(smallest, MARGIN * noise)
        expected[name] = Expected(min(tolerance, LARGEST_TOLERANCE), exact)
    return expected


def _has_products(program: Program, function: str) -> bool:
    """Return whether a function has a matrix product, whose operands precision "bf16" may round.

    On GPUs rows that are added by index are one, too.
    """
    copy = program.clone()
    with scope():
        op = copy.function(function)
        decompose_function(op)
        return any(str(item.operation.name) in _PRODUCTS for item in entry_block(op).operations)


def _inputs(
    function: str, arguments: list[Port], tables: Mapping[str, StateTable], draws: Mapping[str, Draw]
) -> list[npt.NDArray[Any]]:
    """Draw the inputs of one entry, one array an argument."""
    states = dict.fromkeys(port.state for port in arguments if port.state is not None)
    flats = {buffer: draw_state(draws, buffer, tables[buffer]) for buffer in states}
    inputs = []
    for port in arguments:
        if port.state is None:
            inputs.append(draw_argument(draws, function, port.name, port.aval.shape, port.aval.dtype))
            continue
        flat = flats[port.state]
        if flat is None:
            raise VerifyError(f"entry {function!r} reads buffer {port.state!r}, and no draw says what is in it")
        inputs.append(flat if port.name == WHOLE else tables[port.state].views(flat)[port.name])
    return inputs


def _start(given: Any, answer: Any, errors: Any) -> "subprocess.Popen[bytes]":
    here = str(Path(trainc.__file__).parents[1])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "trainc.frontends.tracing.selftest"],
        stdin=given,
        stdout=answer,
        stderr=errors,
        env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
    )


def _to_text(
    programs: Mapping[str, Program], tables: Mapping[str, StateTable], draws: Mapping[str, Draw], precision: str
) -> str:
    return json.dumps(
        {
            "programs": {name: program.print() for name, program in programs.items()},
            "tables": {buffer: [table.name, table.to_json()] for buffer, table in tables.items()},
            "draws": {name: draw.text() for name, draw in draws.items()},
            "precision": precision,
        }
    )


def _main() -> None:
    given = json.load(sys.stdin)
    found = make_selftest(
        {name: Program.parse(text) for name, text in given["programs"].items()},
        {buffer: StateTable.from_json(*table) for buffer, table in given["tables"].items()},
        {name: Draw.parse(name, text) for name, text in given["draws"].items()},
        given["precision"],
    )
    json.dump(found.to_json(), sys.stdout)


if __name__ == "__main__":
    _main()
