"""The whole Transformer of "Attention Is All You Need" (Vaswani et al. 2017), in NumPy.

    python examples/whole.py                              trains on the toy corpus, in minutes
    python examples/whole.py "Where is the station?"      translates with trained weights

Both need `pip install numpy sentencepiece safetensors` and the other files of the repository.
Left out: learning the subwords (SentencePiece has done that), saving the trained model, and speed
(decoding takes the texts of a beam one by one, and reads them again from the start for each token).
Not from the paper: how the parameters are initialised, the 10^-6 in the layer norm, and how far
apart the averaged checkpoints are.

The lessons derive each line, in this order. Names and letters:

    B, L, S   sizes in shapes: sentences in a batch, tokens that look, tokens that are looked at
    Q, K, V   queries, keys, values; P: the attention weights; K^T: K transposed
    E         the embedding table; ids: the numbers of tokens, which are rows of E
    p         the probability of a token; ln p: its logarithm
    gy        the gradient of the loss with respect to y, in y's shape; likewise gx, gE, ...
    c         the Config; the sizes in shapes, such as d_model and d_k, are the paper's

From `attention` on, anything that has a gradient is a Tensor, and x.data is its array; ids, masks
and positions are arrays.
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from sentencepiece import SentencePieceProcessor

PAD, BOS, EOS = 0, 2, 3  # the ids of padding, start mark and end mark
HERE = Path(__file__).parent
rng = np.random.default_rng(1)


# Lesson 01: attention -----------------------------------------------------------------------------


def softmax(x):
    """Return positive weights that sum to 1 over the last axis: (..., S) -> (..., S)."""
    # softmax(x)_i = exp(x_i) / sum_j exp(x_j)
    # Subtracting the largest x changes no weight, and keeps exp from overflowing.
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_weights(Q, K, mask):
    """Return how much each query looks at each key: (B, h, L, d_k), (B, h, S, d_k) -> (B, h, L, S).

    mask: True where a query may look, broadcast to (B, h, L, S).
    """
    # P = softmax(Q K^T / sqrt(d_k))
    # The division keeps the scores small: large ones would leave the softmax almost no gradient.
    # Where the mask is False, the score is -infinity, and so the weight is 0.
    scores = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])  # (B, h, L, S)
    return softmax(np.where(mask, scores, -np.inf))


def padding_mask(ids):
    """Return a mask that is True at tokens, False at padding: (B, S) -> (B, 1, 1, S)."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length):
    """Return a mask in which a position sees itself and earlier ones: (1, 1, length, length)."""
    return np.tri(length, dtype=bool)[None, None]


# Lesson 02: gradients -----------------------------------------------------------------------------


class Tensor:
    """An array that remembers how it was computed.

    inputs: the Tensors that it was computed from.
    input_gradients: a function that takes the gradient of this Tensor and returns a tuple, with the
    gradient of each input.
    """

    def __init__(self, data, inputs=(), input_gradients=lambda gy: ()):
        for x in inputs:
            assert isinstance(x, Tensor), f"inputs are Tensors, not {type(x).__name__}"
        self.data = np.asarray(data)
        self.grad = 0.0
        self.inputs = inputs
        self.input_gradients = input_gradients

    def __repr__(self):
        return f"Tensor({self.data}, grad={self.grad})"

    def backward(self):
        """Add the gradient of this loss to x.grad, for every x that led to it. Call it once."""
        # The gradient of the loss itself is 1.
        self.grad = np.ones_like(self.data)
        # In reversed order, each node comes after all that use it, so its own gradient is complete.
        for node in reversed(topological_order(self)):
            gradients = node.input_gradients(node.grad)
            # A Tensor that is used several times gets the sum of its gradients.
            for x, gx in zip(node.inputs, gradients, strict=True):
                x.grad = x.grad + gx

    def __add__(self, other):
        """Add a Tensor of the same shape, or one that lacks the first axes, such as a bias."""
        # y = a + b: ga = gy, gb = gy
        # A bias is added to every row, so its gradient is the sum over the rows.
        a_shape = self.data.shape
        b_shape = other.data.shape
        # NumPy stretches other shapes too, for which these gradients would be wrong.
        assert a_shape[-len(b_shape) :] == b_shape, f"cannot add shape {b_shape} to shape {a_shape}"

        def input_gradients(gy):
            return gy, gy.reshape(-1, *b_shape).sum(axis=0)

        return Tensor(self.data + other.data, (self, other), input_gradients)

    def __mul__(self, factor):
        """Multiply by a number."""
        # y = factor x: gx = factor gy
        return Tensor(self.data * factor, (self,), lambda gy: (gy * factor,))

    def __matmul__(self, other):
        """Multiply by a matrix: (..., n_in), (n_in, n_out) -> (..., n_out)."""
        # y = x W: gx = gy W^T, gW = x^T gy
        # For gW, each position of each sentence is a row of x and of gy.
        x = self.data
        W = other.data

        def input_gradients(gy):
            rows = x.reshape(-1, x.shape[-1])
            g_rows = gy.reshape(-1, gy.shape[-1])
            return gy @ W.T, rows.T @ g_rows

        return Tensor(x @ W, (self, other), input_gradients)

    def reshape(self, *shape):
        """Return the same numbers in another shape."""
        # gx = gy in x's shape
        return Tensor(self.data.reshape(shape), (self,), lambda gy: (gy.reshape(self.data.shape),))

    def transpose(self, *axes):
        """Return the same numbers with reordered axes: axis i of y is axis axes[i] of x."""
        # gx = gy with its axes put back in order
        back = np.argsort(axes)
        return Tensor(self.data.transpose(axes), (self,), lambda gy: (gy.transpose(back),))


