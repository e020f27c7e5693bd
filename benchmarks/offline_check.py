"""Checks what is compiled for GPUs with the tools of each vendor, on a machine without a GPU.

    python benchmarks/offline_check.py [CONFIG.toml] [--target NAME ...] [--out FOLDER]

Every module of the configuration is compiled for every GPU target with the target's own flags, in each precision that
it offers, and every executable in it is examined: SPIR-V by spirv-val, PTX by ptxas for its own architecture and newer
ones, AMD's code objects by LLVM's tools, Metal's language by a parser. The exit status is 1 if one is wrong, does not
compile, or if a tool is missing.

--out writes offline-checks.md and offline-checks.json. The tools are spirv-val (Debian: spirv-tools), llvm-readobj and
llvm-objdump of LLVM 19 or newer (Debian: llvm-19), and `pip install 'trainc[offline]'` for the rest.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks.offline.check import SUFFIXES, check_module, required_tools
from benchmarks.offline.dump import compile_and_dump
from benchmarks.offline.report import as_markdown
from benchmarks.offline.tools import MissingToolError
from trainc.compiler.iree import compiler_version, stop_compilers
from trainc.compiler.targets import Target, find_target, target_names
from trainc.core.errors import CompileError, TraincError
from trainc.core.modes import PRECISIONS
from trainc.frontends.samba.config_file import load_config
from trainc.frontends.samba.tracing.build import samba_source
from trainc.frontends.tracing.artifact import Source


def main() -> int:
    """Checks everything and reports; returns the exit status."""
    options = parse_options()
    try:
        targets = [find_target(name) for name in options.target or gpu_names()]
        unchecked = [target.name for target in targets if target.family not in SUFFIXES]
        if unchecked:
            print(f"offline_check: target {unchecked[0]} is no GPU; it is checked by running it", file=sys.stderr)
            return 2
        versions = required_tools([target.family for target in targets])
        run = load_config(options.config)
        sources = {precision: samba_source(run, precision=precision) for precision in PRECISIONS}
    except (MissingToolError, TraincError) as error:
        print(f"offline_check: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    report = {
        "config": options.config.name,
        "compiler": compiler_version(),
        "tools": versions,
        "modules": check_all(sources, targets),
    }
    text = as_markdown(report)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "offline-checks.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        (options.out / "offline-checks.md").write_text(text, encoding="utf-8")
    return int(any(row["problems"] for row in report["modules"]))


def gpu_names() -> list[str]:
    """The targets that are no CPUs."""
    return [name for name in target_names() if find_target(name).family in SUFFIXES]


def parse_options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = ROOT / "examples" / "samba_tiny.toml"
    parser.add_argument("config", type=Path, nargs="?", default=default, help="what to compile (default samba_tiny)")
    parser.add_argument("--target", action="append", help="a target, more than once if wanted (default: all GPUs)")
    parser.add_argument("--out", type=Path, help="folder for the table (Markdown) and all figures (JSON)")
    return parser.parse_args()


def check_all(sources: Mapping[str, Source], targets: list[Target]) -> list[dict[str, Any]]:
    """Compiles and checks every module for every target, as many at once as there are processors.

    Args:
        sources: What to compile, by precision.
        targets: What to compile for.

    Returns:
        What was found, one row for each target, precision of it and module.
    """
    work = [(sources[precision], target) for target in targets for precision in target.precisions]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        futures = [
            pool.submit(check_one, source, module, target) for source, target in work for module in source.programs
        ]
        try:
            return [future.result() for future in futures]
        except BaseException:  # an interrupt reaches this thread only: the compilers must not outlive it
            pool.shutdown(wait=False, cancel_futures=True)
            stop_compilers()
            raise


def check_one(source: Source, module: str, target: Target) -> dict[str, Any]:
    """Compiles one module for one target and checks it; returns a row of the report."""
    row: dict[str, Any] = {"target": target.name, "arch": target.arch, "family": target.family, "module": module}
    row["precision"] = source.precision
    with tempfile.TemporaryDirectory(prefix="trainc-offline-") as folder:
        try:
            dump = compile_and_dump(source, module, target, Path(folder))
        except CompileError as error:
            found: dict[str, Any] = {"problems": [str(error)], "bytes": None, "compile_s": None, "executables": 0}
            found |= {"failed": 0, "kernels": {}, "notes": [], "matrix": 0}
        else:
            found = dataclasses.asdict(check_module(dump, target))
            found |= {"bytes": len(dump.blob), "compile_s": round(dump.time_s, 1)}
            found["kernels"] = Counter(kernel.partition("_dispatch_")[0] for kernel in found["kernels"])  # by entry
    verdict = found["problems"][0] if found["problems"] else f"{found['executables']} executables are right"
    print(f"{target.name}, {source.precision}, {module}: {verdict}", file=sys.stderr, flush=True)
    return row | found


if __name__ == "__main__":
    sys.exit(main())
