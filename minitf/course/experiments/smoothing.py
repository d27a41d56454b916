"""Does label smoothing raise BLEU? Lesson 07 draws the answer.

    python -m minitf.course.experiments.smoothing

A small model learns English to German from 2,000 or 8,000 pairs of the toy corpus, with three rates
of label smoothing and four seeds. Every 100 updates it is judged on 500 sentences of the test. One
run takes half a minute of CPU time on an AMD EPYC of 2022, all of them 9 minutes.
"""

import numpy as np

from minitf import forms
from minitf.config import Config
from minitf.course.experiments import updates, write
from minitf.course.lesson import toy_model
from minitf.data import toy
from minitf.optim import warmup_rate
from minitf.tensor import no_grad
from minitf.text import make_batch
from minitf.training.evaluation import bleu
from minitf.transformer import Transformer
from minitf.translation import Translator

RUNS = [(2000, 0.0), (2000, 0.1), (2000, 0.2), (8000, 0.0), (8000, 0.1)]  # pairs, smoothing
SEEDS = (1, 2, 3, 4)
SIZES = {"n_layers": 2, "d_model": 64, "d_ff": 256, "n_heads": 4, "dropout": 0.0}
UPDATES = 600
JUDGE_EVERY = 100  # updates
SAMPLE = "The old teacher reads the new book in the garden."


class Task:
    """The pairs to learn from and to be judged on, as text and as batches of ids."""

    def __init__(self):
        self.subwords = toy_model().subwords
        texts = toy.splits(n_train=max(pairs for pairs, _ in RUNS), n_test=500)
        self.sources = self.subwords.encode(texts["train"][0])
        self.targets = self.subwords.encode(texts["train"][1])
        self.english, self.german = texts["test"]
        self.test = self.batch(*map(self.subwords.encode, texts["test"]))

    def batch(self, sources, targets):
        """Return a batch of rows of ids."""
        return make_batch(sources, targets, len(self.subwords))

    def batches(self, pairs, seed):
        """Yield batches of 64 of the first `pairs` pairs without end, in a new order each epoch."""
        rng = np.random.default_rng(seed)
        while True:
            order = rng.permutation(pairs)
            for start in range(0, pairs - 63, 64):
                rows = order[start : start + 64]
                yield self.batch(
                    [self.sources[row] for row in rows], [self.targets[row] for row in rows]
                )


def training(task, pairs, smoothing, seed):
    """Train a model; yield it after each update."""
    config = Config(len(task.subwords), **SIZES, label_smoothing=smoothing)
    model = Transformer(config, seed)
    rates = [warmup_rate(step, config.d_model, warmup_steps=200) for step in range(1, UPDATES + 1)]
    for _ in updates(model, task.batches(pairs, seed), rates):
        yield model


def judge(task, model):
    """Return the figures of a model on the test, and its translation of the sample."""
    batch = task.test
    with no_grad():
        logits = model(batch.source, batch.target_in).numpy()
    logits -= logits.max(axis=-1, keepdims=True)
    p = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    real = batch.target_out != 0  # padding does not count
    p_true = np.take_along_axis(p, batch.target_out[..., None], axis=-1)[..., 0]
    right = p.argmax(axis=-1) == batch.target_out
    translator = Translator(model, task.subwords, 80, 80)
    found = translator.translate([*task.english, SAMPLE], beam=1, wellformed=False)
    texts = [best.text for (best,) in found]
    return {
        "perplexity": float(np.exp(-np.log(p_true[real]).mean())),
        "accuracy": float(right[real].mean()),
        "confidence": float(p.max(axis=-1)[real].mean()),
        "bleu": bleu(texts[:-1], task.german).score,
        "sample": texts[-1],
    }


def judged(task, pairs, smoothing, seed, last=UPDATES):
    """Train; return a list of the figures after each 100 updates, up to the last."""
    figures = []
    with forms.on():
        for step, model in enumerate(training(task, pairs, smoothing, seed), 1):
            if step % JUDGE_EVERY == 0:
                figures.append(judge(task, model) | {"update": step})
            if step == last:
                return figures


def main():
    """Run all trainings, and write {pairs and smoothing: for each seed a list of figures}."""
    task, found = Task(), {}
    for pairs, smoothing in RUNS:
        name = f"{pairs} pairs, {smoothing}"
        found[name] = []
        for seed in SEEDS:
            found[name].append(judged(task, pairs, smoothing, seed))
            print(name, seed, found[name][-1][-1], flush=True)
    write("smoothing", found)


if __name__ == "__main__":
    main()
