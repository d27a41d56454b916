"""Mistakes in the code that lesson 05 teaches: {mistake: (correct text, wrong text)}.

Each correct text occurs once in the package. The lesson must notice each mistake.
"""

MUTANTS = {
    "a gradient of the last row that was looked up": (
        "xp.add.at(g_table, ids, gy)",
        "g_table[ids] = gy",
    ),
    "gradients of equal ids that are not added up": (
        "xp.add.at(g_table, ids, gy)",
        "g_table[ids] += gy",
    ),
    "a gradient for all rows": (
        "xp.add.at(g_table, ids, gy)",
        "g_table += gy.reshape(-1, gy.shape[-1]).sum(axis=0)",
    ),
    "the row after the one that was asked for": (
        "    return to_device(ids)\n\n\ndef integers",
        "    return to_device((ids + 1) % len(table))\n\n\ndef integers",
    ),
    "an id of -1 that reads the last row": (
        "if ids.size and not (ids.min() >= 0 and ids.max() < len(table)):",
        "if ids.size and not (ids.max() < len(table)):",
    ),
    "rows of the table with variance 1": (
        "(rng).normal(0, d_model**-0.5, (n, d_model))",
        "(rng).normal(0, 1, (n, d_model))",
    ),
    "rows of the table with variance 1/d_model^2": (
        "(rng).normal(0, d_model**-0.5, (n, d_model))",
        "(rng).normal(0, 1 / d_model, (n, d_model))",
    ),
    "the gradient of the last use in place of the sum of all": (
        "            self.grad += gradient\n\n    # Operators",
        "            self.grad = gradient\n\n    # Operators",
    ),
    "padding that is read": ("xp.where(mask, scores, -xp.inf)", "xp.where(mask, scores, -1.0)"),
    "another base of the sinusoids": (
        "/ 10000**exponents",
        "/ 1000**exponents",
    ),
    "exponents by integer division": (
        "2 * i / d_model if base",
        "2 * i // d_model if base",
    ),
    "exponents without the factor 2": (
        "2 * i / d_model if base",
        "i / d_model if base",
    ),
    "tensor2tensor's exponents for the paper's": (
        'i / d_model if base == "paper" else',
        'i / d_model if base != "paper" else',
    ),
    "tensor2tensor's exponents without the minus 1": (
        "i / max(1, half - 1)",
        "i / max(1, half)",
    ),
    "cosines before sines": (
        "np.stack([sines, cosines], axis=2)",
        "np.stack([cosines, sines], axis=2)",
    ),
    "sines and cosines in halves": (
        "np.stack([sines, cosines], axis=2)",
        "np.stack([sines, cosines], axis=1)",
    ),
    "cosines before sines in the layout of halves": (
        "np.concatenate([sines, cosines], axis=1)",
        "np.concatenate([cosines, sines], axis=1)",
    ),
    "a layout that is ignored": ('if layout == "halves":', 'if layout == "other":'),
    "a position table off by one": ("np.arange(length)[", "np.arange(1, length + 1)["),
    "positions read one row too late": (
        "_sinusoids_up_to(end, c, x.dtype)[start:]",
        "_sinusoids_up_to(end + 1, c, x.dtype)[start + 1 :]",
    ),
    "positions that begin again at each step of decoding": (
        "_sinusoids_up_to(end, c, x.dtype)[start:]",
        "_sinusoids_up_to(end - start, c, x.dtype)",
    ),
    "positions in place of the embeddings, not added": (
        "return self.dropout(x + vectors)",
        "return self.dropout(vectors + 0 * x)",
    ),
    "positions that are subtracted": (
        "return self.dropout(x + vectors)",
        "return self.dropout(x - vectors)",
    ),
    "learned positions without sqrt(d_model)": (
        "self.learned(np.arange(start, end)) * c.d_model**0.5",
        "self.learned(np.arange(start, end))",
    ),
    "learned positions that begin again at each step of decoding": (
        "self.learned(np.arange(start, end))",
        "self.learned(np.arange(end - start))",
    ),
    "learned positions that end one too early": (
        "if end > c.max_length:",
        "if end >= c.max_length:",
    ),
}
