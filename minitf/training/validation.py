"""Validation: perplexity and BLEU of a run's model on its validation text, and the best so far."""

import contextlib
import dataclasses
import math

from minitf.cli import Progress
from minitf.training.evaluation import bleu, perplexity
from minitf.training.signals import Interrupted

__all__ = ["Scores", "Validator"]


@dataclasses.dataclass
class Scores:
    """What the validations of a run found.

    validated: the step of the last one. best, best_perplexity: the highest BLEU, and the lowest
    perplexity. bad_validations: how many in a row improved neither.
    """

    validated: int = 0
    best: float = -1.0
    best_perplexity: float = math.inf
    bad_validations: int = 0

    def add(self, step, value, score):
        """Add the perplexity and the BLEU of the validation after this step."""
        better = score > self.best or value < self.best_perplexity
        self.bad_validations = 0 if better else self.bad_validations + 1
        self.best, self.best_perplexity = max(score, self.best), min(value, self.best_perplexity)
        self.validated = step


class Validator:
    """Translates and scores texts of a dataset.

    stop: a StopRequest; once a stop is asked for, Interrupted is raised in the middle of a text.
    """

    def __init__(self, dataset, settings, stop):
        self.dataset, self.settings, self.stop = dataset, settings, stop

    def measure(self, translator):
        """Return the perplexity and the greedy BLEU on the validation text."""
        valid, subwords = self.dataset.valid, self.dataset.subwords
        with self._progress("pairs validated") as progress:
            value = perplexity(translator.model, subwords, valid, progress=progress)
        lines = self.translate(translator, valid.source, "sentences translated", beam=1)
        return value, self.score(lines, valid.target)

    def translate(self, translator, lines, task, beam):
        """Return the best translations of lines. task: what the progress bar says is done."""
        settings = self.settings
        with self._progress(task) as progress:
            # What is measured is the model by itself; and what it learns to write may be trees.
            translations = translator.translate(
                lines, beam, settings.alpha, settings.max_extra, progress=progress, wellformed=False
            )
        return [best[0].text for best in translations]

    def score(self, lines, references):
        """Return the BLEU of translations; text that came tokenised is not tokenised again."""
        tokenize = "none" if self.dataset.corpus.tokenized else "13a"
        return bleu(lines, self.dataset.references(references), tokenize=tokenize)

    @contextlib.contextmanager
    def _progress(self, task):
        """Give a function for `progress=`, which raises Interrupted once a stop is asked for."""
        with Progress(task) as bar:

            def progress(done, total):
                if self.stop.asked:
                    raise Interrupted
                bar.total = total
                bar.update_to(done)

            yield progress
