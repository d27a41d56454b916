"""The decoder of a plain Transformer as one straight line of array operations for each token.

For one sentence, a step of decoding computes little: its time goes into Python and into fetching
the weights. So this program makes no Tensors and calls no layers but that of the positions, and it
joins matrices that multiply the same rows. It computes the equations of minitf/transformer.py, and
is used if its logits are those of the modules; else they decode.

The line is the same for both libraries. What differs between them is in a table of steps: STEPS
here is for NumPy, that of minitf/gpu/decoder.py for CuPy.

Letters: B sentences, W texts of each, R = B * W rows, D features, H heads, K d_k, U d_v,
n tokens in the cache of a sentence, S tokens of its source, L layers, V vocabulary.
"""

import functools
import math
import sys
import types
import weakref
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minitf import decode, forms
from minitf import functions as F
from minitf.backend import to_device, xp
from minitf.config import Config
from minitf.cpu.decode import Layout
from minitf.cpu.strips import in_strips, packed_copy, product, strips_shape
from minitf.tensor import Tensor

__all__ = ["Affine", "PackedDecoder", "Steps", "StraightScorer", "for_decoding", "is_straight"]


def for_decoding(model):
    """Return a copy of a model that decodes fast; its matrices do not follow those of the model."""
    on_cpu = isinstance(model.target_embedding.weight.data, np.ndarray)
    packed = packed_decoder(model) if on_cpu else None
    if packed is None:
        return packed_copy(model, model)
    twin = packed_copy(model, model.encoder)
    twin.packed_decoder = forms.changes(), packed
    return twin


@forms.form_of(decode.token_scorer)
def token_scorer(model, source, width, cached):
    """Return a StraightScorer if the model is decoded as one."""
    # A row of padding alone has nothing to attend to, for which `_attend` does not provide.
    if not cached or not (np.asarray(source) != model.config.pad_id).any(axis=1).all():
        return NotImplemented
    packed = packed_decoder(model)
    return NotImplemented if packed is None else StraightScorer(packed, model, source, width)


def packed_decoder(model):
    """Return the PackedDecoder of a model, or None if its modules have to decode.

    A copy by `for_decoding` has one, good until something is replaced: see `forms.changes`.
    """
    if not decode.has_own_layers(model) or forms.is_left_out("decoder"):
        return None
    changes, packed = vars(model).get("packed_decoder", (None, None))
    if changes == forms.changes():
        return packed
    if _compared.get(model) == (_made_of(model), False):
        return None
    packed = PackedDecoder(model, STEPS)
    straight = is_straight(model, lambda source: StraightScorer(packed, model, source, 1))
    return packed if straight else None


def is_straight(model, scorer_of, tolerance=1e-4):
    """Return whether a straight line has the logits that the model's modules compute.

    None if the model raises an error, as a broken one does.
    scorer_of, tolerance: as `decode.agrees` takes them.
    They are compared again only if another layer, setting or shape is in the model, or something
    was replaced: see `forms.changes`. If they disagree, a line says so.
    """
    made_of, straight = _compared.get(model, (None, None))
    if made_of != (now := _made_of(model)):
        straight = decode.agrees(model, scorer_of, tolerance)
        _compared[model] = now, straight
        if straight is False:
            print(
                "minitf: a model is decoded by its modules, not by the faster program, which "
                "computes other logits or none",
                file=sys.stderr,
            )
    return straight


_compared = weakref.WeakKeyDictionary()  # model: what it was made of, and whether they agreed


def _made_of(model):
    """Return how often something was replaced, and of a model the types of all modules and of their
    attributes, the values of settings, and the shapes of parameters.
    """
    settings = int, float, str, Config, types.FunctionType

    def setting(value):
        return value if isinstance(value, settings) else (type(value), getattr(value, "shape", ()))

    modules = [(type(m), [setting(value) for value in vars(m).values()]) for m in model.modules()]
    return forms.changes(), modules


class Affine:
    """The map x W + b of rows, or several maps of the same rows side by side: (R, D) -> (R, F).

    layers: pairs of a weight (D, F) and a bias (F,) or None.
    multiply: the function that multiplies rows by W, which the step `pack` provides.
    """

    def __init__(self, *layers):
        self.weights, biases = zip(*layers, strict=True)
        self.shape = len(self.weights[0]), sum(weight.shape[1] for weight in self.weights)
        self.bias = self.multiply = None
        if any(bias is not None for bias in biases):
            self.bias = _side_by_side(
                xp.zeros(weight.shape[1], dtype=weight.dtype) if bias is None else bias
                for weight, bias in layers
            )

    def take_matrix(self):
        """Return W (D, F), and keep it no longer: `multiply` has it."""
        weights, self.weights = self.weights, None
        return _side_by_side(weights)

    def __call__(self, x):
        y = self.multiply(x)
        if self.bias is not None:
            y += self.bias
        return y


