"""Fifty updates of a small model with dropout: their losses and last weights, and where
these bits hold.

The program runs with any version of minitf from 0.1 on. fixtures/fifty-steps.json is
what 0.1 computed:

    export PYTHONPATH=CHECKOUT_OF_0.1
    python tests/support/fifty_steps.py > tests/support/fixtures/fifty-steps.json

Later forms round differently. fixtures/bits.json has the digests of this version on one machine:
a failing test shows the new one, to be recorded if nothing but rounding has changed.
"""

import hashlib
import json
import platform

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from minitf import functions as F
from minitf.config import Config
from minitf.optim import Adam, warmup_rate
from minitf.text import make_batch
from minitf.transformer import Transformer

STEPS = 50
SIZES = {"n_layers": 2, "d_model": 24, "d_ff": 40, "n_heads": 3, "d_k": 10, "d_v": 6}
RATES = {"dropout": 0.1, "attention_dropout": 0.15, "feed_forward_dropout": 0.2}
# About 700 target words that are not padding: two chunks of the loss.
ROWS, LONGEST, WORDS = (
    20,
    40,
    150,
)


def machine():
    """Return the facts that the last bits of a sum depend on."""
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    facts = ("internal_api", "version", "architecture")
    instructions = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return {
        "arrays": f"numpy {np.__version__}",
        "matrix products": sorted(
            {" ".join(str(library.get(fact)) for fact in facts) for library in libraries}
        ),
        "instructions": sorted({*instructions.get("baseline", ()), *instructions.get("found", ())}),
        "libc": " ".join(platform.libc_ver()),
    }


def digest(found):
    """Return the sha256 of results that JSON can hold, exact to the last bit."""
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def batch_of(rng):
    """Draw a batch of rows of different lengths."""

    def lines():
        return [
            rng.integers(4, WORDS, n).tolist() for n in rng.integers(LONGEST // 2, LONGEST, ROWS)
        ]

    return make_batch(lines(), lines(), WORDS)


def train(dtype):
    """Return {"losses": [...], "weights": sha256} of the updates, with matrix products
    on one thread.
    """
    model, rng = (
        Transformer(Config(WORDS, **SIZES, **RATES), seed=1).astype(dtype).train(),
        np.random.default_rng(2),
    )
    optimizer, losses = Adam(model.named_parameters()), []
    with threadpool_limits(1, "blas"):
        for step in range(1, STEPS + 1):
            batch = batch_of(rng)
            optimizer.zero_grad()
            with F.dropout_state(3, step):
                loss, nll = model.loss(
                    batch.source, batch.target_in, batch.target_out, batch.n_tokens
                )
            loss.backward()
            optimizer.step(warmup_rate(step, SIZES["d_model"], warmup_steps=20, factor=0.5))
            losses += [float(loss), float(nll)]
    return {"losses": losses, "weights": hashlib.sha256(optimizer.data.tobytes()).hexdigest()}


if __name__ == "__main__":
    print(
        json.dumps(
            {"machine": machine(), **{dtype: train(dtype) for dtype in ("float32", "float64")}},
            indent=1,
        )
    )
