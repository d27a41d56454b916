"""The forms of the engine's functions for a GPU, in float32: cuBLAS for products, kernels between.

The op of the same name in minitf/functions.py, transformer.py or optim.py says what each computes.
"""

import contextlib
import contextvars
import math

from minitf import functions, inputs, nn, optim, transformer
from minitf.backend import to_device, xp
from minitf.common.layers import is_own, rate_of
from minitf.forms import form_of
from minitf.gpu import fused, kernels
from minitf.gpu.fused import numbers_of_next_mask
from minitf.gpu.launch import has_kernels, launch
from minitf.gpu.matmul import add_product, as_operand, empty_operand, matmul
from minitf.gpu.warps import THREADS
from minitf.tensor import as_array, gradient_out, gradient_so_far, record

CACHED = 2**24  # bytes of an array that stays in the cache of a GPU, which has 40 MB or more


def product_gradient(x, gy, w):
    """Return gx = gy w^T for x (..., D) from gy (N, F) and w (D, F).

    The product itself adds it to a gradient that x has already, from the residual connection
    around the layer.
    """
    gx = gradient_so_far(x)
    if gx is not None:
        add_product(gy, w.T, gx.reshape(len(gy), len(w)))
        return gx
    gx = gradient_out(x)
    if gx is None:
        gx = xp.empty(x.shape, dtype=xp.float32)
    matmul(gy, w.T, out=gx.reshape(len(gy), len(w)))
    return gx


@form_of(functions.linear)
def linear(x, weight, bias=None):
    """Multiply all positions in one product by cuBLAS, in the chosen precision."""
    x_data, w, b = inputs.linear_arrays(x, weight, bias)
    if not has_kernels(x_data, w, b):
        return NotImplemented
    shape, n = x_data.shape, math.prod(x_data.shape[:-1])
    rows, w = as_operand(x_data.reshape(n, shape[-1])), as_operand(w)  # (N, D), (D, F)
    y = matmul(rows, w)  # (N, F)
    if b is not None:
        y += b

    def backward(gy):
        gy = gy.reshape(n, w.shape[1])  # (N, F)
        g_bias = None
        if b is not None:
            g_bias = fused.column_sums(gy, gradient_out(bias))
        gy = as_operand(gy)
        g_weight = matmul(rows.T, gy, out=gradient_out(weight))
        return product_gradient(x, gy, w), g_weight, g_bias

    return record(y.reshape(*shape[:-1], w.shape[1]), (x, weight, bias), backward)


@form_of(functions.layer_norm)
def layer_norm(x, gain, bias, eps=1e-6):
    """Normalise each row in one kernel."""
    arrays = inputs.layer_norm_arrays(x, gain, bias)
    if not has_kernels(*arrays):
        return NotImplemented
    y, gradients = fused.layer_norm(*arrays, eps)

    def backward(gy):
        return gradients(gy, [gradient_out(each) for each in (gain, bias)])

    return record(y, (x, gain, bias), backward)


@form_of(functions.embedding)
def embedding(table, ids):
    """Add up the rows of the gradient in a fixed order, unlike atomic additions."""
    weight = as_array(table)
    if not has_kernels(weight):
        return NotImplemented
    ids = inputs.integers(ids, "ids")  # on the host, which also sorts them in backward
    y = weight[inputs.checked_ids(ids, weight)]

    def backward(gy):
        g_table = gradient_so_far(table)  # if it is shared: as on the CPU
        if g_table is None:
            g_table = xp.zeros_like(weight)
        fused.add_segments(ids.ravel(), gy.reshape(ids.size, gy.shape[-1]), g_table)
        return g_table, None

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
    own = is_own(dropout, nn.Dropout) and is_own(norm, nn.LayerNorm)
    if not own or as_array(x).shape != added_data.shape:
        return NotImplemented
    x_data, g, b = inputs.layer_norm_arrays(x, norm.gain, norm.bias)
    if not has_kernels(x_data, added_data, g, b):
        return NotImplemented
    numbers = numbers_of_next_mask(x_data.shape, rate_of(dropout))
    y, gradients = fused.add_norm(x_data, added_data, g, b, norm.eps, numbers)

    def backward(gy):
        outs = [gradient_out(each) for each in (norm.gain, norm.bias)]
        # Without dropout, both gradients are one array.
        return gradients(gy, outs, gradient_out(x) if numbers.threshold else None)

    return record(y, (x, added, norm.gain, norm.bias), backward)


