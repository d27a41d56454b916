"""Does a warm-up win against a fixed rate? Lesson 07 draws the answer.

    python -m minitf.course.experiments.warmup

The task: write 3 to 8 random digits backwards. The model: 6 + 6 layers as in the paper, but d_model
32. Each schedule is tried with each peak rate and three seeds, for 600 updates. One run takes 18
seconds of CPU time on an AMD EPYC (Zen 4), all of them 22 minutes.
"""

import numpy as np

from minitf import forms
from minitf.config import Config
from minitf.course import experiments
from minitf.text import make_batch
from minitf.transformer import Transformer

SCHEDULES = ("warm-up", "at once", "fixed")
PEAKS = (0.001, 0.0015, 0.002, 0.003, 0.004, 0.006, 0.008, 0.016)
SEEDS = (1, 2, 3)
UPDATES = 600
WARMUP = 200  # updates
MEAN_OF = 50  # updates; one number of a curve
VOCABULARY = 14  # four special ids, and ten digits


def reversal(rng, n, shortest=3, longest=8):
    """Return a batch of n rows of random digits, whose targets are the same rows backwards."""
    lengths = rng.integers(shortest, longest + 1, n)
    sources = [rng.integers(4, VOCABULARY, length).tolist() for length in lengths]
    targets = [source[::-1] for source in sources]
    return make_batch(sources, targets, VOCABULARY)


def answer(model, digits):
    """Return what the model writes, the most probable token each time; a dot is the end mark."""
    source = np.array([[int(digit) + 4 for digit in digits] + [3]])
    written = [2]  # the start mark
    while written[-1] != 3 and len(written) < 10:  # 3 is the end mark
        next_logits = model(source, np.array([written])).numpy()[0, -1]
        written.append(int(next_logits.argmax()))
    return " ".join(str(i - 4) if i > 3 else "." for i in written[1:])


def share_of_peak(schedule, step):
    """Return the learning rate at a step, as a share of the peak.

    "warm-up" is equation 3. "at once" is the same, but begins with the peak. "fixed" stays there.
    """
    if schedule == "fixed":
        return 1.0
    if step > WARMUP:
        return (WARMUP / step) ** 0.5
    return step / WARMUP if schedule == "warm-up" else 1.0


def new_model(seed, norm="post", dtype=np.float32):
    """Return the model before its training."""
    config = Config(VOCABULARY, n_layers=6, d_model=32, d_ff=64, n_heads=4, dropout=0.0, norm=norm)
    return Transformer(config, seed).astype(dtype)


def training(schedule, peak, seed, norm="post", updates=UPDATES, dtype=np.float32):
    """Train a model; after each update, yield the model and the loss before the update.

    dtype: float64 finds the same course on every processor; float32 is faster.
    """
    model = new_model(seed, norm, dtype)
    rng = np.random.default_rng(seed)
    batches = (reversal(rng, 64) for _ in range(updates))
    rates = [peak * share_of_peak(schedule, step) for step in range(1, updates + 1)]
    for loss in experiments.updates(model, batches, rates):
        yield model, loss


def curve(schedule, peak, seed, updates=UPDATES):
    """Return the losses of a training, each the mean of 50 updates."""
    with forms.on():
        losses = [loss for _, loss in training(schedule, peak, seed, updates=updates)]
    return np.reshape(losses, (-1, MEAN_OF)).mean(axis=1).tolist()


def main():
    """Run all trainings, and write {schedule: {peak: the curve of each seed}}."""
    found = {schedule: {} for schedule in SCHEDULES}
    for schedule in SCHEDULES:
        for peak in PEAKS:
            curves = [curve(schedule, peak, seed) for seed in SEEDS]
            found[schedule][str(peak)] = curves
            print(schedule, peak, *(f"{losses[-1]:.3f}" for losses in curves), flush=True)
    experiments.write("warmup", found)


if __name__ == "__main__":
    main()