def topological_order(loss):
    """Return a list of the loss and all Tensors that led to it, each after its inputs."""
    order = []
    seen = set()

    def visit(node):
        # A node that is used twice is listed once.
        if node not in seen:
            seen.add(node)
            for x in node.inputs:
                visit(x)
            order.append(node)

    visit(loss)
    return order


def attention(Q, K, V, mask):
    """Return each query's weighted average of the values. Section 3.2.1, equation 1.

    Q: (B, h, L, d_k)   K, V: (B, h, S, d_k)   ->   (B, h, L, d_k)
    """
    # Attention(Q, K, V) = P V  with  P = softmax(Q K^T / sqrt(d_k))
    P = attention_weights(Q.data, K.data, mask)  # (B, h, L, S)

    def input_gradients(gy):
        # y = P V: gV = P^T gy, gP = gy V^T
        gV = P.swapaxes(-1, -2) @ gy
        gP = gy @ V.data.swapaxes(-1, -2)
        # P = softmax(scores): g_scores = P (gP - sum of gP P over the keys)
        g_scores = P * (gP - (gP * P).sum(axis=-1, keepdims=True))
        # scores = product / sqrt(d_k): g_product = g_scores / sqrt(d_k)
        g_product = g_scores / math.sqrt(Q.data.shape[-1])
        # product = Q K^T: gQ = g_product K, gK = g_product^T Q
        return g_product @ K.data, g_product.swapaxes(-1, -2) @ Q.data, gV

    return Tensor(P @ V.data, (Q, K, V), input_gradients)


# Lesson 03: multi-head attention ------------------------------------------------------------------


@dataclass
class Config:
    """The paper's numbers: its base model, and how it is trained and translates."""

    vocab_size: int = 37_000  # subwords, shared by both languages
    N: int = 6  # layers of the encoder
    N_decoder: int = 6  # layers of the decoder
    d_model: int = 512  # features of each token
    d_ff: int = 2048  # features inside the feed-forward network
    h: int = 8  # heads, each with d_k = d_v = d_model / h features
    P_drop: float = 0.1  # dropout
    epsilon_ls: float = 0.1  # label smoothing
    steps: int = 100_000  # updates of the parameters
    n_tokens: int = 25_000  # tokens in a batch, on each side
    warmup_steps: int = 4_000  # updates during which the learning rate rises
    beta_1: float = 0.9  # Adam's, as are the next two
    beta_2: float = 0.98
    epsilon: float = 1e-9
    beam_size: int = 4  # unfinished translations that beam search keeps
    alpha: float = 0.6  # its length penalty
    training: bool = False  # True while the model learns, and only then is there dropout


