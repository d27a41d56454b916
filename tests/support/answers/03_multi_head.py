"""Answers to the exercises of lesson 03: right ones, and wrong ones that must not pass.

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


def wrong_predicted_sizes():
    """parameters of W^Q, at 1, is not 16384: that looks like the W^Q of one head"""
    return [32, 512 * 32, 512 * 512, 16 * 10 * 10]


def wrong_predicted_sizes_2():
    """the paper's 64, which belongs to 8 heads"""
    return [64, 512 * 512, 512 * 512, 1600]


def wrong_predicted_sizes_3():
    """the weights of one head"""
    return [32, 512 * 512, 512 * 512, 100]


def wrong_predicted_sizes_4():
    """each word has a weight for each"""
    return [32, 512 * 512, 512 * 512, 160]


def wrong_predicted_sizes_5():
    """a matrix with a bias"""
    return [32, 512 * 512 + 512, 512 * 512 + 512, 1600]


def wrong_predicted_sizes_6():
    """found 3 numbers, expected 4, one for each of: the length of a query"""
    return [32, 512 * 512, 1600]


def wrong_predicted_sizes_7():
    """the rows of W^O that one head meets"""
    return [32, 512 * 512, 512 * 32, 1600]


def wrong_predicted_sizes_8():
    """the numbers of all queries"""
    return [32, 512 * 512, 512 * 512, 16 * 10 * 32]


def wrong_predicted_sizes_9():
    """d_model: a matrix has rows and columns"""
    return [32, 512, 512, 1600]


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


def right_mended_merge_6(heads):
    return np.hstack(list(heads))


def wrong_mended_merge(heads):
    """the numbers of the heads by turns"""
    return heads.transpose(1, 2, 0).reshape(heads.shape[1], -1)


def wrong_mended_merge_2(heads):
    """a row has numbers of one head at several positions"""
    H, T, K = heads.shape
    return heads.reshape(T, H * K)


def wrong_mended_merge_3(heads):
    """ValueError"""
    return heads.transpose(1, 0, 2).reshape(5, 12)


def wrong_mended_merge_4(heads):
    """an axis is left"""
    return heads.transpose(1, 0, 2)


def wrong_mended_merge_5(heads):
    """the heads below one another"""
    return heads.reshape(-1, heads.shape[-1])


def wrong_mended_merge_6(heads):
    """the heads in the opposite order"""
    return heads[::-1].transpose(1, 0, 2).reshape(heads.shape[1], -1)


def wrong_mended_merge_7(heads):
    """the heads added"""
    return heads.sum(axis=0)


def wrong_mended_merge_8(heads):
    """a row for each head, not for each position"""
    return heads.transpose(1, 0, 2).reshape(len(heads), -1)


def wrong_mended_merge_9(heads):
    """a row for each position and head"""
    return heads.transpose(1, 0, 2).reshape(-1, heads.shape[-1])


def wrong_mended_merge_10(heads):
    """T and K exchanged before the reshape"""
    return heads.transpose(0, 2, 1).reshape(heads.shape[1], -1)


def wrong_mended_merge_11(heads):
    """no axis moved"""
    H, T, K = heads.shape
    return heads.reshape(H * K, T).T


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


def right_prune_5(W_q, W_k, W_v, W_o, n_heads, kept):
    D, kept = len(W_q), sorted(kept)
    smaller = [W.reshape(D, n_heads, -1)[:, kept].reshape(D, -1) for W in (W_q, W_k, W_v)]
    return *smaller, W_o.reshape(n_heads, -1, D)[kept].reshape(-1, D)


def wrong_prune(W_q, W_k, W_v, W_o, n_heads, kept):
    """W_o keeps its first rows, whichever heads are kept"""
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, W_o[: W_v.shape[1]]


def wrong_prune_2(W_q, W_k, W_v, W_o, n_heads, kept):
    """that looks like d_k, where d_v is the length"""
    d_k = W_q.shape[1] // n_heads
    columns = [i * d_k + j for i in kept for j in range(d_k)]
    return W_q[:, columns], W_k[:, columns], W_v[:, columns], W_o[columns]


