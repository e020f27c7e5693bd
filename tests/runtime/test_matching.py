"""Which target a device runs, and which device comes first."""

import platform

import pytest

from trainc.core.errors import DeviceError
from trainc.core.manifest import Target
from trainc.runtime import cpu_features
from trainc.runtime.discovery import DeviceInfo
from trainc.runtime.matching import fastest_first, match, refusal

CPU = DeviceInfo("cpu", "local-task", "Chip", kind="cpu")
LAVAPIPE = DeviceInfo("vulkan:0", "vulkan", "llvmpipe", kind="software", vendor=0x10005, subgroup_size=8)
RADEON = DeviceInfo("vulkan:1", "vulkan", "Radeon", kind="discrete", vendor=0x1002, subgroup_size=64)
UNKNOWN_SIZE = DeviceInfo("vulkan:2", "vulkan", "Odd", kind="discrete")
H100 = DeviceInfo("cuda:0", "cuda", "H100", kind="discrete", arch="sm_90", subgroup_size=32)
MI300 = DeviceInfo("rocm:0", "hip", "MI300X", kind="discrete", arch="gfx942")


def target(driver="vulkan", arch="", features=(), sizes=()):
    return Target(driver, arch, tuple(features), tuple(sizes), {})


ANY, LVP, RDNA = target(), target(arch="lavapipe", sizes=[8]), target(arch="rdna3", sizes=[32, 64])
AMPERE = target(arch="ampere", sizes=[32])
VULKANS = {"vulkan": ANY, "rdna3": RDNA, "lavapipe": LVP, "ampere": AMPERE}


@pytest.mark.parametrize(("device", "name"), [(LAVAPIPE, "lavapipe"), (RADEON, "rdna3"), (UNKNOWN_SIZE, "vulkan")])
def test_vulkan_takes_the_target_of_its_own_size_before_one_for_any(device, name):
    assert match(VULKANS, device, "x.trainc") == (name, VULKANS[name])
    assert match({name: VULKANS[name] for name in reversed(VULKANS)}, device, "x.trainc")[0] == name


@pytest.mark.parametrize(
    ("wanted", "device", "text"),
    [
        (RDNA, LAVAPIPE, "rdna3, found vulkan:0 (llvmpipe, subgroup size 8)"),
        (target(sizes=[32, 64]), LAVAPIPE, "any vulkan device with subgroups of 32 or 64, found vulkan:0 (llvmpipe"),
        (target(arch="sm_89", sizes=[64]), RADEON, "sm_89, found vulkan:1"),
        (LVP, UNKNOWN_SIZE, "lavapipe with subgroups of 8, found vulkan:2 (Odd)"),
        (target("cuda", "sm_100"), H100, "sm_100, found cuda:0 (H100, sm_90, subgroup size 32)"),
        (target("cuda", "sm_89a"), H100, "sm_89a, found"),
        (target("hip", "gfx1100"), MI300, "gfx1100, found rocm:0 (MI300X, gfx942)"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_found(wanted, device, text):
    with pytest.raises(DeviceError) as caught:
        match({"mine": wanted}, device, "x.trainc")
    message = str(caught.value)
    assert message.startswith(f"x.trainc was compiled for {text}")
    assert f"compile it again with --target {device.family}, or choose another device" in message
    assert caught.value.exit_code == 5


def test_of_targets_for_any_size_the_vendors_own_comes_first():
    apple = DeviceInfo("vulkan:0", "vulkan", "M2", kind="integrated", vendor=0x106B, subgroup_size=32)
    targets = {"vulkan": ANY, "moltenvk": target(arch="moltenvk")}
    assert match(targets, apple, "x")[0] == "moltenvk"
    assert match(targets, RADEON, "x")[0] == "vulkan"
    assert match(targets, UNKNOWN_SIZE, "x")[0] == "vulkan"
    nvidia = DeviceInfo("vulkan:0", "vulkan", "A Card", kind="discrete", vendor=0x10DE, subgroup_size=32)
    older_first = {"ampere": target(arch="sm_80", sizes=[32]), "ada": target(arch="sm_89", sizes=[32])}
    assert match(older_first, nvidia, "x")[0] == "ampere"  # Vulkan does not tell which of the two it is


def test_cuda_takes_the_newest_architecture_that_runs():
    targets = {name: target("cuda", name) for name in ("sm_80", "sm_90", "sm_120")}
    assert match(targets, H100, "x")[0] == "sm_90"
    assert not refusal(target("cuda", "sm_90a"), H100)
    unknown = DeviceInfo("cuda:0", "cuda", "A Card")
    assert match(targets, unknown, "x")[0] == "sm_120"
    assert not refusal(target("hip", "gfx942"), MI300)


def test_a_cpu_takes_the_target_with_the_most_features_it_has(monkeypatch):
    monkeypatch.setattr(cpu_features, "machine", lambda: ("Chip", frozenset({"avx2", "fma", "sse4_2"})))
    targets = {
        "v4": target("local-task", "future", ["avx512f", "avx2", "fma"]),
        "v2": target("local-task", "old", ["sse4.2"]),
        "v3": target("local-task", "new", ["+avx2", "+fma", "-avx512f"]),
        "tuned": target("local-task", "new", ["sse4.2", "wbnoinvd", "clzero", "shstk"]),
    }
    assert match(targets, CPU, "x")[0] == "v3"
    same = {"other": targets["v3"], "cpu": targets["v3"]}
    assert match(same, CPU, "x")[0] == "cpu"
    with pytest.raises(DeviceError, match=r"compiled for future with avx512f, found Chip without; .* on this machine"):
        match({"v4": targets["v4"]}, CPU, "x")


def test_code_for_another_kind_of_processor_is_refused(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    assert not refusal(target("local-task", "x86-64-v3"), CPU)
    assert "aarch64, found Chip (amd64)" in refusal(target("local-task", "aarch64"), CPU)


def test_an_artifact_without_modules_for_the_driver_says_what_it_has():
    with pytest.raises(
        DeviceError, match=r"x was compiled for: cpu \(local-task\); found cuda:0 \(H100, .*--target cuda"
    ):
        match({"cpu": target("local-task")}, H100, "x")


def test_gpus_come_before_the_cpu_and_imitations_last():
    integrated = DeviceInfo("vulkan:3", "vulkan", kind="integrated")
    nvidia = DeviceInfo("vulkan:4", "vulkan", kind="discrete")
    missing = DeviceInfo("rocm", "hip", kind="discrete", reason="driver missing")
    order = fastest_first([LAVAPIPE, CPU, missing, integrated, nvidia, H100])
    assert [info.name for info in order] == ["cuda:0", "vulkan:4", "vulkan:3", "cpu", "vulkan:0"]
