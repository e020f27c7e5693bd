"""`trainc targets`: what can be compiled for, and what can be run on."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from trainc.cli import options, output

Devices = Annotated[bool, typer.Option("--devices", help="List the devices of this machine instead.")]


def targets_command(devices: Devices = False, as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """List what can be compiled for, or run on."""
    del quiet  # nothing is printed but the result
    if devices:
        _show_devices(as_json)
        return
    rows = _targets()
    if as_json:
        output.emit_json({"targets": rows})
    else:
        _show_targets(rows)


def _show_devices(as_json: bool) -> None:
    from trainc.runtime.discovery import discover

    found = discover()
    if as_json:
        rows = [{"device": info.name, "available": info.available} | asdict(info) for info in found]
        output.emit_json({"devices": [{key: row[key] for key in row if key != "name"} for row in rows]})
        return
    output.emit_table(
        ("DEVICE", "KIND", "HARDWARE", "DRIVER", "SUBGROUP"),
        (
            (
                info.name,
                info.kind if info.available else "none",
                " ".join(filter(None, (info.hardware, info.arch))) or info.reason,
                " ".join(filter(None, (info.driver, info.version))),
                str(info.subgroup_size or "-"),
            )
            for info in found
        ),
    )


def _targets() -> list[dict[str, Any]]:
    from trainc.compiler.targets import aliases_of, find_target, target_names

    rows = []
    for name in target_names():
        target = find_target(name)
        rows.append(
            {
                "target": name,
                "aliases": list(aliases_of(name)),
                "family": target.family,
                "driver": target.driver,
                "arch": target.arch,
                "precisions": list(target.precisions),
                "subgroup_sizes": list(target.subgroup_sizes),
                "workgroup_bytes": target.workgroup_bytes,
                "workgroup_threads": target.workgroup_threads,
                "features": list(target.features),
                "refused": dict(target.refused),
            }
        )
    return rows


def _show_targets(rows: list[dict[str, Any]]) -> None:
    output.emit_table(
        ("TARGET", "ALIASES", "DRIVER", "ARCH", "PRECISIONS", "SUBGROUP", "SHARED", "REFUSED"),
        (
            (
                row["target"],
                ",".join(row["aliases"]) or "-",
                row["driver"],
                row["arch"],
                ",".join(row["precisions"]),
                _subgroup(row),
                output.size(row["workgroup_bytes"]) if row["workgroup_bytes"] else "-",
                "; ".join(f"{what}: {why}" for what, why in row["refused"].items()) or "-",
            )
            for row in rows
        ),
    )


def _subgroup(row: dict[str, Any]) -> str:
    if row["family"] == "cpu":
        return "-"
    return ",".join(map(str, row["subgroup_sizes"])) or "any"
