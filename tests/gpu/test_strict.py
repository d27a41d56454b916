"""The stand-in for CuPy rejects what CuPy rejects; on a GPU the tests run on CuPy too."""

import copy
import importlib

import numpy as np
import pytest
import strict

from minitf.backend import to_numpy, using
from minitf.backend import xp as library

HOST = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
IDS = np.array([2, 0, 2, 1])


@pytest.fixture(params=["strict", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    return strict.module if request.param == "strict" else importlib.import_module("cupy")


REFUSED = {
    "np.asarray(array)": lambda xp, a: np.asarray(a),
    "np.array([number, number])": lambda xp, a: np.array([a[0, 0], a[0, 1]]),
    "array + NumPy array": lambda xp, a: a + HOST,
    "NumPy array + array": lambda xp, a: HOST + a,
    "array @ NumPy array": lambda xp, a: a @ HOST.T,
    "array < NumPy array": lambda xp, a: a < HOST,
    "array += NumPy array": lambda xp, a: a.__iadd__(HOST),
    "array * list": lambda xp, a: a * [1.0, 2.0, 3.0, 4.0],
    "exp(NumPy array)": lambda xp, a: xp.exp(HOST),
    "exp(array, out=NumPy array)": lambda xp, a: xp.exp(a, out=HOST.copy()),
    "maximum(array, list)": lambda xp, a: xp.maximum(a, [0.0] * 4),
    "matmul(array, NumPy array)": lambda xp, a: xp.matmul(a, HOST.T),
    "where(mask, array, NumPy array)": lambda xp, a: xp.where(a > 0, a, HOST),
    "concatenate([array, NumPy array])": lambda xp, a: xp.concatenate([a, HOST]),
    "stack([array, number])": lambda xp, a: xp.stack([a[0, 0], 1.0]),
    "asarray([number on the GPU, number])": lambda xp, a: xp.asarray([a[0, 0], 1.0]),
    "zeros(length on the GPU)": lambda xp, a: xp.zeros(a.argmax()),
    "list[array]": lambda xp, a: [1, 2, 3][a[0].argmin()],
    "exp(where=)": lambda xp, a: xp.exp(a, where=a > 0),
    "add(order=)": lambda xp, a: xp.add(a, a, order="F"),
    "sum(where=)": lambda xp, a: xp.sum(a, where=a > 0),
    "array.max(initial=)": lambda xp, a: a.max(initial=0.0),
    "take(mode=)": lambda xp, a: xp.take(a, xp.asarray(IDS), mode="clip"),
    "clip(min=)": lambda xp, a: xp.clip(a, min=0, max=1),
    "einsum(out=)": lambda xp, a: xp.einsum("ij->j", a, out=a[0]),
}
REFUSED_HERE_ONLY = {  # CuPy moves the data without a word, or raises another kind of error
    "np.exp(array)": lambda xp, a: np.exp(a),
    "np.concatenate([array])": lambda xp, a: np.concatenate([a, a]),
    "sum(list)": lambda xp, a: xp.sum([1.0, 2.0]),
    "array[list]": lambda xp, a: a[[0, 1]],
    "array[NumPy array]": lambda xp, a: a[IDS],
    "array[:, list]": lambda xp, a: a[:, [0, 1]],
    "array[i] = NumPy array": lambda xp, a: a.__setitem__(0, HOST[0]),
    "array[i] = list": lambda xp, a: a.__setitem__(0, [1.0, 2.0, 3.0, 4.0]),
}
REFUSED_WITH_VALUE_ERROR = {
    "array of str": lambda xp, a: xp.asarray(["a", "b"]),
    "array of objects": lambda xp, a: xp.asarray([None, 1.0]),
    "sum of a number along axis 0": lambda xp, a: a.sum().sum(axis=0),
    "max of a number along axis -1": lambda xp, a: xp.max(a.sum(), axis=-1),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(xp, case):
    with pytest.raises(TypeError):
        REFUSED[case](xp, xp.asarray(HOST))


@pytest.mark.parametrize("case", REFUSED_WITH_VALUE_ERROR)
def test_refused_with_a_value_error(xp, case):
    with pytest.raises(ValueError):
        REFUSED_WITH_VALUE_ERROR[case](xp, xp.asarray(HOST))


@pytest.mark.parametrize("case", REFUSED_HERE_ONLY)
def test_refused_by_the_stand_in(case):
    with pytest.raises(TypeError):
        REFUSED_HERE_ONLY[case](strict.module, strict.module.asarray(HOST))


@pytest.mark.parametrize(
    "name", ["vecdot", "matvec", "vecmat", "errstate", "block", "insert", "no_such_name"]
)
def test_missing_names(xp, name):
    with pytest.raises(AttributeError, match=name):
        getattr(xp, name)


def test_missing_members(xp):
    a = xp.asarray(HOST)
    for missing in (
        lambda: a.ctypes,
        lambda: a.resize,
        lambda: xp.linalg.vector_norm,
        lambda: xp.linalg.vecdot,
    ):
        with pytest.raises(AttributeError):
            missing()


def test_what_the_stand_in_leaves_out_is_told_apart():
    with pytest.raises(AttributeError, match="cupy has no 'vecdot'"):
        _ = strict.module.vecdot
    with pytest.raises(AttributeError, match="does not simulate 'RawKernel'"):
        _ = strict.module.RawKernel
    with pytest.raises(AttributeError, match="draw on the CPU"):
        _ = strict.module.random


def test_few_methods_of_ufuncs(xp):
    a = xp.asarray(HOST)
    assert xp.add.reduce(a).shape == (4,)
    for missing in (
        lambda: xp.maximum.reduce(a),
        lambda: xp.logical_or.reduce(a > 0),
        lambda: xp.multiply.at(a, 0, 2.0),
    ):
        with pytest.raises(NotImplementedError):
            missing()
    with pytest.raises(ValueError, match="stable"):
        xp.argsort(a, kind="quicksort")


SAME = {
    "operators": lambda xp, a, ids: (2 * a - a / 3 + 1) ** 2 // 0.7 % 5,
    "comparison": lambda xp, a, ids: (a >= 0.5) & ~(a == 1) | (a < -1) ^ (a != a),
    "ufuncs": lambda xp, a, ids: xp.maximum(xp.exp(-a), xp.sqrt(a)) + xp.tanh(a),
    "silent division by zero": lambda xp, a, ids: xp.where(a > 0, 1 / a, 0.0),
    "reductions": lambda xp, a, ids: (
        a.sum(axis=-1, keepdims=True) + a.max(axis=0) + a.mean() + xp.var(a, axis=0)
    ),
    "matmul": lambda xp, a, ids: xp.matmul(a, a.T, out=xp.empty((3, 3), dtype=a.dtype)) + a @ a.mT,
    "einsum": lambda xp, a, ids: xp.einsum("ij,kj->ik", a, a),
    "shapes": lambda xp, a, ids: (
        a.reshape(2, 6).T.reshape((3, -1)).swapaxes(-1, -2)[None].squeeze(0)
    ),
    "transpose": lambda xp, a, ids: xp.broadcast_to(a[:, None], (3, 2, 4)).transpose(0, 2, 1) + 0,
    "split and join": lambda xp, a, ids: xp.concatenate(xp.split(a, [1, 3], axis=1)[::-1], axis=-1),
    "stack": lambda xp, a, ids: xp.stack([a, a + 1], axis=1),
    "pad": lambda xp, a, ids: xp.pad(a, ((0, 1), (2, 0))),
    "slices": lambda xp, a, ids: a[1:, ::-2][..., None],
    "gather": lambda xp, a, ids: a[ids],
    "gather two": lambda xp, a, ids: a[ids, ids],
    "gather behind a slice": lambda xp, a, ids: a[:, ids],
    "gather around an ellipsis": lambda xp, a, ids: a[None][..., ids % 3, :],
    "mask": lambda xp, a, ids: a[a > 0.5],
    "mask of rows": lambda xp, a, ids: a[a.sum(axis=1) > 1],
    "mask behind a slice": lambda xp, a, ids: a[:, a.sum(axis=0) > 2],
    "take": lambda xp, a, ids: xp.take(a, ids, axis=0) + a.take(ids, axis=1)[0],
    "take_along_axis": lambda xp, a, ids: xp.take_along_axis(a, xp.argsort(-a, axis=-1), axis=-1),
    "argmax": lambda xp, a, ids: a.argmax(axis=-1),
    "top": lambda xp, a, ids: xp.sort(xp.argpartition(-a, 1, axis=-1)[:, :2], axis=-1),
    "cumsum": lambda xp, a, ids: xp.cumsum(a, axis=1),
    "dtypes": lambda xp, a, ids: (
        a.astype(xp.float64) + xp.arange(4, dtype=xp.int32) + xp.ones_like(a)
    ),
    "constants": lambda xp, a, ids: a[:, xp.newaxis] * xp.pi + xp.full((2, 4), xp.e),
    "one-hot": lambda xp, a, ids: (ids[:, None] == xp.arange(4)).astype("float32"),
    "triangle": lambda xp, a, ids: xp.tril(a) + xp.tri(3, 4, dtype=bool),
    "linalg": lambda xp, a, ids: xp.linalg.norm(a, axis=-1),
}


@pytest.mark.parametrize("case", SAME)
def test_same_numbers_as_numpy(xp, case):
    with np.errstate(divide="ignore"):
        expected = SAME[case](np, HOST, IDS)
    got = SAME[case](xp, xp.asarray(HOST), xp.asarray(IDS))
    assert isinstance(got, xp.ndarray)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(xp.asnumpy(got), expected, rtol=1e-5)


def test_numbers_stay_arrays(xp):
    a = xp.asarray(HOST)
    numbers = [
        a.sum(),
        a[1, 2],
        a.mean(),
        xp.max(a),
        a.argmax(),
        xp.dot(a[0], a[1]),
        xp.count_nonzero(a),
    ]
    numbers += [xp.array_equal(a, a), xp.allclose(a, a), xp.sqrt(2.0), *a[0], -a[0, 0]]
    assert all(isinstance(number, xp.ndarray) and number.shape == () for number in numbers)
    assert float(a[1, 2]) == 0.75 and int(a.argmax()) == 11 and bool(xp.array_equal(a, a))
    assert (
        a[1, 2].item() == 0.75
        and a[0].tolist() == [0.0, 0.125, 0.25, 0.375]
        and f"{a[1, 2]:.1f}" == "0.8"
    )
    with pytest.raises(ValueError, match="ambiguous"):
        bool(a > 0)
    with pytest.raises(TypeError):
        iter(a[0, 0])


def test_one_element_is_a_view(xp):
    a = xp.asarray(HOST)
    element = a[1, 2]
    element += 1
    assert float(a[1, 2]) == 1.75
    total = a.sum()
    before = total
    total += 1  # an array changes in place, where NumPy would make a new scalar
    assert total is before
    gathered = a[xp.asarray(IDS)]
    gathered += 1
    assert float(a[1, 2]) == 1.75


def test_out_and_in_place_give_the_same_array(xp):
    a, out = xp.asarray(HOST), xp.empty((3, 4), dtype=xp.float32)
    same = a
    same += 1
    assert (
        same is a
        and xp.multiply(a, 2, out=out) is out
        and xp.matmul(a, a.T, out=out[:, :3]).shape == (3, 3)
    )
    assert xp.asarray(a) is a and a.astype(xp.float32, copy=False) is a
    square = xp.ones((2, 2))
    other = square
    square @= xp.ones((2, 2))  # CuPy has no __imatmul__: a new array
    assert square is not other and float(other[0, 0]) == 1


def test_scalars_of_numpy_count_as_float64(xp):
    a = xp.asarray(HOST)
    assert (a * 2.0).dtype == (a * np.float32(2)).dtype == (2 / a).dtype == np.float32
    for wide in (
        a * np.float64(2),
        np.float64(2) * a,
        xp.maximum(a, np.float64(0)),
        a / xp.sqrt(4.0),
    ):
        assert wide.dtype == np.float64
    a *= np.float64(2)
    assert a.dtype == np.float32


def test_widening_by_numpy_scalars_is_counted():
    a = strict.module.asarray(HOST)
    before = strict.promotions
    _ = a * 2.0, a * np.float32(2), a.astype(np.float64) * np.float64(2), a.sum() / a.size
    assert strict.promotions == before
    _ = a * np.float64(2), np.float64(2) * a, strict.module.where(a > 0, a, np.float64(0))
    assert strict.promotions == before + 3


def test_indices_out_of_range_wrap(xp):
    a = xp.asarray(HOST)
    far = xp.asarray([3, -4, 7])
    near = xp.asarray([0, 2, 1])
    assert (a[far] == a[near]).all() and (xp.take(a, far, axis=0) == a[near]).all()
    a[far, 0] = 9.0
    assert (a[:, 0] == 9).all()
    with pytest.raises(IndexError):
        a[3]
    assert xp.asnumpy(xp.take_along_axis(a, xp.asarray([[5], [4], [3]]), axis=1)).tolist() == [
        [0.125],
        [9],
        [1.375],
    ]


def test_repeated_indices_of_an_assignment_have_no_useful_order():
    a = strict.module.zeros(3)
    a[strict.module.asarray([1, 1, 2])] = strict.module.asarray([5.0, 6.0, 7.0])
    assert to_list(a) == [0, 5, 7]  # NumPy: the last wins
    b = strict.module.zeros((2, 3))
    b[:, strict.module.asarray([1, 1])] = strict.module.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert to_list(b) == [[0, 1, 0], [0, 3, 0]]


def to_list(array):
    return array.get().tolist()


def test_assignment(xp):
    a = xp.asarray(HOST)
    a[0] = 5
    a[1, ::2] = xp.asarray([7.0, 8.0])
    a[..., 3] = a[..., 2]
    a[a > 7.5] = -1.0
    a[2:, xp.asarray([0, 1])] = a[:1, :2]
    assert xp.asnumpy(a).tolist() == [[5, 5, 5, 5], [7, 0.625, -1, -1], [5, 5, 1.25, 1.25]]


def test_add_at_sums_repeated_indices(xp):
    table = xp.zeros((3, 4), dtype=xp.float32)
    xp.add.at(table, xp.asarray([2, 0, 5, 0]), xp.ones((4, 4), dtype=xp.float32))
    assert xp.asnumpy(table[:, 0]).tolist() == [2, 0, 2]
    xp.add.at(table, (slice(None), xp.asarray([1, 1])), 0.5)
    assert xp.asnumpy(table[:, 1]).tolist() == [3, 1, 3]


def test_unwritten_memory_shows():
    xp = strict.module
    assert (
        np.isnan(xp.empty((2, 3), dtype=np.float32).get()).all()
        and np.isnan(xp.empty_like(xp.ones(2)).get()).all()
    )
    assert (xp.empty(4, dtype=np.int64).get() == 99).all() and xp.empty(2, dtype=bool).get().all()


def test_arrays_are_copied_from_the_host_and_joined_on_the_device(xp):
    host = HOST.copy()
    a = xp.asarray(host)
    host[:] = -1
    b = xp.array(a)
    b += 1
    assert (xp.asnumpy(a) == HOST).all()
    assert xp.asnumpy(xp.asarray([a[0, 1], a[0, 2]])).tolist() == [0.125, 0.25]
    assert xp.asarray([[1, 2], [3, 4]], dtype=xp.float32).shape == (2, 2)
    clone = copy.deepcopy(a)
    clone += 1
    assert (xp.asnumpy(a) == HOST).all()


WAITS = {
    "nothing": (
        0,
        lambda xp, a, mask: (a + a.sum(), a[0, 1], a[a.argmax(axis=0) % 3], len(a), a.shape),
    ),
    "where": (0, lambda xp, a, mask: xp.where(mask, a, -xp.inf)),
    "copyto(where=)": (0, lambda xp, a, mask: xp.copyto(a, 0.0, where=mask)),
    "float": (1, lambda xp, a, mask: float(a.sum())),
    "if": (1, lambda xp, a, mask: 1 if mask.any() else 0),
    "item": (1, lambda xp, a, mask: a.sum().item()),
    "get": (1, lambda xp, a, mask: a.get()),
    "asnumpy": (1, lambda xp, a, mask: xp.asnumpy(a)),
    "text": (3, lambda xp, a, mask: (repr(a), str(a), f"{a.sum():.2f}")),
    "array[mask]": (1, lambda xp, a, mask: a[mask]),
    "array[mask] = 0": (1, lambda xp, a, mask: a.__setitem__(mask, 0.0)),
    "nonzero": (2, lambda xp, a, mask: (a.nonzero(), xp.where(mask))),
    "argpartition": (1, lambda xp, a, mask: xp.argpartition(a, 1)),
    "fill": (1, lambda xp, a, mask: (a.fill(1.0), a.fill(a[0, 0]))),
    "repeat": (
        1,
        lambda xp, a, mask: (xp.repeat(a, 2, axis=0), xp.repeat(a, xp.asarray([1, 2, 0]), axis=0)),
    ),
}


@pytest.mark.parametrize("case", WAITS)
def test_waiting_for_the_device_is_counted(case):
    count, expression = WAITS[case]
    a = strict.module.asarray(HOST)
    mask = a > 0.5
    before = strict.synchronisations
    expression(strict.module, a, mask)
    assert strict.synchronisations == before + count


def test_other_classes_can_ask_to_go_first(xp):
    class Other:
        __array_ufunc__ = None

        def __radd__(self, array):
            return "other"

    assert xp.asarray(HOST) + Other() == "other"
    with pytest.raises(TypeError):
        xp.asarray(HOST) + object()


def test_the_engine_runs_on_it():
    with using(strict.module):
        a = library.asarray(HOST)
        assert isinstance(a, library.ndarray) and isinstance(library.zeros(3), strict.StrictArray)
        assert type(to_numpy(a)) is np.ndarray
        with pytest.raises(AttributeError, match="cupy has no"):
            _ = library.vecdot
    assert isinstance(library.zeros(3), np.ndarray)
