"""The form of multi-head attention on a GPU: few products, and their factors in few copies."""

import math

from minitf.backend import xp
from minitf.cpu.functions import gradient_buffer
from minitf.forms import form_of
from minitf.functions import boolean, linear_arrays
from minitf.gpu import fused
from minitf.gpu.dropout import next_decisions
from minitf.gpu.launch import has_kernels
from minitf.gpu.matmul import as_factor, empty_factor, matmul
from minitf.nn import Linear
from minitf.tensor import record
from minitf.transformer import MultiHeadAttention
from minitf.unchanged import attends_plainly, is_unchanged


@form_of(MultiHeadAttention.__call__)
def multi_head_attention(module, x, memory, mask=None, cache=None):
    """Project each input once, with the weights side by side, and attend with the heads in front.

        [Q K V] = x [W^Q W^K W^V]                       if the memory is x
        Q = x W^Q  and  [K V] = memory [W^K W^V]        otherwise

    The axes of queries, keys and values are (H, B, T, K): so the heads of one product need one
    kernel that arranges them, and the products of attention find them at equal distances. Arrays
    between two products are rounded by the first one, if the precision is bfloat16.
    """
    if cache is not None or not _takes(module, x, memory, mask):
        return NotImplemented
    layers = module.query, module.key, module.value
    inputs = [(x, layers)] if memory is x else [(x, layers[:1]), (memory, layers[1:])]
    projections = [_Projection(data, group, module.n_heads) for data, group in inputs]
    q, k, v = (heads for p in projections for heads in p.heads(p.y))  # (H, B, T or S, K)
    n_heads, batch, length, size = q.shape
    rate = module.rate if module.training else 0.0
    numbers = next_decisions((batch, n_heads, length, k.shape[2]), rate)
    scale = 1 / math.sqrt(size)
    scores = matmul(q, k.swapaxes(2, 3)).swapaxes(0, 1)  # (B, H, T, S)
    mask = None if mask is None else boolean(mask)
    weights, dropped = fused.softmax_dropout(scores, mask, scale, numbers)
    context = matmul(dropped.swapaxes(0, 1), v, out=empty_factor(q.shape))  # (H, B, T, K)
    rows = fused.exchange(context.reshape(n_heads, batch * length, size))  # (R, H, K)
    rows = rows.reshape(batch * length, n_heads * size)
    w = as_factor(module.output.weight.data)

    def backward(gy):
        gy = as_factor(gy.reshape(len(rows), w.shape[1]))
        g_rows = matmul(gy, w.T, out=empty_factor(rows.shape))
        g_context = fused.exchange(g_rows.reshape(-1, n_heads, size)).reshape(q.shape)
        g, used = fused.softmax_dropout_gradient(
            matmul(g_context, v.swapaxes(2, 3)).swapaxes(0, 1), weights, scale, numbers
        )
        g, used = (as_factor(array.swapaxes(0, 1)) for array in (g, used))  # (H, B, T, S)
        g_projected = [empty_factor(p.y.shape) for p in projections]
        pairs = zip(projections, g_projected, strict=True)
        g_q, g_k, g_v = (heads for p, g_y in pairs for heads in p.heads(g_y))
        matmul(g, k, out=g_q)
        matmul(g.swapaxes(2, 3), q, out=g_k)
        matmul(used.swapaxes(2, 3), g_context, out=g_v)
        gradients = []
        for p, g_y in zip(projections, g_projected, strict=True):
            gradients += p.backward(g_y, buffer)
        return (*gradients, matmul(rows.T, gy, out=buffer(module.output.weight)))

    def buffer(parent):
        """Return the array for the gradient of a parent, None if it is a parent twice."""
        return gradient_buffer(parent) if sum(parent is x for x in parents) == 1 else None

    parents = [*(parent for p in projections for parent in p.parents), module.output.weight]
    y = matmul(rows, w).reshape(batch, length, w.shape[1])
    return record(y, parents, backward)


def _takes(module, x, memory, mask):
    """Return whether the form takes this call: plain layers of one size, without biases."""
    projected = module.query, module.key, module.value
    layers = *projected, module.output
    sizes = {*(layer.weight.shape[1] for layer in projected), module.output.weight.shape[0]}
    scores = len(x), module.n_heads, x.shape[1], memory.shape[1]
    return (
        attends_plainly(module, x, memory, mask)
        and is_unchanged(module.output, Linear)
        and all(layer.bias is None for layer in layers)
        and has_kernels(x.data, memory.data, *(layer.weight.data for layer in layers))
        and len(sizes) == 1
        and min(sizes) % module.n_heads == 0
        and (mask is None or _broadcasts(mask.shape, scores))
        and len(x) > 0
    )


def _broadcasts(mask_shape, shape):
    """Return whether a mask of this shape is one for scores of that shape."""
    lengths = zip(reversed(mask_shape), reversed(shape), strict=False)
    return len(mask_shape) <= len(shape) and all(n in (1, length) for n, length in lengths)


class _Projection:
    """Several linear layers of one input, computed as one product and cut into heads.

        y = x [W_1 W_2 ...]

    y: (G*H, R, K) for the heads of G layers and the R = B * T rows of x (B, T, D).
    parents: the input and the weight of each layer; `backward` returns their gradients.
    """

    def __init__(self, x, layers, n_heads):
        self.parents = [x, *(layer.weight for layer in layers)]
        arrays = [linear_arrays(x, layer.weight, None) for layer in layers]
        weights = [weight for _, weight, _ in arrays]
        x_data = arrays[0][0]
        self.shape, self.n_layers = x_data.shape, len(layers)
        self.rows = as_factor(x_data.reshape(math.prod(self.shape[:-1]), self.shape[-1]))
        self.weight = as_factor(weights[0] if len(weights) == 1 else xp.concatenate(weights, 1))
        shape = len(self.rows), self.weight.shape[1]
        product = matmul(self.rows, self.weight, out=empty_factor(shape))
        self.y = fused.exchange(product.reshape(len(product), len(layers) * n_heads, -1))

    def heads(self, array):
        """Return the heads of each layer, (H, B, T, K), as views of an array like y."""
        n = len(array) // self.n_layers
        of_layers = [array[i * n : (i + 1) * n] for i in range(self.n_layers)]
        return [x.reshape(n, *self.shape[:2], x.shape[-1]) for x in of_layers]

    def backward(self, gy, buffer):
        """Return the gradients of the parents, each in the array that `buffer` returns for it."""
        gy = fused.exchange(gy).reshape(len(self.rows), self.weight.shape[1])
        gradients = [matmul(gy, self.weight.T).reshape(self.shape)]
        columns = xp.split(gy, self.n_layers, axis=1)
        for weight, g_columns in zip(self.parents[1:], columns, strict=True):
            gradients.append(matmul(self.rows.T, g_columns, out=buffer(weight)))
        return gradients
