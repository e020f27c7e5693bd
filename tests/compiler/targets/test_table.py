"""Targets by name: aliases, suggestions, what is refused, and the table in the documentation."""

from pathlib import Path

import pytest

from trainc.compiler.targets import aliases_of, find_target, target_names
from trainc.compiler.targets.table import ALIASES
from trainc.core.errors import UnsupportedError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "targets.md"
GPUS = [name for name in target_names() if find_target(name).family != "cpu"]


def test_every_family_has_a_target_of_its_name():
    for family in ("cpu", "cuda", "rocm", "vulkan", "metal"):
        assert find_target(family).family == family


def test_an_alias_is_its_target_under_the_name_that_was_given():
    assert not set(ALIASES) & set(target_names())
    for alias, name in ALIASES.items():
        target, same = find_target(alias), find_target(name)
        assert target.name == alias
        assert alias in aliases_of(name)
        assert (target.arch, target.driver, target.flags()) == (same.arch, same.driver, same.flags())


@pytest.mark.parametrize(
    ("name", "near"), [("h101", "h100"), ("vulcan", "vulkan"), ("SM_90", "sm_90"), ("x86-64", "x86-64-v")]
)
def test_an_unknown_target_suggests_the_nearest(name, near):
    with pytest.raises(UnsupportedError, match=f"{name}.*did you mean '{near}.*trainc targets"):
        find_target(name)


def test_a_name_that_is_near_none_suggests_none():
    with pytest.raises(UnsupportedError, match=r"'abacus'; `trainc targets`"):
        find_target("abacus")


def test_gpus_with_matrix_instructions_offer_bf16():
    offer = {name for name in GPUS if "bf16" in find_target(name).precisions}
    assert offer == {name for name in GPUS if find_target(name).family in ("cuda", "rocm")}
    assert {"sm_80", "sm_90", "gfx942", "gfx1201"} < offer
    for name in offer:
        find_target(name).check_precision("bf16")


@pytest.mark.parametrize("name", [name for name in GPUS if find_target(name).family in ("vulkan", "metal")])
def test_other_gpus_refuse_bf16_by_name(name):
    target = find_target(name)
    assert target.precisions == ("f32",)
    target.check_precision("f32")
    with pytest.raises(UnsupportedError, match=f"'bf16' is not offered for target '{name}'.*SPIR-V.*use 'f32'"):
        target.check_precision("bf16")


def row(name: str) -> str:
    """The row of a target in the documentation."""
    target = find_target(name)
    other = ", ".join(f"`{alias}`" for alias in aliases_of(name))
    if name == "cpu":
        return "| `cpu` |  | local-task | this machine's | f32, bf16 with AVX512_BF16 |  |  |"
    sizes = "" if target.family == "cpu" else ", ".join(map(str, target.subgroup_sizes)) or "any"
    shared = f"{target.workgroup_bytes // 1024} KiB" if target.workgroup_bytes else ""
    cells = (f"`{name}`", other, target.driver, target.arch, ", ".join(target.precisions), sizes, shared)
    return f"| {' | '.join(cells)} |"


def test_the_documentation_lists_every_target_as_it_is():
    table = PAGE.read_text(encoding="utf-8").partition("## The table")[2].partition("## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [row(name) for name in target_names()]
