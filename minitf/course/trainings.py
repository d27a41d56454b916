"""The small trainings of lessons 07 and 09.

Lesson 07 trains a table of words by descent and by Adam, and repeats updates of the trainer from
the equations. Lesson 09 splits an update between ranks, and trains the early model of lesson 08
further, to average its copies.
"""

import tempfile
from types import SimpleNamespace

import numpy as np

from minitf import forms
from minitf.backend import to_numpy
from minitf.course.experiments import updates
from minitf.course.lesson import toy_model
from minitf.data import toy
from minitf.data.dataset import UpdateBatches
from minitf.tensor import Tensor
from minitf.text import make_batch, plan_batches
from minitf.training import Settings
from minitf.training.trainer import Trainer
from minitf.training.update import Updater

# Lesson 07 ----------------------------------------------------------------------------------------


def left_to_learn(shares, rate, divide, updates=100):
    """Train a table of words; return for each word how far its loss is above the goal.

    shares: of the words in a text. divide: divide the moves by the root of v, as Adam does.
    """
    rng = np.random.default_rng(1)
    n = len(shares)
    q = np.full((n, n), 0.1 / (n - 1))
    np.fill_diagonal(q, 0.9)
    table = np.zeros((n, n))
    m = 0.0
    v = 0.0
    for t in range(1, updates + 1):
        p = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
        counts = rng.multinomial(25_000, shares)  # of each word in this batch
        g = counts[:, None] / 25_000 * (p - q)
        m = 0.9 * m + 0.1 * g
        v = 0.98 * v + 0.02 * g**2
        move = m / (1 - 0.9**t)
        if divide:
            move = move / (np.sqrt(v / (1 - 0.98**t)) + 1e-9)
        table -= rate * move
    p = np.exp(table) / np.exp(table).sum(axis=1, keepdims=True)
    return (q * np.log(q / p)).sum(axis=1)  # the loss, less the entropy of q


def halving(n):
    """Return n shares, each half of the one before; only the last two are equal."""
    return 0.5 ** np.minimum(np.arange(1, n + 1), n - 1)


class ReversedRows:
    """The data of a trainer: rows of ids, to be written backwards, in batches of four."""

    def __init__(self, rows, vocabulary):
        self.rows, self.vocabulary = rows, vocabulary
        self.pairs = self  # of a Dataset, these have the fingerprint

    def plan(self, epoch, batch_tokens, seed):
        """Return which rows make each batch; the order never changes."""
        return np.split(np.arange(len(self.rows)), len(self.rows) // 4)

    def batch(self, indices):
        """Return the batch of some rows."""
        sources = [self.rows[i] for i in indices]
        return make_batch(sources, [source[::-1] for source in sources], self.vocabulary)

    def fingerprint(self):
        """Return what a resumed run compares."""
        return f"{len(self.rows)} rows of digits"


def parameters_of_the_trainer(config, rows, updates):
    """Return all parameters after each update of two batches of four rows.

    The trainer's settings: warmup_steps 2, the factor 0.5 of the learning rate, the usual seed.
    """
    path = []
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            out=folder, accumulate=2, steps=updates, warmup_steps=2, learning_rate=0.5,
            valid_every=100,
        )  # fmt: skip
        data = ReversedRows(rows, config.vocabulary_size)
        trainer = Trainer(settings, data, config, SimpleNamespace(say=print))
        for _ in range(updates):
            trainer.update()
            path.append(Tensor(trainer.optimizer.data).numpy().copy())
    return path


# Lesson 09 ----------------------------------------------------------------------------------------


def gradients_of_ranks(model, optimizer, batches, size, seed, step):
    """Return what each rank computes of an update, before the ranks sum it: flat gradients.

    Everything but the sending is the trainer's: its Updater says which rows a rank takes, and adds
    up their gradients. What the ranks would ask each other, the number of target tokens of the
    update, each is told in advance.

    model, optimizer: a Transformer, and the Adam of its parameters. batches: of the update.
    size: the number of ranks. seed, step: of the dropout masks.
    """
    n_tokens = sum(model.count_targets(batch.target_out) for batch in batches)
    dataset = SimpleNamespace(batch=lambda indices: batches[indices[0]])
    update = UpdateBatches(0, 0, [np.full(len(b.target_out), i) for i, b in enumerate(batches)])
    gradients = []
    for rank in range(size):
        ranks = SimpleNamespace(
            rank=rank, size=size, cores=lambda: 1,
            # Asked for the tokens, or for the sums of the loss in two forms.
            sum_numbers=lambda *numbers: (n_tokens,) if len(numbers) == 1 else numbers,
            all_reduce=lambda gradients: None, broadcast=lambda value: value,
        )  # fmt: skip
        Updater(model, optimizer, dataset, ranks=ranks, seed=seed).gradient(update, step)
        gradients.append(to_numpy(optimizer.gradients).copy())
    return gradients


class ContinuedTraining:
    """Updates as in lesson 07, from the early model on, and the loss on 100 unseen sentences.

    batch_tokens: of a batch; few tokens make a noisy gradient. order: the random generator that
    shuffles the batches.
    """

    def __init__(self, batch_tokens, order):
        translator = toy_model("toy-model-early")
        # So that every processor draws the same curve.
        self.model = translator.model.astype(np.float64)
        self._at_first = self.model.state()
        self._subwords = translator.subwords
        texts = toy.splits(5000)
        self._sources, self._targets = (self._subwords.encode(side) for side in texts["train"])
        # + 1: the end mark
        lengths = [[len(ids) + 1 for ids in side] for side in (self._sources, self._targets)]
        self._plan = plan_batches(*lengths, batch_tokens, order)
        self._unseen = self._batch(*(self._subwords.encode(side[:100]) for side in texts["test"]))

    def checkpoints(self, rates):
        """Return the parameters at first and after each update, whose learning rates are given."""
        self.model.load_state(self._at_first)
        copies = [self.model.state()]
        sides = (self._sources, self._targets)
        rows = ([[side[i] for i in chosen] for side in sides] for chosen in self._plan)
        batches = (self._batch(*pair) for pair in rows)
        with forms.on():
            for _ in updates(self.model.train(), batches, rates):
                copies.append(self.model.state())
        return copies

    def loss_on_unseen(self, state):
        """Return the smoothed loss of a model with these parameters, without dropout."""
        with forms.on():
            unseen, model = self._unseen, self.model.load_state(state).eval()
            return float(model.loss(unseen.source, unseen.target_in, unseen.target_out)[0])

    def _batch(self, sources, targets):
        return make_batch(sources, targets, len(self._subwords))
