"""The verbs, their options and their help."""

import typer.main

from trainc.cli.main import app

COMMON = {"--json", "--quiet", "-q"}
OPTIONS = {
    "compile": COMMON | {"--out", "-o", "--target", "-t", "--mode", "--precision", "--dry-run"},
    "inspect": COMMON,
    "targets": COMMON | {"--devices"},
    "cache info": COMMON,
    "cache clear": COMMON,
    "verify": COMMON | {"--device"},
    "run": COMMON
    | {"--data", "--steps", "--out", "--resume", "--checkpoint-every", "--keep", "--seed", "--device"}
    | {"--no-verify", "--print-digest"},
    "eval": COMMON | {"--weights", "--data", "--max-windows", "--device", "--no-verify"},
    "sample": COMMON
    | {"--weights", "--prompt", "--max-tokens", "--temperature", "--top-k", "--top-p", "--seed", "--stop", "--device"}
    | {"--no-verify"},
    "bench": COMMON | {"--steps", "--profile", "--device"},
    "opt": COMMON | {"--pass"},
    "demo": COMMON | {"--out", "--steps", "--seed", "--device"},
}
"""Scripts depend on these names: a change here is a change for users and belongs in CHANGELOG.md."""


def verbs() -> dict[str, object]:
    found = {}
    for name, command in typer.main.get_command(app).commands.items():
        for inner, subcommand in getattr(command, "commands", {"": command}).items():
            found[f"{name} {inner}".strip()] = subcommand
    return found


def test_the_option_names_of_every_verb():
    found = {
        name: {
            option for parameter in command.params if parameter.param_type_name == "option" for option in parameter.opts
        }
        for name, command in verbs().items()
    }
    assert found == OPTIONS


def test_help_of_every_verb(cli):
    for name, command in verbs().items():
        run = cli.ok(*name.split(), "--help")
        assert run.stderr == ""
        assert run.stdout.startswith(f"Usage: trainc {name}")
        for parameter in command.params:
            assert parameter.help, f"{name} {parameter.name} has no help"
        for option in OPTIONS[name]:
            assert option in run.stdout


def test_the_program_alone_shows_all_verbs(cli):
    shown = cli.ok().stdout
    assert shown == cli.ok("--help").stdout
    for name in verbs():
        assert f"\n  {name.split()[0]} " in shown


def test_version(cli):
    import trainc

    assert cli.ok("--version").stdout == f"trainc {trainc.__version__}\n"
