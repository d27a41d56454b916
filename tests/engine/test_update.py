"""The trainer computes what a plain loop of fifteen lines computes, written out here."""

import itertools
import math
import shlex
import time

import numpy as np
import pytest
from runs import PACE, SMALL, prepare_folder

from minitf import functions as F
from minitf.cpu import threads
from minitf.optim import Adam
from minitf.tensor import no_grad
from minitf.text import make_batch, plan_batches
from minitf.training import commandline, update
from minitf.training.evaluation import perplexity
from minitf.training.log import Clock
from minitf.training.settings import parse
from minitf.training.update import Updater
from minitf.transformer import Transformer

TEXTS = shlex.split("--train train.en train.de --valid valid.en valid.de --out here")
RATES = shlex.split("--set dropout=0.2 --set attention_dropout=0.1 --set feed_forward_dropout=0.1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


def build(*more):
    return commandline.build(parse([*TEXTS, *SMALL, *PACE, *RATES, *more])[0])


def plain_updates(trainer, model, n):
    """Train a model as a trainer would; yield (loss, nll, norm, tokens) of n updates."""
    s, data = trainer.settings, trainer.dataset
    lengths = data.pairs.sources.lengths + 1, data.pairs.targets.lengths + 1
    plans = (
        plan_batches(*lengths, s.batch_tokens, np.random.default_rng([s.seed, epoch]))
        for epoch in range(99)
    )
    batches = map(data.batch, itertools.chain.from_iterable(plans))
    adam = Adam(model.named_parameters())
    for step in range(1, n + 1):
        group = list(itertools.islice(batches, s.accumulate))
        n_tokens = sum(batch.n_tokens for batch in group)
        adam.zero_grad()
        sums = np.zeros(2)
        for i, batch in enumerate(group):
            with F.dropout_state(s.seed, (step - 1) * s.accumulate + i, 0):
                pair = model.train().loss(batch.source, batch.target_in, batch.target_out, n_tokens)
            pair[0].backward()
            sums += [float(figure) for figure in pair]
        gradients = adam.gather_gradients()
        norm = np.linalg.norm(gradients.astype(np.float64))
        gradients *= min(1, s.clip / norm) if s.clip else 1
        adam.step(
            s.learning_rate
            * model.config.d_model**-0.5
            * min(step**-0.5, step * s.warmup_steps**-1.5)
        )
        yield *sums, norm, n_tokens


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    "more",
    [
        pytest.param("", marks=pytest.mark.slow),
        pytest.param("--accumulate 3", marks=pytest.mark.slow),
        pytest.param("--clip 0.3 --seed 5", marks=pytest.mark.slow),
        "--accumulate 2 --clip 0.3",
    ],
)
def test_updates_are_those_of_a_plain_loop(folder, monkeypatch, replicas, more):
    """Over three and a half epochs; some updates take batches of two of them."""
    monkeypatch.setattr(update, "_MIN_ACTIVATIONS", 1)
    # At small rates the last bits of a sum, which depend on how a batch is cut, stay small.
    trainer = build(*more.split(), "--replicas", str(replicas), "--learning-rate", "0.02")
    model = Transformer(trainer.config, trainer.settings.seed)
    n = 7 * len(trainer.cursor.plan) // (2 * trainer.settings.accumulate)
    for expected in plain_updates(trainer, model, n):
        assert [float(figure) for figure in trainer.update()] == pytest.approx(expected, rel=1e-4)
    assert trainer.cursor.epoch == 3 and trainer.step == n
    for name, array in trainer.model.state().items():
        assert np.allclose(array, model.state()[name], atol=1e-4), name


@pytest.mark.parametrize("replicas", [1, 2])
def test_adam_may_use_the_threads_of_the_replicas(folder, replicas):
    """Nobody may use them after that."""
    trainer = build("--replicas", str(replicas))
    step, seen = trainer.optimizer.step, []
    trainer.optimizer.step = lambda *arguments: (seen.append(threads._pool.get()), step(*arguments))
    trainer.update()
    assert seen == [(trainer.updater.pool, replicas)]
    assert (trainer.updater.pool is None) == (replicas == 1)
    assert threads._pool.get() == (None, 1)


def test_no_two_batches_draw_the_same_dropout(folder, monkeypatch):
    """Neither in one update nor in neighbouring ones: every step number is used once."""
    places = []
    backward = Updater.backward

    def watch(self, batch, n_tokens, step):
        places.append(step)
        return backward(self, batch, n_tokens, step)

    monkeypatch.setattr(Updater, "backward", watch)
    trainer = build("--accumulate", "3")
    for _ in range(4):
        trainer.update()
    assert len(set(places)) == len(places) == 12


def test_perplexity_weighs_every_token_alike(folder):
    """It is not the mean of batches of different sizes, nor of pairs of different lengths."""
    trainer = build()
    model, words, valid = trainer.model, trainer.dataset.subwords, trainer.dataset.valid
    sides = words.encode(valid.source), words.encode(valid.target)
    total, n, each = 0.0, 0, []
    with no_grad():
        for source, target in zip(*sides, strict=True):
            batch = make_batch([source], [target], len(words))
            logits = model.eval()(batch.source, batch.target_in).numpy()[0].astype(np.float64)
            chances = np.exp(logits - logits.max(axis=1, keepdims=True))
            chances /= chances.sum(axis=1, keepdims=True)
            logs = np.log(chances[np.arange(len(target) + 1), batch.target_out[0]])
            total, n = total - logs.sum(), n + len(logs)
            each.append(-logs.mean())
    assert len({len(target) for target in sides[1]}) > 2
    model.train()  # perplexity has no dropout all the same
    for budget in (12, 20, 4096):
        assert perplexity(model, words, valid, budget) == pytest.approx(
            math.exp(total / n), rel=1e-5
        )
    assert math.exp(np.mean(each)) != pytest.approx(math.exp(total / n), rel=1e-3), (
        "a wrong mean would be noticed"
    )


def test_an_entry_of_the_log_weighs_every_token_alike(folder):
    trainer = build()
    trainer.optimizer.step_count = 4
    trainer.cursor.move(2, 3)
    trainer.updater.unlogged = [(1.0, 0.5, 2.0, 10), (3.0, 2.5, 4.0, 30)]
    trainer.clock._lap = time.perf_counter() - 8
    entry = trainer._entry()
    assert (entry["loss"], entry["gradient_norm"], round(entry["tokens_per_second"], 1)) == (
        2.5,
        3.5,
        5.0,
    )
    assert entry["perplexity"] == pytest.approx(math.exp(2.0)), (
        "of the plain likelihood, without smoothing"
    )
    assert entry["epoch"] == 2 + 3 / len(trainer.cursor.plan)
    assert entry["learning_rate"] == pytest.approx(
        trainer.settings.learning_rate * 16**-0.5 * 4 * 8**-1.5
    )


def test_the_time_left(monkeypatch):
    """The updates before the first entry of a session say nothing about it: they are slower."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = Clock()
    clock.start(10)
    now[0] += 100
    assert clock.left(13, 50) is None, "not known yet"
    for step in range(14, 31):
        now[0] += 3
        assert clock.left(step, 50) == pytest.approx(3 * (50 - step))
    minutes = (clock.session() + 30) / 60
    assert clock.left(30, 50, minutes) == pytest.approx(30), "--minutes ends it before"
    assert clock.left(50, 50) == 0
