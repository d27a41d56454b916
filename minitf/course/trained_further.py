"""The early model of lesson 08, trained further in small batches: lesson 09 averages its copies."""

import numpy as np

from minitf import forms
from minitf.course.lesson import toy_model
from minitf.data import toy
from minitf.optim import Adam
from minitf.text import make_batch, plan_batches

__all__ = ["FurtherTraining"]


class FurtherTraining:
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
        optimizer = Adam(self.model.named_parameters())
        copies = [self.model.state()]
        with forms.on():
            for chosen, rate in zip(self._plan, rates, strict=False):
                sides = (self._sources, self._targets)
                batch = self._batch(*([side[i] for i in chosen] for side in sides))
                optimizer.zero_grad()
                self._loss(self.model.train(), batch).backward()
                optimizer.step(rate)
                copies.append(self.model.state())
        return copies

    def loss_on_unseen(self, state):
        """Return the smoothed loss of a model with these parameters, without dropout."""
        with forms.on():
            return float(self._loss(self.model.load_state(state).eval(), self._unseen))

    def _batch(self, sources, targets):
        return make_batch(sources, targets, len(self._subwords))

    @staticmethod
    def _loss(model, batch):
        loss, _ = model.loss(batch.source, batch.target_in, batch.target_out)
        return loss
