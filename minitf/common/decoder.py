"""The fused decoder: all layers of a plain Transformer's decoder as one program on arrays.

For one sentence, a decoding step computes little: its time goes into Python and into fetching
the weights. So this program calls no layer of the decoder (the encoder and the positions are the
model's own), and it joins matrices that multiply the same rows. It computes the equations of
minitf/transformer.py, for both libraries. What they compute by different programs is in a table of
routines: NumPy's in minitf/cpu/decode.py, CuPy's in minitf/gpu/decode.py.

It decodes where its logits are those of the modules: see `decode.fastest_decoding`.

Letters: B sentences, W texts of each, R = B * W rows, D features, H heads, K d_k, U d_v,
n tokens in the cache of a sentence, S tokens of its source, V vocabulary.
"""

import math
import types
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from minitf import decode
from minitf.backend import to_device, xp
from minitf.beyond.shortlist import ShortlistedOutput
from minitf.beyond.ssru import SSRU
from minitf.common.layers import is_own
from minitf.functions import sigmoid_of
from minitf.tensor import Tensor
from minitf.transformer import padding_mask

__all__ = ["Affine", "FusedDecoder", "FusedDecoding", "Layout", "Routines", "fused_decoding"]

_GROW_BY = 8  # tokens of each text by which the caches grow


class Routines(NamedTuple):
    """What each library computes by a program of its own.

    pack(affines, dtype): give each Affine its `multiply`.
    encodes: the number of source tokens up to which they compute the encoder of a model with a
    shortlist, too.
    norm(layer): a function of x, norm(x), and of a sum, norm(x, y), which may change y.
    hidden(inner, x, activation): the activation, a name in minitf.functions, of inner(x).
    in_heads(x, config): keys and values side by side, (B, n, H*K + H*U), as the list of arrays that
    a cache has, each with B and n as its axes 0 and 2.
    mask(allowed, dtype): what `attend` takes for NumPy's mask (B, W, n); None: all may be seen.
    attend(x, cache, mask, write_at): softmax(Q K^T / sqrt(K)) V of the newest tokens, (R, H*U). x
    has the queries (R, H*K). Unless write_at is None, their keys and values follow,
    (R, H*K + H*U), and are written to the indices write_at ... write_at + W - 1 of the cache.
    """

    pack: Callable
    encodes: int
    norm: Callable
    hidden: Callable
    in_heads: Callable
    mask: Callable
    attend: Callable


# The state: the weights, and the caches of the texts -------------------------------------------


