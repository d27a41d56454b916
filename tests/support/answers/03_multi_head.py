"""Answers to the exercises of lesson 03, and wrong ones that must not pass."""

import numpy as np

from minitf import functions as F


def predicted_sizes():
    return [32, 512 * 512, 512 * 512, 16 * 10 * 10]


def wrong_predicted_sizes():
    return [32, 512 * 32, 512 * 512, 16 * 10 * 10]  # W^Q of one head


def mended_merge(heads):
    return heads.transpose(1, 0, 2).reshape(heads.shape[1], -1)


def wrong_mended_merge(heads):
    # The numbers of the heads are mixed: K before H.
    return heads.transpose(1, 2, 0).reshape(heads.shape[1], -1)


def _columns(W, n_heads, kept):
    return np.concatenate([np.split(W, n_heads, axis=1)[i] for i in kept], axis=1)


def prune(W_q, W_k, W_v, W_o, n_heads, kept):
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, _columns(W_o.T, n_heads, kept).T


def wrong_prune(W_q, W_k, W_v, W_o, n_heads, kept):
    # The first rows of W_o, whichever heads are kept.
    W_q, W_k, W_v = (_columns(W, n_heads, kept) for W in (W_q, W_k, W_v))
    return W_q, W_k, W_v, W_o[: W_v.shape[1]]


def multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    queries = (x @ W_q).reshape(len(x), n_heads, -1).transpose(1, 0, 2)  # (H, T, K)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)]) @ W_o


def wrong_multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    # Each head takes every third column.
    queries = (x @ W_q).reshape(len(x), -1, n_heads).transpose(2, 0, 1)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)]) @ W_o
