"""The `trainc` program: its verbs, and how errors become exit codes.

Exit codes: 0 done, 1 failure, 2 usage, 3 compile, 4 artifact or checkpoint, 5 device, 6 numerics,
130 interrupted. The library's errors carry theirs (`trainc.core.errors`).
"""

import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, TextIO

import typer

from trainc import __version__
from trainc.cli import bench, cache, compile, demo, eval, inspect, opt, run, sample, targets, verify
from trainc.core.errors import CompileError, TraincError

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="trainc",
    help="Compile the training of a model ahead of time, then train, evaluate and sample it without a compiler.",
    epilog="Data goes to standard output, progress and logs to standard error.",
    add_completion=False,
    rich_markup_mode=None,  # plain help: the same on a terminal, in a pipe and with NO_COLOR
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("compile")(compile.compile_command)
app.command("inspect")(inspect.inspect_command)
app.command("targets")(targets.targets_command)
app.add_typer(cache.app, name="cache")
app.command("verify")(verify.verify_command)
app.command("run")(run.run_command)
app.command("eval")(eval.eval_command)
app.command("sample")(sample.sample_command)
app.command("bench")(bench.bench_command)
app.command("opt")(opt.opt_command)
app.command("demo")(demo.demo_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"trainc {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself; the verbs have their own."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns the process exit code.

    Args:
        argv: The arguments after the program's name; None takes the process's own. None at all shows the help.
    """
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    as_json = "--json" in arguments
    try:
        with warnings.catch_warnings(), _sigterm_interrupts():
            warnings.showwarning = _show_warning
            code = app(arguments, prog_name="trainc", standalone_mode=False)
    except TraincError as error:
        return _report(error, str(error), error.exit_code, as_json)
    except typer.TyperException as error:
        return _report(error, error.format_message(), error.exit_code, as_json)
    except ModuleNotFoundError as error:
        return _report_missing_module(error, as_json)
    except OSError as error:
        return _report(error, str(error), EXIT_FAILURE, as_json)
    except Exception as error:  # the last resort: a defect still ends in one line and a non-zero code
        return _report_defect(error, as_json)
    except KeyboardInterrupt:  # before or after the verb, where typer takes no notice of it
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:  # Ctrl-C, which typer turned into this code
        return _report(KeyboardInterrupt(), "interrupted", EXIT_INTERRUPTED, as_json)
    return code if isinstance(code, int) else 0


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does, so that a verb takes away what it started; a second one ends the process."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _report_missing_module(error: ModuleNotFoundError, as_json: bool) -> int:
    if not (error.name or "").startswith("iree.compiler"):
        return _report_defect(error, as_json)
    missing = CompileError("this needs the compiler, which is not installed; install the package iree-base-compiler")
    return _report(missing, str(missing), missing.exit_code, as_json)


def _report_defect(error: Exception, as_json: bool) -> int:
    message = f"internal error: {type(error).__name__}: {error} (TRAINC_TRACEBACK=1 shows where)"
    return _report(error, message, EXIT_FAILURE, as_json)


def _report(error: BaseException, message: str, exit_code: int, as_json: bool) -> int:
    if os.environ.get("TRAINC_TRACEBACK") == "1":
        traceback.print_exception(error)
    if as_json:
        record = {"error": {"type": type(error).__name__, "message": message, "exit_code": exit_code}}
        print(json.dumps(record), file=sys.stderr)
    else:
        print(f"trainc: error: {message}", file=sys.stderr)
    return exit_code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a warning as one line, in place of Python's file, line and source."""
    print(f"trainc: warning: {message}", file=sys.stderr)
