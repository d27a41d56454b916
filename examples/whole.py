"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): the whole of it.

    python examples/whole.py                              learns the toy corpus, in minutes
    python examples/whole.py "Where is the station?"      translates with trained weights

The first prints a translation twenty times while it gets better, and then tests it. Needed are
NumPy, SentencePiece and safetensors, and the files beside this one in the repository.

Left out: learning the subwords (SentencePiece has done it), saving what was learned, and speed:
each step of decoding reads the whole text again. Not from the paper: how the parameters are drawn,
the 10^-6 of the layer norm, and how far apart the checkpoints are that are averaged.

The parts come in the order of the lessons, which derive each line. Names and letters:

    B, L, S   in shapes: sentences of a batch; tokens that look; tokens that are looked at
    Q, K, V   queries, keys, values. P: the attention weights. K^T: K transposed
    E         the table of the embeddings. ids: numbers of tokens, its rows
    p         the probability of a token, ln p its logarithm
    gy        the gradient of y: that of the loss with respect to y, in y's shape; so gx, gE, ...
    n         x after a norm, before its gain and bias
    c         the Config; the sizes in shapes, such as d_model and d_k, are the paper's

From `attention` on, what has a gradient is a Tensor, whose array is x.data; ids, masks and
positions are arrays.
(In shapes, the lessons have T, D, H, K, F and V for L, d_model, h, d_k, d_ff and vocab_size.)
"""

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from sentencepiece import SentencePieceProcessor


@dataclass
class Config:
    """The numbers of the paper: its base model, how it is trained, and how it translates."""

    vocab_size: int = 37_000  # subwords, the same for both languages
    N: int = 6  # layers of the encoder
    N_decoder: int = 6  # layers of the decoder
    d_model: int = 512  # features of a token
    d_ff: int = 2048  # features inside the feed-forward network
    h: int = 8  # heads, each with d_k = d_v = d_model / h features
    P_drop: float = 0.1  # dropout
    epsilon_ls: float = 0.1  # label smoothing
    steps: int = 100_000  # updates of the parameters
    n_tokens: int = 25_000  # tokens of a batch, on either side
    warmup_steps: int = 4_000  # updates in which the learning rate rises
    beta_1: float = 0.9  # these three are Adam's
    beta_2: float = 0.98
    epsilon: float = 1e-9
    beam_size: int = 4  # unfinished translations of beam search
    alpha: float = 0.6  # its length penalty
    pre_norm: bool = False  # not the paper's: norms come first, as in the bundled weights
    training: bool = False  # True while it learns, because dropout is for learning only


# What this program trains if no sentence is given.
TOY = {
    "N": 2,
    "N_decoder": 2,
    "d_model": 64,
    "d_ff": 256,
    "h": 4,
    "P_drop": 0.0,  # so small a model memorises nothing
    "n_tokens": 1024,
    "warmup_steps": 300,
}

PAD, BOS, EOS = 0, 2, 3  # the ids of padding, of the start mark and of the end mark
HERE = Path(__file__).parent
rng = np.random.default_rng(1)


# Lesson 01: attention -----------------------------------------------------------------------------


def softmax(x):
    """Return positive weights that sum to 1 over the last axis: (..., S) -> (..., S)."""
    # softmax(x)_i = exp(x_i) / sum_j exp(x_j); less the largest x, so that no exp overflows
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_weights(Q, K, mask):
    """Return how much each query looks at each key: (B, h, L, d_k), (B, h, S, d_k) -> (B, h, L, S).

    mask: True where a query may look, broadcast to (B, h, L, S).
    """
    # P = softmax(Q K^T / sqrt(d_k)), with the score -infinity where the mask is False: exp gives 0;
    # the division keeps the scores so small that the softmax can still learn
    scores = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])
    return softmax(np.where(mask, scores, -np.inf))


def padding_mask(ids):
    """Let every query look at every token but padding: (B, S) -> (B, 1, 1, S)."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length):
    """Let a position look at itself and at those before it: (1, 1, length, length)."""
    return np.tri(length, dtype=bool)[None, None]


