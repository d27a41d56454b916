"""The tape: what is remembered, walked, added up and freed."""

import copy
import pickle
import threading
import weakref
from unittest import mock

import numpy as np
import pytest

from minitf import forms
from minitf import functions as F
from minitf.backend import to_numpy, using
from minitf.nn import Parameter
from minitf.tensor import Tensor, gradient_out, gradient_so_far, no_grad, record


def test_dtypes():
    for data in ([1, 2], [1.0, 2.0], 3, np.array([1, 2]), np.array([True]), np.ones(2, np.float16)):
        assert Tensor(data).dtype == np.float32
    assert Tensor(np.ones(2)).dtype == np.float64
    assert Tensor(Tensor(np.ones(2))).dtype == np.float64
    for other in (">f8", np.longdouble):  # from a file of another processor, for one
        assert Tensor(np.array([1 / 3], other)).dtype == np.float64
        assert Tensor(np.array([1 / 3], other)).data.dtype.isnative
    array = mock.Mock(spec=["dtype", "__array__"], dtype="of another library")
    for values in (np.ones(2), np.ones(2, np.float32)):
        array.__array__ = lambda *_, values=values, **__: values
        assert Tensor(array).dtype == values.dtype
    x = Tensor([1.0, 2.0])
    for y in (
        x * 2,
        2 * x,
        x * np.float64(2),
        x + np.int64(1),
        x / 3,
        x**0.5,
        x.mean(),
        1 / x,
        x - 1.5,
    ):
        assert y.dtype == np.float32
        assert isinstance(y.data, np.ndarray)


def test_lists_with_a_tensor_anywhere_are_refused():
    a = Tensor([1.0])
    for data in ([a], [[a], [2.0]], ((1.0, [a]),)):
        with pytest.raises(TypeError, match="would have no history"):
            Tensor(data)
        with pytest.raises(TypeError, match="would have no history"):
            a * data


def test_float32_and_float64_do_not_mix():
    with pytest.raises(TypeError, match="mixes float32 and float64"):
        Tensor([1.0]) + Tensor(np.ones(1))
    with pytest.raises(TypeError, match="astype"):
        F.linear(Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones((3, 4))))
    with pytest.raises(TypeError, match="mixes float32 and float64"):
        Tensor(np.ones(1)) + Tensor([1.0])  # the result has the type of the first
    for program in (forms.on, forms.off):
        with program(), pytest.raises(TypeError, match="layer_norm mixes float32 and float64"):
            F.layer_norm(Tensor(np.ones((1, 2))), *(Tensor(np.ones(2, np.float32)) for _ in "gb"))


def test_diamond():
    """Each path counts, and no node is walked before its gradient is complete."""
    a = Tensor([1.0, 2.0])
    b = a + a
    c = b * b + b
    c.sum().backward()
    assert a.grad.tolist() == [10.0, 18.0]  # d/da ((2a)^2 + 2a) = 8a + 2


def test_a_chain_longer_than_the_stack_is_deep():
    x = y = Tensor([1.0])
    for _ in range(5000):
        y = y + 1
    y.backward()
    assert x.grad.tolist() == [1.0]


def test_a_second_walk_over_the_same_graph_is_an_error():
    x = Tensor([1.0])
    y = x * 2
    z = y + 1
    z.backward()
    with pytest.raises(RuntimeError, match="already freed this graph: compute the result again"):
        z.backward()
    with pytest.raises(RuntimeError, match="freed"):
        (y * 3).backward()


def test_a_walk_that_failed_leaves_no_gradient_for_the_next():
    """An interrupt or a wrong operation stops a walk in the middle of the graph."""

    def failing(gy):
        raise KeyboardInterrupt

    x = Tensor([1.0, 2.0])
    y = x * 2
    with pytest.raises(KeyboardInterrupt):
        (y + record(y.data * 1, (y,), failing)).sum().backward()
    assert x.grad is None
    (y * 5).sum().backward()
    assert x.grad.tolist() == [10.0, 10.0]


