"""The checks of lesson 03, multi-head attention."""

import numpy as np

from minitf import functions as F
from minitf.config import Config
from minitf.course.calls import AnswerError
from minitf.course.checks.compare import equal, equal_on_paper, parts_of
from minitf.tensor import Tensor
from minitf.transformer import MultiHeadAttention

__all__ = ["check_mended_merge", "check_multi_query", "check_predicted_sizes", "check_prune"]


def check_predicted_sizes(predicted_sizes):
    """Check four sizes of multi-head attention, found on paper."""
    layer = MultiHeadAttention(Config(20, d_model=512, n_heads=16), None)  # no numbers
    equal_on_paper(
        predicted_sizes(),
        [
            layer.query.weight.shape[1] // 16,
            layer.query.weight.size,
            layer.output.weight.size,
            16 * 10 * 10,
        ],
        ["the length of a query", "parameters of W^Q", "parameters of W^O", "attention weights"],
        single=[
            {
                "the paper's 64, which belongs to 8 heads": 64,
                "d_model: a query of one head has its share of it": 512,
                "the number of heads": 16,
            },
            {
                "the W^Q of one head: all together have 16 times as many": 512 * 32,
                "16 matrices of d_model columns: a head has d_k": 16 * 512 * 512,
                "a matrix with a bias: there is none": 512 * 512 + 512,
                "the paper's d_k of 64": 512 * 64 * 16,
                "W^Q, W^K and W^V together": 3 * 512 * 512,
                "d_model: a matrix has rows and columns": 512,
                "all four matrices": 4 * 512 * 512,
                "a square of d_k: a query is made from all d_model numbers": 16 * 32 * 32,
            },
            {
                "the rows of W^O that one head meets": 512 * 32,
                "a matrix with a bias: there is none": 512 * 512 + 512,
                "a W^O for each head": 16 * 512 * 512,
                "all four matrices": 4 * 512 * 512,
                "W^Q, W^K and W^V together": 3 * 512 * 512,
                "d_model: a matrix has rows and columns": 512,
                "the paper's d_v of 64": 512 * 64 * 16,
            },
            {
                "the weights of one head": 100,
                "one number for each head and word: each word has a weight for each": 160,
                "weights for each of the d_model numbers: a head has one for each pair": 51200,
                "the weights of 8 heads": 800,
                "one head's scores of a causal mask": 55,
                "the numbers of all queries: a weight belongs to two words": 16 * 10 * 32,
                "pairs of heads: a weight belongs to two words": 256,
                "pairs of heads and a word: it is pairs of words": 16 * 16 * 10,
                "weights for queries, and again for keys: a pair has one": 3200,
                "scores for each pair once: a word's weight for another is not the other's": 720,
            },
        ],
        within=0,
    )


def check_mended_merge(mended_merge):
    """Check heads (H, T, K) merged to (T, H*K)."""
    for H, T, K in ((3, 5, 4), (4, 2, 3), (2, 2, 2)):
        heads = np.random.default_rng(H).standard_normal((H, T, K))
        layer = MultiHeadAttention(Config(11, d_model=H * K, n_heads=H), None)
        equal(
            f"{H} heads, T {T}, K {K}",
            mended_merge(heads.copy()),
            layer.merge_heads(Tensor(heads[None])).numpy()[0],
            {
                "the code of the exercise: a row has numbers of one head at several positions": (
                    heads.reshape(T, H * K)
                ),
                "the numbers of the heads by turns: H is to stand before K": (
                    heads.transpose(1, 2, 0).reshape(T, H * K)
                ),
                "the heads in the opposite order": np.concatenate(heads[::-1], axis=1),
                "the heads side by side, but not merged: an axis is left": heads.transpose(1, 0, 2),
                "the heads below one another: they are to stand side by side": np.concatenate(
                    heads
                ),
                "the heads added": heads.sum(axis=0),
                "positions and numbers exchanged": heads.transpose(2, 1, 0).reshape(K, T * H),
                "the transpose of what is right": np.concatenate(heads, axis=1).T,
                "numbers by turns, and positions below": heads.transpose(2, 0, 1).reshape(T, H * K),
                "a mean of the heads: all of their numbers stay": heads.mean(axis=0),
                "the first head alone": heads[0],
                "the last head alone": heads[-1],
                "T and K exchanged before the reshape: H and T are to change places": (
                    heads.transpose(0, 2, 1).reshape(T, H * K)
                ),
                "all axes in the opposite order before the reshape": heads.T.reshape(T, H * K),
                "a reshape to (H*K, T) and its transpose: no axis moved": (
                    heads.reshape(H * K, T).T
                ),
                "a row for each head, not for each position": (
                    heads.transpose(1, 0, 2).reshape(H, T * K)
                ),
                "a row for each position and head: the heads are to stand side by side": (
                    heads.transpose(1, 0, 2).reshape(T * H, K)
                ),
            },
        )


