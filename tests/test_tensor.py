"""The tape: what is remembered, walked, added up and freed."""

import threading
import weakref

import numpy as np
import pytest

from minitf import functions as F
from minitf.backend import UserError, blocks, column_sums, row_dots, row_sums, to_numpy, use, using, xp
from minitf.tensor import Tensor, no_grad, record


def test_dtypes():
    for data in ([1, 2], [1.0, 2.0], 3, np.array([1, 2]), np.array([True]), np.ones(2, np.float16)):
        assert Tensor(data).dtype == np.float32
    assert Tensor(np.ones(2)).dtype == np.float64
    assert Tensor(Tensor(np.ones(2))).dtype == np.float64
    x = Tensor([1.0, 2.0])
    for y in (x * 2, 2 * x, x * np.float64(2), x + np.int64(1), x / 3, x**0.5, x.mean(), 1 / x, x - 1.5):
        assert y.dtype == np.float32
        assert isinstance(y.data, np.ndarray)


def test_float32_and_float64_do_not_mix():
    with pytest.raises(TypeError, match="mixes float32 and float64"):
        Tensor([1.0]) + Tensor(np.ones(1))
    with pytest.raises(TypeError, match="astype"):
        F.linear(Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones((3, 4))))


def test_diamond():
    """b = a + a; c = b + b: each path counts, and no node is walked before its gradient is complete."""
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


def test_gradients_add_up_over_calls_and_start_anew():
    x = Tensor([3.0])
    (x * x).backward()
    (x * x).backward()
    assert x.grad.tolist() == [12.0]


def test_a_second_walk_over_the_same_graph_is_an_error():
    x = Tensor([1.0])
    y = x * 2
    z = y + 1
    z.backward()
    with pytest.raises(RuntimeError, match="freed it: compute the result again"):
        z.backward()
    with pytest.raises(RuntimeError, match="freed"):
        (y * 3).backward()