class Module:
    """A part of the model, whose attributes are parameters, modules and lists of modules."""

    def parameters(self, path=""):
        """Return all parameters by name, such as encoder.0.feed_forward.W_1."""
        found = {}
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                found[path + name] = value
            if isinstance(value, Module):
                found |= value.parameters(f"{path}{name}.")
            if isinstance(value, list):
                for i, module in enumerate(value):
                    found |= module.parameters(f"{path}{name}.{i}.")
        return found

    def __repr__(self):
        size = sum(x.data.size for x in self.parameters().values())
        return f"{type(self).__name__} with {size:,} parameters"


def glorot_matrix(n_in, n_out):
    """Return a matrix with random initial values (Glorot and Bengio 2010)."""
    # Uniform within +- sqrt(6 / (n_in + n_out)), so that numbers neither vanish nor explode on
    # their way through many layers, forward or back.
    limit = math.sqrt(6 / (n_in + n_out))
    return Tensor(rng.uniform(-limit, limit, (n_in, n_out)).astype(np.float32))


def split_heads(x, h):
    """Split the features into h heads: (B, L, d_model) -> (B, h, L, d_k)."""
    # Head i has features i d_k to (i + 1) d_k - 1; i counts from 0.
    B, L, d_model = x.data.shape
    return x.reshape(B, L, h, d_model // h).transpose(0, 2, 1, 3)


def merge_heads(heads):
    """Concat(head_1, ..., head_h): (B, h, L, d_k) -> (B, L, d_model)."""
    # This undoes split_heads.
    B, h, L, d_k = heads.data.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, L, h * d_k)


class MultiHeadAttention(Module):
    """Several attentions side by side, each with its own projections. Section 3.2.2."""

    def __init__(self, c):
        self.c = c
        self.W_Q = glorot_matrix(c.d_model, c.d_model)
        self.W_K = glorot_matrix(c.d_model, c.d_model)
        self.W_V = glorot_matrix(c.d_model, c.d_model)
        self.W_O = glorot_matrix(c.d_model, c.d_model)

    def __call__(self, x, memory, mask):
        """Let x look at the memory, which is x itself in self-attention.

        x: (B, L, d_model)   memory: (B, S, d_model)   ->   (B, L, d_model)
        mask: broadcast to (B, h, L, S)
        """
        # head_i = Attention(x W_i^Q, memory W_i^K, memory W_i^V)
        # W^Q has the W_i^Q of all heads side by side; so have W^K and W^V.
        Q = split_heads(x @ self.W_Q, self.c.h)  # (B, h, L, d_k)
        K = split_heads(memory @ self.W_K, self.c.h)  # (B, h, S, d_k)
        V = split_heads(memory @ self.W_V, self.c.h)  # (B, h, S, d_k)
        heads = attention(Q, K, V, mask)  # (B, h, L, d_k)
        # MultiHead = Concat(head_1, ..., head_h) W^O
        # Every sub-layer ends with dropout(..., self.c): section 5.4, and lesson 04.
        return dropout(merge_heads(heads) @ self.W_O, self.c)


# Lesson 04: the other layers ----------------------------------------------------------------------


def layer_norm(x, gain, bias):
    """Give the features of each position mean 0 and variance 1, then scale and shift them.

    x: (B, L, d_model)   gain, bias: (d_model,)   ->   (B, L, d_model)
    """
    # n = (x - mean) / s  with  s = sqrt(variance + 10^-6)
    # Without the 10^-6, equal features would give 0 / 0.
    mean = x.data.mean(axis=-1, keepdims=True)  # (B, L, 1)
    s = np.sqrt(x.data.var(axis=-1, keepdims=True) + 1e-6)
    n = (x.data - mean) / s

    def input_gradients(gy):
        # gx = (u - mean of u - n * mean of u n) / s  with  u = gain * gy
        u = gain.data * gy
        mean_u = u.mean(axis=-1, keepdims=True)
        mean_un = (u * n).mean(axis=-1, keepdims=True)
        gx = (u - mean_u - n * mean_un) / s
        # ggain = sum of n gy, gbias = sum of gy, each over all positions
        return gx, (n * gy).sum(axis=(0, 1)), gy.sum(axis=(0, 1))

    # y = gain * n + bias
    return Tensor(gain.data * n + bias.data, (x, gain, bias), input_gradients)


def relu(x):
    """Return max(0, x) for each number."""
    # gx = gy where x > 0, else 0
    return Tensor(np.maximum(0, x.data), (x,), lambda gy: (gy * (x.data > 0),))