@form_of(transformer.feed_forward_network)
def feed_forward_network(x, inner, activation, dropout, outer):
    """Compute bias, ReLU and dropout in one kernel between the two products.

    In bfloat16 the hidden layer and its gradient, which are only operands of the next product, are
    written rounded by the product and the kernel that make them.
    """
    own = is_own(inner, nn.Linear) and is_own(dropout, nn.Dropout) and is_own(outer, nn.Linear)
    if not own or activation is not functions.relu:
        return NotImplemented
    w_1, b_1, w_2, b_2 = inner.weight, inner.bias, outer.weight, outer.bias
    x_data, inner_weight, inner_bias = inputs.linear_arrays(x, w_1, b_1)
    if b_1 is None or not has_kernels(x_data, inner_weight, as_array(w_2)):
        return NotImplemented
    # The bias has the features and the dtype of the hidden layer, which is not computed yet.
    _, outer_weight, outer_bias = inputs.linear_arrays(inner_bias, w_2, b_2)
    shape, n = x_data.shape, math.prod(x_data.shape[:-1])
    numbers = numbers_of_next_mask((*shape[:-1], len(inner_bias)), rate_of(dropout))
    rows = as_operand(x_data.reshape(n, shape[-1]))  # (N, D)
    inner_weight, outer_weight = map(as_operand, (inner_weight, outer_weight))  # (D, F), (F, D)
    product = matmul(rows, inner_weight, out=empty_operand((n, len(inner_bias))))
    hidden, hidden_backward = fused.bias_relu_dropout(product, inner_bias, numbers)  # (N, F)
    y = matmul(hidden, outer_weight)
    if outer_bias is not None:
        y += outer_bias

    def backward(gy):
        gy, g_b_2 = gy.reshape(n, outer_weight.shape[1]), None
        if b_2 is not None:
            g_b_2 = fused.column_sums(gy, gradient_out(b_2))
        gy = as_operand(gy)
        g_w_2 = matmul(hidden.T, gy, out=gradient_out(w_2))
        g_hidden = matmul(gy, outer_weight.T, out=empty_operand(hidden.shape))
        g_product, g_b_1 = hidden_backward(g_hidden, gradient_out(b_1))
        g_w_1 = matmul(rows.T, g_product, out=gradient_out(w_1))
        return product_gradient(x, g_product, inner_weight), g_w_1, g_b_1, g_w_2, g_b_2

    y = y.reshape(*shape[:-1], outer_weight.shape[1])
    return record(y, (x, w_1, b_1, w_2, b_2), backward)


@form_of(functions.attention)
def attention(query, key, value, mask=None, rate=0.0, seed=None):
    """Compute the softmax of a row and its dropout in one kernel between two products."""
    q, k, v, mask = inputs.attention_arrays(query, key, value, mask)
    shape = *q.shape[:-1], k.shape[-2]
    if not has_kernels(q, k, v) or len(shape) != 4 or not math.prod(shape):
        return NotImplemented
    numbers = numbers_of_next_mask(shape, rate, seed)
    # Forward and backward multiply them six times, so they are copied once, instead of each time.
    arrays = [_heads_first(each) for each in (q, k, v)]
    y, gradients = fused.attention(*arrays, mask, numbers)

    def backward(gy):
        return tuple(g.swapaxes(0, 1) for g in gradients(_heads_first(gy)))

    return record(y.swapaxes(0, 1), (query, key, value), backward)