def test_backward_needs_a_gradient_to_start_from():
    x = Tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="needs the gradient to start from"):
        (x * 2).backward()
    with pytest.raises(ValueError, match="shape"):
        (x * 2).backward(np.ones(3))
    (x * 2).backward(np.array([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 20.0]


def test_no_gradient_is_an_alias_of_another():
    x, y = Tensor(np.ones(3)), Tensor(np.ones(3))
    start = np.array([1.0, 2.0, 3.0])
    (x + y).backward(start)
    x.grad += 100
    assert y.grad.tolist() == start.tolist() == [1.0, 2.0, 3.0]


def test_inner_sums_do_not_change_what_others_hold():
    """A node used three times: its gradient is added up in an array of its own."""
    x = Tensor(np.ones(2))
    y = x * 1
    out = (y + y) + (y + x)
    out.backward(np.ones(2))
    assert x.grad.tolist() == [4.0, 4.0]


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


def test_no_grad_is_per_thread():
    recorded = []
    with no_grad():
        thread = threading.Thread(target=lambda: recorded.append((Tensor([1.0]) * 2)._node is not None))
        thread.start()
        thread.join()
    assert recorded == [True]


def test_arrays_and_numbers_are_constants():
    x = Tensor(np.ones(3))
    (np.array([1.0, 2.0, 3.0]) * x).backward(np.ones(3))
    assert x.grad.tolist() == [1.0, 2.0, 3.0]
    assert isinstance(np.ones(3) + x, Tensor)
    assert isinstance(np.ones((2, 3)) @ x.reshape(3, 1), Tensor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("operand", [2, 2.0, np.float32(2), np.float64(2), np.int64(2), [[2.0]], [[2]]])
def test_numbers_and_lists_take_the_type_of_the_tensor_beside_them(dtype, operand):
    x = Tensor(np.full((1, 1), 3, dtype))
    results = [x + operand, operand + x, x - operand, operand - x, x * operand, operand * x, x / operand]
    if isinstance(operand, list):
        results += [x @ operand, operand @ x]
    else:
        results += [operand / x, x**operand]
    assert {result.dtype.type for result in results} == {dtype}
    values = [5, 5, 1, -1, 6, 6, 1.5, *([6, 6] if isinstance(operand, list) else [2 / 3, 9])]
    assert [float(result.data[0, 0]) for result in results] == pytest.approx(values, rel=1e-7)


def test_a_list_beside_float64_loses_no_digits():
    assert float((Tensor(np.ones(1)) * [0.1]).data[0]) == 0.1


def test_a_parent_without_gradient_stops_the_walk():
    """A computed parent may get None from every way that leads to it: what lies behind it gets no gradient."""
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    computed = x * 2
    record(computed.data * y.data, (computed, y), lambda gy: (None, gy * computed.data)).sum().backward()
    assert x.grad is None and y.grad.tolist() == [2.0, 4.0]
    computed = x * 2
    stopped = record(computed.data * 1, (computed,), lambda gy: None)
    (stopped * computed).sum().backward()  # the other way through still counts
    assert x.grad.tolist() == [4.0, 8.0]


def test_transpose_takes_a_tuple_as_numpy_does():
    x = Tensor(np.arange(24.0).reshape(2, 3, 4))
    assert x.transpose((2, 0, 1)).shape == x.transpose(2, 0, 1).shape == (4, 2, 3)


def test_wrong_gradients_are_named():
    x = Tensor(np.ones((2, 3)))

    def wrong_shape(x):
        return record(x.data * 1, (x,), lambda gy: gy[:1, :2])

    def wrong_type(x):
        return record(x.data * 1, (x,), lambda gy: gy.astype(np.float32))

    def too_many(x):
        return record(x.data * 1, (x,), lambda gy: (gy, gy))

    def a_number(x):
        return record(x.data * 1, (x,), lambda gy: gy.sum())

    for op, message in (
        *((wrong_shape, r"shape \(1, 2\)"), (wrong_type, "float32")),
        *((too_many, "returned 2"), (a_number, r"shape \(\)")),
    ):
        with pytest.raises(ValueError, match=f"{op.__name__}.*{message}"):
            op(x).backward(np.ones((2, 3)))


def test_vectors_are_refused_by_the_matrix_product():
    with pytest.raises(ValueError, match="reshape a vector"):
        Tensor(np.ones(3)) @ Tensor(np.ones((3, 2)))


def test_repr_float_len():
    x = Tensor([[1.5, 2.0]])
    assert repr(x) == "Tensor([[1.5, 2. ]])"
    assert float(x.sum()) == 3.5
    assert len(x) == 1 and x.ndim == 2 and x.size == 2


# The backend -------------------------------------------------------------------------------------------------


def test_use_refuses_what_it_does_not_know(monkeypatch):
    with pytest.raises(UserError, match="unknown backend 'torch': choose numpy or cupy"):
        use("torch")
    with pytest.raises(TypeError, match="name of a library or a module"):
        use(3)


def test_using_comes_back_after_an_error(library):
    inside = xp.exp
    with pytest.raises(ZeroDivisionError), using("numpy"):
        assert xp.exp is np.exp
        raise ZeroDivisionError
    assert xp.exp is inside


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


@pytest.mark.parametrize("backward", [lambda gy: gy, np.zeros_like], ids=["lambda", "ufunc"])
def test_an_operation_need_not_be_nested_for_its_errors_to_be_told(backward):
    with pytest.raises(TypeError, match="mixes float64 and float32"):
        record(np.zeros(2, np.float32), (Tensor(np.zeros(2)),), backward)


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


def test_a_constant_factor_keeps_nothing():
    x = Tensor(np.ones(3)) + 1
    array, y = weakref.ref(x.data), x * 2
    del x
    assert array() is None
    y.backward(np.ones(3))


# What NumPy and CuPy do differently --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])
def test_sums_by_products_are_sums(library, shape, rng):
    x, y = (xp.asarray(rng.normal(size=shape)) for _ in range(2))
    a, b = to_numpy(x), to_numpy(y)
    np.testing.assert_allclose(to_numpy(row_sums(x)), a.sum(axis=-1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(to_numpy(column_sums(x)), a.reshape(-1, 5).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(to_numpy(row_dots(x, y)), (a * b).sum(axis=-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 7, 12, 100])
@pytest.mark.parametrize("shape", [(7,), (2, 5), (3, 2, 4), (0, 3)])
def test_blocks_hold_every_element_once(shape, size):
    seen = np.zeros(shape, int)
    for block in blocks(shape, size):
        seen[block] += 1
        assert seen[block].size <= size
    assert (seen == 1).all()