def dropout(x, c):
    """While training, set each number to 0 with probability P_drop. Section 5.4."""
    if not c.training:
        return x
    # y = mask * x, gx = mask * gy
    # mask = 1 / (1 - P_drop) with probability 1 - P_drop, else 0; the division keeps the mean.
    # Each call draws a new mask from rng; it has the dtype of x.
    mask = (rng.random(x.data.shape) >= c.P_drop).astype(x.data.dtype) / (1 - c.P_drop)
    return Tensor(x.data * mask, (x,), lambda gy: (gy * mask,))


class FeedForward(Module):
    """The position-wise feed-forward network. Section 3.3, equation 2."""

    def __init__(self, c):
        self.c = c
        self.W_1 = glorot_matrix(c.d_model, c.d_ff)
        self.b_1 = Tensor(np.zeros(c.d_ff, dtype=np.float32))
        self.W_2 = glorot_matrix(c.d_ff, c.d_model)
        self.b_2 = Tensor(np.zeros(c.d_model, dtype=np.float32))

    def __call__(self, x):
        """Transform each position by itself: (B, L, d_model) -> (B, L, d_model)."""
        # FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, then dropout
        inner = relu(x @ self.W_1 + self.b_1)  # (B, L, d_ff)
        return dropout(inner @ self.W_2 + self.b_2, self.c)


class LayerNorm(Module):
    """A layer norm with its gain and bias. Section 3.1."""

    def __init__(self, c):
        self.gain = Tensor(np.ones(c.d_model, dtype=np.float32))
        self.bias = Tensor(np.zeros(c.d_model, dtype=np.float32))

    def __call__(self, x):
        """Normalise each position by itself: (B, L, d_model) -> (B, L, d_model)."""
        return layer_norm(x, self.gain, self.bias)


class EncoderLayer(Module):
    """Self-attention, then the feed-forward network. Section 3.1."""

    def __init__(self, c):
        self.self_attention = MultiHeadAttention(c)
        self.self_norm = LayerNorm(c)
        self.feed_forward = FeedForward(c)
        self.feed_forward_norm = LayerNorm(c)

    def __call__(self, x, mask):
        """Read the source: x (B, S, d_model), mask (B, 1, 1, S) -> (B, S, d_model)."""
        # LayerNorm(x + Sublayer(x)), twice
        x = self.self_norm(x + self.self_attention(x, x, mask))
        return self.feed_forward_norm(x + self.feed_forward(x))


# Lesson 05: embeddings and positions --------------------------------------------------------------


def embedding(E, ids):
    """Return the row of E for each id: (vocab_size, d_model), (B, L) -> (B, L, d_model)."""
    # y = E[ids]: a row of gE is the sum of gy over all places that took this row of E

    def input_gradients(gy):
        gE = np.zeros_like(E.data)
        np.add.at(gE, ids, gy)
        return (gE,)

    return Tensor(E.data[ids], (E,), input_gradients)


