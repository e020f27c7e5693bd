"""`trainc cache`: what the compile cache holds, and clearing it."""

import dataclasses
from typing import TYPE_CHECKING

import typer

from trainc.cli import options, output

if TYPE_CHECKING:
    from trainc.compiler.cache import CacheInfo

app = typer.Typer(help="Show or clear the cache of compiled modules.", rich_markup_mode=None)


@app.command("info")
def info_command(as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Show where the cache is and what it holds."""
    from trainc.compiler.cache import CompileCache

    del quiet  # nothing is printed but the result
    _show(CompileCache().info(), "holds", as_json)


@app.command("clear")
def clear_command(as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Remove everything from the cache."""
    from trainc.compiler.cache import CompileCache

    held = CompileCache().clear()
    if not quiet or as_json:
        _show(held, "held", as_json)


def _show(info: "CacheInfo", verb: str, as_json: bool) -> None:
    if as_json:
        output.emit_json(dataclasses.asdict(info) | {"folder": str(info.folder)})
        return
    kept = f"{info.entries} modules, {info.kernels} kernels and {info.failed_inputs} failed programs"
    size = f"{output.size(info.size_bytes)} of at most {output.size(info.limit_bytes)}"
    output.emit(f"{info.folder} {verb} {kept}, {size}")