# Lesson 02: gradients -----------------------------------------------------------------------------


class Tensor:
    """An array that remembers how it was computed.

    inputs: the Tensors that it was computed from. input_gradients: a function that takes the
    gradient of this Tensor, and returns a tuple with the gradient of each input.
    """

    def __init__(self, data, inputs=(), input_gradients=lambda gy: ()):
        for x in inputs:
            assert isinstance(x, Tensor), f"inputs are Tensors, not {type(x).__name__}"
        self.data = np.asarray(data)
        self.grad = 0.0
        self.inputs = inputs
        self.input_gradients = input_gradients

    def __repr__(self):
        """Return the numbers and their gradient, as text."""
        return f"Tensor({self.data}, grad={self.grad})"

    def backward(self):
        """Take this Tensor as the loss, once: add its gradient to x.grad of each x before it."""
        # the gradient of the loss itself is 1
        self.grad = np.ones_like(self.data)
        # a node hands its gradient on, by input_gradients, when all nodes that use it have done so:
        # only then is its own complete
        for node in reversed(topological_order(self, [], set())):
            gradients = node.input_gradients(node.grad)
            # gradients from several uses add up
            for x, gx in zip(node.inputs, gradients, strict=True):
                x.grad = x.grad + gx

    def __add__(self, other):
        """Add a Tensor of the same shape, or one without the first axes, such as a bias."""
        # y = a + b: ga = gy, gb = gy; what was added to many rows gets the sum of their gradients
        b_shape = other.data.shape

        def input_gradients(gy):
            return gy, gy.reshape(-1, *b_shape).sum(axis=0)

        return Tensor(self.data + other.data, (self, other), input_gradients)

    def __mul__(self, factor):
        """Multiply by a number."""
        # y = factor x: gx = factor gy
        return Tensor(self.data * factor, (self,), lambda gy: (gy * factor,))

    def __matmul__(self, other):
        """Multiply by a matrix: (..., n_in), (n_in, n_out) -> (..., n_out)."""
        # y = x W: gx = gy W^T, gW = x^T gy, where each position of each sentence is a row of x
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
        before = self.data.shape
        return Tensor(self.data.reshape(shape), (self,), lambda gy: (gy.reshape(before),))

    def transpose(self, *axes):
        """Return the numbers with the axes in another order: axis i of y is axis axes[i] of x."""
        # gx = gy with its axes put back
        back = np.argsort(axes)
        return Tensor(self.data.transpose(axes), (self,), lambda gy: (gy.transpose(back),))


def topological_order(node, order, seen):
    """Return all nodes that lead to this one, and then itself, each after its inputs.

    order: the list of those found so far. seen: the same as a set, which is quick to search.
    """
    # a node that is used twice is listed once
    if node not in seen:
        seen.add(node)
        for x in node.inputs:
            topological_order(x, order, seen)
        order.append(node)
    return order


def attention(Q, K, V, mask):
    """Return each query's average of the values: (B, h, L, d_k), 2 x (B, h, S, d_k) -> as Q.

    Section 3.2.1, equation 1.
    """
    # Attention(Q, K, V) = P V  with  P = softmax(Q K^T / sqrt(d_k))
    P = attention_weights(Q.data, K.data, mask)

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


class Module:
    """A part of the model: parameters, other modules, and lists of modules are its attributes."""

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
        """Return the name of the class and the number of parameters, as text."""
        size = sum(x.data.size for x in self.parameters().values())
        return f"{type(self).__name__} with {size:,} parameters"


def glorot_matrix(n_in, n_out):
    """Draw the numbers of a matrix (Glorot and Bengio 2010)."""
    # uniform within +- sqrt(6 / (n_in + n_out)): so large that what passes it, forward and back,
    # does not fade, and no larger
    limit = math.sqrt(6 / (n_in + n_out))
    return Tensor(rng.uniform(-limit, limit, (n_in, n_out)).astype(np.float32))


