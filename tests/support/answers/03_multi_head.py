"""Answers to the exercises of lesson 03: right ones, and wrong ones beyond those of the checks.

The docstring of a wrong answer is a piece of the message that refuses it.
"""

import numpy as np

from minitf import functions as F

# predicted_sizes ----------------------------------------------------------------------------------


def predicted_sizes():
    return [32, 512 * 512, 512 * 512, 16 * 10 * 10]


def right_predicted_sizes_2():
    return 32.0, 262144, 512.0**2, 1600


def right_predicted_sizes_3():
    return np.array([512 / 16, 16 * 512 * 32, 16 * 32 * 512, 16 * 10**2])


# mended_merge -------------------------------------------------------------------------------------


def mended_merge(heads):
    return heads.transpose(1, 0, 2).reshape(heads.shape[1], -1)


def right_mended_merge_2(heads):
    return np.concatenate(list(heads), axis=-1)


def right_mended_merge_3(heads):
    H, T, K = heads.shape
    merged = np.empty((T, H * K), dtype=np.float32)
    for h in range(H):
        merged[:, h * K : (h + 1) * K] = heads[h]
    return merged


def right_mended_merge_4(heads):
    return np.einsum("htk->thk", heads).reshape(heads.shape[1], heads.shape[0] * heads.shape[2])


def right_mended_merge_5(heads):
    return [[number for head in heads for number in head[t]] for t in range(heads.shape[1])]


def wrong_mended_merge_12(heads):
    """that looks like the right numbers in another shape"""
    return np.hstack(list(heads)).ravel()


# prune --------------------------------------------------------------------------------------------


def _columns(W, n_heads, kept):
    return np.concatenate([np.split(W, n_heads, axis=1)[i] for i in kept], axis=1)


def prune(W_q, W_k, W_v, W_o, n_heads, kept):
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, _columns(W_o.T, n_heads, kept).T


def right_prune_2(W_q, W_k, W_v, W_o, n_heads, kept):
    D, d_k, d_v = len(W_q), W_q.shape[1] // n_heads, W_v.shape[1] // n_heads
    found = [W_q.reshape(D, n_heads, d_k), W_k.reshape(D, n_heads, d_k)]
    found = [W[:, kept].reshape(D, -1) for W in (*found, W_v.reshape(D, n_heads, d_v))]
    return [*found, W_o.reshape(n_heads, d_v, D)[kept].reshape(-1, D)]


def right_prune_3(W_q, W_k, W_v, W_o, n_heads, kept):
    keep = np.isin(np.arange(n_heads), kept)  # in the order of the layer
    of_keys = np.repeat(keep, W_q.shape[-1] // n_heads)
    of_values = np.repeat(keep, W_v.shape[-1] // n_heads)
    return W_q[:, of_keys], W_k[:, of_keys], W_v[:, of_values], W_o[of_values, :]


def right_prune_4(W_q, W_k, W_v, W_o, n_heads, kept):
    gone = [i for i in range(n_heads) if i not in kept]

    def without(W, axis):
        size = W.shape[axis] // n_heads
        places = [i * size + j for i in gone for j in range(size)]
        return np.delete(W, places, axis=axis).astype(np.float32)

    return without(W_q, 1), without(W_k, -1), without(W_v, 1), without(W_o, 0)


def wrong_prune_2(W_q, W_k, W_v, W_o, n_heads, kept):
    """3 heads, of which [0, 2] are kept: the shape of W_v: found"""  # d_k, where d_v is the length
    d_k = W_q.shape[1] // n_heads
    columns = [i * d_k + j for i in kept for j in range(d_k)]
    return W_q[:, columns], W_k[:, columns], W_v[:, columns], W_o[columns]


def wrong_prune_3(W_q, W_k, W_v, W_o, n_heads, kept):
    """5 heads, of which [3, 1] are kept: what the smaller layer computes: found"""
    return prune(W_q, W_k, W_v, W_o, n_heads, [0, 2])


def wrong_prune_9(W_q, W_k, W_v, W_o, n_heads, kept):
    """found 3 parts, expected 4: (W_q, W_k, W_v, W_o)"""
    return [_columns(W, n_heads, kept) for W in (W_q, W_k, W_v)]


def wrong_prune_15(W_q, W_k, W_v, W_o, n_heads, kept):
    """that looks like 1.5 times what is right"""
    found = prune(W_q, W_k, W_v, W_o, n_heads, kept)
    return *found[:3], found[3] * n_heads / len(kept)


# multi_query --------------------------------------------------------------------------------------


def multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    queries = (x @ W_q).reshape(len(x), n_heads, -1).transpose(1, 0, 2)  # (H, T, K)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)]) @ W_o


def right_multi_query_2(x, W_q, W_k, W_v, W_o, n_heads):
    K = W_k.shape[1]
    keys, values = x @ W_k, x @ W_v
    heads = []
    for i in range(n_heads):
        scores = (x @ W_q[:, i * K : (i + 1) * K]) @ keys.transpose(1, 0) / K**0.5
        heads.append(F.softmax(scores) @ values)
    return F.concatenate(heads, axis=-1) @ W_o


def right_multi_query_3(x, W_q, W_k, W_v, W_o, n_heads):
    T, K = x.shape[0], W_k.shape[-1]
    q = (x @ W_q).reshape(T, n_heads, K).transpose(1, 0, 2)
    heads = F.attention(q, (x @ W_k).reshape(1, T, K), (x @ W_v).reshape(1, T, K))
    return heads.transpose(1, 0, 2).reshape(T, n_heads * K) @ W_o


def right_multi_query_4(x, W_q, W_k, W_v, W_o, n_heads):
    K, out = W_k.shape[1], 0.0
    for i in range(n_heads):  # W_o by rows, in place of the concatenation
        part = slice(i * K, (i + 1) * K)
        out = out + F.attention(x @ W_q[:, part], x @ W_k, x @ W_v) @ W_o[part]
    return out


def wrong_multi_query_5(x, W_q, W_k, W_v, W_o, n_heads):
    """no gradient arrives: is the Tensor among the inputs"""
    queries = (x @ W_q).reshape(len(x), n_heads, -1).transpose(1, 0, 2)
    keys = (x @ W_k).data
    return F.concatenate([F.attention(queries[i], keys, x @ W_v) for i in range(n_heads)]) @ W_o


def wrong_multi_query_13(x, W_q, W_k, W_v, W_o, n_heads):
    """found ndarray, expected a Tensor"""
    return multi_query(x, W_q, W_k, W_v, W_o, n_heads).numpy()
