"""What is shown where: a terminal, a pipe, NO_COLOR, --quiet."""

import os
import pty
import re
import subprocess

import pytest

from trainc.cli.progress import Reporter, summary

COLOUR = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")
ESCAPE = re.compile(rb"\x1b")


def on_a_terminal(cli, *arguments, **env: str) -> bytes:
    """What the program writes to standard error when that is a terminal."""
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR", "TERM")}
    process = subprocess.Popen(
        cli.command(*arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        cwd=cli.folder,
        env=environment | cli.environment | {"TERM": "xterm-256color", "COLUMNS": "100"} | env,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait(timeout=300) == 0, shown
    return shown


def train(artifact, text):
    return ["run", artifact, "--data", text, "--steps", 3, "--out", "run"]


def test_a_terminal_gets_a_bar(cli, artifact, text):
    shown = on_a_terminal(cli, *train(artifact, text))
    assert COLOUR.search(shown)
    assert b"3/3" in shown


def test_no_color_takes_the_colours_away(cli, artifact, text):
    shown = on_a_terminal(cli, *train(artifact, text), NO_COLOR="1")
    assert b"3/3" in shown
    assert not COLOUR.search(shown)


def test_a_dumb_terminal_gets_plain_lines(cli, artifact, text):
    assert not ESCAPE.search(on_a_terminal(cli, *train(artifact, text), TERM="dumb"))


def test_quiet_shows_nothing_on_a_terminal(cli, artifact, text):
    assert on_a_terminal(cli, *train(artifact, text), "--quiet") == b""


def test_a_pipe_gets_plain_lines(cli, artifact, text):
    run = cli.ok(*train(artifact, text), text=False)
    assert run.stderr.decode().startswith("train: 3 steps\nstep 1  loss ")
    assert not ESCAPE.search(run.stderr + run.stdout)


def test_quiet_leaves_only_the_result(cli, artifact, text):
    run = cli.ok(*train(artifact, text), "--quiet")
    assert run.stderr == ""
    assert len(run.stdout.splitlines()) == 1


def test_summary_shows_what_is_there():
    assert summary({"train/loss": 1.25, "perf/tokens_per_s": 12345.6}) == "loss 1.2500  tokens/s 12,346"
    assert summary({"step": 3}) == ""


@pytest.mark.parametrize("text", ["[bold]not markup[/bold]", ":smile: 100%"])
def test_text_is_shown_as_it_is(capsys, text):
    with Reporter() as reporter:
        reporter.note(text)
    assert capsys.readouterr().err == f"{text}\n"
