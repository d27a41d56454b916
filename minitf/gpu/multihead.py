"""The form of multi-head attention on a GPU: few products, and few copies to arrange the heads."""

import math

from minitf import transformer
from minitf.backend import xp
from minitf.cpu.layers import attends_plainly
from minitf.forms import form_of
from minitf.functions import boolean, linear_arrays
from minitf.gpu import fused
from minitf.gpu.dropout import numbers_of_next_mask
from minitf.gpu.functions import product_gradient
from minitf.gpu.launch import has_kernels
from minitf.gpu.matmul import as_operand, empty_operand, matmul
from minitf.nn import Linear, gradient_out
from minitf.tensor import record

CACHED = 2**24  # bytes of an array that stays in the cache of a GPU, which has 40 MB or more


@form_of(transformer.multi_head_attention)
def multi_head_attention(attention, x, memory, mask=None, cache=None):
    """Project each input once, with the weights side by side; attend; multiply by W^O.

        [Q K V] = x [W^Q W^K W^V]                       if the memory is x
        Q = x W^Q  and  [K V] = memory [W^K W^V]        otherwise

    The heads come first, (H, B, T, K): the matrices of a batch are then at equal distances, as
    cuBLAS needs them. In bfloat16, arrays that are only operands of the next product (Q, K, V, the
    context, and their gradients) are written in bfloat16 by the product that makes them.

    In backward each weight has a product of its own, so that its gradient can be written where it
    belongs, in the flat gradients.
    """
    if cache is not None or not _takes(attention, x, memory, mask):
        return NotImplemented
    layers = attention.query, attention.key, attention.value
    inputs = [(x, layers)] if memory is x else [(x, layers[:1]), (memory, layers[1:])]
    projections = [_HeadProjection(data, group, attention.n_heads) for data, group in inputs]
    parents = [*(parent for p in projections for parent in p.parents), attention.output.weight]
    q, k, v = (heads for p in projections for heads in p.heads(p.y))  # (H, B, T or S, K)
    n_heads, batch, length, size = q.shape
    n_rows = batch * length
    rate = attention.rate if attention.training else 0.0
    numbers = numbers_of_next_mask((batch, n_heads, length, k.shape[2]), rate)
    scale = 1 / math.sqrt(size)
    mask = None if mask is None else boolean(mask)
    # A view, (B, H, T, S): masks, and the random numbers of dropout, are in this order.
    scores = matmul(q, k.swapaxes(2, 3)).swapaxes(0, 1)
    weights, used = fused.softmax_dropout(scores, mask, scale, numbers)
    context = matmul(used.swapaxes(0, 1), v, out=empty_operand(q.shape))  # (H, B, T, K)
    merged = fused.swap_first_axes(context.reshape(n_heads, n_rows, size))  # (N, H, K)
    merged = merged.reshape(n_rows, n_heads * size)
    w = as_operand(attention.output.weight.data)
    y = matmul(merged, w).reshape(batch, length, w.shape[1])

    def backward(gy):
        gy = as_operand(gy.reshape(n_rows, w.shape[1]))
        g_context = _product_in_heads(gy, w.T, n_heads).reshape(q.shape)
        g_used = matmul(g_context, v.swapaxes(2, 3)).swapaxes(0, 1)  # (B, H, T, S)
        # The weights after dropout are computed again, so that forward need not keep them.
        g_scores, used = fused.softmax_dropout_gradient(g_used, weights, scale, numbers)
        g_scores, used = as_operand(g_scores.swapaxes(0, 1)), used.swapaxes(0, 1)  # (H, B, T, S)
        pairs = [(p, empty_operand(p.y.shape)) for p in projections]  # each with the gradient of y
        g_q, g_k, g_v = (heads for p, g_y in pairs for heads in p.heads(g_y))
        matmul(g_scores, k, out=g_q)
        matmul(g_scores.swapaxes(2, 3), q, out=g_k)
        matmul(used.swapaxes(2, 3), g_context, out=g_v)
        gradients = [gradient for p, g_y in pairs for gradient in p.backward(g_y, parents)]
        out = gradient_out(attention.output.weight, parents)
        return (*gradients, matmul(merged.T, gy, out=out))

    return record(y, parents, backward)


def _takes(attention, x, memory, mask):
    """Return whether the form takes this call.

    It needs plain layers without biases, heads of one size, a mask that fits, and a sentence.
    """
    if not attends_plainly(attention, x, memory) or type(attention.output) is not Linear:
        return False
    projected = attention.query, attention.key, attention.value
    size = attention.output.weight.shape[0]  # of all heads
    scores_shape = len(x), attention.n_heads, x.shape[1], memory.shape[1]
    return (
        has_kernels(x, attention.output.weight)  # the other weights have the dtype of x
        and all(layer.bias is None for layer in (*projected, attention.output))
        and all(layer.weight.shape[1] == size for layer in projected)
        and size % attention.n_heads == 0
        and (mask is None or _broadcasts(mask.shape, scores_shape))
        and len(x) > 0
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

    y: the heads of all layers, (heads, N, K), for the N = B * T rows of x (B, T, D). The cores
    of a CPU compute rows first: see _RowProjection in cpu/multihead.py.
    parents: the input and the weight of each layer; `backward` returns their gradients.
    """

    def __init__(self, x, layers, n_heads):
        self.parents = [x, *(layer.weight for layer in layers)]
        arrays = [linear_arrays(x, layer.weight, None) for layer in layers]
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

    def backward(self, gy, inputs):
        """Return the gradients of the parents; inputs: all of the op, for `gradient_out`."""
        gy = fused.swap_first_axes(gy).reshape(len(self.rows), self.weight.shape[1])
        gradients = [product_gradient(self.parents[0], gy, self.weight)]
        g_layers = gy.reshape(len(gy), self.n_layers, -1)
        for i, weight in enumerate(self.parents[1:]):
            out = gradient_out(weight, inputs)
            gradients.append(matmul(self.rows.T, g_layers[:, i], out=out))
        return gradients
