"""The Transformer of figure 1 of the paper, from the attention of one layer to the whole model.

Letters: B batch, T target length, S source length, D d_model, H heads, K d_k, U d_v (by default
d_model / H, as d_k), V vocabulary, n tokens in a cache. Ids are NumPy integers (B, T);
masks are boolean, True = may attend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from minitf import functions as F
from minitf.backend import DType, to_device
from minitf.beyond.ssru import SSRU
from minitf.config import Config
from minitf.errors import UserError
from minitf.forms import accelerated
from minitf.inputs import batch_of_ids
from minitf.loss import projected_cross_entropy
from minitf.nn import Dropout, Embedding, LayerNorm, Linear, Module, Parameter
from minitf.tensor import ArrayLike, Ids, Tensor

__all__ = [
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "FeedForward",
    "MultiHeadAttention",
    "Positions",
    "Residual",
    "Transformer",
    "causal_mask",
    "padding_mask",
    "sinusoid",
]


def sinusoid(
    length: int,
    d_model: int,
    layout: str = "interleaved",
    base: str = "paper",
    dtype: DType = np.float32,
) -> np.ndarray:
    """Return a vector of sines and cosines of falling frequency for each position.

        PE(pos, 2i) = sin(pos / 10000^(2i/d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

    The result is a NumPy array (length, D). layout: "halves" puts all sines before all cosines.
    base: "t2t" has tensor2tensor's exponent i / (d_model/2 - 1), which reaches 10000 exactly.
    Raises UserError for another layout or base, and for an odd d_model.
    Source: section 3.5.
    """
    if layout not in ("interleaved", "halves") or base not in ("paper", "t2t"):
        raise UserError("layout must be interleaved or halves, and base paper or t2t")
    if d_model % 2:
        raise UserError(f"sinusoids need an even d_model, not {d_model}")
    half = d_model // 2
    i = np.arange(half)
    exponents = 2 * i / d_model if base == "paper" else i / max(1, half - 1)
    angles = np.arange(length)[:, None] / 10000**exponents  # (length, D/2)
    sines, cosines = np.sin(angles), np.cos(angles)
    if layout == "halves":
        table = np.concatenate([sines, cosines], axis=1)  # (length, D)
    else:  # sin, cos, sin, cos ...
        table = np.stack([sines, cosines], axis=2).reshape(length, d_model)
    return table.astype(dtype)


def padding_mask(ids: Ids, pad_id: int = 0) -> np.ndarray:
    """Return the mask that hides padding: bool (B, 1, 1, S) for ids (B, S).

    Raises TypeError or ValueError for anything else than ids (B, S).
    """
    return (batch_of_ids(ids, "ids", "(B, S)") != pad_id)[:, None, None, :]


def causal_mask(length: int) -> np.ndarray:
    """Return the mask that lets position t attend to positions up to t: bool (1, 1, T, T).

    Source: section 3.2.3, "to prevent leftward information flow in the decoder".
    """
    return np.tri(length, dtype=bool)[None, None]


class MultiHeadAttention(Module):
    """Several attentions side by side, each with its own projections of queries, keys and values.

        MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O
        head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

    The matrices W_i of all heads are the columns of one matrix, so each projection is one product.
    With `keep_weights` set, the last weights (B, H, T, S) are kept in `weights`, for pictures.
    To change how a head attends, override `attend`, which also works with a cache.
    There are no biases, as in the paper's equations, unless config.attention_bias is set. The keys'
    bias then has no effect: it adds the same number to all scores of a query.
    Source: section 3.2.2.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        c = config
        self.query = Linear(c.d_model, c.n_heads * c.d_k, rng, c.attention_bias)
        self.key = Linear(c.d_model, c.n_heads * c.d_k, rng, c.attention_bias)
        self.value = Linear(c.d_model, c.n_heads * c.d_v, rng, c.attention_bias)
        self.output = Linear(c.n_heads * c.d_v, c.d_model, rng, c.attention_bias)
        self.n_heads, self.rate, self.keep_weights = c.n_heads, c.attention_dropout, False

    def __call__(
        self,
        x: Tensor,
        memory: Tensor,
        mask: np.ndarray | None = None,
        cache: Callable | None = None,
    ) -> Tensor:
        """Attend from x (B, T, D) to memory (B, S, D), which is x itself in self-attention.

        mask: bool, broadcasts to (B, H, T, S): see padding_mask and causal_mask.
        cache: a callable (see Cache in minitf.decode). Called with this attention and the memory,
        it returns the keys (B, H, n, K) and values (B, H, n, U) of all tokens so far, or of the
        source. Its attribute `positions` has the positions of queries and keys, as `attend` takes
        them.
        Raises ValueError for a mask (B, T, S), whose first axis would be read as the heads.
        """
        if mask is not None and mask.ndim == 3:
            raise ValueError("a mask of 3 axes would be one per head: write mask[:, None]")
        return multi_head_attention(self, x, memory, mask, cache)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project the memory (B, S, D) to keys (B, H, S, K) and values (B, H, S, U)."""
        return self.split_heads(self.key(memory)), self.split_heads(self.value(memory))

    def split_heads(self, x: Tensor) -> Tensor:
        """Return the features as heads: (B, T, H*K) -> (B, H, T, K), a view."""
        if x.ndim != 3:
            raise ValueError(f"x must be (B, T, D), got {x.shape}: one sentence is x[None]")
        batch, length, size = x.shape
        return x.reshape(batch, length, self.n_heads, size // self.n_heads).transpose(0, 2, 1, 3)

    def merge_heads(self, heads: Tensor) -> Tensor:
        """Concatenate the features of all heads: (B, H, T, U) -> (B, T, H*U)."""
        batch, n_heads, length, size = heads.shape
        return heads.transpose(0, 2, 1, 3).reshape(batch, length, n_heads * size)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: np.ndarray | None,
        positions: tuple[np.ndarray, np.ndarray] | None,
    ) -> Tensor:
        """Attend in all heads: return the weighted averages of the values, (B, H, T, U).

        queries: (B, H, T, K). keys: (B, H, S, K). values: (B, H, S, U).
        positions: where queries (1, T) and keys (1, S) are in their texts, NumPy integers. The
        paper's attention does not need them; a subclass with relative or rotary positions does.
        """
        if self.keep_weights:
            self.weights = F.attention_weights(queries, keys, mask).numpy()
        return F.attention(queries, keys, values, mask, self.rate if self.training else 0.0)


@accelerated
def multi_head_attention(
    attention: MultiHeadAttention,
    x: Tensor,
    memory: Tensor,
    mask: np.ndarray | None = None,
    cache: Callable | None = None,
) -> Tensor:
    """Return what a MultiHeadAttention computes, by its methods, one after another."""
    queries = attention.split_heads(attention.query(x))  # (B, H, T, K)
    if cache is None:
        keys, values = attention.keys_and_values(memory)  # (B, H, S, K), (B, H, S, U)
        positions = np.arange(x.shape[1])[None], np.arange(memory.shape[1])[None]
    else:
        keys, values = cache(attention, memory)  # (B, H, n, K), (B, H, n, U)
        positions = cache.positions
    heads = attention.attend(queries, keys, values, mask, positions)  # (B, H, T, U)
    return attention.output(attention.merge_heads(heads))  # (B, T, D)


class FeedForward(Module):
    """Two linear maps with a ReLU between them, the same at each position.

        FFN(x) = max(0, x W_1 + b_1) W_2 + b_2

    With config.activation "swish", `functions.swish` replaces the ReLU.
    Source: section 3.3, eq. 2.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.inner = Linear(config.d_model, config.d_ff, rng)
        self.outer = Linear(config.d_ff, config.d_model, rng)
        self.dropout = Dropout(config.feed_forward_dropout)
        self.activation = config.activation  # the name of a function in minitf.functions

    def __call__(self, x: ArrayLike) -> Tensor:
        activation = getattr(F, self.activation)
        return feed_forward_network(x, self.inner, activation, self.dropout, self.outer)


@accelerated
def feed_forward_network(
    x: ArrayLike, inner: Module, activation: Callable, dropout: Module, outer: Module
) -> Tensor:
    """Return outer(Dropout(activation(inner(x)))), layer by layer."""
    return outer(dropout(activation(inner(x))))


class Residual(Module):
    """The residual connection around every sub-layer, with its dropout and layer norm.

        post (the paper):  LayerNorm(x + Dropout(Sublayer(x)))
        pre:               x + Dropout(Sublayer(LayerNorm(x)))

    Source: sections 3.1 and 5.4.
    """

    def __init__(self, config: Config):
        self.norm = LayerNorm(config.d_model, config.eps)
        self.dropout = Dropout(config.dropout)
        self.post = config.norm == "post"

    def __call__(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.post:
            return add_and_norm(x, sublayer(x), self.dropout, self.norm)
        return x + self.dropout(sublayer(self.norm(x)))


@accelerated
def add_and_norm(x: Tensor, added: Tensor, dropout: Module, norm: Module) -> Tensor:
    """Return LayerNorm(x + Dropout(added)), layer by layer: "Add & Norm" in figure 1."""
    return norm(x + dropout(added))


class EncoderLayer(Module):
    """Self-attention, then the feed-forward network.

    Called with x (B, S, D) and a mask (B, 1, 1, S), as padding_mask returns it.
    Source: section 3.1.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.self_attention = MultiHeadAttention(config, rng)
        self.attention_residual = Residual(config)
        self.feed_forward = FeedForward(config, rng)
        self.feed_forward_residual = Residual(config)

    def __call__(self, x: Tensor, mask: np.ndarray | None) -> Tensor:
        x = self.attention_residual(x, lambda y: self.self_attention(y, y, mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(Module):
    """Self-attention to the text so far, attention to the source, the feed-forward network.

    The paper calls the second encoder-decoder attention; now it is usually called cross-attention.
    With config.decoder "ssru", `self_attention` is an SSRU (minitf/beyond/ssru.py), called like it.
    Called with x (B, T, D), the memory (B, S, D), and the masks that causal_mask and padding_mask
    return: (1, 1, T, T) for the target, (B, 1, 1, S) for the source.
    Source: section 3.1.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        recurrent = config.decoder == "ssru"
        self.self_attention = (SSRU if recurrent else MultiHeadAttention)(config, rng)
        self.self_residual = Residual(config)
        self.source_attention = MultiHeadAttention(config, rng)
        self.source_residual = Residual(config)
        self.feed_forward = FeedForward(config, rng)
        self.feed_forward_residual = Residual(config)

    def __call__(
        self,
        x: Tensor,
        memory: Tensor,
        target_mask: np.ndarray | None,
        source_mask: np.ndarray | None,
        caches: Sequence = (None, None),
    ) -> Tensor:
        # `fastest_decoding` may compute this again, without modules.
        own_cache, source_cache = caches  # one for each attention
        x = self.self_residual(x, lambda y: self.self_attention(y, y, target_mask, own_cache))
        x = self.source_residual(
            x, lambda y: self.source_attention(y, memory, source_mask, source_cache)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Positions(Module):
    """Add to each embedding a vector for its position, then apply dropout.

    Sinusoids have no greatest length; learned positions end at config.max_length.
    Source: sections 3.5 and 5.4.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.config = config
        self.dropout = Dropout(config.dropout)
        if config.positions == "learned":
            self.learned = Embedding(config.max_length, config.d_model, rng)

    def __call__(self, x: Tensor, start: int = 0) -> Tensor:
        """Return x (B, T, D) with the vectors of the positions from `start` on added.

        Raises UserError for a text longer than learned positions.
        """
        c, end = self.config, start + x.shape[1]
        if c.positions == "learned":
            if end > c.max_length:
                raise UserError(
                    f"a text of {end} tokens is longer than this model's max_length "
                    f"{c.max_length}: shorten or split it"
                )
            # Rows of variance 1/D, as in every Embedding: times sqrt(D) they are as large as the
            # tokens' embeddings.
            vectors = self.learned(np.arange(start, end)) * c.d_model**0.5  # (T, D)
        else:
            # Decoding asks for one more with each token, so tables are kept; of lengths that are
            # powers of two, few are computed.
            length = max(64, 1 << (end - 1).bit_length())
            layout, base = c.sinusoid_layout, c.sinusoid_base
            table = _kept_sinusoids(length, c.d_model, layout, base, x.dtype)
            vectors = to_device(table[start:end])  # (T, D)
        return self.dropout(x + vectors)


_kept_sinusoids = functools.lru_cache(maxsize=8)(sinusoid)


class Encoder(Module):
    """A stack of N encoder layers, and a last norm if the norms come before the sub-layers."""

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.layers = [EncoderLayer(config, rng) for _ in range(config.n_layers)]
        self.norm = LayerNorm(config.d_model, config.eps) if config.norm == "pre" else None

    def __call__(self, x: Tensor, mask: np.ndarray | None) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) if self.norm else x


class Decoder(Module):
    """A stack of N decoder layers, and a last norm if the norms come before the sub-layers.

    Called as a DecoderLayer, with `caches` a pair for each layer.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.layers = [DecoderLayer(config, rng) for _ in range(config.n_decoder_layers)]
        self.norm = LayerNorm(config.d_model, config.eps) if config.norm == "pre" else None

    def __call__(
        self,
        x: Tensor,
        memory: Tensor,
        target_mask: np.ndarray | None,
        source_mask: np.ndarray | None,
        caches: Sequence | None = None,
    ) -> Tensor:
        if caches is None:
            caches = [(None, None)] * len(self.layers)
        for layer, layer_caches in zip(self.layers, caches, strict=True):
            x = layer(x, memory, target_mask, source_mask, layer_caches)
        return self.norm(x) if self.norm else x


class Transformer(Module):
    """The model of figure 1: from source ids and target ids to the scores of each next token.

    seed: determines the initial weights, which are the same on every backend. With initialise=False
    no weights are drawn, they are 0: for counting them, or for loading others at once.
    Source: figure 1, section 3; section 3.4 for the matrix of both embeddings and the output.
    """

    def __init__(self, config: Config, seed: int = 0, initialise: bool = True):
        rng = np.random.default_rng(seed) if initialise else None
        size = config.vocabulary_size, config.d_model
        self.config = config
        self.embedding = Embedding(*size, rng)
        self.target_embedding = self.embedding if config.tie else Embedding(*size, rng)
        self.output_embedding = self.embedding if config.tie else Embedding(*size, rng)
        self.source_positions = Positions(config, rng)
        self.target_positions = Positions(config, rng)
        self.encoder = Encoder(config, rng)
        self.decoder = Decoder(config, rng)
        self.output_bias = None
        if config.output_bias:
            self.output_bias = Parameter(np.zeros(config.vocabulary_size, dtype=np.float32))

    def encode(self, source: Ids) -> tuple[Tensor, np.ndarray]:
        """Return the memory (B, S, D) of the source (B, S), and the mask that hides its padding."""
        source = batch_of_ids(source, "source", "(B, S)")
        mask = padding_mask(source, self.config.pad_id)
        # Times sqrt(d_model), as section 3.4 says: then an element has variance 1, not 1/D.
        x = self.embedding(source) * self.config.d_model**0.5
        return self.encoder(self.source_positions(x), to_device(mask)), mask

    def decode(
        self,
        target: Ids,
        memory: Tensor,
        source_mask: np.ndarray | None,
        position: int = 0,
        caches: Sequence | None = None,
    ) -> Tensor:
        """Return the decoder's output (B, T, D) for the target ids (B, T) written so far.

        The mask of the target is the causal one. Padding comes only at the end of a text, so that
        mask keeps every real token from seeing it.
        caches: for each layer a pair, one cache for self-attention and one for attention to the
        source (see minitf.decode). Then the target is the newest token of each text alone, (B, 1),
        which may attend to all tokens in its cache. position: that of the first token, from 0.
        """
        target = batch_of_ids(target, "target", "(B, T)")
        if len(memory) != len(target):  # attention would broadcast a single row
            raise ValueError(
                f"{len(memory)} rows of source, but {len(target)} of target: give one target for "
                "each source"
            )
        x = self.target_embedding(target) * self.config.d_model**0.5
        x = self.target_positions(x, position)
        target_mask = causal_mask(target.shape[1]) if caches is None else None
        masks = [None if mask is None else to_device(mask) for mask in (target_mask, source_mask)]
        return self.decoder(x, memory, *masks, caches)

    def logits(self, hidden: ArrayLike) -> Tensor:
        """Return a score for every token of the vocabulary: (..., D) -> (..., V).

        logits = hidden E^T + b    with E the output embedding and b = logit_bias()
        """
        return F.linear(hidden, self.output_embedding.weight.transpose(), self.logit_bias())

    def logit_bias(self) -> Tensor | None:
        """Return what is added to the logits of each position, (V,), or None if nothing is.

        It contains the output bias, and -infinity for suppressed ids, whose probability is thus 0.
        """
        ids = self.config.suppressed_ids
        if not ids:
            return self.output_bias
        suppression = np.zeros(self.config.vocabulary_size)
        suppression[list(ids)] = -np.inf
        suppression = to_device(suppression, self.output_embedding.weight.dtype)
        return Tensor(suppression) if self.output_bias is None else self.output_bias + suppression

    def count_targets(self, target_out: Ids) -> int:
        """Return the number of targets that count in the loss: (B, T) -> an int.

        Padding and suppressed ids do not. The sum of this number over the batches of an update is
        the n_tokens of `loss`.
        """
        left_out = self.config.pad_id, *self.config.suppressed_ids
        return int(np.isin(target_out, left_out, invert=True).sum())

    def __call__(self, source: Ids, target: Ids) -> Tensor:
        """Return the logits (B, T, V) of source ids (B, S) and target ids (B, T).

        The target begins with the start mark.
        """
        memory, mask = self.encode(source)
        return self.logits(self.decode(target, memory, mask))

    def loss(
        self,
        source: Ids,
        target_in: Ids,
        target_out: Ids,
        n_tokens: float | None = None,
        smoothing: float | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the training loss of a batch, and its plain negative log-likelihood.

        n_tokens: the divisor of both, the number of targets of the complete update that count. By
        default it is the number in this batch: see `count_targets`.
        """
        c = self.config
        target_in = batch_of_ids(target_in, "target", "(B, T)")
        target_out = batch_of_ids(target_out, "target_out", "(B, T)")
        memory, mask = self.encode(source)
        hidden = self.decode(target_in, memory, mask)
        target_out = np.where(np.isin(target_out, c.suppressed_ids), c.pad_id, target_out)
        smoothing = c.label_smoothing if smoothing is None else smoothing
        weight, bias = self.output_embedding.weight, self.logit_bias()
        return projected_cross_entropy(
            hidden, weight, target_out, smoothing, c.pad_id, n_tokens, bias
        )
