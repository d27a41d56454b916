"""Rotary positions (Su et al. 2021) in place of the sinusoids, trained to write digits backwards.

An example of how to change attention: `attend` receives the positions of queries and keys, so the
change works in training, in greedy decoding and in beam search, where the keys come from a cache.
"""

import numpy as np

from minitf import Config, Transformer, forms
from minitf.backend import to_device
from minitf.decode import Decoding, beam_search, greedy
from minitf.optim import Adam
from minitf.text import make_batch
from minitf.transformer import MultiHeadAttention, Positions


def rotate(x, positions):
    """Turn the features i and i + K/2 of x (B, H, T, K) by the angle position / 10000^(2i/K)."""
    half = x.shape[-1] // 2
    angles = positions[:, None, :, None] / 10000 ** (np.arange(half) / half)  # (B, 1, T, K/2)
    angles = np.concatenate([angles, angles], axis=-1)  # (B, 1, T, K)
    # Turns by 90 degrees.
    quarter = np.roll(np.eye(2 * half), half, axis=1) * np.repeat([1, -1], half)[:, None]
    cos, sin, quarter = (
        to_device(array, x.dtype) for array in (np.cos(angles), np.sin(angles), quarter)
    )
    return x * cos + x @ quarter * sin


class RotaryAttention(MultiHeadAttention):
    """Attention whose scores depend on the distance of a query and a key."""

    def attend(self, queries, keys, values, mask, positions):
        queries, keys = (
            rotate(x, position) for x, position in zip((queries, keys), positions, strict=True)
        )
        return super().attend(queries, keys, values, mask, positions)


class NoPositions(Positions):
    """Add nothing to the embeddings."""

    def __call__(self, x, start=0):
        return self.dropout(x)


class RotaryTransformer(Transformer):
    """A Transformer with rotary positions in each self-attention."""

    def __init__(self, config, seed=0, initialise=True):
        super().__init__(config, seed, initialise)
        rng = np.random.default_rng([seed, 1]) if initialise else None
        self.source_positions = self.target_positions = NoPositions(config, rng)
        for layer in (*self.encoder.layers, *self.decoder.layers):
            layer.self_attention = RotaryAttention(config, rng)


def digits(rng, rows):
    """Return a batch of lines of 3 to 8 digits, as the ids 4 to 13, and their reversals."""
    lines = [rng.integers(4, 14, rng.integers(3, 9)).tolist() for _ in range(rows)]
    return make_batch(lines, [line[::-1] for line in lines], vocabulary_size=14)


def train(updates=400):
    """Return a trained small model."""
    rng = np.random.default_rng(0)
    model = RotaryTransformer(Config(14, n_layers=2, d_model=64, d_ff=128, n_heads=4, dropout=0.0))
    adam = Adam(model.named_parameters())
    for update in range(1, updates + 1):
        batch = digits(rng, rows=64)
        adam.zero_grad()
        with forms.on():  # the library's own equations, computed faster
            loss, nll = model.loss(batch.source, batch.target_in, batch.target_out)
            loss.backward()
            adam.step(3e-3 * min(update / 50, 1 - update / updates))
        if update % 100 == 0:
            print(f"update {update}: {float(nll):.3f} nats per digit")
    return model


if __name__ == "__main__":
    model, source = train(), digits(np.random.default_rng(1), rows=200).source
    wanted = [[i for i in row if i > 3][::-1] for row in source.tolist()]
    found = {
        "greedy": greedy(model, source),
        "beam of 4": [best for (best,) in beam_search(model, source)],
    }
    found["greedy without a cache"] = greedy(Decoding(model, cached=False), source)
    for name, hypotheses in found.items():
        right = sum(best.ids == line for best, line in zip(hypotheses, wanted, strict=True))
        print(f"{name}: {right} of {len(wanted)} lines are right")