def _side_by_side(arrays):
    """Join arrays along the last axis; a single one is not copied."""
    first, *others = arrays
    return xp.concatenate([first, *others], axis=-1) if others else first


class Steps(NamedTuple):
    """The steps of decoding that each library computes by a program of its own.

    pack: give each of some Affines its `multiply`: (Affines, dtype).
    norm: make a program from a LayerNorm: norm(x) is LayerNorm(x), norm.of_sum(x, y) is
    LayerNorm(x + y), which may be computed in y.
    hidden: activation(inner(x)), of an Affine, x, and the name of a function in minitf.functions.
    projections: the Linears of the keys and values of some attentions, in the order in which
    `in_heads` takes their results.
    in_heads: turn these results side by side, (B, n, L * (H*K + H*U)), into the arrays of a cache,
    a list of (B, L * c, n, K or U), for a number c, with the heads of a layer side by side.
    mask: prepare a NumPy mask (B, W, n), given with the dtype of the scores, for `attend`; None if
    nothing is hidden.
    attend: softmax(Q K^T / sqrt(d_k)) V for the newest token of each text, (R, H*U): see `_attend`.
    divides: whether queries are to be divided by sqrt(d_k) before `attend`, once in their weights.
    """

    pack: Callable
    norm: Callable
    hidden: Callable
    projections: Callable
    in_heads: Callable
    mask: Callable
    attend: Callable
    divides: bool


class _Layer(NamedTuple):
    """The weights of one decoder layer."""

    query_key_value: Affine  # of self-attention: all queries, then all keys, then all values
    self_output: Affine
    self_norm: Callable
    source_query: Affine
    source_output: Affine
    source_norm: Callable
    inner: Affine
    activation: str  # the name of a function in minitf.functions
    outer: Affine
    feed_forward_norm: Callable


def _layer_of(layer, steps):
    """Return the weights of a DecoderLayer, not packed yet."""
    own, of_source, network = layer.self_attention, layer.source_attention, layer.feed_forward
    query = _divided_query if steps.divides else _query
    return _Layer(
        query_key_value=Affine(query(own), _weight_and_bias(own.key), _weight_and_bias(own.value)),
        self_output=Affine(_weight_and_bias(own.output)),
        self_norm=steps.norm(layer.self_residual.norm),
        source_query=Affine(query(of_source)),
        source_output=Affine(_weight_and_bias(of_source.output)),
        source_norm=steps.norm(layer.source_residual.norm),
        inner=Affine(_weight_and_bias(network.inner)),
        activation=network.activation,
        outer=Affine(_weight_and_bias(network.outer)),
        feed_forward_norm=steps.norm(layer.feed_forward_residual.norm),
    )


def _weight_and_bias(linear):
    """Return the arrays of a Linear; the bias is None if it has none."""
    return linear.weight.data, None if linear.bias is None else linear.bias.data


def _query(attention):
    return _weight_and_bias(attention.query)


