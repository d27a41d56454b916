"""The Transformer of figure 1 of the paper, from the attention of one layer to the whole model.

Letters: B batch, T target length, S source length, D d_model, H heads, K d_k, V vocabulary. Ids are
NumPy integers (B, T); masks are boolean, True = may attend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from minitf import functions as F
from minitf.backend import DType, to_device
from minitf.config import Config
from minitf.errors import UserError
from minitf.loss import projected_cross_entropy
from minitf.nn import Dropout, Embedding, LayerNorm, Linear, Module, are_own
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
    """Give each position a vector of sines and cosines of falling frequency.

        PE(pos, 2i) = sin(pos / 10000^(2i/d_model))
        PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model))

    Returns a NumPy array (length, D). layout "halves" puts all sines before all cosines; base "t2t"
    has the exponent i / (d_model/2 - 1), as tensor2tensor, which reaches 10000 exactly.
    Source: section 3.5.
    """
    half = d_model // 2
    i = np.arange(half)
    exponents = 2 * i / d_model if base == "paper" else i / max(1, half - 1)
    angles = np.arange(length)[:, None] / 10000**exponents  # (length, D/2)
    pair = np.stack([np.sin(angles), np.cos(angles)], axis=-1 if layout == "interleaved" else 1)
    return pair.reshape(length, d_model).astype(dtype)


def padding_mask(ids: Ids, pad_id: int = 0) -> np.ndarray:
    """Let every position attend to the real tokens of its sentence: bool (B, 1, 1, S)
    for ids (B, S).
    """
    return (np.asarray(ids) != pad_id)[:, None, None, :]


def causal_mask(length: int) -> np.ndarray:
    """Let position t attend to positions up to t: bool (1, 1, T, T).

    Source: section 3.2.3, "to prevent leftward information flow in the decoder".
    """
    return np.tri(length, dtype=bool)[None, None]


class MultiHeadAttention(Module):
    """Several attentions side by side, each on its own projections of queries, keys and values.

        MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O
        head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)

    The matrices W_i of all heads are the columns of one matrix, so each projection is one product.
    With `keep_weights` set, the last weights (B, H, T, S) are kept in `weights`, for pictures.
    To change how a head attends, override `attend`: decoding with a cache works with it as well. A
    subclass that overrides another method is decoded without a cache, unless it says
    `can_cache = True`.
    Source: section 3.2.2. No biases, as in the paper's equations.
    """

    keep_weights = False

    def __init__(self, config: Config, rng: np.random.Generator | None):
        c = config
        self.query = Linear(c.d_model, c.n_heads * c.d_k, rng, bias=False)
        self.key = Linear(c.d_model, c.n_heads * c.d_k, rng, bias=False)
        self.value = Linear(c.d_model, c.n_heads * c.d_v, rng, bias=False)
        self.output = Linear(c.n_heads * c.d_v, c.d_model, rng, bias=False)
        self.n_heads, self.rate = c.n_heads, c.attention_dropout

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, T, H*K) -> (B, H, T, K), a view."""
        batch, length, _ = x.shape
        return x.reshape(batch, length, self.n_heads, -1).transpose(0, 2, 1, 3)

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Project the memory to keys and to values: (B, S, D) -> (B, H, S, K) twice."""
        return self.split_heads(self.key(memory)), self.split_heads(self.value(memory))

    def __call__(
        self,
        x: Tensor,
        memory: Tensor,
        mask: np.ndarray | None = None,
        cache: Callable | None = None,
    ) -> Tensor:
        """Attend from x (B, T, D) to memory (B, S, D).

        cache: called with this attention and the memory, it returns the keys and values of earlier
        steps as well (see minitf.decode). If beams share them, it returns fewer rows than x has:
        B rows for the B*W rows of x, which become W queries each.
        """
        queries = self.query(x)  # (B, T, H*K)
        if cache is None:
            keys, values = self.keys_and_values(memory)  # (B, H, S, K)
            positions = np.arange(queries.shape[1])[None], np.arange(keys.shape[2])[None]
        else:
            keys, values = cache(self, memory)
            queries = queries.reshape(keys.shape[0], -1, queries.shape[-1])
            positions = getattr(cache, "positions", None)
        queries = self.split_heads(queries)  # (B, H, T, K)
        heads = self.attend(queries, keys, values, mask, positions)  # (B, H, T, K)
        joined = heads.transpose(0, 2, 1, 3).reshape(*x.shape[:-1], -1)  # (B, T, H*K)
        return self.output(joined)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: np.ndarray | None,
        positions: tuple[np.ndarray, np.ndarray] | None,
    ) -> Tensor:
        """Attend in all heads: queries (B, H, T, K), keys and values (B, H, S, K) -> (B, H, T, K).

        positions: of the queries (1, T) and of the keys (1, S) or (B, S) in their texts, NumPy
        integers, for a subclass with relative or rotary positions. Keys from a cache may be in any
        order, and the mask hides some of them.
        """
        if self.keep_weights:
            self.weights = F.attention_weights(queries, keys, mask).numpy()
        return F.attention(queries, keys, values, mask, self.rate if self.training else 0.0)


class FeedForward(Module):
    """Two linear maps with a ReLU between them, at each position alike.

        FFN(x) = max(0, x W_1 + b_1) W_2 + b_2

    Source: section 3.3, eq. 2.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.inner = Linear(config.d_model, config.d_ff, rng)
        self.outer = Linear(config.d_ff, config.d_model, rng)
        self.dropout = Dropout(config.feed_forward_dropout)

    def __call__(self, x: ArrayLike) -> Tensor:
        inner, outer, dropout = self.inner, self.outer, self.dropout
        if not are_own(inner, outer, dropout):  # a changed model
            return outer(dropout(F.relu(inner(x))))
        rate = dropout.rate if dropout.training else 0.0
        return F.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, rate)


