"""The work of every contender: the sizes, and the same random numbers for each.

It imports nothing but NumPy.
"""

from pathlib import Path

import numpy as np

PAD, BOS, EOS, FIRST = 0, 2, 3, 4  # ids of minitf; words begin at FIRST
SMOOTHING, BETAS, ADAM_EPS, NORM_EPS = 0.1, (0.9, 0.98), 1e-9, 1e-6
RATE = 1e-5  # small, so that the model of the last step is much like that of the first
BANNED = (PAD, BOS)  # never written by any decoder
SPECIAL = ["<blank>", "<unk>", "<s>", "</s>"]  # their names at other programs
INPUT = "input.txt"  # lines to translate, in the folder of a task


def batch(task):
    """Return the ids of one batch: source (B, S), target_in (B, T), target_out (B, T).

    All sentences have task["length"] tokens; with task["padded"], between half of that and all of
    it, filled up with PAD.
    """
    rng = np.random.default_rng(1)
    pairs, length, size = task["pairs"], task["length"], task["model"]["vocabulary_size"]
    source, words = (rng.integers(FIRST, size, (pairs, length)).astype(np.int32) for _ in range(2))
    target_in = np.concatenate([np.full((pairs, 1), BOS, np.int32), words[:, :-1]], axis=1)
    shortest = max(1, length // 2) if task.get("padded") else length
    for side in ((source,), (words, target_in)):
        ends = rng.integers(shortest, length + 1, pairs)
        side[0][np.arange(pairs), ends - 1] = EOS
        for array in side:
            array[np.arange(length) >= ends[:, None]] = PAD
    return source, target_in, words


def words(size):
    """Return a name for each id, for programs that read words."""
    return [*SPECIAL, *map(str, range(FIRST, size))]


def sentences(task):
    """Return the source ids of a decoding task: (B, S), without padding."""
    rng = np.random.default_rng(3)
    return rng.integers(
        FIRST, task["model"]["vocabulary_size"], (task["pairs"], task["source"])
    ).astype(np.int32)


def translating(task, translate):
    """Return a function that translates the lines of a task, all together or one after another."""
    lines = Path(task["folder"], INPUT).read_text(encoding="utf-8").splitlines()
    if not task["alone"]:
        return lambda: translate(lines)
    return lambda: [translate([line])[0] for line in lines]


def weights(arrays, decoding=False):
    """Change drawn weights so that a comparison sees all of them, and decoding ends on time.

    Gains and biases are drawn, because ones and zeros hide mistakes. Marian begins a text with a
    vector of zeros, so the start mark's is zero. For decoding, the rows of the
    special ids are zero: their logit is 0, and the largest of some thousand others is far above it,
    so every contender writes exactly as many tokens as it may. An untrained model writes one token
    for ever, unless the last token counts more than the source (hence smaller sub-layers) and does
    not lead to itself (hence the signs).
    """
    rng = np.random.default_rng(4)
    arrays = dict(arrays)
    for name, array in arrays.items():
        if array.ndim == 1:
            mean = 1 if name.endswith("gain") else 0
            arrays[name] = (mean + 0.05 * rng.standard_normal(array.shape)).astype(array.dtype)
    arrays["embedding.weight"][BOS] = 0
    if decoding:
        last = [name for name in arrays if name.endswith("gain")][-1]
        arrays[last] *= rng.choice([-1, 1], arrays[last].shape).astype(arrays[last].dtype)
        for name, array in arrays.items():
            if name.startswith("decoder.") and name.endswith(("output.weight", "outer.weight")):
                array *= array.dtype.type(0.25)
            if name.endswith("embedding.weight"):
                array[[PAD, BOS, EOS]] = 0
    return arrays


def sinusoid(length, d_model, dtype="float32"):
    """Return the sinusoids of section 3.5.

    They are written once more here: contenders must not share the code that is compared.
    """
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    table = np.empty((length, d_model))
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
    return table.astype(dtype)
