"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): the whole of it.

    python examples/whole.py                                    learns the toy corpus, in minutes
    python examples/whole.py "Where is the station?"            translates with trained weights

The parts come in the order of the lessons, which derive each line. Letters of the shapes: B
sentences, T tokens that ask (of the target), S tokens that answer (of the source), D d_model,
H heads, K d_k = d_v = D / H, F d_ff, V vocabulary. gy is dL/dy, the gradient of y. From `attention`
on, what has a gradient is a Tensor, whose array is x.data; ids, masks and positions are arrays.
"""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from safetensors.numpy import load_file
from sentencepiece import SentencePieceProcessor

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
    """Return how much each query looks at each key: (B, H, T, K), (B, H, S, K) -> (B, H, T, S).

    mask: True where a query may look, broadcast to (B, H, T, S).
    """
    # P = softmax(Q K^T / sqrt(d_k)), with the score -infinity where the mask is False
    scores = Q @ K.swapaxes(-1, -2) / math.sqrt(Q.shape[-1])
    return softmax(np.where(mask, scores, -np.inf))


def padding_mask(ids):
    """Let every query look at every token but padding: (B, S) -> (B, 1, 1, S)."""
    return (ids != PAD)[:, None, None, :]


def causal_mask(length):
    """Let position t look at positions up to t: (1, 1, T, T)."""
    return np.tri(length, dtype=bool)[None, None]


# Lesson 02: gradients -----------------------------------------------------------------------------


class Tensor:
    """An array that remembers how it was computed.

    inputs: the Tensors that it was computed from. backward: takes the gradient of this Tensor, and
    returns a tuple with the gradient of each input.
    """

    def __init__(self, data, inputs=(), backward=None):
        self.data = np.asarray(data)
        self.grad = 0.0
        self.inputs = inputs
        self._backward = backward

    def backward(self):
        """Add dL/dx to the `grad` of each Tensor x that this one, L, was computed from."""
        # dL/dL = 1; a node hands its gradient on when all nodes that use it have handed on theirs
        self.grad = np.ones_like(self.data)
        for node in reversed(inputs_first(self, [], set())):
            if node.inputs:
                gradients = node._backward(node.grad)
                for x, gx in zip(node.inputs, gradients, strict=True):
                    x.grad = x.grad + gx

    def __add__(self, other):
        """Add a Tensor of the same shape, or one without the first axes, such as a bias."""
        # y = a + b: ga = gy, gb = gy; what was added to many rows gets the sum of their gradients
        b_shape = other.data.shape

        def backward(gy):
            return gy, gy.reshape(-1, *b_shape).sum(axis=0)

        return Tensor(self.data + other.data, (self, other), backward)

    def __mul__(self, c):
        """Multiply by a number."""
        # y = c x: gx = c gy
        return Tensor(self.data * c, (self,), lambda gy: (gy * c,))

    def __matmul__(self, other):
        """Multiply by a matrix: (..., D), (D, F) -> (..., F)."""
        # y = x W: gx = gy W^T, gW = x^T gy, where each position of each sentence is a row of x
        x, W = self.data, other.data

        def backward(gy):
            rows = x.reshape(-1, x.shape[-1])
            g_rows = gy.reshape(-1, gy.shape[-1])
            return gy @ W.T, rows.T @ g_rows

        return Tensor(x @ W, (self, other), backward)

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


def inputs_first(node, order, seen):
    """Return all nodes that lead to this one, and then itself, each after its inputs.

    order: the list of those found so far. seen: the set of those, for a quick look.
    """
    if node not in seen:
        seen.add(node)
        for x in node.inputs:
            inputs_first(x, order, seen)
        order.append(node)
    return order


def attention(Q, K, V, mask):
    """Return each query's average of the values: (B, H, T, K), 2 x (B, H, S, K) -> (B, H, T, K).

    Section 3.2.1, equation 1.
    """
    q, k, v = Q.data, K.data, V.data
    # Attention(Q, K, V) = P V  with  P = softmax(Q K^T / sqrt(d_k))
    P = attention_weights(q, k, mask)

    def backward(gy):
        # gV = P^T gy, gP = gy V^T
        gv = P.swapaxes(-1, -2) @ gy
        gP = gy @ v.swapaxes(-1, -2)
        # the softmax: gZ = P (gP - sum of gP P over the keys); the root: gS = gZ / sqrt(d_k)
        gZ = P * (gP - (gP * P).sum(axis=-1, keepdims=True))
        gS = gZ / math.sqrt(q.shape[-1])
        # gQ = gS K, gK = gS^T Q
        return gS @ k, gS.swapaxes(-1, -2) @ q, gv

    return Tensor(P @ v, (Q, K, V), backward)


# Lesson 03: multi-head attention ------------------------------------------------------------------


class Module:
    """A part of the model: its attributes are parameters, other modules, and lists of modules."""

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


def matrix(n_in, n_out):
    """Draw a matrix that about keeps the variance of what passes it (Glorot and Bengio 2010)."""
    # uniform within +- sqrt(6 / (n_in + n_out))
    limit = math.sqrt(6 / (n_in + n_out))
    return Tensor(rng.uniform(-limit, limit, (n_in, n_out)).astype(np.float32))


def split_heads(x, h):
    """Cut the features into h heads: (B, T, D) -> (B, H, T, K)."""
    # head i has the features i K to (i + 1) K - 1
    B, T, D = x.data.shape
    return x.reshape(B, T, h, D // h).transpose(0, 2, 1, 3)


def merge_heads(heads):
    """Concat(head_1, ..., head_h): (B, H, T, K) -> (B, T, D)."""
    # the way back
    B, H, T, K = heads.data.shape
    return heads.transpose(0, 2, 1, 3).reshape(B, T, H * K)


class MultiHeadAttention(Module):
    """Several attentions side by side, each of other projections of its input. Section 3.2.2."""

    def __init__(self, c):
        self.h = c.h
        self.W_Q = matrix(c.d_model, c.d_model)
        self.W_K = matrix(c.d_model, c.d_model)
        self.W_V = matrix(c.d_model, c.d_model)
        self.W_O = matrix(c.d_model, c.d_model)

    def __call__(self, x, memory, mask):
        """Let x look at the memory, which is x itself in self-attention.

        x: (B, T, D)   memory: (B, S, D)   mask: broadcast to (B, H, T, S)   ->   (B, T, D)
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

    x: (B, T, D)   gain: (D,)   bias: (D,)   ->   (B, T, D)
    """
    # n = (x - mean) / s  with  s = sqrt(variance + 10^-6)
    mean = x.data.mean(axis=-1, keepdims=True)
    s = np.sqrt(x.data.var(axis=-1, keepdims=True) + 1e-6)
    n = (x.data - mean) / s

    def backward(gy):
        # gx = (u - mean of u - n * mean of u n) / s  with  u = gain * gy
        u = gain.data * gy
        mean_u = u.mean(axis=-1, keepdims=True)
        mean_un = (u * n).mean(axis=-1, keepdims=True)
        gx = (u - mean_u - n * mean_un) / s
        # ggain = sum of n gy, gbias = sum of gy, over the positions
        return gx, (n * gy).sum(axis=(0, 1)), gy.sum(axis=(0, 1))

    # y = gain * n + bias
    return Tensor(gain.data * n + bias.data, (x, gain, bias), backward)


def relu(x):
    """Return max(0, x) of each number."""
    # gx = gy where x > 0, else 0
    return Tensor(np.maximum(0, x.data), (x,), lambda gy: (gy * (x.data > 0),))


def dropout(x, c):
    """While training, set each number to 0 with probability P_drop. Section 5.4."""
    if not c.training:
        return x
    # mask = 1 with probability 1 - P_drop, else 0, drawn anew in each call from rng
    # y = mask * x / (1 - P_drop), gx = mask * gy / (1 - P_drop): the mean stays what it is
    mask = (rng.random(x.data.shape) >= c.P_drop).astype(x.data.dtype) / (1 - c.P_drop)
    return Tensor(x.data * mask, (x,), lambda gy: (gy * mask,))


class FeedForward(Module):
    """The position-wise feed-forward network. Section 3.3, equation 2."""

    def __init__(self, c):
        self.W_1 = matrix(c.d_model, c.d_ff)
        self.b_1 = Tensor(np.zeros(c.d_ff, dtype=np.float32))
        self.W_2 = matrix(c.d_ff, c.d_model)
        self.b_2 = Tensor(np.zeros(c.d_model, dtype=np.float32))

    def __call__(self, x):
        """Transform each position by itself: (B, T, D) -> (B, T, D)."""
        # FFN(x) = max(0, x W_1 + b_1) W_2 + b_2
        return relu(x @ self.W_1 + self.b_1) @ self.W_2 + self.b_2


class LayerNorm(Module):
    """A layer norm with its gain and bias. Section 3.1."""

    def __init__(self, c):
        self.gain = Tensor(np.ones(c.d_model, dtype=np.float32))
        self.bias = Tensor(np.zeros(c.d_model, dtype=np.float32))

    def __call__(self, x):
        return layer_norm(x, self.gain, self.bias)


class Residual(Module):
    """The residual connection around each sub-layer: Add & Norm. Sections 3.1 and 5.4."""

    def __init__(self, c):
        self.c = c
        self.norm = LayerNorm(c)

    def __call__(self, x, sublayer):
        """Return the norm of x plus what the sub-layer makes of x: (B, T, D) -> (B, T, D)."""
        # The one switch, for the bundled weights: x + Dropout(Sublayer(LayerNorm(x))) if pre_norm
        if self.c.pre_norm:
            return x + dropout(sublayer(self.norm(x)), self.c)
        # The paper: LayerNorm(x + Dropout(Sublayer(x)))
        return self.norm(x + dropout(sublayer(x), self.c))


# Lesson 05: embeddings and positions --------------------------------------------------------------


def embedding(E, ids):
    """Return the row of the table for each id: (V, D), (B, T) -> (B, T, D)."""
    # y = E[ids]: gE = 0, plus gy at the rows ids; a row that was taken twice gets the sum

    def backward(gy):
        gE = np.zeros_like(E.data)
        np.add.at(gE, ids, gy)
        return (gE,)

    return Tensor(E.data[ids], (E,), backward)


def sinusoids(length, d_model):
    """Return a vector of sines and cosines for each position: (T, D). Section 3.5."""
    # angle(pos, i) = pos / 10000^(2i / d_model)
    i = np.arange(d_model // 2)
    angles = np.arange(length)[:, None] / 10000 ** (2 * i / d_model)
    PE = np.zeros((length, d_model))
    # PE(pos, 2i) = sin(angle), PE(pos, 2i + 1) = cos(angle)
    PE[:, 0::2] = np.sin(angles)
    PE[:, 1::2] = np.cos(angles)
    return PE


def enter(ids, E, c):
    """Make vectors of tokens and their positions: (B, T) -> (B, T, D). Sections 3.4 and 3.5."""
    # Dropout(E[ids] sqrt(d_model) + PE)
    x = embedding(E, ids) * math.sqrt(c.d_model)
    PE = sinusoids(ids.shape[1], c.d_model)
    return dropout(x + Tensor(PE.astype(x.data.dtype)), c)


# Lesson 06: encoder and decoder, figure 1 ---------------------------------------------------------


class EncoderLayer(Module):
    """Self-attention, then the feed-forward network, each with its Add & Norm."""

    def __init__(self, c):
        self.self_attention = MultiHeadAttention(c)
        self.attention_residual = Residual(c)
        self.feed_forward = FeedForward(c)
        self.feed_forward_residual = Residual(c)

    def __call__(self, x, mask):
        """Read the source: x (B, S, D), mask (B, 1, 1, S) -> (B, S, D)."""
        # self-attention: x is its own memory
        x = self.attention_residual(x, lambda x: self.self_attention(x, x, mask))
        # feed-forward
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(Module):
    """Self-attention, attention to the source, then the feed-forward network."""

    def __init__(self, c):
        self.self_attention = MultiHeadAttention(c)
        self.self_residual = Residual(c)
        self.source_attention = MultiHeadAttention(c)
        self.source_residual = Residual(c)
        self.feed_forward = FeedForward(c)
        self.feed_forward_residual = Residual(c)

    def __call__(self, y, memory, target_mask, source_mask):
        """Go on writing: y (B, T, D), memory (B, S, D) -> (B, T, D)."""
        # masked self-attention: a position looks at those up to itself
        y = self.self_residual(y, lambda y: self.self_attention(y, y, target_mask))
        # attention to the source
        y = self.source_residual(y, lambda y: self.source_attention(y, memory, source_mask))
        # feed-forward
        return self.feed_forward_residual(y, self.feed_forward)


class Transformer(Module):
    """The model of figure 1. c: V, N, d_model, d_ff, h, P_drop, epsilon_ls as in table 3."""

    def __init__(self, c):
        self.c = c
        # rows drawn from N(0, 1 / d_model); the one table is both embeddings and the output
        E = rng.normal(0, c.d_model**-0.5, (c.V, c.d_model))
        self.E = Tensor(E.astype(np.float32))
        self.encoder = [EncoderLayer(c) for _ in range(c.N)]
        self.decoder = [DecoderLayer(c) for _ in range(c.N_decoder)]
        if c.pre_norm:  # then nothing has normalised the last sum
            self.encoder_norm = LayerNorm(c)
            self.decoder_norm = LayerNorm(c)

    def encode(self, source):
        """Return the memory of the source: (B, S) -> (B, S, D)."""
        # N times an encoder layer, which sees all tokens but padding
        x = enter(source, self.E, self.c)
        for layer in self.encoder:
            x = layer(x, padding_mask(source))
        # with pre_norm, a last norm
        return self.encoder_norm(x) if self.c.pre_norm else x

    def decode(self, target, memory, source):
        """Return the logits of each next token: (B, T), (B, S, D), (B, S) -> (B, T, V)."""
        # N times a decoder layer, with causal mask (target) and padding mask (source)
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
    """Return the source (B, S), what the decoder reads (B, T), and what it must write (B, T).

    pairs: (source, target), each a list of ids without marks.
    """
    # the source is x_1 ... x_n </s>
    # the decoder reads <s> y_1 ... y_n where it must write y_1 ... y_n </s>
    source = pad([source + [EOS] for source, _ in pairs])
    target_in = pad([[BOS] + target for _, target in pairs])
    target_out = pad([target + [EOS] for _, target in pairs])
    return source, target_in, target_out


# Lesson 07: training ------------------------------------------------------------------------------


def log_softmax(z):
    """Return the logarithm of softmax(z), also where the softmax is too small for a number."""
    # ln p_v = z_v - ln sum_w exp(z_w), with the largest z subtracted first
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def cross_entropy(logits, target, epsilon_ls):
    """Return the mean loss of the n targets that are no padding: (B, T, V), (B, T) -> ().

    Label smoothing (section 5.4) leaves epsilon_ls of the probability to the other tokens.
    """
    # p = softmax(logits)
    ln_p = log_softmax(logits.data)
    # q_v = 1 - epsilon for the target, epsilon / (V - 1) for the others
    q = np.full_like(ln_p, epsilon_ls / (ln_p.shape[-1] - 1))
    np.put_along_axis(q, target[..., None], 1 - epsilon_ls, axis=-1)
    # loss = - 1/n sum_t sum_v q_v ln p_v
    counts = (target != PAD)[..., None]
    n = int(counts.sum())
    loss = -(counts * q * ln_p).sum() / n

    def backward(gy):
        # gz = (p - q) / n, and 0 where the target is padding
        return (gy * counts * (np.exp(ln_p) - q) / n,)

    return Tensor(loss, (logits,), backward)


def learning_rate(step, d_model, warmup_steps):
    """Return the rate of an update, the first of which is step 1. Section 5.3, equation 3."""
    # lrate = d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5)
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


class Adam:
    """Adam with the constants of section 5.3. parameters: a list of Tensors."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.m = [np.zeros_like(x.data) for x in parameters]
        self.v = [np.zeros_like(x.data) for x in parameters]
        self.t = 0

    def update(self, rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
        """Move each parameter by its gradient, and set its gradient to 0."""
        # t = 1 in the first update
        self.t += 1
        for x, m, v in zip(self.parameters, self.m, self.v, strict=True):
            # m = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2
            m[...] = beta_1 * m + (1 - beta_1) * x.grad
            v[...] = beta_2 * v + (1 - beta_2) * x.grad**2
            # x = x - rate * (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon)
            mean = m / (1 - beta_1**self.t)
            root = np.sqrt(v / (1 - beta_2**self.t))
            x.data = x.data - rate * mean / (root + epsilon)
            x.grad = 0.0


# Lesson 08: decoding ------------------------------------------------------------------------------


def next_ln_p(model, texts, memory, source):
    """Return ln p of each token that may come next: (B, V).

    texts: B lists of T ids. memory: (B, S, D). source: (B, S), for its mask.
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
    source = np.array([ids + [EOS]])
    memory = model.encode(source)
    text = [BOS]
    while text[-1] != EOS and len(text) <= len(ids) + 50:
        # y_t = argmax of ln p; BOS is y_0, and the source ends with EOS
        text.append(int(next_ln_p(model, [text], memory, source).argmax()))
    return text


def length_penalty(length, alpha):
    """Return the divisor of ln P with which long translations are no worse than short ones."""
    # lp(Y) = ((5 + |Y|) / 6)^alpha  (Wu et al. 2016, equation 14)
    return ((5 + length) / 6) ** alpha


def continuations(model, living, memory, source, count):
    """Return the `count` best texts that are longer by one token, best first.

    living: the texts that go on, as pairs (ids, ln P).
    """
    # ln P(Y, v) = ln P(Y) + ln p_v, for all texts Y and all tokens v
    memories = Tensor(np.repeat(memory.data, len(living), axis=0))
    ln_p = next_ln_p(model, [text for text, _ in living], memories, source)
    totals = np.array([[total] for _, total in living]) + ln_p
    best = np.argsort(-totals, axis=None, kind="stable")[:count]
    longer = []
    for i, v in zip(*np.unravel_index(best, totals.shape), strict=True):
        longer.append((living[i][0] + [int(v)], totals[i, v]))
    return longer


def beam_search(model, ids, beam=4, alpha=0.6):
    """Return the best text, with its marks, that the `beam` best beginnings lead to. Section 6.1.

    ids: of the source, without marks. At most 50 tokens more than these follow the start mark.
    """
    source = np.array([ids + [EOS]])
    memory = model.encode(source)
    limit = len(ids) + 50
    living = [([BOS], 0.0)]
    finished = []
    for length in range(1, limit + 1):
        # of the 2 * beam best continuations, the `beam` best that have no end mark go on
        longer = continuations(model, living, memory, source, 2 * beam)
        living = [(text, total) for text, total in longer if text[-1] != EOS][:beam]
        # those with an end mark, if among the `beam` best, are finished
        for text, total in longer[:beam]:
            if text[-1] == EOS:
                # score = ln P(Y) / lp(Y)
                finished.append((total / length_penalty(length, alpha), text))
        # enough are finished, and none that goes on can reach a better score
        best_possible = living[0][1] / length_penalty(limit, alpha)
        if len(finished) >= beam and best_possible <= max(finished)[0]:
            break
    # the best of the finished; if there is none, the best that goes on
    return max(finished)[1] if finished else living[0][0]


# Lesson 09: from text to text ---------------------------------------------------------------------


def make_batches(pairs, n_tokens):
    """Return lists of pairs of about equal length, in random order. Section 5.1."""
    # rows * longest <= n_tokens, where longest is that of both sides, with the mark
    lengths = [max(len(source), len(target)) + 1 for source, target in pairs]
    batches = [[]]
    for i in np.lexsort((rng.random(len(pairs)), lengths)):
        if (len(batches[-1]) + 1) * lengths[i] > n_tokens:
            batches.append([])
        batches[-1].append(pairs[i])
    rng.shuffle(batches)
    return batches


def average(checkpoints):
    """Return the mean of several lists of arrays, array by array. Section 6.1."""
    # x = 1/n sum of the x of n checkpoints
    return [sum(arrays) / len(arrays) for arrays in zip(*checkpoints, strict=True)]


def train(model, pairs, steps, n_tokens, warmup_steps):
    """Learn from pairs of lists of ids; at the end, take the average of the last 5 checkpoints."""
    adam = Adam(list(model.parameters().values()))
    batches = []
    checkpoints = []
    model.c.training = True
    for step in range(1, steps + 1):
        batches = batches or make_batches(pairs, n_tokens)
        source, target_in, target_out = make_batch(batches.pop())
        logits = model.decode(target_in, model.encode(source), source)
        loss = cross_entropy(logits, target_out, model.c.epsilon_ls)
        loss.backward()
        adam.update(learning_rate(step, model.c.d_model, warmup_steps))
        if step % (steps // 20) == 0:
            checkpoints.append([x.data.copy() for x in adam.parameters])
            print(f"update {step:5}   loss {loss.data:.3f}")
    for x, mean in zip(adam.parameters, average(checkpoints[-5:]), strict=True):
        x.data = mean
    model.c.training = False


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
    "encoder.norm": "encoder_norm",
    "decoder.norm": "decoder_norm",
}


def load(folder):
    """Return the trained model in a folder, and its subwords."""
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))["model"]
    c = SimpleNamespace(V=saved["vocabulary_size"], d_model=saved["d_model"], d_ff=saved["d_ff"])
    c.N = saved["n_layers"]
    c.N_decoder = saved["n_decoder_layers"]
    c.h = saved["n_heads"]
    c.pre_norm = saved["norm"] == "pre"
    c.training = False
    model = Transformer(c)
    parameters = model.parameters()
    for name, array in load_file(folder / "model.safetensors").items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        parameters[name].data = array.astype(np.float32)
    return model, SentencePieceProcessor(model_file=str(folder / "subwords.model"))


def translate(model, subwords, line):
    """Return the translation of a line of text."""
    return subwords.decode(beam_search(model, subwords.encode(line)))


def learn_toy_corpus(steps=1800, n_test=200):
    """Train a small model on sentences of a toy grammar, and test it on others."""
    subwords = SentencePieceProcessor(model_file=str(HERE / "../lessons/toy-model/subwords.model"))
    lines = (HERE / "toy.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    ids = [subwords.encode(pair) for pair in pairs]
    c = SimpleNamespace(V=len(subwords), N=2, N_decoder=2, d_model=64, d_ff=256, h=4)
    c.P_drop = 0.0  # so small a model learns nothing by heart
    c.epsilon_ls = 0.1
    c.pre_norm = False
    c.training = False
    model = Transformer(c)
    train(model, ids[:-200], steps=steps, n_tokens=1024, warmup_steps=300)
    right = 0
    for english, german in pairs[-n_test:]:
        found = translate(model, subwords, english)
        right += found == german
        print(f"{'right' if found == german else 'wrong'}   {english}   ->   {found}")
    print(f"{right} of {n_test} new sentences are translated word for word as by the grammar")


def main():
    """Translate the line of the command, or learn the toy corpus if there is none."""
    if len(sys.argv) > 1:
        model, subwords = load(HERE / "models" / "en-de")
        print(translate(model, subwords, " ".join(sys.argv[1:])))
    else:
        learn_toy_corpus()


if __name__ == "__main__":
    main()