class Residual(Module):
    """The connection around every sub-layer.

        post (the paper):  LayerNorm(x + Dropout(Sublayer(x)))
        pre:               x + Dropout(Sublayer(LayerNorm(x)))

    Source: sections 3.1 and 5.4.
    """

    def __init__(self, config: Config):
        self.norm = LayerNorm(config.d_model, config.eps)
        self.dropout = Dropout(config.dropout)
        self.post = config.norm == "post"

    def __call__(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        norm, dropout = self.norm, self.dropout
        if not self.post:
            return x + dropout(sublayer(norm(x)))
        if not are_own(norm, dropout):  # a changed model
            return norm(x + dropout(sublayer(x)))
        rate = dropout.rate if dropout.training else 0.0
        return F.add_norm(x, sublayer(x), norm.gain, norm.bias, norm.eps, rate)


class EncoderLayer(Module):
    """Self-attention, then the feed-forward network. Source: section 3.1."""

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.self_attention = MultiHeadAttention(config, rng)
        self.attention_residual = Residual(config)
        self.feed_forward = FeedForward(config, rng)
        self.feed_forward_residual = Residual(config)

    def __call__(self, x: Tensor, mask: np.ndarray | None) -> Tensor:
        x = self.attention_residual(x, lambda x: self.self_attention(x, x, mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(Module):
    """Self-attention to what is written so far, attention to the source, the feed-forward network.

    Source: section 3.1.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.self_attention = MultiHeadAttention(config, rng)
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
        cache: Sequence = (None, None),
    ) -> Tensor:
        x = self.self_residual(x, lambda x: self.self_attention(x, x, target_mask, cache[0]))
        x = self.source_residual(
            x, lambda x: self.source_attention(x, memory, source_mask, cache[1])
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Positions(Module):
    """Add to each embedding a vector for its position, then apply dropout.

    Sinusoids are computed for whatever length comes; learned positions end at config.max_length.
    Source: sections 3.5 and 5.4.
    """

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.config, self.table = config, None
        self.dropout = Dropout(config.dropout)
        if config.positions == "learned":
            self.learned = Embedding(config.max_length, config.d_model, rng)

    def __call__(self, x: Tensor, start: int = 0) -> Tensor:
        """x: embeddings (B, T, D) of the positions from `start` on."""
        c, end = self.config, start + x.shape[1]
        if c.positions == "learned":
            if end > c.max_length:
                raise UserError(
                    f"a text of {end} subwords is longer than max_length "
                    f"{c.max_length} of this model"
                )
            return self.dropout(x + self.learned(np.arange(start, end)) * c.d_model**0.5)
        table = self.table  # another thread may put a shorter one there meanwhile
        if table is None or len(table) < end or table.dtype != x.dtype:
            length = max(64, 1 << (end - 1).bit_length())
            self.table = table = to_device(
                sinusoid(length, c.d_model, c.sinusoid_layout, c.sinusoid_base, x.dtype)
            )
        return self.dropout(x + table[start:end])


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
    """A stack of N decoder layers, and a last norm if the norms come before the sub-layers."""

    def __init__(self, config: Config, rng: np.random.Generator | None):
        self.layers = [DecoderLayer(config, rng) for _ in range(config.n_layers)]
        self.norm = LayerNorm(config.d_model, config.eps) if config.norm == "pre" else None

    def __call__(
        self,
        x: Tensor,
        memory: Tensor,
        target_mask: np.ndarray | None,
        source_mask: np.ndarray | None,
        caches: Sequence | None = None,
    ) -> Tensor:
        for i, layer in enumerate(self.layers):
            cache = (None, None) if caches is None else caches[i]
            x = layer(x, memory, target_mask, source_mask, cache)
        return self.norm(x) if self.norm else x


class Transformer(Module):
    """The whole model: source ids and target ids in, a distribution over the next word at
    each position out.

    config: a Config. seed: of the initial weights, which are the same on every backend. With
    initialise=False the weights are not drawn: for counting them, or for loading others at once.
    Source: figure 1, section 3; section 3.4 for the one matrix shared by both embeddings
    and the output.
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

    def encode(self, source: Ids) -> tuple[Tensor, np.ndarray]:
        """Read the source (B, S): the memory (B, S, D), and the mask of its real tokens."""
        source = _ids(source, "source", "(B, S)")
        mask = padding_mask(source, self.config.pad_id)
        x = self.embedding(source) * self.config.d_model**0.5
        # Moved once, for all layers.
        return self.encoder(self.source_positions(x), to_device(mask)), mask

    def decode(
        self,
        target: np.ndarray,
        memory: Tensor,
        source_mask: np.ndarray | None,
        start: int = 0,
        caches: Sequence | None = None,
        target_mask: np.ndarray | None = None,
    ) -> Tensor:
        """Return the decoder's output (B, T, D) for the target ids (B, T) written so far.

        caches: for each layer, one for self-attention and one for attention to the source (see
        minitf.decode). With them `target` is the newest ids only, at positions from `start` on.
        They attend to all words in the caches, or where beams share these, to those of target_mask.
        Without caches the mask is the causal one. It hides padding too, which follows the words.
        """
        x = self.target_embedding(target) * self.config.d_model**0.5
        if caches is None:
            _check_rows(len(memory), len(target))
            if target_mask is not None:
                raise ValueError(
                    "target_mask is for caches: without them the mask is the causal one"
                )
            target_mask = causal_mask(target.shape[1])
        masks = [None if mask is None else to_device(mask) for mask in (target_mask, source_mask)]
        return self.decoder(self.target_positions(x, start), memory, *masks, caches)

    def logits(self, hidden: ArrayLike) -> Tensor:
        """Score every word of the vocabulary: (..., D) -> (..., V)."""
        return F.linear(hidden, self.output_embedding.weight.transpose())

    def __call__(self, source: Ids, target: Ids) -> Tensor:
        """Source ids (B, S) and target ids (B, T), which begin with the start
        mark -> logits (B, T, V).
        """
        source, target = _batch(source, target)
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
        """The training loss of a batch, and the plain negative log-likelihood per token beside it.

        n_tokens: by what to divide, the target tokens of the whole update (default: of this batch).
        """
        c = self.config
        source, target_in = _batch(source, target_in)
        target_out = _ids(target_out, "target_out", "(B, T)")
        if target_out.shape != target_in.shape:
            raise ValueError(
                f"target_in has shape {target_in.shape}, target_out {target_out.shape}: "
                "they must match"
            )
        memory, mask = self.encode(source)
        hidden = self.decode(target_in, memory, mask)
        smoothing = c.label_smoothing if smoothing is None else smoothing
        return projected_cross_entropy(
            hidden, self.output_embedding.weight, target_out, smoothing, c.pad_id, n_tokens
        )


def _ids(ids, name, axes):
    """Return ids as an array.

    Raises TypeError unless they are integers, ValueError unless in one row per sentence.
    """
    ids = F.integers(ids, name)
    if ids.ndim == 2 and not ids.shape[1]:
        raise ValueError(f"{name} has no words: its shape is {ids.shape}")
    if ids.ndim != 2:
        raise ValueError(
            f"{name} must be ids {axes}, got shape {ids.shape}: one sentence is a batch of "
            "one, ids[None]"
        )
    return ids


def _batch(source, target):
    """Make arrays of the ids of a batch.

    Raises ValueError unless there is one target for each source.
    """
    source, target = _ids(source, "source", "(B, S)"), _ids(target, "target", "(B, T)")
    _check_rows(len(source), len(target))
    return source, target


def _check_rows(sources, targets):
    """Raise ValueError unless there are as many: attention would broadcast a single one."""
    if sources != targets:
        raise ValueError(
            f"{sources} rows of source, but {targets} of target: give one target for each source"
        )