def split_heads(x, h):
    """Cut the features into h heads: (B, L, d_model) -> (B, h, L, d_k)."""
    # head i (0, 1, ...) has the features i d_k to (i + 1) d_k - 1
    B, L, d_model = x.data.shape
    return x.reshape(B, L, h, d_model // h).transpose(0, 2, 1, 3)


def merge_heads(heads):
    """Concat(head_1, ..., head_h): (B, h, L, d_k) -> (B, L, d_model)."""
    # the way back
    B, h, L, d_k = heads.data.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, L, h * d_k)


class MultiHeadAttention(Module):
    """Several attentions side by side, each of other projections of its input. Section 3.2.2."""

    def __init__(self, c):
        self.h = c.h
        self.W_Q = glorot_matrix(c.d_model, c.d_model)
        self.W_K = glorot_matrix(c.d_model, c.d_model)
        self.W_V = glorot_matrix(c.d_model, c.d_model)
        self.W_O = glorot_matrix(c.d_model, c.d_model)

    def __call__(self, x, memory, mask):
        """Let x look at the memory, which is x itself in self-attention.

        x: (B, L, d_model)   memory: (B, S, d_model)   mask: broadcast to (B, h, L, S)   ->   as x
        """
        # head_i = Attention(x W_i^Q, memory W_i^K, memory W_i^V), for all i at once
        Q = split_heads(x @ self.W_Q, self.h)
        K = split_heads(memory @ self.W_K, self.h)
        V = split_heads(memory @ self.W_V, self.h)
        heads = attention(Q, K, V, mask)
        # MultiHead = Concat(head_1, ..., head_h) W^O
        return merge_heads(heads) @ self.W_O


# Lesson 04: the other layers ----------------------------------------------------------------------


def layer_norm(x, gain, bias):
    """Give the features of each position the mean 0 and the variance 1, then scale and shift.

    x: (B, L, d_model)   gain: (d_model,)   bias: (d_model,)   ->   as x
    """
    # n = (x - mean) / s  with  s = sqrt(variance + 10^-6): equal features must not give 0 / 0
    mean = x.data.mean(axis=-1, keepdims=True)
    s = np.sqrt(x.data.var(axis=-1, keepdims=True) + 1e-6)
    n = (x.data - mean) / s

    def input_gradients(gy):
        # gx = (u - mean of u - n * mean of u n) / s  with  u = gain * gy
        u = gain.data * gy
        mean_u = u.mean(axis=-1, keepdims=True)
        mean_un = (u * n).mean(axis=-1, keepdims=True)
        gx = (u - mean_u - n * mean_un) / s
        # ggain = sum of n gy, gbias = sum of gy, over the positions
        return gx, (n * gy).sum(axis=(0, 1)), gy.sum(axis=(0, 1))

    # y = gain * n + bias
    return Tensor(gain.data * n + bias.data, (x, gain, bias), input_gradients)


def relu(x):
    """Return max(0, x) of each number."""
    # gx = gy where x > 0, else 0
    return Tensor(np.maximum(0, x.data), (x,), lambda gy: (gy * (x.data > 0),))


def dropout(x, c):
    """While c.training, set each number to 0 with probability P_drop. Section 5.4."""
    # y = x, unless c.training: the Config says whether the model learns
    if not c.training:
        return x
    # mask = 1 / (1 - P_drop) with probability 1 - P_drop, else 0, in the precision of x, drawn in
    # each call from rng: y = mask * x, gx = mask * gy; by the division, the mean stays what it is
    mask = (rng.random(x.data.shape) >= c.P_drop).astype(x.data.dtype) / (1 - c.P_drop)
    return Tensor(x.data * mask, (x,), lambda gy: (gy * mask,))


