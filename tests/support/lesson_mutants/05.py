"""Mistakes in the code that lesson 05 teaches: {mistake: (correct text, wrong text)}.

Each correct text occurs once in the package. The lesson must notice each mistake.
"""

MUTANTS = {
    "a gradient of the last row that was looked up": (
        "xp.add.at(g_table, ids, gy)",
        "g_table[ids] = gy",
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
        "rng.normal(0, d_model**-0.5, (n, d_model))",
        "rng.normal(0, 1, (n, d_model))",
    ),
    "another base of the sinusoids": (
        "/ 10000**exponents",
        "/ 1000**exponents",
    ),
    "exponents by integer division": (
        "2 * i / d_model if base",
        "2 * i // d_model if base",
    ),
    "tensor2tensor's exponents for the paper's": (
        'i / d_model if base == "paper" else',
        'i / d_model if base != "paper" else',
    ),
    "cosines before sines": (
        "np.stack([sines, cosines], axis=2)",
        "np.stack([cosines, sines], axis=2)",
    ),
    "a layout that is ignored": ('if layout == "halves":', 'if layout == "other":'),
    "positions in place of the embeddings, not added": (
        "return self.dropout(x + vectors)",
        "return self.dropout(vectors + 0 * x)",
    ),
    "learned positions without sqrt(d_model)": (
        "self.learned(np.arange(start, end)) * c.d_model**0.5",
        "self.learned(np.arange(start, end))",
    ),
}
