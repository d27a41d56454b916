"""Train a Transformer from scratch to reverse rows of numbers, in about ten seconds."""

import numpy as np
from threadpoolctl import threadpool_limits

from minitf import Config, Transformer, forms
from minitf.decode import greedy
from minitf.optim import Adam, warmup_rate
from minitf.text import make_batch

threadpool_limits(1, "blas")  # products are so small here that a second thread would only wait
VOCABULARY = 14  # ids 0 to 3: padding, unknown, start, end; 4 to 13: the ten numbers

rng = np.random.default_rng(0)
model = Transformer(Config(VOCABULARY, n_layers=1, d_model=64, d_ff=128, n_heads=4))
optimizer = Adam(model.named_parameters())

for step in range(1, 401):
    sources = [rng.integers(4, VOCABULARY, rng.integers(2, 9)).tolist() for _ in range(64)]
    targets = [source[::-1] for source in sources]
    batch = make_batch(sources, targets, VOCABULARY)
    with forms.on():  # the same equations, computed faster
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        model.zero_grad()
        loss.backward()
        optimizer.step(warmup_rate(step, model.config.d_model, warmup_steps=100))
    if step % 100 == 0:
        print(f"step {step}  loss {loss:.3f}")  # step 100  loss 1.4...

test = make_batch([[4, 5, 6, 7, 8], [13, 4, 13]], [[], []], VOCABULARY)
for hypothesis in greedy(model, test.source):
    print(hypothesis.ids)  # [8, 7, 6, 5, 4] [13, 4, 13]