def test_backward_needs_a_gradient_to_start_from():
    x = Tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="needs a gradient of that shape"):
        (x * 2).backward()
    with pytest.raises(ValueError, match="shape"):
        (x * 2).backward(np.ones(3))
    (x * 2).backward(np.array([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 20.0]
    column = Tensor([[1.0], [2.0]])
    with pytest.raises(
        ValueError, match=r"the gradient has shape \(1, 2\), but the tensor has shape \(2, 1\)"
    ):
        (column * 2).backward(np.ones((1, 2)))


@pytest.mark.parametrize("shape", [(1, 3, 1), (3, 1), (1, 1, 1), (1,), ()])
def test_broadcasting_over_several_axes_is_summed_over_all_of_them(shape, rng):
    x, gradient = Tensor(rng.normal(size=shape)), rng.normal(size=(2, 3, 4))
    (x + np.zeros((2, 3, 4))).backward(gradient)
    ones = (1,) * (3 - len(shape)) + shape
    summed = gradient.sum(axis=tuple(i for i, n in enumerate(ones) if n == 1), keepdims=True)
    assert x.grad.shape == shape
    np.testing.assert_allclose(x.grad, summed.reshape(shape), rtol=1e-12)


def test_memory_falls_during_backward():
    """When the walk reaches the first op, what the last one kept is gone."""
    alive = []

    def op(x, probe):
        kept = np.zeros(1000)
        alive.append(weakref.ref(kept))

        def backward(gy):
            probe()
            return gy + kept[0]

        return record(x.data * 1, (x,), backward)

    seen = []
    x = Tensor(np.ones(2))
    y = op(x, lambda: seen.append([ref() is not None for ref in alive]))
    y = op(y, lambda: None)
    y = op(y, lambda: None).sum()
    y.backward()
    assert seen == [[True, False, False]]


def test_no_grad():
    x = Tensor([1.0])
    with no_grad():
        y = x * 2
        with no_grad():
            pass
        z = x * 3
    assert not y._node and not z._node
    (y * x).backward()
    assert x.grad.tolist() == [2.0]
    assert (x * 2)._node is not None


def test_after_an_error_it_records_as_before():
    x = Tensor([1.0])
    with pytest.raises(ZeroDivisionError), no_grad():
        raise ZeroDivisionError
    (x * 2).backward()
    assert x.grad.tolist() == [2.0]
    x = Tensor([1.0])
    with no_grad():
        with pytest.raises(ZeroDivisionError), no_grad():
            raise ZeroDivisionError
        y = x * 2
    (y * x).backward()
    assert x.grad.tolist() == [2.0], "y is a constant, or it would be 4"


def test_no_grad_is_per_thread():
    recorded = []
    with no_grad():
        thread = threading.Thread(
            target=lambda: recorded.append((Tensor([1.0]) * 2)._node is not None)
        )
        thread.start()
        thread.join()
    assert recorded == [True]


def recorded():
    """Whether an operation is recorded now."""
    x = Tensor([1.0])
    try:
        (x * 2).backward()
    except RuntimeError as error:
        assert "inside no_grad()" in str(error)
    return x.grad is not None


def test_no_grad_decorates_functions():
    @no_grad()
    def recursive(n):
        """Its words."""
        return recursive(n - 1) if n else recorded()

    assert recursive(3) is False and recorded()
    assert recursive.__doc__ == "Its words."


def test_arrays_and_numbers_are_constants():
    x = Tensor(np.ones(3))
    (np.array([1.0, 2.0, 3.0]) * x).backward(np.ones(3))
    assert x.grad.tolist() == [1.0, 2.0, 3.0]
    assert isinstance(np.ones(3) + x, Tensor)
    assert isinstance(np.ones((2, 3)) @ x.reshape(3, 1), Tensor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "operand", [2, 2.0, np.float32(2), np.float64(2), np.int64(2), [[2.0]], [[2]]]
)
def test_numbers_and_lists_take_the_type_of_the_tensor_beside_them(dtype, operand):
    x = Tensor(np.full((1, 1), 3, dtype))
    results = [
        x + operand,
        operand + x,
        x - operand,
        operand - x,
        x * operand,
        operand * x,
        x / operand,
    ]
    if isinstance(operand, list):
        results += [x @ operand, operand @ x]
    else:
        results += [operand / x, x**operand]
    assert {result.dtype.type for result in results} == {dtype}
    values = [5, 5, 1, -1, 6, 6, 1.5, *([6, 6] if isinstance(operand, list) else [2 / 3, 9])]
    assert [float(result.data[0, 0]) for result in results] == pytest.approx(values, rel=1e-7)


def test_a_parent_without_gradient_stops_the_walk():
    """A computed parent may get None on every path; then its own parents get no gradient."""
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    computed = x * 2
    record(
        computed.data * y.data, (computed, y), lambda gy: (None, gy * computed.data)
    ).sum().backward()
    assert x.grad is None and y.grad.tolist() == [2.0, 4.0]
    computed = x * 2
    stopped = record(computed.data * 1, (computed,), lambda gy: None)
    (stopped * computed).sum().backward()  # the other way through still counts
    assert x.grad.tolist() == [4.0, 8.0]


def test_an_exponent_is_a_number():
    """A gradient for it is not there: a Tensor would silently get none."""
    for exponent in (Tensor([2.0]), np.array([2.0]), [2.0]):
        with pytest.raises(TypeError, match="the exponent of"):
            Tensor([3.0]) ** exponent


def test_a_gradient_is_written_and_added_in_place():
    """But none is added to an array that other nodes may hold, nor given to a constant."""
    x, found = Tensor([1.0, 2.0]), []
    h = record(2 * x.data, (x,), lambda gy: 2 * gy)

    def writes(gy):
        found.append(gradient_so_far(h))
        out = gradient_out(h)
        out[...] = 3 * gy
        found.append(gradient_out(h))
        return out

    def adds(gy):
        total = gradient_so_far(h)
        total += 5 * gy
        return total

    added = record(h.data, (h,), adds)
    (added + record(h.data, (h,), writes)).backward([1.0, 10.0])  # from the last to the first
    assert found == [None, None] and x.grad.tolist() == [16, 160]
    x.backward(x.grad)  # of a leaf: an array that is added, though it is the gradient's own
    assert x.grad.tolist() == [32, 320] and gradient_so_far(x) is x.grad

    def sees(gy):
        found.append(gradient_so_far(h))
        return gy

    h = x * 2
    (record(h.data, (h,), sees) + h).backward([1.0, 10.0])
    assert found[2] is None and gradient_out(np.ones(3)) is gradient_so_far(np.ones(3)) is None


def test_an_input_that_occurs_twice_gets_both_gradients_in_place():
    x = Tensor([1.0, 2.0])

    def backward(gy):
        out = gradient_out(x)
        out[...] = 3 * gy
        return out, 5 * gy

    record(8 * x.data, (x, x), backward).sum().backward()
    assert x.grad.tolist() == [8, 8]


def test_wrong_gradients_are_named():
    x = Tensor(np.ones((2, 3)))

    def wrong_shape(x):
        return record(x.data * 1, (x,), lambda gy: gy[:1, :2])

    def wrong_type(x):
        return record(x.data * 1, (x,), lambda gy: gy.astype(np.float32))

    def too_many(x):
        return record(x.data * 1, (x,), lambda gy: (gy, gy))

    def too_few(x):
        return record(x.data * 1, (x, None), lambda gy: gy)

    def a_number(x):
        return record(x.data * 1, (x,), lambda gy: gy.sum())

    for op, message in (
        *((wrong_shape, r"shape \(1, 2\)"), (wrong_type, "float32")),
        *(
            (too_many, "returned 2"),
            (too_few, "has 2 inputs and returned 1"),
            (a_number, r"shape \(\)"),
        ),
    ):
        with pytest.raises(ValueError, match=f"{op.__name__}.*{message}"):
            op(x).backward(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"a_number.*shape \(\)"):
        a_number(Tensor(np.ones((1, 3)))).backward(np.ones((1, 3)))


def test_repr_float_len(library):
    x = Tensor([[1.5, 2.0]])
    assert repr(x) == "Tensor([[1.5, 2. ]])"
    assert float(x.sum()) == x.sum().item() == Tensor([[3.5]]).item() == 3.5
    assert type(x.sum().item()) is float
    assert int(Tensor(2.7)) == 2 and int(Tensor([-2.7])) == -2
    assert len(x) == 1 and x.ndim == 2 and x.size == 2
    with pytest.raises(TypeError, match="unsized"):
        len(x.sum())
    for takes_one in (float, int, Tensor.item, "{:.3f}".format):
        with pytest.raises(ValueError, match="array of size 1"):
            takes_one(x)


def test_format(library):
    loss = Tensor([1.0, 2.0, 4.0]).mean()
    assert f"{loss:.3f} {loss:8.1e}|" == "2.333  2.3e+00|"
    assert f"{loss}" == repr(loss) == "Tensor(2.3333)"


def test_iteration(library):
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    first, second = x
    (first * 2 + second).sum().backward()
    assert to_numpy(x.grad).tolist() == [[2, 2], [1, 1]]
    assert list(Tensor(np.zeros((0, 3)))) == []
    with pytest.raises(TypeError, match="unsized"):
        list(Tensor(3.0))


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_a_computed_tensor_is_not_pickled(copied):
    x = Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match=r"cannot be pickled .* use \.detach\(\) of it"):
        copied([x * 2])
    assert pickle.loads(pickle.dumps((x * 2).detach())).numpy().tolist() == [2.0, 4.0]


def test_numpy_reads_a_tensor(library):
    """A figure of matplotlib or a metric would otherwise see an array of objects."""
    x = Tensor([[1.5, 2.5]]) * 2
    for array in (np.asarray(x), np.array(x), np.asarray(x, dtype=np.float64)):
        assert array.tolist() == [[3, 5]]
    assert np.asarray(x).dtype == np.float32 and np.array(x, dtype=np.int64).dtype == np.int64
    np.array(x)[...] = 7
    assert x.numpy().tolist() == [[3, 5]], "np.array copies"


@pytest.mark.parametrize(
    "call",
    [
        np.exp,
        lambda x: np.concatenate([x, x]),
        lambda x: np.stack([x, x]),
        lambda x: np.where(x > 0, x, 0),
        lambda x: np.einsum("ij->i", x),
        np.linalg.norm,
        np.sum,
        lambda x: Tensor([x, x]),
        lambda x: F.exp([x, 1.0]),
    ],
)
def test_what_would_cut_the_graph_is_refused(call, library):
    """The result would be a constant: what it was computed from would not be trained."""
    with pytest.raises(TypeError):
        call(Tensor([[1.5, 2.5]]) * 2)


def test_detach(library):
    x = Tensor([2.0])
    y = x * 3
    (y.detach() * x).backward()
    assert to_numpy(x.grad).tolist() == [6.0]
    assert type(Parameter([1.0]).detach()) is Tensor


def test_astype(library):
    x, y = Tensor([1.0, 2.0]), Tensor(np.array([0.1, 0.2]))
    z = x.astype(np.float64) * y
    assert z.dtype == np.float64
    z.backward(np.array([1.0, 10.0]))
    assert x.grad.dtype == np.float32 and to_numpy(x.grad).tolist() == [np.float32(0.1), 2]
    assert (x * y.astype("float32")).dtype == np.float32
    with pytest.raises(
        TypeError, match=r"float32 or float64: for int64 use \.numpy\(\)\.astype\('int64'\)"
    ):
        x.astype(int)


def test_comparisons_are_boolean_arrays(library):
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([3.0, 2.0, 1.0])
    for other in (y, y.data, y.numpy(), [3, 2, 1], (3.0, 2.0, 1.0)):
        expected = {
            "<": [1, 0, 0],
            "<=": [1, 1, 0],
            "==": [0, 1, 0],
            "!=": [1, 0, 1],
            ">=": [0, 1, 1],
            ">": [0, 0, 1],
        }
        found = {"<": x < other, "<=": x <= other, "==": x == other, "!=": x != other}
        found |= {">=": x >= other, ">": x > other}
        for sign, wanted in expected.items():
            assert type(found[sign]) is type(x.data) and found[sign].dtype == bool
            assert to_numpy(found[sign]).tolist() == wanted, sign
    assert to_numpy(np.float32(2) < x).tolist() == [False, False, True]
    assert to_numpy(x == 2).tolist() == [False, True, False]
    assert to_numpy(F.where(x > 1, x, 0.0).data).tolist() == [0, 2, 3]
    assert float(x[x > 1].sum()) == 5
    assert (x == None) is False and (x != None) is True  # noqa: E711


def test_the_truth_of_a_tensor(library):
    assert Tensor(2.0) and Tensor([[0.5]]) and not Tensor([0.0])
    for empty_or_many in (Tensor([1.0, 2.0]), Tensor(np.zeros((0, 2)))):
        with pytest.raises(ValueError, match="array of size 1"):
            bool(empty_or_many)


@pytest.mark.parametrize(
    "data", [1j, [1j], np.ones(2, complex), [np.complex64(1)], "text", [None], [["a"]]]
)
def test_only_real_numbers_become_tensors(data, library):
    with pytest.raises(TypeError, match=r"holds real numbers, not|has only arrays of numbers"):
        Tensor(data)


def test_quotients_keep_their_digits():
    """A product with the inverse rounds twice, and the square of a small number is 0."""
    assert (49 / Tensor([49.0])).item() == 1
    x, y = Tensor([1e-25]), Tensor([1e-25])
    (x / y).backward()
    assert y.grad == pytest.approx(-1e25, rel=1e-6)


# The backend --------------------------------------------------------------------------------------


def test_engine_on_every_library(library):
    x = Tensor(np.arange(6.0).reshape(2, 3))
    y = Tensor(np.ones((3, 4)))
    z = F.softmax(x @ y * 0.1 + np.ones(4), axis=0)
    (z * z).mean().backward()
    assert type(x.grad) is type(x.data)
    with using("numpy"):
        a, b = Tensor(np.arange(6.0).reshape(2, 3)), Tensor(np.ones((3, 4)))
        c = F.softmax(a @ b * 0.1 + np.ones(4), axis=0)
        (c * c).mean().backward()
    np.testing.assert_allclose(to_numpy(z.data), c.data, rtol=1e-12)
    np.testing.assert_allclose(to_numpy(x.grad), a.grad, rtol=1e-12)
    np.testing.assert_allclose(to_numpy(y.grad), b.grad, rtol=1e-12)


def test_what_no_gradient_needs_is_freed_while_the_graph_lives():
    x, gain, bias = Tensor(np.ones((3, 4))), Tensor(np.ones(4)), Tensor(np.zeros(4))
    before = x + 1
    y = F.layer_norm(before, gain, bias)
    array = weakref.ref(before.data)
    del before
    assert array() is None
    array = weakref.ref(y.data)
    z = F.linear(y, Tensor(np.ones((4, 2))))  # its gradient needs its input
    del y
    assert array() is not None
    z.backward(np.ones((3, 2)))
    assert x.grad is not None and array() is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda a, t: np.exp(t), "'Tensor' does not support ufuncs"),
        (np.maximum, "'Tensor' does not support ufuncs"),
        (lambda a, t: np.stack([t, t]), "np.stack takes no Tensor, because its result would have"),
        (lambda a, t: a**t, "unsupported operand"),
    ],
)
def test_what_is_no_function_of_a_tensor_says_what_is(wrong, said):
    with pytest.raises((TypeError, AttributeError), match=said):
        wrong(np.ones(3), Tensor([1.0, 2.0, 3.0]))
    assert (np.float64(2) < Tensor(3.0)) and (np.ones(1) - Tensor([3.0])).item() == -2