def _heads_first(x):
    """Return an operand (B, H, T, K) as contiguous heads (H, B, T, K)."""
    return xp.ascontiguousarray(as_operand(x).swapaxes(0, 1))


# Multi-head attention: few products, and few copies to arrange the heads -------------------------


@form_of(transformer.multi_head_attention)
def multi_head_attention(attention, x, memory, mask=None, cache=None):
    """Project each input once, with the weights side by side; attend; multiply by W^O.

        [Q K V] = x [W^Q W^K W^V]                       if the memory is x
        Q = x W^Q  and  [K V] = memory [W^K W^V]        otherwise

    In bfloat16, arrays that are only operands of the next product (Q, K, V, the context, and their
    gradients) are written in bfloat16 by the product that makes them.

    In backward each weight has a product of its own, so that its gradient can be written where it
    belongs, in the flat gradients.
    """
    if cache is not None or not _takes(attention, x, memory, mask):
        return NotImplemented
    layers = attention.query, attention.key, attention.value
    groups = [(x, layers)] if memory is x else [(x, layers[:1]), (memory, layers[1:])]
    projections = [_HeadProjection(data, group, attention.n_heads) for data, group in groups]
    parents = [*(parent for p in projections for parent in p.parents), attention.output.weight]
    q, k, v = (heads for p in projections for heads in p.heads(p.y))  # (H, B, T or S, K)
    n_heads, batch, length, size = q.shape
    n_rows = batch * length
    rate = attention.rate if attention.training else 0.0
    numbers = numbers_of_next_mask((batch, n_heads, length, k.shape[2]), rate)
    mask = None if mask is None else inputs.as_mask(mask)
    context, context_backward = fused.attention(q, k, v, mask, numbers, empty_operand(q.shape))
    merged = fused.swap_first_axes(context.reshape(n_heads, n_rows, size))  # (N, H, K)
    merged = merged.reshape(n_rows, n_heads * size)
    w = as_operand(attention.output.weight.data)
    y = matmul(merged, w).reshape(batch, length, w.shape[1])

    def backward(gy):
        gy = as_operand(gy.reshape(n_rows, w.shape[1]))
        g_context = _product_in_heads(gy, w.T, n_heads).reshape(q.shape)
        pairs = [(p, empty_operand(p.y.shape)) for p in projections]  # each with the gradient of y
        context_backward(g_context, [heads for p, g_y in pairs for heads in p.heads(g_y)])
        gradients = [gradient for p, g_y in pairs for gradient in p.backward(g_y)]
        return (*gradients, matmul(merged.T, gy, out=gradient_out(attention.output.weight)))

    return record(y, parents, backward)


def _takes(attention, x, memory, mask):
    """Return whether the form takes this call.

    It needs this library's layers without biases, heads of one size, a mask that fits, and tokens.
    The equation takes other calls, and refuses what does not fit.
    """
    if not is_own(attention, transformer.MultiHeadAttention):
        return False
    projected = attention.query, attention.key, attention.value
    layers = *projected, attention.output
    if not all(is_own(layer, nn.Linear) and layer.bias is None for layer in layers):
        return False
    if not (x.ndim == memory.ndim == 3 and len(x) == len(memory) and min(x.size, memory.size) > 0):
        return False
    size = attention.output.weight.shape[0]  # of all heads
    scores_shape = len(x), attention.n_heads, x.shape[1], memory.shape[1]
    return (
        has_kernels(x, memory, *(layer.weight for layer in layers))
        and all(layer.weight.shape[1] == size for layer in projected)
        and size % attention.n_heads == 0
        and (mask is None or _broadcasts(mask.shape, scores_shape))
    )


def _broadcasts(mask_shape, shape):
    """Return whether a mask of this shape is one for scores of that shape."""
    lengths = zip(reversed(mask_shape), reversed(shape), strict=False)
    return len(mask_shape) <= len(shape) and all(n in (1, length) for n, length in lengths)