class Affine:
    """The map x W + b of rows, or several maps of the same rows side by side: (R, D) -> (R, F).

    linears: Linears, or others with a weight (D, F) and a bias (F,) or None.
    multiply: the function that multiplies rows by W, which the routine `pack` provides.
    """

    def __init__(self, *linears):
        self.weights = [each.weight.data for each in linears]
        self.shape = len(self.weights[0]), sum(weight.shape[1] for weight in self.weights)
        self.bias = self.multiply = None
        if any(each.bias is not None for each in linears):
            self.bias = _side_by_side(
                xp.zeros(weight.shape[1], weight.dtype) if each.bias is None else each.bias.data
                for weight, each in zip(self.weights, linears, strict=True)
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


def _layer_of(layer, norm):
    """Return the weights of a layer of the decoder or of the encoder, by name."""
    own, source = layer.self_attention, getattr(layer, "source_attention", None)
    network, is_ssru = layer.feed_forward, isinstance(own, SSRU)
    # All queries, keys and values side by side; of an SSRU, all values and gates.
    inputs = (own.value, own.forget) if is_ssru else (own.query, own.key, own.value)
    parts = types.SimpleNamespace(
        own_input=Affine(*inputs),
        own_output=None if is_ssru else Affine(own.output),
        self_norm=norm((layer.self_residual if source else layer.attention_residual).norm),
        inner=Affine(network.inner),
        activation=network.activation,  # the name of a function in minitf.functions
        outer=Affine(network.outer),
        feed_forward_norm=norm(layer.feed_forward_residual.norm),
    )
    if source:
        parts.source_query = Affine(source.query)
        parts.source_key_value = Affine(source.key, source.value)
        parts.source_output = Affine(source.output)
        parts.source_norm = norm(layer.source_residual.norm)
    return parts


def _affines(layers):
    return [x for layer in layers for x in vars(layer).values() if isinstance(x, Affine)]


class FusedDecoding(decode.Decoding):
    """A standard model with its decoder's weights, as the routines of a library need them.

    NumPy's are copies, except for the embedding, and do not follow later changes; CuPy's are the
    model's own arrays where they need not be joined. Positions are kept from their first use on.

    norm: the last norm of a pre-norm model, else None.
    vocabulary: computes the logits; None with a shortlist, as each FusedDecoder then has its own.
    """

    def __init__(self, model, routines, shortlist=None):
        super().__init__(model, shortlist=shortlist)
        self.positions = {}
        self.routines, self.post = routines, model.config.norm == "post"
        self.embedding = model.target_embedding.weight.data
        self.layers = [_layer_of(layer, routines.norm) for layer in model.decoder.layers]
        self.norm = routines.norm(model.decoder.norm) if model.decoder.norm else None
        self.output = model.output_embedding.weight, model.logit_bias()
        self.vocabulary, self.encoder, more = None, [], []
        if not shortlist:
            output = types.SimpleNamespace(weight=self.output[0].T, bias=self.output[1])
            self.vocabulary = Affine(output)
            more = [self.vocabulary]
        elif routines.encodes and all(map(is_own, model.encoder.modules())):
            self.encoder = [_layer_of(layer, routines.norm) for layer in model.encoder.layers]
            self.encoder_norm = routines.norm(model.encoder.norm) if model.encoder.norm else None
            more = _affines(self.encoder)
        routines.pack([*_affines(self.layers), *more], self.embedding.dtype)

    def encode(self, source):
        """Return what the model's `encode` does, but arrays, of few tokens without its layers."""
        if not self.encoder or source.size > self.routines.encodes:
            memory, mask = self.model.encode(source)
            return memory.data, mask
        model, config, (batch, length) = self.model, self.model.config, source.shape
        mask = padding_mask(source, config.pad_id)
        x = model.source_positions(model.embedding(source) * config.d_model**0.5).data
        x, hidden = x.reshape(batch * length, -1), self.routines.mask(mask[:, 0], x.dtype)
        for layer in self.encoder:
            y = layer.own_input(self.before(x, layer.self_norm))
            queries, rest = xp.split(y, [config.n_heads * config.d_k], axis=1)
            cache = self.routines.in_heads(rest.reshape(batch, length, -1), config)
            y = layer.own_output(self.routines.attend(queries, cache, hidden, write_at=None))
            x = self.network(self.after(x, y, layer.self_norm), layer)
        if self.encoder_norm:
            x = self.encoder_norm(x)
        return x.reshape(batch, length, -1), mask

    def position(self, t):
        """Return what is added to an embedding at position t: (D,)."""
        if t not in self.positions:
            nothing = Tensor(xp.zeros((1, 1, self.embedding.shape[1]), self.embedding.dtype))
            self.positions[t] = self.model.target_positions(nothing, t).data[0, 0]
        return self.positions[t]

    def network(self, x, layer):
        """Apply the feed-forward network of a layer to x (R, D), with its residual."""
        y = self.before(x, layer.feed_forward_norm)
        y = self.routines.hidden(layer.inner, y, layer.activation)
        return self.after(x, layer.outer(y), layer.feed_forward_norm)

    def before(self, x, norm):
        """Return what a sub-layer gets: x, or LayerNorm(x) in a pre-norm model."""
        return x if self.post else norm(x)

    def after(self, x, y, norm):
        """Return LayerNorm(x + y) for the output y of a sub-layer, or x + y in a pre-norm model."""
        if self.post:
            return norm(x, y)
        y += x
        return y

    def start(self, source):
        """Return a FusedDecoder, or the modules' Scorer if a sentence has nothing to attend to."""
        source = np.asarray(source)
        if (source == self.model.config.pad_id).all(axis=1).any():
            return super().start(source)
        return FusedDecoder(self, source)


class Layout:
    """The map from the tokens of the texts to the indices of the shared caches.

    A token stays at its cache index when its text ends or continues as two, so nothing is copied
    from token to token, except when the caches grow.
    own: whether the token at a cache index belongs to a text, bool (B, W, capacity).
    length, capacity: the number of cache indices in use, and of all cache indices.
    """

    def __init__(self, sentences):
        self.width, self.length, self.capacity = 1, 0, 0
        self.own = np.zeros((sentences, 1, 0), dtype=bool)

    def add_newest(self):
        """Give the newest token of each text the next cache index."""
        start, self.length = self.length, self.length + self.width
        self.own[:, :, start : self.length] = np.eye(self.width, dtype=bool)

    def grow(self):
        """Drop the tokens that no text contains any more, and make space for new ones.

        Return the places of the others, which move to the front: sentences (B, 1) and their cache
        indices (B, n).
        """
        needed = self.own.any(axis=1)  # (B, capacity)
        self.length = int(needed.sum(axis=1).max(initial=0))
        needed_first = np.argsort(~needed, axis=1, kind="stable")  # in their order
        places = np.arange(len(needed))[:, None], needed_first[:, : self.length]
        self.capacity = self.length + _GROW_BY * self.width
        before, self.own = self.own, np.zeros((len(needed), self.width, self.capacity), bool)
        self.own[:, :, : self.length] = before.swapaxes(1, 2)[places].swapaxes(1, 2)
        return places

    def moved(self, array, places):
        """Return the tokens at these places of a cache (B, H, n, K), in a larger array."""
        larger = xp.empty((*array.shape[:2], self.capacity, array.shape[3]), dtype=array.dtype)
        larger[:, :, : self.length] = array.swapaxes(1, 2)[places].swapaxes(1, 2)
        return larger

    def select(self, rows, width):
        """Keep these rows of the texts: `width` of each sentence."""
        own = self.own.reshape(len(self.own) * self.width, self.capacity)[rows]
        self.own = own.reshape(len(rows) // width, width, self.capacity)
        self.width = width


class FusedDecoder(decode.Scorer):
    """The Scorer (see minitf/decode.py) that computes all layers of a decoding step itself.

    caches: for each layer the keys and values of the tokens of all texts, arrays with space for
    `layout.capacity` tokens; nothing for an SSRU. source_caches: those of the source.
    states: the state (R, D) of each layer that is an SSRU, by the number of the layer.
    """

    def __init__(self, decoding, source):
        self.decoding, self.routines = decoding, decoding.routines
        memory, mask = decoding.encode(source)
        batch, length, d = memory.shape
        x, config = memory.reshape(batch * length, d), decoding.model.config
        self.layout, self.caches, self.source_caches = Layout(batch), [], []
        self.states = {}
        for layer in decoding.layers:
            keys_and_values = layer.source_key_value(x).reshape(batch, length, -1)
            self.source_caches.append(self.routines.in_heads(keys_and_values, config))
            nothing = self.routines.in_heads(keys_and_values[:, :0], config)
            self.caches.append([] if layer.own_output is None else nothing)
        mask = self.routines.mask(mask[:, 0], memory.dtype)
        self.source_masks = [] if mask is None else [mask]
        self.output = decoding.vocabulary
        if decoding.shortlist:
            self.ids = decoding.shortlist(source)
            self.output = ShortlistedOutput(*decoding.output, self.ids)

    def __call__(self, texts):
        """Return the logits, as Scorer says."""
        x = self.decoding.embedding[to_device(texts[:, -1])]  # (R, D)
        x *= math.sqrt(x.shape[1])
        x += self.decoding.position(texts.shape[1] - 1)
        own_mask = source_mask = None
        if any(self.caches):
            own_mask = self.routines.mask(self._with_newest(), x.dtype)
        for mask in self.source_masks:
            batch, _, length = mask.shape
            source_mask = xp.broadcast_to(mask, (batch, self.layout.width, length))
        for i, layer in enumerate(self.decoding.layers):
            x = self._layer(x, layer, i, own_mask, source_mask)
        if self.decoding.norm:
            x = self.decoding.norm(x)
        return self.output(x)

    def _with_newest(self):
        """Make space for the newest tokens, and return whose each token of the caches is."""
        if self.layout.length + self.layout.width > self.layout.capacity:
            places = tuple(map(to_device, self.layout.grow()))
            for cache in self.caches:  # one at a time, so that few are there twice
                cache[:] = [self.layout.moved(array, places) for array in cache]
        self.layout.add_newest()
        return self.layout.own[:, :, : self.layout.length]

    def _layer(self, x, layer, i, own_mask, source_mask):
        """Apply decoder layer i to x (R, D), and add its keys and values to the cache."""
        before, after = self.decoding.before, self.decoding.after
        attend, newest = self.routines.attend, self.layout.length - self.layout.width
        y = layer.own_input(before(x, layer.self_norm))
        if layer.own_output is None:
            y = self._recur(y, i)
        else:
            y = layer.own_output(attend(y, self.caches[i], own_mask, write_at=newest))
        x = after(x, y, layer.self_norm)
        y = layer.source_query(before(x, layer.source_norm))
        y = attend(y, self.source_caches[i], source_mask, write_at=None)
        x = after(x, layer.source_output(y), layer.source_norm)
        return self.decoding.network(x, layer)

    def _recur(self, y, i):
        """Return the output (R, D) of an SSRU, from its values and gates side by side (R, 2*D)."""
        values, gates = y[:, : y.shape[1] // 2], sigmoid_of(y[:, y.shape[1] // 2 :])
        # f c + (1 - f) v = v + f (c - v)
        state = self.states[i] = values + gates * (self.states.get(i, 0) - values)
        return xp.maximum(state, 0)

    def select(self, rows, width=1):
        """Keep these rows of the texts, in this order."""
        sentences = rows[::width] // self.layout.width
        if (n := len(sentences)) < len(self.layout.own):
            moved = np.flatnonzero(sentences != np.arange(n))  # to the places of those that ended
            to, of = to_device(moved), to_device(sentences[moved])
            for arrays in (*self.caches, *self.source_caches, self.source_masks):
                for i, array in enumerate(arrays):
                    array[to] = array[of]
                    arrays[i] = array[:n]
            if self.ids is not None:
                self.output.select(sentences)
        self.layout.select(rows, width)
        self.states = {i: state[to_device(rows)] for i, state in self.states.items()}


def fused_decoding(model, routines, shortlist):
    """Return the FusedDecoding of a model whose decoder has this library's layers alone.

    Other models are declined (NotImplemented): their first logits may not show what they do.
    """
    try:
        layers = model, model.target_embedding, model.output_embedding
        layers += *model.target_positions.modules(), *model.decoder.modules()
        if model.decoder.layers and all(is_own(layer) and layer.can_cache for layer in layers):
            return FusedDecoding(model, routines, shortlist)
    except AttributeError:  # a function, or a layer of another kind, is in the place of a layer
        pass
    return NotImplemented
