"""`trainc targets`: what can be compiled for, and what can be run on."""

from typing import Annotated, Any

import typer

from trainc.cli import options, output

Devices = Annotated[bool, typer.Option("--devices", help="List the devices of this machine instead.")]


def targets_command(devices: Devices = False, as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List what can be compiled for, or run on."""
    del quiet  # nothing is printed but the result
    if devices:
        _show("devices", ("DEVICE",), _devices(), as_json)
    else:
        _show("targets", ("TARGET", "DRIVER", "CPU", "FEATURES"), _targets(), as_json)


def _devices() -> list[dict[str, Any]]:
    from trainc.runtime.device import available_devices

    return [{"device": name} for name in available_devices()]


def _targets() -> list[dict[str, Any]]:
    from trainc.compiler.targets import find_target, target_names

    rows = []
    for name in target_names():
        target = find_target(name)
        rows.append({"target": name, "driver": target.driver, "cpu": target.cpu, "features": " ".join(target.features)})
    return rows


def _show(title: str, header: tuple[str, ...], rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        output.emit_json({title: rows})
    else:
        output.emit_table(header, [list(row.values()) for row in rows])
