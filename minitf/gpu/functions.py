"""The forms of the engine's functions for a GPU, in float32: cuBLAS for products, kernels between.

The op of the same name in minitf/functions.py says what each computes.
"""

import math

from minitf import functions, transformer
from minitf.backend import xp
from minitf.cpu.layers import is_plain_network, is_plain_norm, rate_of
from minitf.forms import form_of
from minitf.functions import (
    attention_arrays,
    checked_ids,
    integers,
    layer_norm_arrays,
    linear_arrays,
)
from minitf.gpu import fused
from minitf.gpu.dropout import numbers_of_next_mask
from minitf.gpu.launch import has_kernels
from minitf.gpu.matmul import add_product, as_operand, empty_operand, matmul
from minitf.nn import Parameter, gradient_out
from minitf.tensor import Tensor, as_array, is_recording, record


def hand_over(x, gradient):
    """Give a gradient of x, in a `backward`, whose array nothing else holds or will read.

    Other gradients of x can then be added to it in place. Returns None, which `backward` returns
    for x; or the gradient itself, to be returned, if x is no result or has a gradient already.
    """
    node = x._node if isinstance(x, Tensor) else None
    if node is None or node.gradient is not None:
        return gradient
    node.gradient, node.owns_gradient = gradient, True
    return None


def gradient_so_far(x):
    """Return the array to which a `backward` may add its gradient of x in place, or None.

    It then returns None for x. There is such an array if another result computed from x has sent
    a gradient before, and no other node holds it.
    """
    node = x._node if isinstance(x, Tensor) else None
    has_own = node is not None and node.gradient is not None and node.owns_gradient
    return node.gradient if has_own else None


def product_gradient(x, gy, w):
    """Return gx = gy w^T for x (..., D) from gy (N, F) and w (D, F), or None.

    None if gx was added, by the product itself, to a gradient that x had already: that of the
    residual connection around the layer.
    """
    gx = gradient_so_far(x)
    if gx is not None and gx.flags.c_contiguous:
        add_product(gy, w.T, gx.reshape(len(gy), len(w)))
        return None
    return hand_over(x, matmul(gy, w.T).reshape(x.shape))


@form_of(functions.linear)
def linear(x, weight, bias=None):
    """Multiply all positions in one product by cuBLAS, in the chosen precision."""
    x_data, w, b = linear_arrays(x, weight, bias)
    if not has_kernels(x_data, w, b):
        return NotImplemented
    shape, n = x_data.shape, math.prod(x_data.shape[:-1])
    rows, w = as_operand(x_data.reshape(n, shape[-1])), as_operand(w)  # (N, D), (D, F)
    y = matmul(rows, w)  # (N, F)
    if b is not None:
        y += b

    def backward(gy):
        inputs = x, weight, bias
        gy = gy.reshape(n, w.shape[1])  # (N, F)
        g_bias = None
        if b is not None:
            g_bias = fused.column_sums(gy, gradient_out(bias, inputs))
        gy = as_operand(gy)
        g_weight = matmul(rows.T, gy, out=gradient_out(weight, inputs))
        return product_gradient(x, gy, w), g_weight, g_bias

    return record(y.reshape(*shape[:-1], w.shape[1]), (x, weight, bias), backward)


@form_of(functions.layer_norm)
def layer_norm(x, gain, bias, eps=1e-6):
    """Normalise each row in one kernel."""
    arrays = layer_norm_arrays(x, gain, bias)
    if not has_kernels(*arrays):
        return NotImplemented
    y, gradients = fused.layer_norm(*arrays, eps)

    def backward(gy):
        inputs = x, gain, bias
        return gradients(gy, [gradient_out(each, inputs) for each in (gain, bias)])

    return record(y, (x, gain, bias), backward)


@form_of(functions.embedding)
def embedding(table, ids):
    """Add up the rows of the gradient in a fixed order, unlike atomic additions."""
    weight = as_array(table)
    if not has_kernels(weight):
        return NotImplemented
    ids = integers(ids, "ids")  # on the host, which also sorts them in backward
    y = weight[checked_ids(ids, weight)]

    def backward(gy):
        # Into the gradient that the table has already, if it is shared: as on the CPU.
        added = isinstance(table, Parameter) and table.grad is not None
        g_table = table.grad if added else xp.zeros_like(weight)
        fused.add_segments(ids.ravel(), gy.reshape(ids.size, gy.shape[-1]), g_table)
        return None if added else g_table, None

    return record(y, (table, None), backward)


