"""The manifest: round trip, and every field read strictly."""

import json

import pytest

from trainc.core.errors import ArtifactError
from trainc.core.manifest import Argument, Entry, Manifest, ModuleFile, Result, Target
from trainc.core.selftest import Draw, SelfTest
from trainc.core.state_table import StateTable

TABLE = StateTable.build("params", [("a", (3, 5))])
MANIFEST = Manifest(
    trainc_version="1.2",
    kind="samba",
    config={"vocab": 256},
    settings={"batch": {"rows": 4}},
    numeric_mode="deterministic",
    precision="f32",
    state={"params": TABLE},
    entries={
        "gradients": Entry(
            "gradients",
            "train_b4x64",
            (
                Argument("params", "state", (64,), "f32", "params"),
                Argument("ids", "tensor", (4, 64), "i32"),
                Argument("divisor", "scalar", (), "f32"),
            ),
            (Result("loss", "tensor", (), "f32"), Result("grads", "state", (64,), "f32")),
        )
    },
    targets={
        "cpu": Target("local-task", "x", ("avx2",), (), {"train_b4x64": ModuleFile("modules/cpu/t.vmfb", "0" * 64, 9)})
    },
    compiler={"version": "3.13.0", "flags": ["-O3"]},
    selftest=SelfTest({"ids": Draw("integers", 0, 256)}, {"gradients": {}}),
)


def test_round_trip():
    assert Manifest.from_text(MANIFEST.to_text()) == MANIFEST
    assert json.loads(MANIFEST.to_text())["format"] == "trainc-artifact"


def at(value, path):
    for part in path:
        value = value[part]
    return value


@pytest.mark.parametrize(
    ("path", "key", "value", "text"),
    [
        ((), "format", "zip", r"format must be one of \['trainc-artifact'\], got 'zip'"),
        ((), "format_version", 3, "format_version must be 2, got 3"),
        ((), "format_version", True, "format_version must be int, got True"),
        ((), "numeric_mode", "wild", "numeric_mode must be one of"),
        ((), "kind", None, "kind must be str, got None"),
        ((), "extra", 1, "extra is not known here"),
        (("entries", "gradients"), "extra", 1, r"entries\.gradients\.extra is not known"),
        (("entries", "gradients"), "module", "other", r"entries\.gradients\.module must be one of .*'cpu'"),
        (
            ("entries", "gradients", "args", 0),
            "state",
            "m",
            r"args\.params\.state must be one of \['params'\], got 'm'",
        ),
        (("entries", "gradients", "args", 0), "shape", [65], r"args\.params\.shape must be \[64\], got \[65\]"),
        (("entries", "gradients", "args", 0), "kind", "pointer", r"args\[0\]\.kind must be one of"),
        (("entries", "gradients", "args", 1), "shape", [4, 0], r"args\[1\]\.shape must hold dimensions of at least 1"),
        (("entries", "gradients", "args", 1), "dtype", "f16", r"args\[1\]\.dtype must be one of"),
        (("entries", "gradients", "args", 1), "name", "params", "must have different names"),
        (("entries", "gradients", "args", 2), "shape", [1], "must be a scalar"),
        (("entries", "gradients", "results", 0), "kind", "scalar", r"results\[0\]\.kind"),
        (("targets", "cpu"), "features", [1], r"targets\.cpu\.features must hold strings"),
        (("targets", "cpu"), "subgroup_sizes", [0], r"targets\.cpu\.subgroup_sizes must hold whole numbers"),
        (("targets", "cpu", "modules", "train_b4x64"), "path", "/etc/x", "must stay inside"),
        (("targets", "cpu", "modules", "train_b4x64"), "path", "a/../../x", "must stay inside"),
        (("targets", "cpu", "modules", "train_b4x64"), "path", "", "must stay inside"),
        (("targets", "cpu", "modules", "train_b4x64"), "sha256", "0" * 63, "64 hexadecimal digits"),
        (("targets", "cpu", "modules", "train_b4x64"), "size_bytes", -1, "must not be negative"),
        (("state", "params"), "size", 65, "size must be 64, got 65"),
        ((), "state", [], "state must be dict"),
        ((), "selftest", [], "selftest must be dict or NoneType"),
        (("selftest", "draws"), "ids", "any", r"selftest\.draws\.ids must be one of"),
    ],
)
def test_a_wrong_field_is_named(path, key, value, text):
    damaged = MANIFEST.to_json()
    at(damaged, path)[key] = value
    with pytest.raises(ArtifactError, match=text):
        Manifest.from_json(damaged)


@pytest.mark.parametrize("key", list(MANIFEST.to_json()))
def test_a_missing_field_is_named(key):
    damaged = MANIFEST.to_json()
    del damaged[key]
    with pytest.raises(ArtifactError, match=f"{key} is missing"):
        Manifest.from_json(damaged)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000])
def test_what_is_no_manifest(text):
    with pytest.raises(ArtifactError, match="manifest"):
        Manifest.from_text(text)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_json_lacks_is_refused(constant):
    text = MANIFEST.to_text().replace('"format_version": 2', f'"format_version": {constant}')
    with pytest.raises(ArtifactError, match=f"not JSON .*{constant}"):
        Manifest.from_text(text)
