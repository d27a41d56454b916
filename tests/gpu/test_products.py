"""Matrix products through a stand-in for cuBLAS, with operands of every memory layout."""

import numpy as np
import pytest
import strict

from minitf import forms
from minitf.backend import to_device, to_numpy, using
from minitf.errors import UserError
from minitf.gpu import functions
from minitf.gpu import matmul as products
from minitf.gpu.matmul import matmul, use_precision

B, H, T, K, N = 2, 3, 5, 4, 7


@pytest.fixture(params=["simulated", pytest.param("cupy", marks=pytest.mark.gpu)])
def gpu(request):
    with using(strict.with_kernels if request.param == "simulated" else "cupy"), forms.on():
        yield
        use_precision("float32")


def normal(*shape):
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


LAYOUTS = {  # a matrix (T, K), or batches of it, made from arrays in memory
    "as it is": lambda xp: xp.asarray(normal(T, K)),
    "transposed": lambda xp: xp.asarray(normal(K, T)).T,
    "columns of a wider one": lambda xp: xp.asarray(normal(T, K + 3))[:, 1 : K + 1],
    "columns of a wider one, transposed": lambda xp: xp.asarray(normal(K, T + 3))[:, 2 : T + 2].T,
    "every second row": lambda xp: xp.asarray(normal(2 * T, K))[::2],
    "every second column": lambda xp: xp.asarray(normal(T, 2 * K))[:, ::2],
    "one row for all": lambda xp: xp.broadcast_to(xp.asarray(normal(K)), (T, K)),
    "backwards": lambda xp: xp.asarray(normal(T, K))[::-1],
    "a batch": lambda xp: xp.asarray(normal(B, T, K)),
    "a batch of transposed": lambda xp: xp.asarray(normal(B, K, T)).swapaxes(-1, -2),
    "two axes of batches": lambda xp: xp.asarray(normal(B, H, T, K)),
    "two axes of batches, transposed": lambda xp: xp.asarray(normal(B, H, K, T)).swapaxes(-1, -2),
    "heads": lambda xp: xp.asarray(normal(B, T, H, K)).transpose(0, 2, 1, 3),
    "heads, transposed": lambda xp: xp.asarray(normal(B, K, H, T)).transpose(0, 2, 3, 1),
    "heads of one sentence": lambda xp: xp.asarray(normal(1, T, H, K)).transpose(0, 2, 1, 3),
    "batches of one row": lambda xp: xp.asarray(normal(B, K + 2))[:, None, 1 : K + 1],
    "a part of the batch": lambda xp: xp.asarray(normal(2 * B, T, K))[::2],
    "one matrix for all": lambda xp: xp.broadcast_to(xp.asarray(normal(T, K)), (B, H, T, K)),
}


def fitting(x, seed=1):
    """A second operand (..., K, N) with the same batches, as it is and transposed in memory."""
    y = normal(*x.shape[:-2], K, N)
    return to_device(y), to_device(np.ascontiguousarray(y.swapaxes(-1, -2))).swapaxes(-1, -2)


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(gpu, name):
    """As the left operand and, transposed, as the right one, beside operands of both kinds."""
    x = LAYOUTS[name](products.xp)
    for y in fitting(x):
        expected = to_numpy(x) @ to_numpy(y)
        assert np.allclose(to_numpy(matmul(x, y)), expected, atol=1e-5)
        right = matmul(y.swapaxes(-1, -2), x.swapaxes(-1, -2))
        assert np.allclose(to_numpy(right), expected.swapaxes(-1, -2), atol=1e-5)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_prepared_product_is_the_product(gpu, precision):
    """Bit for bit: with a matrix of either layout, and rows that are contiguous or not, or none."""
    use_precision(precision)
    rows = to_device(normal(T, K)), to_device(normal(K, T)).T, to_device(normal(0, K))
    for y in fitting(rows[0]):
        multiply = products.product_with(products.as_operand(y))
        for x in rows:
            found, expected = multiply(x), matmul(x, products.as_operand(y))
            assert np.array_equal(to_numpy(found), to_numpy(expected))