@form_of(functions.dropout)
def dropout(x, rate, seed=None):
    """Draw the mask inside the kernel, and a second time in backward."""
    x_data = as_array(x)
    if rate == 0 or not x_data.ndim or not has_kernels(x_data):
        return NotImplemented
    y, backward = fused.dropout(x_data, numbers_of_next_mask(x_data.shape, rate, seed))
    return record(y, (x,), backward)


@form_of(transformer.add_and_norm)
def add_and_norm(x, added, dropout, norm):
    """Compute the dropout, the sum and the norm of a row in one kernel."""
    added_data = as_array(added)
    if not is_plain_norm(dropout, norm) or as_array(x).shape != added_data.shape:
        return NotImplemented
    x_data, g, b = layer_norm_arrays(x, norm.gain, norm.bias)
    if not has_kernels(x_data, added_data, g, b):
        return NotImplemented
    numbers = numbers_of_next_mask(x_data.shape, rate_of(dropout))
    y, gradients = fused.add_norm(x_data, added_data, g, b, norm.eps, numbers)
    inputs = x, added, norm.gain, norm.bias

    def backward(gy):
        outs = [gradient_out(each, inputs) for each in inputs[2:]]
        gx, g_added, *g_parameters = gradients(gy, outs)
        if numbers.threshold:  # without dropout both are one array
            gx = hand_over(x, gx)
        return gx, g_added, *g_parameters

    return record(y, inputs, backward)


@form_of(transformer.feed_forward_network)
def feed_forward_network(x, inner, activation, dropout, outer):
    """Compute bias, ReLU and dropout in one kernel between the two products.

    In bfloat16 the hidden layer and its gradient, which are only operands of the next product, are
    written rounded by the product and the kernel that make them.
    """
    if not is_plain_network(inner, activation, dropout, outer):
        return NotImplemented
    w_1, b_1, w_2, b_2 = inner.weight, inner.bias, outer.weight, outer.bias
    x_data, inner_weight, inner_bias = linear_arrays(x, w_1, b_1)
    if b_1 is None or not has_kernels(x_data, inner_weight, as_array(w_2)):
        return NotImplemented
    # The bias has the features and the dtype of the hidden layer, which is not computed yet.
    _, outer_weight, outer_bias = linear_arrays(inner_bias, w_2, b_2)
    shape, n = x_data.shape, math.prod(x_data.shape[:-1])
    numbers = numbers_of_next_mask((*shape[:-1], len(inner_bias)), rate_of(dropout))
    rows = as_operand(x_data.reshape(n, shape[-1]))  # (N, D)
    inner_weight, outer_weight = (
        as_operand(inner_weight),
        as_operand(outer_weight),
    )  # (D, F), (F, D)
    product = matmul(rows, inner_weight, out=empty_operand((n, len(inner_bias))))
    hidden, hidden_backward = fused.bias_relu_dropout(product, inner_bias, numbers)  # (N, F)
    y = matmul(hidden, outer_weight)
    if outer_bias is not None:
        y += outer_bias
    inputs = x, w_1, b_1, w_2, b_2

    def backward(gy):
        gy, g_b_2 = gy.reshape(n, outer_weight.shape[1]), None
        if b_2 is not None:
            g_b_2 = fused.column_sums(gy, gradient_out(b_2, inputs))
        gy = as_operand(gy)
        g_w_2 = matmul(hidden.T, gy, out=gradient_out(w_2, inputs))
        g_hidden = matmul(gy, outer_weight.T, out=empty_operand(hidden.shape))
        g_product, g_b_1 = hidden_backward(g_hidden, gradient_out(b_1, inputs))
        g_w_1 = matmul(rows.T, g_product, out=gradient_out(w_1, inputs))
        return product_gradient(x, g_product, inner_weight), g_w_1, g_b_1, g_w_2, g_b_2

    return record(y.reshape(*shape[:-1], outer_weight.shape[1]), inputs, backward)


@form_of(functions.attention)
def attention(query, key, value, mask=None, rate=0.0, seed=None):
    """Compute the softmax of a row and its dropout in one kernel between two products."""
    q, k, v, mask = attention_arrays(query, key, value, mask)
    shape = *q.shape[:-1], k.shape[-2]
    if not has_kernels(q, k, v) or len(shape) != 4 or not math.prod(shape):
        return NotImplemented
    numbers = numbers_of_next_mask(shape, rate, seed)
    y, backward = fused.attention(q, k, v, mask, numbers, recording=is_recording())
    return record(y, (query, key, value), backward)
