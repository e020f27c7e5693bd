"""The mark of tests that run code compiled in bf16."""

import pytest

from trainc.compiler.targets import find_target

needs_bf16 = pytest.mark.skipif("avx512bf16" not in find_target("cpu").features, reason="this CPU has no AVX512_BF16")