def check_prune(prune):
    """Check the matrices of a layer from which heads were removed, by what it computes."""
    for n_heads, kept, d_model, d_k, d_v in (
        (3, [0, 2], 12, 4, 5),
        (5, [3, 1], 10, 2, 3),
        (4, [2], 8, 3, 2),
    ):
        rng = np.random.default_rng(n_heads)
        config = Config(11, d_model=d_model, n_heads=n_heads, d_k=d_k, d_v=d_v)
        large = MultiHeadAttention(config, rng).astype(np.float64)
        matrices = [parameter.numpy().copy() for parameter in large.parameters()]
        names = ["W_q", "W_k", "W_v", "W_o"]
        name = f"{n_heads} heads, of which {kept} are kept"
        given = [matrix.copy() for matrix in matrices]
        found = parts_of(name, prune(*given, n_heads, list(kept)), names)
        found = [each.numpy() if isinstance(each, Tensor) else np.asarray(each) for each in found]
        lengths = [d_k, d_k, d_v, d_v]
        _check_shapes(name, names, found, matrices, n_heads, len(kept), lengths)
        # The order in which the kept heads stand is free: it has to be the same in all four.
        x = rng.standard_normal((2, 5, d_model))
        out = _attend(x, found, len(kept))
        expected = _attend(x, _heads(matrices, n_heads, [kept] * 4), len(kept))
        mistakes = _pruned_wrongly(x, matrices, n_heads, kept)
        equal(f"{name}: what the smaller layer computes", out, expected, mistakes)


