"""A language model that learns to write English, character by character, from the toy corpus."""

import numpy as np
from threadpoolctl import threadpool_limits

from minitf import Config, forms
from minitf import functions as F
from minitf.beyond.sampling import generate
from minitf.data import toy
from minitf.loss import label_smoothed_cross_entropy
from minitf.nn import Embedding, Module
from minitf.optim import Adam
from minitf.transformer import Encoder, Positions, causal_mask

threadpool_limits(1, "blas")  # products are so small here that a second thread would only wait
TEXT = "\n".join(toy.splits(n_train=2000, n_valid=0, n_test=0)["train"][0])
CHARACTERS = sorted(set(TEXT))
LONGEST = 48  # characters; the model reads so many at once


class LanguageModel(Module):
    """An encoder in which each position sees only what comes before it."""

    def __init__(self, config, rng):
        self.embedding = Embedding(config.vocabulary_size, config.d_model, rng)
        self.positions = Positions(config, rng)
        self.encoder = Encoder(config, rng)

    def __call__(self, ids):
        """Score the next character at each position: ids (B, T) -> logits (B, T, V)."""
        d_model = self.embedding.weight.shape[1]
        x = self.positions(self.embedding(ids) * d_model**0.5)
        x = self.encoder(x, causal_mask(ids.shape[1]))
        return F.linear(x, self.embedding.weight.transpose())


def train(updates=800):
    """Train on slices of the text that begin anywhere; returns the model."""
    rng = np.random.default_rng(0)
    ids = np.searchsorted(CHARACTERS, list(TEXT))
    config = Config(
        len(CHARACTERS), n_layers=2, d_model=64, d_ff=256, n_heads=4, norm="pre", dropout=0.0
    )
    model = LanguageModel(config, rng)
    adam = Adam(model.named_parameters())
    for update in range(1, updates + 1):
        starts = rng.integers(0, len(ids) - LONGEST, 32)
        rows = ids[starts[:, None] + np.arange(LONGEST + 1)]
        inputs, targets = rows[:, :-1], rows[:, 1:]
        adam.zero_grad()
        with forms.on():  # the library's equations, computed faster
            loss = label_smoothed_cross_entropy(model(inputs), targets, smoothing=0.0)
            loss.backward()
            adam.step(8e-3 * min(update / 50, 1.02 - update / updates))
        if update % 100 == 0 or update == 1:
            print(f"update {update}: {float(loss):.3f} nats per character")
    return model


if __name__ == "__main__":
    model = train().eval()

    def next_logits(ids):
        """Score the character after each text: ids (R, t) -> logits (R, V)."""
        return model(ids[:, -LONGEST:])[:, -1]

    prompt = np.searchsorted(CHARACTERS, list("The "))[None]
    (text,) = generate(next_logits, prompt, length=300, temperature=0.6, seed=1)
    print("It writes:\nThe " + "".join(CHARACTERS[i] for i in text.ids))
