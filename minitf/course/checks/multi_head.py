"""The checks of lesson 03, multi-head attention."""

import numpy as np

from minitf import functions as F
from minitf.config import Config
from minitf.course.checks.compare import as_array, check, gradients, on_paper, parts_of
from minitf.tensor import Tensor
from minitf.transformer import MultiHeadAttention


def _sizes():
    layer = MultiHeadAttention(Config(20, d_model=512, n_heads=16), None)  # no numbers
    W_q, W_o = layer.query.weight, layer.output.weight
    return [W_q.shape[1] // 16, W_q.size, W_o.size, 16 * 10 * 10]


check_predicted_sizes = on_paper(
    ["the length of a query", "parameters of W^Q", "parameters of W^O", "attention weights"],
    _sizes,
    {
        "the paper's 64, which belongs to 8 heads": [64, 16 * 512 * 64, 16 * 512 * 64, 800],
        "what belongs to one head: there are 16": [32, 512 * 32, 512 * 32, 100],
        "a matrix with a bias: there is none": [32, 512 * 512 + 512, 512 * 512 + 512, 1600],
        "d_model: a matrix has rows and columns": [512, 512, 512, 16 * 10 * 512],
        "one number for each head and word: a head has one for each pair": [32, 0, 0, 160],
    },
    within=0,
)


@check(
    right=lambda heads: np.concatenate(heads, axis=1),
    wrong={
        "the code of the exercise: a row has numbers of one head at several positions": (
            lambda heads: heads.reshape(heads.shape[1], -1)
        ),
        "the numbers of the heads by turns: H is to stand before K": (
            lambda heads: heads.transpose(1, 2, 0).reshape(heads.shape[1], -1)
        ),
        "the heads below one another: they are to stand side by side": np.concatenate,
        "a row for each head, not for each position": (
            lambda heads: heads.transpose(1, 0, 2).reshape(len(heads), -1)
        ),
        "T and K exchanged before the reshape: H and T are to change places": (
            lambda heads: heads.transpose(0, 2, 1).reshape(heads.shape[1], -1)
        ),
    },
)
def check_mended_merge(mended_merge):
    """Check heads (H, T, K) merged to (T, H*K)."""
    for H, T, K in ((3, 5, 4), (4, 2, 3), (2, 2, 2)):
        heads = np.random.default_rng(H).standard_normal((H, T, K))
        yield f"{H} heads, T {T}, K {K}", mended_merge(heads)


def _of_heads(W, n_heads, kept, axis=1):
    """Return the columns of these heads (axis 1), or their rows."""
    parts = np.split(W, n_heads, axis=axis)
    return np.concatenate([parts[i] for i in kept], axis=axis)


def _pruned(W_q, W_k, W_v, W_o, n_heads, kept):
    return *(_of_heads(W, n_heads, kept) for W in (W_q, W_k, W_v)), _of_heads(W_o, n_heads, kept, 0)


def _with_rows(rows):
    """Return an answer that takes other rows of W_o: rows(W_o, n_heads, kept)."""

    def prune(W_q, W_k, W_v, W_o, n_heads, kept):
        return *_pruned(W_q, W_k, W_v, W_o, n_heads, kept)[:3], rows(W_o, n_heads, kept)

    return prune


def _by_turns(W_q, W_k, W_v, W_o, n_heads, kept):
    columns = (np.concatenate([W[:, i::n_heads] for i in kept], axis=1) for W in (W_q, W_k, W_v))
    return *columns, np.concatenate([W_o[i::n_heads] for i in kept])


@check(
    right=_pruned,
    wrong={
        "W_o keeps its first rows, whichever heads are kept": _with_rows(
            lambda W_o, n_heads, kept: W_o[: len(W_o) // n_heads * len(kept)]
        ),
        "the heads that are to go: `kept` are those that stay": lambda *given: _pruned(
            *given[:5], [i for i in range(given[4]) if i not in given[5]]
        ),
        "columns by turns: a head has columns side by side": _by_turns,
        "columns of W_o: a head meets its rows": _with_rows(_of_heads),
        "W_o with its heads in another order than the other matrices": _with_rows(
            lambda W_o, n_heads, kept: _of_heads(W_o, n_heads, sorted(kept), 0)
        ),
    },
)
def check_prune(prune):
    """Check the matrices of a layer from which heads were removed, by what it computes."""
    names = ["W_q", "W_k", "W_v", "W_o"]
    for n_heads, kept, d_model, d_k, d_v in (
        (3, [0, 2], 12, 4, 5),
        (5, [3, 1], 10, 2, 3),
        (4, [2], 8, 3, 2),
    ):
        rng = np.random.default_rng(n_heads)
        config = Config(11, d_model=d_model, n_heads=n_heads, d_k=d_k, d_v=d_v)
        large = MultiHeadAttention(config, rng).astype(np.float64)
        matrices = [parameter.numpy() for parameter in large.parameters()]
        name = f"{n_heads} heads, of which {kept} are kept"
        found = parts_of(name, prune(*matrices, n_heads, kept), names)
        found = [as_array(name, each) for each in found]
        for each, matrix in zip(names, found, strict=True):
            yield f"{name}: the shape of {each}", matrix.shape
        # The order in which the kept heads stand is free: it has to be the same in all four.
        x = rng.standard_normal((2, 5, d_model))
        yield f"{name}: what the smaller layer computes", _attend(x, found, len(kept))


def _attend(x, matrices, n_heads):
    """Return self-attention of arrays x (..., T, D), head by head."""
    W_q, W_k, W_v = (np.split(matrix, n_heads, axis=1) for matrix in matrices[:3])
    found = [F.attention(x @ W_q[i], x @ W_k[i], x @ W_v[i]).numpy() for i in range(n_heads)]
    return np.concatenate(found, axis=-1) @ matrices[3]


def _by_heads(queries=None, scale=1.0):
    """Return an answer that cuts x W_q (T, H*K) into heads (H, T, K), and scales the scores."""

    def multi_query(x, W_q, W_k, W_v, W_o, n_heads):
        T, K = x.shape[0], W_k.shape[1]
        q = x @ W_q
        q = queries(q, n_heads) if queries else q.reshape(T, n_heads, K).transpose(1, 0, 2)
        heads = [F.attention(q[i] * K ** (scale - 1), x @ W_k, x @ W_v) for i in range(n_heads)]
        return F.concatenate(heads, axis=1) @ W_o

    return multi_query


def _first_head(x, W_q, W_k, W_v, W_o, n_heads):
    K = W_k.shape[1]
    return F.attention(x @ W_q[:, :K], x @ W_k, x @ W_v) @ W_o[:K]


@check(
    right=_by_heads(),
    wrong={
        "heads that take the columns by turns: cut W_q into blocks": _by_heads(
            lambda q, n_heads: q.reshape(len(q), -1, n_heads).transpose(2, 0, 1)
        ),
        "queries reshaped without a transpose: heads and positions are mixed": _by_heads(
            lambda q, n_heads: q.reshape(n_heads, len(q), -1)
        ),
        "scores that are not divided by the root of K": _by_heads(scale=1.5),
        "the first head alone": _first_head,
        "the heads without W_o": lambda x, W_q, W_k, W_v, W_o, n_heads: _by_heads()(
            x, W_q, W_k, W_v, np.eye(W_o.shape[0]), n_heads
        ),
    },
)
def check_multi_query(multi_query):
    """Check attention whose heads share keys and values, and its gradient."""
    for n_heads, d_k, T, D in ((3, 4, 5, 12), (2, 3, 4, 7), (4, 2, 3, 5)):
        rng = np.random.default_rng(D)
        shapes = [(T, D), (D, n_heads * d_k), (D, d_k), (D, d_k), (n_heads * d_k, D)]
        inputs = [Tensor(rng.standard_normal(shape)) for shape in shapes]
        name = f"{n_heads} heads, K {d_k}, T {T}, D {D}"
        out = multi_query(*inputs, n_heads)
        yield name, out
        gy = rng.standard_normal((T, D))
        names = [f"{name}, the gradient of {each}" for each in ("x", "W_q", "W_k", "W_v", "W_o")]
        yield from zip(names, gradients(name, out, inputs, gy), strict=True)
