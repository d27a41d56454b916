"""Answers to the exercises of lesson 03, and wrong ones that must not pass."""

from minitf import functions as F


def merge_heads(heads):
    batch, _, length, _ = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def wrong_merge_heads(heads):
    batch, _, length, _ = heads.shape
    return heads.reshape(batch, length, -1)  # without the transpose: positions and heads are mixed


def multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    queries = (x @ W_q).reshape(len(x), n_heads, -1).transpose(1, 0, 2)  # (H, T, K)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)]) @ W_o


def wrong_multi_query(x, W_q, W_k, W_v, W_o, n_heads):
    # Each head takes every third column.
    queries = (x @ W_q).reshape(len(x), -1, n_heads).transpose(2, 0, 1)
    return F.concatenate([F.attention(queries[i], x @ W_k, x @ W_v) for i in range(n_heads)]) @ W_o
