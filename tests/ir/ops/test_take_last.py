import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.ops.take_last import take_last
from trainc.ir.tensor import Aval


@pytest.mark.parametrize(("shape", "length"), [((1, 1, 1), 1), ((3, 5, 2), 1), ((3, 5, 2), 4), ((2, 65, 3), 65)])
def test_row(shape, length):
    h = np.random.default_rng(17).standard_normal(shape)
    (out,) = check_forward(take_last, [h, np.array(length, np.int32)])
    np.testing.assert_array_equal(out, h[:, length - 1])


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.take_last.*h \(B, L, D\)"):
        traced(take_last, [Aval((3, 5)), Aval((), "i32")])
    with pytest.raises(ShapeError, match=r"train\.take_last.*length of shape \(\)"):
        traced(take_last, [Aval((1, 3, 5)), Aval((1,), "i32")])
    with pytest.raises(DtypeError, match=r"train\.take_last.*length of dtype i32"):
        traced(take_last, [Aval((1, 3, 5)), Aval(())])