class FeedForward(Module):
    """The position-wise feed-forward network. Section 3.3, equation 2."""

    def __init__(self, c):
        self.W_1 = glorot_matrix(c.d_model, c.d_ff)
        self.b_1 = Tensor(np.zeros(c.d_ff, dtype=np.float32))
        self.W_2 = glorot_matrix(c.d_ff, c.d_model)
        self.b_2 = Tensor(np.zeros(c.d_model, dtype=np.float32))

    def __call__(self, x):
        """Transform each position by itself: (B, L, d_model) -> as x."""
        # FFN(x) = max(0, x W_1 + b_1) W_2 + b_2
        return relu(x @ self.W_1 + self.b_1) @ self.W_2 + self.b_2


class LayerNorm(Module):
    """A layer norm with its gain and bias. Section 3.1."""

    def __init__(self, c):
        self.gain = Tensor(np.ones(c.d_model, dtype=np.float32))
        self.bias = Tensor(np.zeros(c.d_model, dtype=np.float32))

    def __call__(self, x):
        """Normalise each position by itself: (B, L, d_model) -> as x."""
        return layer_norm(x, self.gain, self.bias)


class EncoderLayer(Module):
    """Self-attention, then the feed-forward network. Section 3.1."""

    def __init__(self, c):
        self.c = c
        self.self_attention = MultiHeadAttention(c)
        self.attention_norm = LayerNorm(c)
        self.feed_forward = FeedForward(c)
        self.feed_forward_norm = LayerNorm(c)

    def __call__(self, x, mask):
        """Read the source: x (B, S, d_model), mask (B, 1, 1, S) -> as x."""
        # twice LayerNorm(x + Dropout(Sublayer(x))): in self-attention x looks at itself
        x = self.attention_norm(x + dropout(self.self_attention(x, x, mask), self.c))
        return self.feed_forward_norm(x + dropout(self.feed_forward(x), self.c))


# Lesson 05: embeddings and positions --------------------------------------------------------------


def embedding(E, ids):
    """Return the row of E for each id: (vocab_size, d_model), (B, L) -> (B, L, d_model)."""
    # y = E[ids]: gE = 0, plus gy at the rows ids; a row that was taken twice gets the sum

    def input_gradients(gy):
        gE = np.zeros_like(E.data)
        np.add.at(gE, ids, gy)
        return (gE,)

    return Tensor(E.data[ids], (E,), input_gradients)