def sinusoids(length, d_model):
    """Return a vector of sines and cosines for each position: (length, d_model). Section 3.5."""
    # angle(pos, i) = pos / 10000^(2i / d_model); pos and i count from 0
    i = np.arange(d_model // 2)
    angles = np.arange(length)[:, None] / 10000 ** (2 * i / d_model)  # (length, d_model / 2)
    PE = np.zeros((length, d_model))
    # PE(pos, 2i) = sin(angle(pos, i)), PE(pos, 2i + 1) = cos(angle(pos, i))
    PE[:, 0::2] = np.sin(angles)
    PE[:, 1::2] = np.cos(angles)
    return PE


def enter(E, ids, c):
    """Turn tokens and their positions into vectors for the first layer: (B, L) -> (B, L, d_model).

    Sections 3.4 and 3.5.
    """
    # Dropout(E[ids] sqrt(d_model) + PE), where PE is a Tensor with the dtype of E
    # The numbers in E start small, because E makes the logits too; the root brings them to the
    # size of PE.
    x = embedding(E, ids) * math.sqrt(c.d_model)
    PE = sinusoids(ids.shape[1], c.d_model)
    return dropout(x + Tensor(PE.astype(x.data.dtype)), c)


# Lesson 06: encoder and decoder, figure 1 ---------------------------------------------------------


class DecoderLayer(Module):
    """Self-attention, attention to the source, then the feed-forward network. Section 3.1."""

    def __init__(self, c):
        self.self_attention = MultiHeadAttention(c)
        self.self_norm = LayerNorm(c)
        self.source_attention = MultiHeadAttention(c)
        self.source_norm = LayerNorm(c)
        self.feed_forward = FeedForward(c)
        self.feed_forward_norm = LayerNorm(c)

    def __call__(self, y, memory, target_mask, source_mask):
        """Write the target: y (B, L, d_model), memory (B, S, d_model) -> (B, L, d_model).

        target_mask: (1, 1, L, L)   source_mask: (B, 1, 1, S)
        """
        # LayerNorm(y + Sublayer(y)), three times
        y = self.self_norm(y + self.self_attention(y, y, target_mask))
        y = self.source_norm(y + self.source_attention(y, memory, source_mask))
        return self.feed_forward_norm(y + self.feed_forward(y))


class Transformer(Module):
    """The model of figure 1."""

    def __init__(self, c):
        self.c = c
        # One table, drawn from N(0, 1 / d_model), serves source, target and logits (section 3.4).
        E = rng.normal(0, c.d_model**-0.5, (c.vocab_size, c.d_model))
        self.E = Tensor(E.astype(np.float32))
        self.encoder = [EncoderLayer(c) for _ in range(c.N)]
        self.decoder = [DecoderLayer(c) for _ in range(c.N_decoder)]

    def __call__(self, source, target):
        """Return the logits of every next token: (B, S), (B, L) -> (B, L, vocab_size)."""
        return self.decode(target, self.encode(source), source)

    def encode(self, source):
        """Return the memory of the source: (B, S) -> (B, S, d_model)."""
        # N encoder layers, in which every token sees all tokens but padding
        x = enter(self.E, source, self.c)
        for layer in self.encoder:
            x = layer(x, padding_mask(source))
        return x

    def decode(self, target, memory, source):
        """Return the logits of every next token: (B, L, vocab_size).

        target: (B, L)   memory: (B, S, d_model)   source: (B, S), only for its mask
        """
        # N decoder layers, with the causal mask for the target and the padding mask for the source
        # Padding in the target comes last, so the causal mask hides it from all other tokens.
        y = enter(self.E, target, self.c)
        for layer in self.decoder:
            y = layer(y, memory, causal_mask(target.shape[1]), padding_mask(source))
        return self.logits(y)

    def logits(self, y):
        """Score every token of the vocabulary: (B, L, d_model) -> (B, L, vocab_size)."""
        # logits = y E^T
        return y @ self.E.transpose(1, 0)


def pad(rows):
    """Return lists of ids as an array, with padding after the shorter ones: (B, longest)."""
    ids = np.full((len(rows), max(len(row) for row in rows)), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def make_batch(pairs):
    """Return the source (B, S), what the decoder reads (B, L), and what it must write (B, L).

    pairs: (source, target), each a list of ids without marks.
    """
    # The source is x_1 x_2 ... EOS.
    # The decoder reads BOS y_1 y_2 ... and must write y_1 y_2 ... EOS: at each position, it has
    # read all tokens before the one that it must write.
    source = pad([source + [EOS] for source, _ in pairs])
    target_in = pad([[BOS] + target for _, target in pairs])
    target_out = pad([target + [EOS] for _, target in pairs])
    return source, target_in, target_out


# Lesson 07: training ------------------------------------------------------------------------------


def log_softmax(logits):
    """Return ln softmax(logits), even where the softmax is too small for a float."""
    # ln p = logit - ln(sum of exp(logits)), after subtracting the largest logit from all
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def cross_entropy(logits, target, epsilon_ls):
    """Return the mean loss of the targets, padding left out: (B, L, vocab_size), (B, L) -> ().

    Label smoothing (section 5.4) leaves the probability epsilon_ls to all tokens but the target.
    """
    # ln p, with p = softmax(logits)
    ln_p = log_softmax(logits.data)
    # q = 1 - epsilon_ls for the target, epsilon_ls / (vocab_size - 1) for each other token
    is_target = target[..., None] == np.arange(ln_p.shape[-1])  # (B, L, vocab_size)
    q = np.where(is_target, 1 - epsilon_ls, epsilon_ls / (ln_p.shape[-1] - 1)).astype(ln_p.dtype)
    # loss = - sum of q ln p / n_targets
    # The sum runs over the vocabulary, and over the n_targets positions that are not padding.
    counts = (target != PAD)[..., None]  # (B, L, 1)
    n_targets = int(counts.sum())  # a Python int keeps the loss in float32
    loss = -(counts * q * ln_p).sum() / n_targets

    def input_gradients(gy):
        # g_logits = gy (p - q) / n_targets, and 0 where the target is padding
        return (gy * counts * (np.exp(ln_p) - q) / n_targets,)

    return Tensor(loss, (logits,), input_gradients)


def learning_rate(step, d_model, warmup_steps):
    """Return the learning rate of an update; the first is step 1. Section 5.3, equation 3."""
    # lrate = d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)
    # It rises during the warm-up, because Adam's first moves are its largest, and then falls.
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


class Adam:
    """The optimizer Adam, for a list of parameters. Section 5.3."""

    def __init__(self, parameters, c):
        self.parameters = parameters
        self.c = c
        self.m = [np.zeros_like(x.data) for x in parameters]
        self.v = [np.zeros_like(x.data) for x in parameters]
        self.t = 0

    def update(self, rate):
        """Move each parameter against its gradient g = x.grad, and set that back to 0."""
        # beta_1, beta_2 and epsilon are numbers of the Config; t is 1 in the first update.
        c = self.c
        self.t += 1
        for i, x in enumerate(self.parameters):
            # m = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2
            self.m[i] = c.beta_1 * self.m[i] + (1 - c.beta_1) * x.grad
            self.v[i] = c.beta_2 * self.v[i] + (1 - c.beta_2) * x.grad**2
            # m_hat = m / (1 - beta_1^t), v_hat = v / (1 - beta_2^t)
            # The divisions make up for m and v having started at 0.
            m_hat = self.m[i] / (1 - c.beta_1**self.t)
            v_hat = self.v[i] / (1 - c.beta_2**self.t)
            # x = x - rate * m_hat / (sqrt(v_hat) + epsilon)
            x.data = x.data - rate * m_hat / (np.sqrt(v_hat) + c.epsilon)
            x.grad = 0.0


# Lesson 08: decoding ------------------------------------------------------------------------------


def next_ln_p(model, text, memory, source):
    """Return ln p for each token that may come next: (vocab_size,).

    text: a list of ids   memory: (1, S, d_model)   source: (1, S), only for its mask
    """
    # ln p = log_softmax(logits) at the last position
    # Padding and the start mark never come next, so their ln p is -infinity.
    logits = model.decode(np.array([text]), memory, source).data[0, -1]  # (vocab_size,)
    ln_p = log_softmax(logits)
    ln_p[[PAD, BOS]] = -np.inf
    return ln_p


def greedy(model, ids):
    """Write the most probable token each time; return the text with its start and end mark.

    ids: the source, without marks. At most len(ids) + 50 tokens follow the start mark.
    """
    # The encoder reads the source once, with an end mark. The text begins with the start mark.
    source = np.array([ids + [EOS]])
    memory = model.encode(source)
    text = [BOS]
    # next token = argmax of ln p
    while text[-1] != EOS and len(text) <= len(ids) + 50:
        text.append(int(next_ln_p(model, text, memory, source).argmax()))
    return text


def length_penalty(length, alpha):
    """Return what ln p(Y) is divided by, so that a long text Y is not at a disadvantage."""
    # lp(Y) = ((5 + |Y|) / 6)^alpha, where |Y| is the length (Wu et al. 2016, equation 14)
    return ((5 + length) / 6) ** alpha


def continuations(model, beam, memory, source, count):
    """Add each token to each text of the beam, and return the `count` best results, best first.

    beam: unfinished texts, as pairs (ln p of the text, ids).
    """
    # ln p(text and token) = ln p(text) + ln p(token)
    longer = []
    for total, text in beam:
        ln_p = next_ln_p(model, text, memory, source)
        for token in np.argsort(-ln_p)[:count]:
            longer.append((total + float(ln_p[token]), text + [int(token)]))
    return sorted(longer, reverse=True)[:count]


def beam_search(model, ids):
    """Extend the beam_size best texts token by token; return the best, with its marks.

    Section 6.1. ids: the source, without marks. At most len(ids) + 50 tokens follow the start mark.
    """
    c = model.c
    source = np.array([ids + [EOS]])
    memory = model.encode(source)
    limit = len(ids) + 50
    # beam: pairs (ln p, ids) of unfinished texts. finished: pairs (score, ids).
    beam = [(0.0, [BOS])]
    finished = []
    # |Y| = 1, 2, ..., limit, which counts the end mark but not the start mark
    for length in range(1, limit + 1):
        # Of the 2 * beam_size best continuations, the beam_size best without an end mark go on.
        longer = continuations(model, beam, memory, source, 2 * c.beam_size)
        beam = [(total, text) for total, text in longer if text[-1] != EOS][: c.beam_size]
        # Those with an end mark are finished, if they are among the beam_size best.
        for total, text in longer[: c.beam_size]:
            if text[-1] == EOS:
                # score = ln p(Y) / lp(Y)
                finished.append((total / length_penalty(length, c.alpha), text))
        # Stop when beam_size texts are finished and no unfinished one can still beat them: at best,
        # it would reach the limit and lose no probability on the way.
        best_possible = beam[0][0] / length_penalty(limit, c.alpha)
        if len(finished) >= c.beam_size and best_possible <= max(finished)[0]:
            break
    # If no text is finished, the best unfinished one must do.
    return max(finished or beam)[1]


# Lesson 09: from text to text ---------------------------------------------------------------------


def make_batches(pairs, n_tokens):
    """Group pairs of about equal length into batches, in random order. Section 5.1.

    pairs: (source, target), each a list of ids without marks.
    """
    # number of pairs * longest <= n_tokens, because padding makes all as long as the longest
    # Both sides count, each with one mark. A pair longer than n_tokens is a batch of its own.
    lengths = [max(len(source), len(target)) + 1 for source, target in pairs]
    batches = []
    # Pairs come from short to long; sorted leaves those of equal length in their random order.
    for i in sorted(rng.permutation(len(pairs)), key=lambda i: lengths[i]):
        if not batches or (len(batches[-1]) + 1) * lengths[i] > n_tokens:
            batches.append([])
        batches[-1].append(pairs[i])
    rng.shuffle(batches)
    return batches


def average(checkpoints):
    """Return the mean of several lists of arrays, array by array. Section 6.1."""
    return [sum(arrays) / len(arrays) for arrays in zip(*checkpoints, strict=True)]


def train(model, subwords, pairs, sample):
    """Learn from pairs of lists of ids, and print how the translation of a sample improves.

    The final parameters are the average of the last 5 checkpoints (section 6.1).
    """
    c = model.c
    adam = Adam(list(model.parameters().values()), c)
    every = max(1, c.steps // 20)
    batches = []
    checkpoints = []
    for step in range(1, c.steps + 1):
        # Once all batches have been used, the pairs are grouped anew.
        batches = batches or make_batches(pairs, c.n_tokens)
        source, target_in, target_out = make_batch(batches.pop())
        c.training = True
        loss = cross_entropy(model(source, target_in), target_out, c.epsilon_ls)
        c.training = False
        loss.backward()
        adam.update(learning_rate(step, c.d_model, c.warmup_steps))
        if step % every == 0:
            # The arrays need no copy, because each update makes new ones.
            checkpoints = checkpoints[-4:] + [[x.data for x in adam.parameters]]
            line = subwords.decode(greedy(model, subwords.encode(sample)))
            print(f"update {step:5}   loss {loss.data:.3f}   {line[:64]}")
    for x, mean in zip(adam.parameters, average(checkpoints), strict=True):
        x.data = mean


# Not the paper's: norms first, for the bundled weights --------------------------------------------


class PreNormEncoderLayer(EncoderLayer):
    """The same parts, with the norms first."""

    def __call__(self, x, mask):
        """x + Sublayer(LayerNorm(x)), twice."""
        normed = self.self_norm(x)
        x = x + self.self_attention(normed, normed, mask)
        return x + self.feed_forward(self.feed_forward_norm(x))


class PreNormDecoderLayer(DecoderLayer):
    """The same parts, with the norms first."""

    def __call__(self, y, memory, target_mask, source_mask):
        """y + Sublayer(LayerNorm(y)), three times."""
        normed = self.self_norm(y)
        y = y + self.self_attention(normed, normed, target_mask)
        y = y + self.source_attention(self.source_norm(y), memory, source_mask)
        return y + self.feed_forward(self.feed_forward_norm(y))


class PreNormTransformer(Transformer):
    """The same model; the sum that its last layers return still needs a norm."""

    def __init__(self, c):
        super().__init__(c)
        self.encoder = [PreNormEncoderLayer(c) for _ in range(c.N)]
        self.decoder = [PreNormDecoderLayer(c) for _ in range(c.N_decoder)]
        self.encoder_norm = LayerNorm(c)
        self.decoder_norm = LayerNorm(c)

    def encode(self, source):
        """Return the memory of the source: (B, S) -> (B, S, d_model)."""
        return self.encoder_norm(super().encode(source))

    def logits(self, y):
        """Score every token of the vocabulary: (B, L, d_model) -> (B, L, vocab_size)."""
        return super().logits(self.decoder_norm(y))


# Parts of the names in the file of the bundled weights, and what they become here.
NAMES = {
    "embedding.weight": "E",
    "layers.": "",
    "query.weight": "W_Q",
    "key.weight": "W_K",
    "value.weight": "W_V",
    "output.weight": "W_O",
    "inner.weight": "W_1",
    "inner.bias": "b_1",
    "outer.weight": "W_2",
    "outer.bias": "b_2",
    "attention_residual": "self_residual",
    "_residual.norm": "_norm",
    "encoder.norm": "encoder_norm",
    "decoder.norm": "decoder_norm",
}


def load(folder):
    """Return the trained model that a folder holds, and its subwords."""
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model"]
    c = Config(
        vocab_size=saved["vocabulary_size"],
        N=saved["n_layers"],
        N_decoder=saved["n_decoder_layers"],
        d_model=saved["d_model"],
        d_ff=saved["d_ff"],
        h=saved["n_heads"],
    )
    model = PreNormTransformer(c)
    arrays = load_file(next(folder.glob("*.safetensors")))
    for old, new in NAMES.items():
        arrays = {name.replace(old, new): array for name, array in arrays.items()}
    for name, x in model.parameters().items():
        # A matrix W is stored as whole numbers q from -127 to 127, one byte each, with a scale s
        # for each row or column: W_ij = q_ij s_i, or q_ij s_j. A vector is stored as it is.
        x.data = arrays.pop(name) * arrays.pop(name + "_scale", 1)
    assert not arrays, f"not in the model: {list(arrays)}"
    return model, SentencePieceProcessor(model_file=str(folder / "subwords.model"))


def translate(model, subwords, line):
    """Return the translation of a line of text."""
    return subwords.decode(beam_search(model, subwords.encode(line)))


def learn_toy_corpus(steps=1800, n_test=200):
    """Train a small model on sentences of a toy grammar, and test it on at most 200 new ones."""
    subwords = SentencePieceProcessor(model_file=str(HERE / "../lessons/toy-model/subwords.model"))
    lines = (HERE / "toy.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    new = pairs[-200:][:n_test]
    c = Config(
        vocab_size=len(subwords),
        N=2,
        N_decoder=2,
        d_model=64,
        d_ff=256,
        h=4,
        P_drop=0.0,  # a model this small memorises nothing
        steps=steps,
        n_tokens=1024,
        warmup_steps=300,
    )
    model = Transformer(c)
    print(model)
    sample = new[0][0]
    print(f"while it learns, it translates: {sample}")
    train(model, subwords, [subwords.encode(pair) for pair in pairs[:-200]], sample)
    right = 0
    for english, german in new:
        found = translate(model, subwords, english)
        right += found == german
        print(english, "->", found, "right" if found == german else f"wrong: {german}", sep="   ")
    print(f"{right} of {len(new)} new sentences are translated exactly as in the corpus")


def main():
    """Translate the sentence on the command line; without one, learn the toy corpus."""
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
    elif len(sys.argv) > 1:
        model, subwords = load(HERE / "models" / "en-de")
        print(translate(model, subwords, " ".join(sys.argv[1:])))
    else:
        learn_toy_corpus()


if __name__ == "__main__":
    main()