def _product_in_heads(rows, weight, n_heads):
    """Return a product, cut into heads: (N, D) @ (D, H*K) -> (H, N, K).

    As one product for each head, all started at once, it needs no copy. But each of them reads all
    rows, which takes longer than the copy if the GPU's cache does not hold them.
    """
    (n, d), size = rows.shape, weight.shape[1] // n_heads
    if rows.nbytes > CACHED:
        joint = matmul(rows, weight, out=empty_operand((n, n_heads * size)))
        return fused.swap_first_axes(joint.reshape(n, n_heads, size))
    head_weights = weight.reshape(d, n_heads, size).swapaxes(0, 1)  # (H, D, K), a view
    for_each = xp.broadcast_to(rows, (n_heads, n, d))
    return matmul(for_each, head_weights, out=empty_operand((n_heads, n, size)))


class _HeadProjection:
    """Several linear layers of one input, computed as one product and cut into heads.

        y = x [W_1 W_2 ...]

    y: the heads of all layers, (heads, N, K), for the N = B * T rows of x (B, T, D).
    parents: the input and the weight of each layer; `backward` returns their gradients.
    """

    def __init__(self, x, layers, n_heads):
        self.parents = [x, *(layer.weight for layer in layers)]
        arrays = [inputs.linear_arrays(x, layer.weight, None) for layer in layers]
        weights = [weight for _, weight, _ in arrays]
        x_data = arrays[0][0]
        self.shape, self.n_layers = x_data.shape, len(layers)
        self.rows = as_operand(x_data.reshape(math.prod(self.shape[:-1]), self.shape[-1]))
        self.weight = as_operand(
            weights[0] if len(weights) == 1 else xp.concatenate(weights, axis=1)
        )
        self.y = _product_in_heads(self.rows, self.weight, len(layers) * n_heads)

    def heads(self, array):
        """Return the heads of each layer, (H, B, T, K), as views of an array like y."""
        n = len(array) // self.n_layers
        layers = [array[i * n : (i + 1) * n] for i in range(self.n_layers)]
        return [heads.reshape(n, *self.shape[:2], heads.shape[-1]) for heads in layers]

    def backward(self, gy):
        """Return the gradients of the parents."""
        gy = fused.swap_first_axes(gy).reshape(len(self.rows), self.weight.shape[1])
        gradients = [product_gradient(self.parents[0], gy, self.weight)]
        g_layers = gy.reshape(len(gy), self.n_layers, -1)
        for i, weight in enumerate(self.parents[1:]):
            gradients.append(matmul(self.rows.T, g_layers[:, i], out=gradient_out(weight)))
        return gradients


# Adam ---------------------------------------------------------------------------------------------


_flag = contextvars.ContextVar("_flag", default=True)


@contextlib.contextmanager
def updates_only_if(flag):
    """Let Adam change nothing in this block if a flag, which the GPU may not know yet, is False."""
    token = _flag.set(flag)
    try:
        yield
    finally:
        _flag.reset(token)


@form_of(optim.adam_update)
def adam_update(x, g, m, v, t, rate, beta_1=0.9, beta_2=0.98, eps=1e-9):
    """Change x, m and v in place, in one kernel, which reads and writes each number once.

    It also reads the flag of `updates_only_if`, so that the host need not wait for it.
    """
    if not has_kernels(x, g, m, v) or x.ndim != 1:
        return NotImplemented
    # Both bias corrections are numbers, so the kernel does not compute them for each element:
    # sqrt(v/c) + eps = (sqrt(v) + eps sqrt(c)) / sqrt(c)
    root = (1 - beta_2**t) ** 0.5
    scale = rate * root / (1 - beta_1**t)
    flag = to_device(_flag.get()).reshape(1)
    numbers = map(float, (beta_1, beta_2, eps * root, scale))  # float64 scalars would widen all
    arguments = x, g, m, v, *numbers, flag
    launch(kernels.adam, (-(-x.size // THREADS),), (THREADS,), *arguments)
    return None