def _check_shapes(name, names, found, matrices, n_heads, n_kept, lengths):
    """Assert that the matrices of a layer with fewer heads have their shapes.

    lengths: of what a head makes with each of them.
    """
    d_model = len(matrices[0])
    for i, one in enumerate(found):
        length = lengths[i]
        shape, looks_like = (
            (d_model, n_kept * length),
            {
                (d_model, (n_heads - n_kept) * length): "the heads that are to go",
                (d_model, n_kept * lengths[0]): "d_k, where d_v is the length",
                (d_model, n_kept): "one column for each head: a head has more",
                (d_model, n_heads * length - n_kept): (
                    "a matrix without as many columns as heads are kept: `kept` are numbers of "
                    "heads, and those that stay"
                ),
                (n_kept * length, d_model): "the transpose",
                (d_model * n_kept // n_heads, n_heads * length): (
                    f"rows of {names[i]}: a head has columns of it"
                ),
                (n_kept, d_model, length): "a list of the heads' parts: np.concatenate joins them",
                (d_model, n_kept, length): "a matrix for each head: a reshape joins them",
            },
        )
        if i == 3:
            shape = shape[::-1]
            looks_like = {key[::-1]: text for key, text in looks_like.items() if len(key) == 2}
            looks_like[n_kept, length, d_model] = (
                "a list of the heads' parts: np.concatenate joins them"
            )
            columns = (n_heads * length, n_kept * d_model // n_heads)
            looks_like[columns] = "columns of W_o: a head meets its rows"
        looks_like[matrices[i].shape] = "the matrix of all heads"
        text = f"{name}: {names[i]} has the shape {one.shape}, expected {shape}"
        if one.shape in looks_like:
            text += f": that looks like {looks_like[one.shape]}"
        assert one.shape == shape, text


def _pruned_wrongly(x, matrices, n_heads, kept):
    """Return {mistake: what a layer computes whose heads were removed in this way}."""
    first = list(range(len(kept)))
    last = list(range(n_heads - len(kept), n_heads))
    removed = [i for i in range(n_heads) if i not in kept]
    wrong = {
        "W_o keeps its first rows, whichever heads are kept": [kept, kept, kept, first],
        "the first heads, whichever are kept": [first] * 4,
        "the last heads, whichever are kept": [last] * 4,
        "W_o keeps its last rows, whichever heads are kept": [kept, kept, kept, last],
        "the heads 0 and 2, whichever are kept": [[0, 2]] * 4,
        "the heads that are to go: `kept` are those that stay": [removed] * 4,
        "heads counted from 1: they count from 0": [[i - 1 for i in kept]] * 4,
        "W_o with its heads in another order than the other matrices": [
            *[kept] * 3,
            sorted(kept),
        ],
        "W_o with its heads in the opposite order": [*[kept] * 3, kept[::-1]],
        "W_v with its heads in another order than the other matrices": [
            kept,
            kept,
            sorted(kept),
            kept,
        ],
        "W_k with its heads in another order than W_q": [kept, sorted(kept), kept, kept],
    }
    mistakes = {
        text: _attend(x, _heads(matrices, n_heads, heads), len(kept))
        for text, heads in wrong.items()
        if all(len(each) == len(kept) for each in heads)
    }
    by_turns = [
        np.concatenate([matrix[:, i::n_heads] for i in kept], axis=1) for matrix in matrices[:3]
    ]
    rows_by_turns = np.concatenate([matrices[3][i::n_heads] for i in kept])
    for text, W_o in (
        ("columns by turns: a head has columns side by side", rows_by_turns),
        (
            "columns by turns in W_q, W_k and W_v: a head has columns side by side",
            _heads(matrices, n_heads, [kept] * 4)[3],
        ),
    ):
        mistakes[text] = _attend(x, [*by_turns, W_o], len(kept))
    return mistakes


def _heads(matrices, n_heads, heads):
    """Return the matrices with these heads only, a list of heads for each."""
    parts = [
        np.concatenate([np.split(matrix, n_heads, axis=axis)[i] for i in kept], axis=axis)
        for matrix, kept, axis in zip(matrices, heads, [1, 1, 1, 0], strict=True)
    ]
    return parts


def _attend(x, matrices, n_heads):
    """Return self-attention of arrays x (..., T, D), head by head."""
    W_q, W_k, W_v = (np.split(matrix, n_heads, axis=1) for matrix in matrices[:3])
    found = [F.attention(x @ W_q[i], x @ W_k[i], x @ W_v[i]).numpy() for i in range(n_heads)]
    return np.concatenate(found, axis=-1) @ matrices[3]


def check_multi_query(multi_query):
    """Check attention whose heads share keys and values, and its gradient."""
    for n_heads, d_k, T, D in ((3, 4, 5, 12), (2, 3, 4, 7), (4, 2, 3, 5)):
        rng = np.random.default_rng(D)
        shapes = [(T, D), (D, n_heads * d_k), (D, d_k), (D, d_k), (n_heads * d_k, D)]
        arrays = [rng.standard_normal(shape) for shape in shapes]
        name = f"{n_heads} heads, K {d_k}, T {T}, D {D}"
        given = [Tensor(array.copy()) for array in arrays]
        try:
            found = multi_query(*given, n_heads)
        except (AnswerError, ValueError) as error:
            if f"@ cannot multiply shapes {(T, d_k)} and {shapes[-1]}" not in str(error):
                raise
            raise AssertionError(
                f"{name}: found one head ({T}, {d_k}) before W_o, expected all of them side by "
                "side: F.concatenate"
            ) from error
        assert isinstance(found, Tensor), (
            f"{name}: found {type(found).__name__}, expected a Tensor: without .data and numpy()"
        )
        x, W_q, W_k, W_v, W_o = arrays
        queries = np.split(x @ W_q, n_heads, axis=1)
        heads = [F.attention(each, x @ W_k, x @ W_v).numpy() for each in queries]
        right = np.concatenate(heads, axis=1) @ W_o
        equal(name, found, right, _several_queries(arrays, queries, heads))
        gy = rng.standard_normal(right.shape)
        inputs = [Tensor(array.copy()) for array in arrays]
        _by_heads(*inputs, n_heads).backward(gy)
        for x in given:
            x.grad = None
        found.backward(gy)
        for which, x, own in zip(("x", "W_q", "W_k", "W_v", "W_o"), given, inputs, strict=True):
            gradient_name = f"{name}, the gradient of {which}"
            assert x.grad is not None, f"{gradient_name}: found none: is all computed with Tensors?"
            try:
                equal(gradient_name, x.grad, Tensor(own.grad).numpy())
            except AssertionError as error:
                hint = "is all computed with Tensors, without .data?"
                raise AssertionError(f"{error}: {hint}") from error


def _by_heads(x, W_q, W_k, W_v, W_o, n_heads):
    """Return attention whose heads share keys and values, head by head."""
    size = W_k.shape[1]
    queries, keys, values = x @ W_q, x @ W_k, x @ W_v
    heads = [
        F.attention(queries[:, i * size : (i + 1) * size], keys, values) for i in range(n_heads)
    ]
    return F.concatenate(heads, axis=1) @ W_o


def _several_queries(arrays, queries, heads):
    """Return {mistake: what it gives} of heads that share keys and values."""
    x, W_q, W_k, W_v, W_o = arrays
    (T, D), H, K = x.shape, len(heads), W_k.shape[1]
    keys, values = x @ W_k, x @ W_v

    def merged(queries, scale=1.0, keys=keys, values=values, mask=None):
        parts = [F.attention(scale * each, keys, values, mask).numpy() for each in queries]
        return np.concatenate(parts, axis=1) @ W_o

    all_scores = [each @ keys.T / K**0.5 for each in queries]

    def weighted(weights):
        return np.concatenate([each @ values for each in weights], axis=1) @ W_o

    over_queries = [F.softmax(each.T).numpy().T for each in all_scores]
    right = np.concatenate(heads, axis=1) @ W_o
    return {
        "the first head alone": heads[0] @ W_o[:K],
        "the last head alone": heads[-1] @ W_o[-K:],
        "the last head for all": np.concatenate([heads[-1]] * H, axis=1) @ W_o,
        "the sum of the heads": np.concatenate([np.sum(heads, axis=0)] * H, axis=1) @ W_o,
        "scores in place of weights: the softmax is missing": weighted(all_scores),
        "a softmax over the queries: the weights of a query sum to 1": weighted(over_queries),
        "a softmax over the keys of each query, and the weights transposed": weighted(
            [F.softmax(each).numpy().T for each in all_scores]
        ),
        "x added: it is attention alone": x + right,
        "the heads added in place of set side by side": np.sum(heads, axis=0) @ W_o[:K],
        "heads that take the columns by turns: cut W_q into blocks": merged(
            [(x @ W_q)[:, i::H] for i in range(H)]
        ),
        "queries reshaped without a transpose: heads and positions are mixed": merged(
            list((x @ W_q).reshape(H, T, K))
        ),
        "scores that are not divided by the root of K": merged(queries, K**0.5),
        "scores divided by the root twice: F.attention does it": merged(queries, K**-0.5),
        "scores divided by the root of D": merged(queries, (K / D) ** 0.5),
        "scores divided by the root of H*K": merged(queries, H**-0.5),
        "scores divided by K in place of its root": merged(queries, K**-0.5),
        "a causal mask: nothing is forbidden here": merged(queries, mask=np.tri(T, dtype=bool)),
        "keys and values exchanged": merged(queries, keys=values, values=keys),
        "values made by W_k": merged(queries, values=keys),
        "keys made by W_v": merged(queries, keys=values),
        "heads merged without a transpose: a row has several positions": (
            np.concatenate(heads).reshape(T, H * K) @ W_o
        ),
        "heads merged by turns": np.stack(heads, axis=-1).reshape(T, H * K) @ W_o,
        "heads in the opposite order": np.concatenate(heads[::-1], axis=1) @ W_o,
        "the heads without W_o": np.concatenate(heads, axis=1),
        "the first head for all": np.concatenate([heads[0]] * H, axis=1) @ W_o,
        "the mean of the heads": np.concatenate([np.mean(heads, axis=0)] * H, axis=1) @ W_o,
    }