def test_the_result_goes_where_it_is_wanted(gpu):
    x, y = to_device(normal(T, K)), to_device(normal(K, N))
    expected = normal(T, K) @ normal(K, N)
    whole, wide = (
        to_device(np.zeros((3 * T, N), np.float32)),
        to_device(np.zeros((T, 2 * N), np.float32)),
    )
    for out in (whole[T : 2 * T], wide[:, N:]):
        assert matmul(x, y, out=out) is out
        assert np.allclose(to_numpy(out), expected, atol=1e-5)
    assert (
        not to_numpy(whole)[:T].any()
        and not to_numpy(whole)[2 * T :].any()
        and not to_numpy(wide)[:, :N].any()
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_product_is_added(gpu, precision):
    use_precision(precision)
    x, y, out = (to_device(normal(*shape)) for shape in ((K, T), (K, N), (T, N)))
    left, right = products.as_operand(x), products.as_operand(y)
    assert (left is x) == (precision == "float32")
    products.add_product(left.T, right, out)
    expected = [
        rounded(normal(*shape)) if precision == "bfloat16" else normal(*shape)
        for shape in ((K, T), (K, N))
    ]
    assert np.allclose(to_numpy(out), normal(T, N) + expected[0].T @ expected[1], atol=1e-5)
    products.add_product(to_device(normal(T, 0)), to_device(normal(0, N)), out)
    assert np.allclose(to_numpy(out), normal(T, N) + expected[0].T @ expected[1], atol=1e-5)


def test_transposed_operands_are_not_copied(gpu):
    """A copy of the keys for each product of attention is what this is for."""
    key = to_device(normal(B, H, T, K))
    matrix, transposed, *_ = products._layout(key.swapaxes(-1, -2))
    matrix += 1
    assert transposed and np.array_equal(to_numpy(key), normal(B, H, T, K) + 1)
    heads = LAYOUTS["heads of one sentence"](products.xp)
    assert products._layout(heads)[0] is heads, (
        "an axis of length one has no distance that could be wrong"
    )


@pytest.mark.parametrize("cached", [0, 2**24], ids=["one product", "one for each head"])
def test_a_product_is_cut_into_heads(gpu, cached, monkeypatch):
    monkeypatch.setattr(functions, "CACHED", cached)
    rows = normal(T, N)
    for weight in (to_device(normal(N, H * K)), to_device(normal(H * K, N)).T):
        found = functions._product_in_heads(to_device(rows), weight, H)
        joint = (rows @ to_numpy(weight)).reshape(T, H, K)
        assert found.flags.c_contiguous
        assert np.allclose(to_numpy(found), joint.swapaxes(0, 1), atol=1e-5)


@pytest.mark.parametrize("name", LAYOUTS)
def test_bfloat16(gpu, name):
    """Only the operands are rounded, to 8 bits: the sums are those of the rounded operands."""
    x = LAYOUTS[name](products.xp)
    use_precision("bfloat16")
    for y in fitting(x):
        expected = rounded(to_numpy(x)) @ rounded(to_numpy(y))
        assert np.allclose(to_numpy(matmul(x, y)), expected, atol=1e-5)
        assert not np.allclose(expected, to_numpy(x) @ to_numpy(y), atol=1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_product_is_rounded_where_it_is_only_an_operand(gpu, name):
    """To the nearest number of 8 bits, or the one beside it if the sum ends between two."""
    x = LAYOUTS[name](products.xp)
    use_precision("bfloat16")
    for y in fitting(x):
        exact = to_numpy(x).astype(np.float64) @ to_numpy(y)
        expected = rounded(to_numpy(x)) @ rounded(to_numpy(y))
        shape = expected.shape
        whole = products.empty_operand((2, *shape))  # the heads of a layer are a part of an array
        for out in (products.empty_operand(shape), whole[1]):
            assert matmul(products.as_operand(x), products.as_operand(y), out=out) is out
            assert out.dtype == np.uint16 and out.shape == shape
            found = (to_numpy(out).astype(np.uint32) << 16).view(np.float32)
            assert (np.abs(found - expected) <= 2**-8 * np.abs(expected) + 1e-6).all()
            assert np.abs(found - exact).max() < 2e-2 * np.abs(exact).max()
            again = matmul(out, products.as_operand(y).swapaxes(-1, -2))
            assert np.allclose(
                to_numpy(again), found @ rounded(to_numpy(y)).swapaxes(-1, -2), atol=1e-4
            )


def rounded(x):
    """The nearest number of 8 bits: in frexp's form, a whole number of 1/256."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.round(mantissa * 256) / 256, exponent)


def test_tf32(gpu):
    use_precision("tf32")
    x, y = to_device(normal(T, K)), to_device(normal(K, N))
    assert np.allclose(to_numpy(matmul(x, y)), normal(T, K) @ normal(K, N), atol=1e-2)


def test_precision_is_one_of_three(gpu):
    with pytest.raises(UserError, match="choose float32, tf32, bfloat16"):
        use_precision("float16")


def test_only_bfloat16_rounds_its_operands_before(gpu):
    x = to_device(normal(T, K))
    for precision in ("float32", "tf32"):
        use_precision(precision)
        assert products.as_operand(x) is x


def test_a_precision_that_equations_do_not_have_is_refused(gpu, monkeypatch):
    monkeypatch.setenv("MINITF_FORMS", "off")
    with pytest.raises(UserError, match="MINITF_FORMS=off"):
        use_precision("bfloat16")


def test_precision_is_for_gpus():
    with pytest.raises(UserError, match="needs a GPU"):
        use_precision("tf32")