def wrong_prune_3(W_q, W_k, W_v, W_o, n_heads, kept):
    """5 heads, of which [3, 1] are kept: what the smaller layer computes: found"""
    return prune(W_q, W_k, W_v, W_o, n_heads, [0, 2])


def wrong_prune_4(W_q, W_k, W_v, W_o, n_heads, kept):
    """the heads that are to go"""
    return prune(W_q, W_k, W_v, W_o, n_heads, [i for i in range(n_heads) if i not in kept])


def wrong_prune_5(W_q, W_k, W_v, W_o, n_heads, kept):
    """a head has columns side by side"""
    W_q, W_k, W_v = (
        np.concatenate([W[:, i::n_heads] for i in kept], axis=1) for W in (W_q, W_k, W_v)
    )
    return W_q, W_k, W_v, np.concatenate([W_o[i::n_heads] for i in kept])


def wrong_prune_6(W_q, W_k, W_v, W_o, n_heads, kept):
    """that looks like the matrix of all heads"""
    d_v = W_v.shape[1] // n_heads
    for i in range(n_heads):
        if i not in kept:
            W_o[i * d_v : (i + 1) * d_v] = 0
    return W_q, W_k, W_v, W_o


def wrong_prune_7(W_q, W_k, W_v, W_o, n_heads, kept):
    """W_o has the shape (15, 8), expected (10, 12): that looks like columns of W_o"""
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, _columns(W_o, n_heads, kept)


def wrong_prune_8(W_q, W_k, W_v, W_o, n_heads, kept):
    """W_o with its heads in another order than the other matrices"""
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, _columns(W_o.T, n_heads, sorted(kept)).T


def wrong_prune_9(W_q, W_k, W_v, W_o, n_heads, kept):
    """found 3 parts, expected 4: (W_q, W_k, W_v, W_o)"""
    return [_columns(W, n_heads, kept) for W in (W_q, W_k, W_v)]


def wrong_prune_10(W_q, W_k, W_v, W_o, n_heads, kept):
    """the first heads, whichever are kept"""
    return prune(W_q, W_k, W_v, W_o, n_heads, range(len(kept)))


def wrong_prune_11(W_q, W_k, W_v, W_o, n_heads, kept):
    """W_o has the shape (15, 12), expected (10, 12): that looks like the matrix of all heads"""
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, W_o


def wrong_prune_12(W_q, W_k, W_v, W_o, n_heads, kept):
    """rows of W_q: a head has columns of it"""
    W_q, W_k, W_v = (_columns(W.T, n_heads, kept).T for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, _columns(W_o.T, n_heads, kept).T


def wrong_prune_13(W_q, W_k, W_v, W_o, n_heads, kept):
    """`kept` are numbers of heads, and those that stay"""
    return *(np.delete(W, kept, axis=1) for W in (W_q, W_k, W_v)), np.delete(W_o, kept, axis=0)


def wrong_prune_14(W_q, W_k, W_v, W_o, n_heads, kept):
    """that looks like the transpose"""
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, _columns(W_o.T, n_heads, kept)


def wrong_prune_15(W_q, W_k, W_v, W_o, n_heads, kept):
    """that looks like 1.5 times what is right"""
    found = prune(W_q, W_k, W_v, W_o, n_heads, kept)
    return *found[:3], found[3] * n_heads / len(kept)


def wrong_prune_16(W_q, W_k, W_v, W_o, n_heads, kept):
    """np.concatenate joins them"""
    W_q, W_k, W_v = ([np.split(W, n_heads, axis=1)[i] for i in kept] for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, [np.split(W_o, n_heads)[i] for i in kept]


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


def right_multi_query_5(x, W_q, W_k, W_v, W_o, n_heads):
    K, out = W_k.shape[1], 0.0
    for i in range(n_heads):
        own = slice(i * K, (i + 1) * K)
        out = out + F.attention(x @ W_q[:, own], x @ W_k, x @ W_v) @ W_o[own]
    return out


def wrong_multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    """heads that take the columns by turns"""
    queries = (x @ W_q).reshape(len(x), -1, n_heads).transpose(2, 0, 1)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)]) @ W_o


