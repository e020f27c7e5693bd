"""What is told of devices, from what drivers print of them."""

import sys
from types import SimpleNamespace

import pytest

from trainc.core.errors import DeviceError
from trainc.runtime import choose, device, discovery
from trainc.runtime.choose import device_for
from trainc.runtime.device import find_device, full_name
from trainc.runtime.discovery import DeviceInfo, discover, discover_family

VULKAN = """name: A Card
path: GPU-00
type: discrete-gpu
vendor_id: 0x1002
driver: radv
driver_info: Mesa 24
subgroup: size=64 operations=0x000000bf quadOperationsInAllStages=no minSubgroupSize=32 maxSubgroupSize=64 more=1
"""
CUDA = "\n- gpu-compute-capability: 9.0\n- memory-is-integrated-memory: 0\n"
HIP = "\n- gpu-compute-capability: 9.4\n- gpu-arch-name: gfx942:sramecc+:xnack-\n"


class Driver:
    def __init__(self, *texts) -> None:
        self._texts = texts

    def query_available_devices(self):
        return [{"device_id": 7 + i, "name": f"card {i}"} for i in range(len(self._texts))]

    def dump_device_info(self, number):
        return self._texts[number - 7]


@pytest.fixture
def driver(monkeypatch):
    """Puts another driver, or an error, in the place of all of the runtime's."""

    def use(found):
        def get_driver(name):
            if isinstance(found, Exception):
                raise found
            return found

        names = ["cuda", "hip", "vulkan"]
        runtime = SimpleNamespace(query_available_drivers=lambda: names, get_driver=get_driver)
        monkeypatch.setitem(sys.modules, "iree.runtime", runtime)
        monkeypatch.setattr(sys.modules["iree"], "runtime", runtime)

    import iree.runtime  # noqa: F401  # so that there is something to replace

    return use


def test_vulkan(driver):
    driver(Driver(VULKAN, VULKAN.replace("discrete-gpu", "cpu"), VULKAN.replace("discrete-gpu", "integrated-gpu")))
    first, second, third = discover_family("vulkan")
    assert first == DeviceInfo("vulkan:0", "vulkan", "A Card", "radv Mesa 24", "discrete", "", 0x1002, 64, (32, 64))
    assert (second.name, second.software, third.kind) == ("vulkan:1", True, "integrated")
    assert discovery.device_id(second) == 8


def test_cuda_and_rocm(driver):
    driver(Driver(CUDA, CUDA.replace("memory: 0", "memory: 1")))
    first, second = discover_family("cuda")
    assert (first.name, first.hardware, first.arch, first.subgroup_size) == ("cuda:0", "card 0", "sm_90", 32)
    assert (first.kind, second.kind) == ("discrete", "integrated")
    driver(Driver(HIP))
    (card,) = discover_family("rocm")
    assert (card.name, card.driver, card.arch) == ("rocm:0", "hip", "gfx942")


def test_a_driver_that_tells_nothing_leaves_it_unknown(driver):
    driver(Driver(""))
    for family in ("cuda", "rocm", "vulkan"):
        (card,) = discover_family(family)
        assert (card.name, card.hardware, card.arch) == (f"{family}:0", "card 0", "")
        assert card.available


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (RuntimeError("Error creating driver: c/x.c:66: UNAVAILABLE; library not available"), "driver missing: "),
        (RuntimeError("c/x.c:9: INTERNAL; it is broken"), "the driver does not start: it is broken"),
        (Driver(), "the driver is there, a device is not"),
    ],
)
def test_a_driver_without_devices_says_why(driver, found, reason):
    driver(found)
    for family in ("cuda", "rocm", "vulkan", "metal"):
        (row,) = discover_family(family)
        assert not row.available
        assert row.name == family
        assert row.reason.startswith(reason if family != "metal" else "driver missing: this build")
        with pytest.raises(DeviceError, match=f"no device '{family}:0' here; ") as caught:
            find_device(f"{family}:0")
        assert row.reason in str(caught.value)


def test_this_machine_has_a_row_for_every_family():
    families = [info.family for info in discover()]
    assert families[0] == "cpu"
    assert set(families) == set(discovery.DRIVERS)


@pytest.mark.parametrize(("name", "full"), [("cpu", "cpu"), ("vulkan", "vulkan:0"), ("cuda:1", "cuda:1")])
def test_names(name, full):
    assert full_name(name) == full


@pytest.mark.parametrize("name", ["npu", "", "cpu:0", "vulkan:", "vulkan:x", "cuda:-1", "hip", "local-task"])
def test_other_names_are_refused(name):
    with pytest.raises(DeviceError, match="here; there is: cpu"):
        full_name(name)


def test_a_number_too_large_lists_what_is_there(driver):
    driver(Driver(VULKAN))
    with pytest.raises(DeviceError, match="no device 'vulkan:3' here; there is: vulkan:0; `trainc targets --devices`"):
        find_device("vulkan:3")


class TestAuto:
    """`auto` goes down the list until a device works."""

    @pytest.fixture
    def opened(self, monkeypatch):
        cards = [DeviceInfo(f"cuda:{i}", "cuda", kind="discrete") for i in range(3)]
        monkeypatch.setattr(choose, "discover", lambda: [*cards, find_device("cpu")])
        names = []

        def open_device(name):
            names.append(name)
            if name == "cuda:1":
                raise DeviceError("it does not start")
            return name

        monkeypatch.setattr(choose, "open_device", open_device)
        return names

    @pytest.fixture
    def artifact(self):
        def target(info):
            if info.name == "cuda:0":
                raise DeviceError("no modules")

        return SimpleNamespace(path="x.trainc", target=target)

    def test_the_first_that_fits_and_starts(self, opened, artifact):
        assert device_for(artifact, "auto") == "cuda:2"
        assert opened == ["cuda:1", "cuda:2"]

    def test_the_first_that_is_accepted(self, opened, artifact):
        def accept(device):
            if device != "cpu":
                raise DeviceError("wrong values")

        assert device_for(artifact, "auto", accept) == "cpu"

    def test_all_reasons_are_told(self, opened, artifact):
        def accept(device):
            raise DeviceError("wrong values")

        with pytest.raises(DeviceError) as caught:
            device_for(artifact, "auto", accept)
        for reason in ("cuda:0: no modules", "cuda:1: it does not start", "cuda:2: wrong values", "cpu: wrong values"):
            assert reason in str(caught.value)

    def test_a_name_is_taken_as_it_is(self, opened, artifact):
        assert device_for(artifact, "cuda:0") == "cuda:0"
        assert device.DEFAULT_DEVICE == "cpu"
