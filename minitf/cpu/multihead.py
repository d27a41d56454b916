"""The form of multi-head attention on NumPy: queries, keys and values from one product."""

from __future__ import annotations

import math

import numpy as np

from minitf import transformer
from minitf.cpu.attention import attend
from minitf.cpu.layers import attends_plainly
from minitf.cpu.sums import column_sums
from minitf.dropout import next_mask
from minitf.forms import form_of
from minitf.functions import attention_arrays, linear_arrays
from minitf.tensor import is_recording, record


@form_of(transformer.multi_head_attention)
def multi_head_attention(attention, x, memory, mask=None, cache=None):
    """Project each input once, with the weights side by side, and attend to views of the result.

        [Q K V] = x [W^Q W^K W^V]                       if the memory is x
        Q = x W^Q  and  [K V] = memory [W^K W^V]        otherwise

    In backward the gradients of Q, K and V are written side by side as well, so that one product
    computes the gradient of an input, and another those of its weights.
    """
    if cache is not None or not is_recording() or not attends_plainly(attention, x, memory):
        return NotImplemented
    layers = attention.query, attention.key, attention.value
    inputs = [(x, layers)] if memory is x else [(x, layers[:1]), (memory, layers[1:])]
    projections = [_RowProjection(data, group, attention.n_heads) for data, group in inputs]
    heads = [head for p in projections for head in p.heads(p.y)]  # queries, keys, values
    q, k, v, mask = attention_arrays(*heads, mask)
    rate = attention.rate if attention.training else 0.0
    keep, factor = next_mask((*q.shape[:-1], k.shape[-2]), rate)
    y, write_gradients = attend(q, k, v, mask, keep, factor)
    batch, n_heads, length, size = y.shape
    y = y.transpose(0, 2, 1, 3)  # (B, T, H, U)

    def backward(gy):
        pairs = [(p, np.empty_like(p.y)) for p in projections]  # each with the gradient of its y
        g_heads = [head for p, g_y in pairs for head in p.heads(g_y)]
        write_gradients(gy.reshape(y.shape).transpose(0, 2, 1, 3), g_heads)
        return tuple(gradient for p, g_y in pairs for gradient in p.backward(g_y))

    parents = [parent for p in projections for parent in p.parents]
    return attention.output(record(y.reshape(batch, length, n_heads * size), parents, backward))


class _RowProjection:
    """Several linear layers of one input, computed as one product whose heads are views.

        y = x [W_1 W_2 ...] + [b_1 b_2 ...]

    y: the results side by side, (N, F), for the N = B * T rows of x (B, T, D). On a GPU the heads
    come first, because cuBLAS can write them so: see _HeadProjection in gpu/multihead.py.
    parents: the input, and weight and bias of each layer; `backward` returns their gradients.
    """

    def __init__(self, x, layers, n_heads):
        self.parents = [x, *(p for layer in layers for p in (layer.weight, layer.bias))]
        arrays = [linear_arrays(x, layer.weight, layer.bias) for layer in layers]
        x_data = arrays[0][0]
        self.weights = [weight for _, weight, _ in arrays]
        biases = [bias for _, _, bias in arrays]
        self.shape, self.n_heads = x_data.shape, n_heads
        self.rows = x_data.reshape(math.prod(self.shape[:-1]), self.shape[-1])  # (N, D)
        self.has_bias = [bias is not None for bias in biases]
        self.columns, start = [], 0  # the slice of y that belongs to each layer
        for weight in self.weights:
            self.columns.append(slice(start, start + weight.shape[1]))
            start += weight.shape[1]
        self.y = self.rows @ self._weight()
        for columns, bias in zip(self.columns, biases, strict=True):
            if bias is not None:
                self.y[:, columns] += bias

    def _weight(self):
        """Return the weights side by side, (D, F); backward makes them again, to save memory."""
        return np.concatenate(self.weights, axis=1) if len(self.weights) > 1 else self.weights[0]

    def heads(self, array):
        """Return the heads of each layer, (B, H, T, K), as views of an array like y."""
        heads = []
        for columns in self.columns:
            size = (columns.stop - columns.start) // self.n_heads
            y = array[:, columns].reshape(*self.shape[:-1], self.n_heads, size)
            heads.append(y.transpose(0, 2, 1, 3))
        return heads

    def backward(self, gy):
        """Return the gradients of the parents."""
        gradients = [(gy @ self._weight().T).reshape(self.shape)]
        g_weight = self.rows.T @ gy  # (D, F)
        for columns, has_bias in zip(self.columns, self.has_bias, strict=True):
            g_bias = column_sums(gy[:, columns]) if has_bias else None
            gradients += [g_weight[:, columns], g_bias]
        return gradients