def wrong_multi_query_2(x, W_q, W_k, W_v, W_o, n_heads):
    """heads and positions are mixed"""
    queries = (x @ W_q).reshape(n_heads, len(x), -1)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)]) @ W_o


def wrong_multi_query_3(x, W_q, W_k, W_v, W_o, n_heads):
    """scores that are not divided by the root of K"""
    K, heads = W_k.shape[1], []
    for i in range(n_heads):
        scores = (x @ W_q[:, i * K : (i + 1) * K]) @ (x @ W_k).transpose(1, 0)
        heads.append(F.softmax(scores) @ (x @ W_v))
    return F.concatenate(heads) @ W_o


def wrong_multi_query_4(x, W_q, W_k, W_v, W_o, n_heads):
    """the heads without W_o"""
    queries = (x @ W_q).reshape(len(x), n_heads, -1).transpose(1, 0, 2)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)])


def wrong_multi_query_5(x, W_q, W_k, W_v, W_o, n_heads):
    """is all computed with Tensors, without .data?"""
    queries = (x @ W_q).reshape(len(x), n_heads, -1).transpose(1, 0, 2)
    keys = (x @ W_k).data
    return F.concatenate([F.attention(queries[i], keys, x @ W_v) for i in range(n_heads)]) @ W_o


def wrong_multi_query_6(x, W_q, W_k, W_v, W_o, n_heads):
    """a row has several positions"""
    T, K = x.shape[0], W_k.shape[-1]
    q = (x @ W_q).reshape(T, n_heads, K).transpose(1, 0, 2)
    return F.attention(q, x @ W_k, x @ W_v).reshape(T, n_heads * K) @ W_o


def wrong_multi_query_7(x, W_q, W_k, W_v, W_o, n_heads):
    """values made by W_k"""
    queries = (x @ W_q).reshape(len(x), n_heads, -1).transpose(1, 0, 2)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_k) for i in range(n_heads)]) @ W_o


def wrong_multi_query_8(x, W_q, W_k, W_v, W_o, n_heads):
    """scores divided by the root of D"""
    K, heads = W_k.shape[1], []
    for i in range(n_heads):
        scores = (x @ W_q[:, i * K : (i + 1) * K]) @ (x @ W_k).transpose(1, 0)
        heads.append(F.softmax(scores / x.shape[1] ** 0.5) @ (x @ W_v))
    return F.concatenate(heads) @ W_o


def wrong_multi_query_9(x, W_q, W_k, W_v, W_o, n_heads):
    """that looks like the first head alone"""
    K = W_k.shape[1]
    return F.attention(x @ W_q[:, :K], x @ W_k, x @ W_v) @ W_o[:K]


def wrong_multi_query_10(x, W_q, W_k, W_v, W_o, n_heads):
    """found one head (5, 4) before W_o, expected all of them side by side"""
    K = W_k.shape[1]
    return F.attention(x @ W_q[:, :K], x @ W_k, x @ W_v) @ W_o


def wrong_multi_query_11(x, W_q, W_k, W_v, W_o, n_heads):
    """the heads added in place of set side by side"""
    K = W_k.shape[1]
    heads = (F.attention(x @ W_q[:, i * K : (i + 1) * K], x @ W_k, x @ W_v) for i in range(n_heads))
    return sum(heads, 0.0) @ W_o[:K]


def wrong_multi_query_12(x, W_q, W_k, W_v, W_o, n_heads):
    """the softmax is missing"""
    K, heads = W_k.shape[1], []
    for i in range(n_heads):
        scores = x @ W_q[:, i * K : (i + 1) * K] @ (x @ W_k).transpose(1, 0) * K**-0.5
        heads.append(scores @ (x @ W_v))
    return F.concatenate(heads) @ W_o


def wrong_multi_query_13(x, W_q, W_k, W_v, W_o, n_heads):
    """without .data and numpy()"""
    return multi_query(x, W_q, W_k, W_v, W_o, n_heads).numpy()