def _divided_query(attention):
    """Return weight and bias of the queries, divided by sqrt(d_k) in place of the scores."""
    weight, bias = _query(attention)
    root = math.sqrt(weight.shape[1] // attention.n_heads)
    return weight / root, None if bias is None else bias / root


class PackedDecoder:
    """A copy of the weights of a plain model's decoder, which does not follow later changes.

    embedding: the model's table itself, to save memory.
    norm: the last norm of a pre-norm model, else None.
    vocabulary: the logits.
    source: keys and values of the source, for each layer.
    """

    def __init__(self, model, steps):
        self.steps, self.post = steps, model.config.norm == "post"
        self.layers = [_layer_of(layer, steps) for layer in model.decoder.layers]
        self.norm = steps.norm(model.decoder.norm) if model.decoder.norm else None
        self.embedding = model.target_embedding.weight.data
        self.vocabulary = Affine((model.output_embedding.weight.data.T, model.logit_bias()))
        attentions = [layer.source_attention for layer in model.decoder.layers]
        self.source = Affine(*map(_weight_and_bias, steps.projections(attentions)))
        of_layers = [x for layer in self.layers for x in layer if isinstance(x, Affine)]
        steps.pack([*of_layers, self.vocabulary, self.source], self.embedding.dtype)


class StraightScorer:
    """The Scorer (see minitf/decode.py) that computes a step by a straight line.

    caches: the keys and values of the tokens of all beams, for each layer the arrays that the step
    `in_heads` makes, with room for `layout.capacity` tokens.
    source: the keys and values of the source, the arrays of all layers together; source_caches: the
    views of them that are each layer's.
    """

    def __init__(self, packed, model, source, width):
        self.packed, self.steps, self.model, self.width = packed, packed.steps, model, width
        memory, mask = model.encode(source)
        batch, length, d = memory.shape
        keys_and_values = packed.source(memory.data.reshape(batch * length, d))
        keys_and_values = keys_and_values.reshape(batch, length, -1)
        self._keep_source(self.steps.in_heads(keys_and_values, model.config))
        self.source_mask = self.steps.mask(mask[:, 0], memory.dtype)
        self.layout = Layout(batch, width)
        of_layer = keys_and_values.shape[2] // len(packed.layers)
        empty = xp.empty((batch, 0, of_layer), dtype=memory.dtype)
        self.caches = [self.steps.in_heads(empty, model.config) for _ in packed.layers]

    def _keep_source(self, arrays):
        self.source, n_layers = arrays, len(self.packed.layers)
        n = arrays[0].shape[1] // n_layers
        self.source_caches = [
            [array[:, i * n : (i + 1) * n] for array in arrays] for i in range(n_layers)
        ]

    def __call__(self, texts):
        """Return logits and their logsumexp, as Scorer says."""
        return decode.with_logsumexp(self._logits(texts), self.model.config)

    def _logits(self, texts):
        """Return the logits (R, V) of the next token of each text."""
        if self.layout.is_full():
            kept = self.layout.grow()
            for cache in self.caches:  # one at a time, so that few are there twice
                cache[:] = [self.layout.moved(array, kept) for array in cache]
        self.layout.add_newest()
        x = self._embedded(texts)
        own_mask, source_mask = self.steps.mask(self.layout.mask(), x.dtype), self.source_mask
        if source_mask is not None:
            batch, _, length = source_mask.shape
            source_mask = xp.broadcast_to(source_mask, (batch, self.width, length))
        for i, layer in enumerate(self.packed.layers):
            x = self._layer(x, layer, i, own_mask, source_mask)
        if self.packed.norm:
            x = self.packed.norm(x)
        return self.packed.vocabulary(x)

    def _embedded(self, texts):
        """Return the embeddings of the newest tokens with the vectors of their position, (R, D)."""
        rows = self.packed.embedding[to_device(texts[:, -1])]
        rows *= math.sqrt(rows.shape[1])
        return self.model.target_positions(Tensor(rows[:, None]), texts.shape[1] - 1).data[:, 0]

    def _layer(self, x, layer, i, own_mask, source_mask):
        """Apply decoder layer i to x (R, D), and add its keys and values to the cache."""
        attend, first = self.steps.attend, self.layout.length - self.width
        y = layer.query_key_value(self._before(x, layer.self_norm))
        y = attend(y, self.caches[i], own_mask, first)
        x = self._after(x, layer.self_output(y), layer.self_norm)
        y = layer.source_query(self._before(x, layer.source_norm))
        y = attend(y, self.source_caches[i], source_mask)
        x = self._after(x, layer.source_output(y), layer.source_norm)
        y = self._before(x, layer.feed_forward_norm)
        y = self.steps.hidden(layer.inner, y, layer.activation)
        return self._after(x, layer.outer(y), layer.feed_forward_norm)

    def _before(self, x, norm):
        """Return what a sub-layer gets: x, or LayerNorm(x) in a pre-norm model."""
        return x if self.packed.post else norm(x)

    def _after(self, x, y, norm):
        """Return LayerNorm(x + y) for the output y of a sub-layer, or x + y in a pre-norm model."""
        if self.packed.post:
            return norm.of_sum(x, y)
        y += x
        return y

    def select(self, rows):
        """Keep these rows of the texts, in this order."""
        sentences = rows[:: self.width] // self.width
        if len(sentences) < len(self.layout.own):
            kept = to_device(sentences)
            for cache in self.caches:
                cache[:] = [array[kept] for array in cache]
            self._keep_source([array[kept] for array in self.source])
            if self.source_mask is not None:
                self.source_mask = self.source_mask[kept]
        self.layout.select(rows)


# The steps for NumPy -----------------------------------------------------------------------------


def _pack(maps, dtype):
    """Copy the biases, and the matrices as strips, all in one array.

    NumPy asks the system for large pages of memory for a large array. With small ones, a step for
    one sentence waits for the addresses of thousands of pages: it took a fifth longer.
    """
    if any(weight.dtype != dtype for each in maps for weight in each.weights):
        raise TypeError("this decoder mixes float32 and float64: convert it to one with astype")
    shapes = [strips_shape(*each.shape) for each in maps]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = np.split(np.empty(ends[-1], dtype), ends[:-1])
    for each, part, shape in zip(maps, parts, shapes, strict=True):
        strips = in_strips(each.take_matrix(), part.reshape(shape))
        each.multiply = functools.partial(product, strips=strips, f=each.shape[1])
        each.bias = None if each.bias is None else each.bias.copy()


class _Norm:
    """Layer norm of rows (R, D), in a new array.

        y = x - mean(x)
        y / sqrt(sum(y^2) / D + eps) = sqrt(D) y / sqrt(sum(y^2) + D eps)

    The gain is multiplied by sqrt(D), and eps by D, once for all rows.
    """

    def __init__(self, norm):
        gain = norm.gain.data
        self.averaging = np.full(len(gain), 1 / len(gain), gain.dtype)  # mean(x) = x . averaging
        self.gain, self.bias = gain * math.sqrt(len(gain)), norm.bias.data.copy()
        self.eps = len(gain) * norm.eps

    def __call__(self, x):
        y = x - np.vecdot(x, self.averaging)[:, None]
        sums = np.vecdot(y, y)
        sums += self.eps
        y /= np.sqrt(sums, out=sums)[:, None]
        y *= self.gain
        y += self.bias
        return y

    def of_sum(self, x, y):
        y += x
        return self(y)


def _hidden(inner, x, activation):
    y = inner(x)
    return np.maximum(y, 0, out=y) if activation == "relu" else getattr(F, activation)(y).data


def _projections(attentions):
    """Return the keys of all attentions, then the values of all."""
    return [*(each.key for each in attentions), *(each.value for each in attentions)]


def _in_heads(projected, config):
    """Return the keys (B, L*H, n, K) and the values (B, L*H, n, U), contiguous."""
    batch, n, size = projected.shape
    n_heads = size // (config.d_k + config.d_v)  # of all layers
    arrays = []
    for columns in np.split(projected, [n_heads * config.d_k], axis=2):
        heads = columns.reshape(batch, n, n_heads, columns.shape[2] // n_heads)
        arrays.append(np.ascontiguousarray(heads.swapaxes(1, 2)))
    return arrays


def _mask(mask, dtype):
    """Return the terms to add to the scores: 0 where the mask is True, else -infinity."""
    if mask.all():
        return None
    terms = np.full(mask.shape, -np.inf, dtype)
    terms[mask] = 0
    return terms


def _attend(projected, cache, mask, first=None):
    """Return softmax(Q K^T) V for the newest token of each text, all heads side by side: (R, H*U).

    projected: the queries (R, H*K). With `first`, the newest keys and values follow them, (R, H*K)
    and (R, H*U), and are written to the cache indices first ... first + W - 1 of each sentence.
    cache: the keys (B, H, capacity, K) and the values (B, H, capacity, U).
    mask: of `_mask`, (B, W, n).
    """
    keys, values = cache
    batch, heads, _, size = keys.shape
    width = len(projected) // batch

    def split(x):
        """Return the features as heads: (R, H*K) -> (B, H, W, K), a view."""
        return x.reshape(batch, width, heads, x.shape[1] // heads).swapaxes(1, 2)

    if first is None:
        queries = split(projected)
    else:
        end, stop = heads * size, first + width
        queries = split(projected[:, :end])
        keys, values = keys[:, :, :stop], values[:, :, :stop]
        keys[:, :, first:] = split(projected[:, end : 2 * end])
        values[:, :, first:] = split(projected[:, 2 * end :])
    weights = queries @ keys.swapaxes(-1, -2)  # (B, H, W, n)
    if mask is not None:
        weights += mask[:, None]
    weights -= np.maximum.reduce(weights, axis=-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    merged = np.empty((batch, width, heads, values.shape[-1]), values.dtype)
    np.matmul(weights, values, out=merged.swapaxes(1, 2))
    return merged.reshape(batch * width, -1)


STEPS = Steps(_pack, _Norm, _hidden, _projections, _in_heads, _mask, _attend, divides=True)
