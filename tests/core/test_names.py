import numpy as np
import pytest

from trainc.core.dtypes import DTYPE_NAMES, dtype_name, itemsize_bytes, numpy_dtype
from trainc.core.errors import DtypeError, UnsupportedError, UsageError
from trainc.core.modes import DEFAULT_MODE, resolve_mode, resolve_numerics


def test_dtype_names_and_numpy_dtypes_are_one_to_one() -> None:
    assert [dtype_name(numpy_dtype(name)) for name in DTYPE_NAMES] == list(DTYPE_NAMES)
    assert dtype_name(np.float32) == "f32"
    assert {name: itemsize_bytes(name) for name in DTYPE_NAMES} == {
        "f32": 4, "f64": 8, "i32": 4, "i64": 8, "i1": 1, "bf16": 2,
    }  # fmt: skip


def test_unknown_dtypes_are_named() -> None:
    with pytest.raises(DtypeError, match=r"f16.*f32"):
        numpy_dtype("f16")
    with pytest.raises(DtypeError, match=r"float16.*f32"):
        dtype_name(np.float16)


def test_modes() -> None:
    assert resolve_mode(None) == DEFAULT_MODE == "deterministic"
    assert resolve_mode("fast") == "fast"
    with pytest.raises(UsageError, match="bogus"):
        resolve_mode("bogus")
    with pytest.raises(UnsupportedError, match="identical"):
        resolve_mode("identical")


def test_precisions() -> None:
    assert [resolve_numerics(mode, "f32") for mode in (None, "deterministic", "fast")] == [
        DEFAULT_MODE, "deterministic", "fast",
    ]  # fmt: skip
    assert resolve_numerics(None, "bf16") == resolve_numerics("fast", "bf16") == "fast"
    for mode in ("deterministic", "identical"):
        with pytest.raises(UsageError, match=f"bf16.*'fast'.*{mode}"):
            resolve_numerics(mode, "bf16")
    with pytest.raises(UsageError, match="f16"):
        resolve_numerics("fast", "f16")
    with pytest.raises(UnsupportedError, match="identical"):
        resolve_numerics("identical", "f32")
