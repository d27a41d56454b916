"""Mistakes in the library that lesson 03 must notice: {name: (correct text, wrong text)}."""

MUTANTS = {
    "heads taken apart in the wrong order": (
        "self.n_heads, size // self.n_heads).transpose(0, 2, 1, 3)",
        "size // self.n_heads, self.n_heads).transpose(0, 3, 1, 2)",
    ),
    "heads put together in the wrong order": (
        "return heads.transpose(0, 2, 1, 3).reshape(batch, length, n_heads * size)",
        "return heads.transpose(0, 2, 3, 1).reshape(batch, length, n_heads * size)",
    ),
    "queries from the keys' map": (
        "queries = attention.split_heads(attention.query(x))",
        "queries = attention.split_heads(attention.key(x))",
    ),
    "no map of what the heads found": (
        "return attention.output(attention.merge_heads(heads))  # (B, T, D)",
        "return attention.output(attention.merge_heads(heads) * 0.5)",
    ),
    "a mask that the heads ignore": (
        "return F.attention(queries, keys, values, mask, self.rate if self.training else 0.0)",
        "return F.attention(queries, keys, values, None, self.rate if self.training else 0.0)",
    ),
    "random numbers of twice the variance": (
        "limit = (6 / (n_in + n_out)) ** 0.5",
        "limit = (12 / (n_in + n_out)) ** 0.5",
    ),
    "biases that do not begin at 0": (
        "self.bias = Parameter(np.zeros(n_out, dtype=np.float32)) if bias else None",
        "self.bias = Parameter(np.ones(n_out, dtype=np.float32))",
    ),
    "a d_k that ignores the number of heads": (
        "self.d_k or self.d_model // self.n_heads",
        "self.d_k or self.d_model // 2",
    ),
    "a linear map without its bias": (
        "y = x_data @ w if b is None else x_data @ w + b  # (..., F)",
        "y = x_data @ w",
    ),
    "a bias whose gradient is a mean": (
        "return gy @ w.T, g_weight, sum_rows(gy)  # without a bias, the last is ignored",
        "return gy @ w.T, g_weight, sum_rows(gy) / 10",
    ),
    "a concatenation in the wrong order": (
        "y = xp.concatenate(arrays, axis=axis)",
        "y = xp.concatenate(arrays[::-1], axis=axis)",
    ),
    "a shared parameter that is listed twice": (
        "seen[id(value)] = name, value",
        "seen[name] = name, value",
    ),
}
