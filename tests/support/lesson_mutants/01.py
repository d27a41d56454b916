"""Mistakes in the code that lesson 01 teaches: {mistake: (correct text, wrong text)}.

Each correct text occurs once in the package. The lesson must notice each mistake.
"""

ATTENTION = "swap(k) * scale, mask)  # (..., T, S)\n    keep"
WEIGHTS = "swap(k) * scale, mask)  # (..., T, S)\n\n    def"
SCALE_OF_ATTENTION = """query, key, value, mask)
    scale = 1 / math.sqrt(q.shape[-1])
    weights"""
SCALE_OF_WEIGHTS = """query, key, key, mask)
    scale = 1 / math.sqrt(q.shape[-1])
    weights"""

MUTANTS = {
    "a causal mask shifted by one": (
        "np.tri(length, dtype=bool)",
        "np.tri(length, k=1, dtype=bool)",
    ),
    "a causal mask without the axes of batch and heads": (
        "dtype=bool)[None, None]",
        "dtype=bool)",
    ),
    # One that shows padding only leaves the translator nothing: it refuses before any claim.
    "a padding mask that shows padding, too": (
        '(batch_of_ids(ids, "ids", "(B, S)") != pad_id)',
        '(batch_of_ids(ids, "ids", "(B, S)") >= pad_id)',
    ),
    "padding with another id": ("ids: Ids, pad_id: int = 0)", "ids: Ids, pad_id: int = 1)"),
    "attention without the division by sqrt(d_k)": (
        ATTENTION,
        ATTENTION.replace(" * scale", ""),
    ),
    "attention weights without the division by sqrt(d_k)": (
        WEIGHTS,
        WEIGHTS.replace(" * scale", ""),
    ),
    "attention divided by d_k": (
        SCALE_OF_ATTENTION,
        SCALE_OF_ATTENTION.replace("math.sqrt(q.shape[-1])", "q.shape[-1]"),
    ),
    "attention weights divided by d_k": (
        SCALE_OF_WEIGHTS,
        SCALE_OF_WEIGHTS.replace("math.sqrt(q.shape[-1])", "q.shape[-1]"),
    ),
    "an average of all sentences' values": (
        "record(used @ v, (query",
        "record(used @ (v if v.ndim == 2 else v + v.mean(axis=0)), (query",
    ),
    "a forbidden key with the score 0": (
        "xp.where(mask, scores, -xp.inf)",
        "xp.where(mask, scores, 0)",
    ),
    "NaN for a query that may attend to nothing": (
        "xp.where(empty, 1, e.sum(axis=-1, keepdims=True))",
        "e.sum(axis=-1, keepdims=True)",
    ),
    "equal weights for a query that may attend to nothing": (
        "scores - xp.where(empty, 0, largest)",
        "xp.where(empty, 0, scores - xp.where(empty, 0, largest))",
    ),
    "a softmax that overflows": (
        "e = xp.exp(_shifted(as_array(x), axis))",
        "e = xp.exp(as_array(x))",
    ),
    "a softmax over all axes": (
        "y = e / e.sum(axis=axis, keepdims=True)",
        "y = e / e.sum()",
    ),
    "a softmax that subtracts the largest score of another axis": (
        "return x - x.max(axis=axis, keepdims=True) if",
        "return x - x.max(axis=0, keepdims=True) if",
    ),
}