def sinusoids(length, d_model):
    """Return a vector for each position, of sines and cosines: (length, d_model). Section 3.5."""
    # angle(pos, i) = pos / 10000^(2i / d_model), for pos and i = 0, 1, 2, ...
    i = np.arange(d_model // 2)
    angles = np.arange(length)[:, None] / 10000 ** (2 * i / d_model)
    PE = np.zeros((length, d_model))
    # PE(pos, 2i) = sin(angle(pos, i)), PE(pos, 2i + 1) = cos(angle(pos, i))
    PE[:, 0::2] = np.sin(angles)
    PE[:, 1::2] = np.cos(angles)
    return PE


def enter(ids, E, c):
    """Return what enters the layers, of tokens and their positions: (B, L) -> (B, L, d_model).

    Sections 3.4 and 3.5.
    """
    # Dropout(E[ids] sqrt(d_model) + PE), where PE is a Tensor in the precision of E; the rows of E,
    # drawn small since they make the logits as well, are made as large as PE
    x = embedding(E, ids) * math.sqrt(c.d_model)
    PE = sinusoids(ids.shape[1], c.d_model)
    return dropout(x + Tensor(PE.astype(x.data.dtype)), c)


# Lesson 06: encoder and decoder, figure 1 ---------------------------------------------------------


class DecoderLayer(Module):
    """Self-attention, attention to the source, then the feed-forward network. Section 3.1."""

    def __init__(self, c):
        self.c = c
        self.self_attention = MultiHeadAttention(c)
        self.self_norm = LayerNorm(c)
        self.source_attention = MultiHeadAttention(c)
        self.source_norm = LayerNorm(c)
        self.feed_forward = FeedForward(c)
        self.feed_forward_norm = LayerNorm(c)

    def __call__(self, y, memory, target_mask, source_mask):
        """Go on writing: y (B, L, d_model), memory (B, S, d_model) -> as y."""
        # three times LayerNorm(y + Dropout(Sublayer(y))): y looks at itself, then at the memory
        y = self.self_norm(y + dropout(self.self_attention(y, y, target_mask), self.c))
        y = self.source_norm(y + dropout(self.source_attention(y, memory, source_mask), self.c))
        return self.feed_forward_norm(y + dropout(self.feed_forward(y), self.c))


class Transformer(Module):
    """The model of figure 1."""

    def __init__(self, c):
        self.c = c
        # rows drawn from N(0, 1 / d_model); the one table is both embeddings and the output
        E = rng.normal(0, c.d_model**-0.5, (c.vocab_size, c.d_model))
        self.E = Tensor(E.astype(np.float32))
        encoder_layer = PreNormEncoderLayer if c.pre_norm else EncoderLayer
        decoder_layer = PreNormDecoderLayer if c.pre_norm else DecoderLayer
        self.encoder = [encoder_layer(c) for _ in range(c.N)]
        self.decoder = [decoder_layer(c) for _ in range(c.N_decoder)]
        if c.pre_norm:  # then nothing has normalised the last sum
            self.encoder_norm = LayerNorm(c)
            self.decoder_norm = LayerNorm(c)

    def __call__(self, source, target):
        """Return the logits of each next token: (B, S), (B, L) -> (B, L, vocab_size)."""
        return self.decode(target, self.encode(source), source)

    def encode(self, source):
        """Return the memory of the source: (B, S) -> (B, S, d_model)."""
        # N times an encoder layer, which sees all tokens but padding
        x = enter(source, self.E, self.c)
        for layer in self.encoder:
            x = layer(x, padding_mask(source))
        # with pre_norm, a last norm
        return self.encoder_norm(x) if self.c.pre_norm else x

    def decode(self, target, memory, source):
        """Return the logits of each next token: (B, L, vocab_size).

        target: (B, L)   memory: (B, S, d_model)   source: (B, S), only for its mask
        """
        # N times a decoder layer, with causal mask (target) and padding mask (source); the target's
        # padding needs none: it comes last, so the causal mask hides it from all other tokens
        y = enter(target, self.E, self.c)
        for layer in self.decoder:
            y = layer(y, memory, causal_mask(target.shape[1]), padding_mask(source))
        # with pre_norm, a last norm
        y = self.decoder_norm(y) if self.c.pre_norm else y
        # logits = y E^T
        return y @ self.E.transpose(1, 0)


def pad(rows):
    """Return lists of ids as an array (B, longest), with padding after the shorter ones."""
    ids = np.full((len(rows), max(len(row) for row in rows)), PAD)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    return ids


def make_batch(pairs):
    """Return the source (B, S), what the decoder reads (B, L), and what it must write (B, L).

    pairs: (source, target), each a list of ids without marks.
    """
    # the source is x_1 x_2 ... EOS
    # the decoder reads BOS y_1 y_2 ... where it must write y_1 y_2 ... EOS: at each position it
    # has read all tokens before the one that it must write
    source = pad([source + [EOS] for source, _ in pairs])
    target_in = pad([[BOS] + target for _, target in pairs])
    target_out = pad([target + [EOS] for _, target in pairs])
    return source, target_in, target_out


# Lesson 07: training ------------------------------------------------------------------------------


def log_softmax(logits):
    """Return ln softmax(logits), also where the softmax is too small for a number."""
    # ln p = logit - ln sum of exp(logits), with the largest logit subtracted first
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def cross_entropy(logits, target, epsilon_ls):
    """Return the mean loss of the targets that are no padding: (B, L, vocab_size), (B, L) -> ().

    Label smoothing (section 5.4) leaves epsilon_ls of the probability to the other tokens.
    """
    # ln p, with p = softmax(logits)
    ln_p = log_softmax(logits.data)
    # q = 1 - epsilon_ls for the target, epsilon_ls / (vocab_size - 1) for each other token
    q = np.full_like(ln_p, epsilon_ls / (ln_p.shape[-1] - 1))
    np.put_along_axis(q, target[..., None], 1 - epsilon_ls, axis=-1)
    # loss = - sum of q ln p / n_targets: over the n_targets positions that are no padding, and over
    # all tokens of the vocabulary
    counts = (target != PAD)[..., None]
    n_targets = int(counts.sum())
    loss = -(counts * q * ln_p).sum() / n_targets

    def input_gradients(gy):
        # g_logits = gy (p - q) / n_targets, and 0 where the target is padding
        return (gy * counts * (np.exp(ln_p) - q) / n_targets,)

    return Tensor(loss, (logits,), input_gradients)


def learning_rate(step, d_model, warmup_steps):
    """Return the rate of an update, the first of which is step 1. Section 5.3, equation 3."""
    # lrate = d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5): up, since Adam's first moves
    # are its largest, then down
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


class Adam:
    """Adam. Section 5.3. parameters: a list of Tensors."""

    def __init__(self, parameters, c):
        self.parameters = parameters
        self.c = c
        self.m = [np.zeros_like(x.data) for x in parameters]
        self.v = [np.zeros_like(x.data) for x in parameters]
        self.t = 0

    def update(self, rate):
        """Move each parameter by its gradient g = x.grad, then set this to 0."""
        c = self.c
        # t counts the updates: it is 1 in the first. beta_1, beta_2, epsilon: see the Config
        self.t += 1
        for i, x in enumerate(self.parameters):
            # m = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2
            self.m[i] = c.beta_1 * self.m[i] + (1 - c.beta_1) * x.grad
            self.v[i] = c.beta_2 * self.v[i] + (1 - c.beta_2) * x.grad**2
            # both began with 0; the bias correction makes up for it:
            # m_hat = m / (1 - beta_1^t), v_hat = v / (1 - beta_2^t)
            m_hat = self.m[i] / (1 - c.beta_1**self.t)
            v_hat = self.v[i] / (1 - c.beta_2**self.t)
            # x = x - rate * m_hat / (sqrt(v_hat) + epsilon)
            x.data = x.data - rate * m_hat / (np.sqrt(v_hat) + c.epsilon)
            x.grad = 0.0


# Lesson 08: decoding ------------------------------------------------------------------------------


def next_ln_p(model, texts, memory, source):
    """Return ln p of each token that may come next: (B, vocab_size).

    texts: B lists of L ids. memory: (B, S, d_model). source: (B, S), for its mask.
    """
    # ln p = log_softmax(logits) at the last position, and -infinity for padding and start mark
    logits = model.decode(np.array(texts), memory, source).data[:, -1]
    ln_p = log_softmax(logits)
    ln_p[:, [PAD, BOS]] = -np.inf
    return ln_p


def greedy(model, ids):
    """Return the text that takes the most probable token each time, with its start and end mark.

    ids: of the source, without marks. At most 50 tokens more than these follow the start mark.
    """
    # the encoder reads the source with its end mark, once; the text begins with the start mark
    source = np.array([ids + [EOS]])
    memory = model.encode(source)
    text = [BOS]
    # the next token is the argmax of ln p
    while text[-1] != EOS and len(text) <= len(ids) + 50:
        text.append(int(next_ln_p(model, [text], memory, source).argmax()))
    return text


def length_penalty(length, alpha):
    """Return the divisor of ln p(Y) that makes up for the length of Y, more with a larger alpha."""
    # lp(Y) = ((5 + |Y|) / 6)^alpha, where |Y| is the length  (Wu et al. 2016, equation 14)
    return ((5 + length) / 6) ** alpha


def continuations(model, beam, memory, source, count):
    """Return the `count` best texts that are longer by one token, best first.

    beam: the unfinished texts, as pairs (ids, ln p of the text).
    """
    # ln p(text and token) = ln p(text) + ln p(token), for all texts and all tokens
    memories = Tensor(np.repeat(memory.data, len(beam), axis=0))
    ln_p = next_ln_p(model, [text for text, _ in beam], memories, source)
    totals = np.array([[total] for _, total in beam]) + ln_p
    best = np.argsort(-totals, axis=None, kind="stable")[:count]
    longer = []
    for row, token in zip(*np.unravel_index(best, totals.shape), strict=True):
        longer.append((beam[row][0] + [int(token)], totals[row, token]))
    return longer


def beam_search(model, ids):
    """Return the best text that the beam_size best beginnings lead to, with its marks. Section 6.1.

    ids: of the source, without marks. At most 50 tokens more than these follow the start mark.
    """
    c = model.c
    source = np.array([ids + [EOS]])
    memory = model.encode(source)
    limit = len(ids) + 50
    # the unfinished texts, as `continuations` takes them, and the finished ones
    beam = [([BOS], 0.0)]
    finished = []
    # |Y| = 1, 2, ..., limit: the start mark is not counted, the end mark is
    for length in range(1, limit + 1):
        # of the 2 * beam_size best continuations, the beam_size best without end mark go on
        longer = continuations(model, beam, memory, source, 2 * c.beam_size)
        beam = [(text, total) for text, total in longer if text[-1] != EOS][: c.beam_size]
        # those with an end mark, if among the beam_size best, are finished
        for text, total in longer[: c.beam_size]:
            if text[-1] == EOS:
                # score = ln p(Y) / lp(Y)
                finished.append((total / length_penalty(length, c.alpha), text))
        # the end: beam_size are finished, and the best that goes on cannot reach a better score,
        # not even if it lost nothing more up to the limit
        best_possible = beam[0][1] / length_penalty(limit, c.alpha)
        if len(finished) >= c.beam_size and best_possible <= max(finished)[0]:
            break
    # the best of the finished; if there is none, the best that goes on
    return max(finished)[1] if finished else beam[0][0]


# Lesson 09: from text to text ---------------------------------------------------------------------


def make_batches(pairs, n_tokens):
    """Return lists of pairs of about equal length, in random order. Section 5.1.

    pairs: (source, target), each a list of ids without marks.
    """
    # a batch has at most n_tokens with its padding: pairs * longest <= n_tokens, where the longest
    # is that of both sides, with one mark. A pair that is longer than n_tokens is a batch alone
    lengths = [max(len(source), len(target)) + 1 for source, target in pairs]
    batches = []
    # from short to long; the random numbers put pairs of one length in another order each time
    for i in np.lexsort((rng.random(len(pairs)), lengths)):
        if not batches or (len(batches[-1]) + 1) * lengths[i] > n_tokens:
            batches.append([])
        batches[-1].append(pairs[i])
    rng.shuffle(batches)
    return batches


def average(checkpoints):
    """Return the mean of several lists of arrays, array by array. Section 6.1."""
    # of each array the sum over the checkpoints, divided by their number
    return [sum(arrays) / len(arrays) for arrays in zip(*checkpoints, strict=True)]


def train(model, subwords, pairs, sample):
    """Learn from pairs of lists of ids; now and then, show how a sample is translated.

    At the end, take the average of the last 5 checkpoints (section 6.1).
    """
    c = model.c
    adam = Adam(list(model.parameters().values()), c)
    every = max(1, c.steps // 20)
    batches = []
    checkpoints = []
    for step in range(1, c.steps + 1):
        # when all batches were seen, the pairs are grouped anew
        batches = batches or make_batches(pairs, c.n_tokens)
        source, target_in, target_out = make_batch(batches.pop())
        c.training = True
        loss = cross_entropy(model(source, target_in), target_out, c.epsilon_ls)
        c.training = False
        loss.backward()
        adam.update(learning_rate(step, c.d_model, c.warmup_steps))
        if step % every == 0 or step == c.steps:
            # the arrays need no copy: each update makes new ones
            checkpoints = checkpoints[-4:] + [[x.data for x in adam.parameters]]
            text = subwords.decode(greedy(model, subwords.encode(sample)))
            print(f"update {step:5}   loss {loss.data:.3f}   {text[:64]}")
    for x, mean in zip(adam.parameters, average(checkpoints), strict=True):
        x.data = mean


# Not the paper's: norms first, for the bundled weights --------------------------------------------


class PreNormEncoderLayer(EncoderLayer):
    """The same parts, with the norms first: x + Dropout(Sublayer(LayerNorm(x)))."""

    def __call__(self, x, mask):
        """Read the source: x (B, S, d_model), mask (B, 1, 1, S) -> as x."""
        normed = self.attention_norm(x)
        x = x + dropout(self.self_attention(normed, normed, mask), self.c)
        normed = self.feed_forward_norm(x)
        return x + dropout(self.feed_forward(normed), self.c)


class PreNormDecoderLayer(DecoderLayer):
    """The same parts, with the norms first: y + Dropout(Sublayer(LayerNorm(y)))."""

    def __call__(self, y, memory, target_mask, source_mask):
        """Go on writing: y (B, L, d_model), memory (B, S, d_model) -> as y."""
        normed = self.self_norm(y)
        y = y + dropout(self.self_attention(normed, normed, target_mask), self.c)
        normed = self.source_norm(y)
        y = y + dropout(self.source_attention(normed, memory, source_mask), self.c)
        normed = self.feed_forward_norm(y)
        return y + dropout(self.feed_forward(normed), self.c)


# The names that the bundled weights have in their file, and those that they have here.
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
    "_residual.norm": "_norm",
    "encoder.norm": "encoder_norm",
    "decoder.norm": "decoder_norm",
}


def load(folder):
    """Return the trained model in a folder, and its subwords."""
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model"]
    c = Config(
        vocab_size=saved["vocabulary_size"],
        N=saved["n_layers"],
        N_decoder=saved["n_decoder_layers"],
        d_model=saved["d_model"],
        d_ff=saved["d_ff"],
        h=saved["n_heads"],
        pre_norm=saved["norm"] == "pre",
    )
    model = Transformer(c)
    arrays = {}
    for name, array in load_file(folder / "model.safetensors").items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        arrays[name] = array.astype(np.float32)
    parameters = model.parameters()
    assert arrays.keys() == parameters.keys(), f"not in both: {arrays.keys() ^ parameters.keys()}"
    for name, x in parameters.items():
        assert arrays[name].shape == x.data.shape, name
        x.data = arrays[name]
    return model, SentencePieceProcessor(model_file=str(folder / "subwords.model"))


def translate(model, subwords, line):
    """Return the translation of a line of text."""
    return subwords.decode(beam_search(model, subwords.encode(line)))


def learn_toy_corpus(steps=1800, n_test=200):
    """Train a small model on sentences of a toy grammar, and test it on up to 200 others."""
    subwords = SentencePieceProcessor(model_file=str(HERE / "../lessons/toy-model/subwords.model"))
    lines = (HERE / "toy.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    known = pairs[:-200]
    new = pairs[-200:][:n_test]
    model = Transformer(Config(vocab_size=len(subwords), steps=steps, **TOY))
    print(model)
    sample = new[0][0]
    print(f"now and then, it translates: {sample}")
    train(model, subwords, [subwords.encode(pair) for pair in known], sample)
    right = 0
    for english, german in new:
        found = translate(model, subwords, english)
        right += found == german
        print(f"{english}   ->   {found}   {'right' if found == german else f'wrong: {german}'}")
    print(f"{right} of {len(new)} new sentences are translated word for word as by the grammar")


def main():
    """Translate the line of the command, or learn the toy corpus if there is none."""
    if {"-h", "--help"} & set(sys.argv):
        print(__doc__)
    elif len(sys.argv) > 1:
        model, subwords = load(HERE / "models" / "en-de")
        print(translate(model, subwords, " ".join(sys.argv[1:])))
    else:
        learn_toy_corpus()


if __name__ == "__main__":
    main()
