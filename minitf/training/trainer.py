"""The Trainer: the loop around the updates, with validations, checkpoints and the log."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable

import numpy as np

from minitf import forms
from minitf.cli import Progress, amount
from minitf.config import Config
from minitf.cpu.machine import keep_memory
from minitf.data.dataset import Cursor, Dataset, UpdateBatches
from minitf.errors import UserError
from minitf.files.arrays import exists
from minitf.files.models import CONFIG, kept_notes, save_model
from minitf.optim import Adam
from minitf.training.checkpoints import RunFolder
from minitf.training.distributed import Ranks
from minitf.training.evaluation import ValidationScores, Validator
from minitf.training.log import Clock, RunLog, entry_line
from minitf.training.planning import cooldown_start, fill_in, learning_rate
from minitf.training.settings import Settings
from minitf.training.signals import Interrupted, StopRequest
from minitf.training.update import Updater, slices_of
from minitf.transformer import Transformer
from minitf.translation import Translator
from minitf.translation.loading import check_probe, probe

REDRAW_AFTER = 60  # seconds between two drawings of the curves
STATUS_AFTER = 30  # seconds without a line, after which one shows that the run is alive


class Trainer:
    """A run in a folder: everything between a corpus and a model that translate.py reads.

    The state of a run is the weights, Adam's moments, and a few numbers: updates done, epoch,
    batches of the epoch done, and the results of the validations. Data order and dropout are
    functions of these and the seed, so a stopped run resumes as if it had not been stopped.

    Every rank has a Trainer and calls the same methods. Only rank 0 validates, logs and writes
    files.

    model: makes the model, called as the class Transformer: model(config, seed), and
    model(config, initialise=False) for a copy whose weights are set afterwards. A subclass, or a
    function that exchanges layers, trains a variant.
    """

    def __init__(
        self,
        settings: Settings,
        dataset: Dataset,
        config: Config,
        log: RunLog,
        ranks: Ranks | None = None,
        model: Callable[..., Transformer] = Transformer,
    ):
        self.cursor = Cursor(dataset, settings.batch_tokens, settings.seed)
        epoch = len(self.cursor.plan) / settings.accumulate
        self.settings, chosen = fill_in(settings, epoch)
        if chosen:
            log.say(
                f"chosen   {chosen}, for a text with {amount(math.ceil(epoch), 'update')} per "
                "epoch (--help explains the rules)"
            )
        self.dataset, self.config, self.log = dataset, config, log
        self.folder = RunFolder(settings.out, log.say)
        self.make_model, self.model = model, model(config, settings.seed)
        self.optimizer = Adam(self.model.named_parameters())
        self.ranks = ranks or Ranks()
        self.updater = Updater(
            self.model,
            self.optimizer,
            dataset,
            build=lambda: model(config, initialise=False),
            replicas=settings.replicas,
            ranks=self.ranks,
            seed=settings.seed,
            clip=settings.clip,
        )
        # An exact resume needs the same: these decide the last bits of a sum, or more.
        self.facts = self.updater.machine | {"training pairs": dataset.pairs.fingerprint()[:8]}
        self.stop, self.clock, self.scores = StopRequest(), Clock(), ValidationScores()
        self.validator = Validator(dataset, settings, self.stop)
        self.weight_files = []  # names of those that the next average is made of
        self.notes = {}  # of the model that is tuned: the new one keeps them

    @property
    def step(self) -> int:
        """Return the number of updates done."""
        return self.optimizer.step_count

    # The loop -------------------------------------------------------------------------------------

    def run(self):
        """Train until the steps, the minutes or the patience are used up, or a signal arrives.

        Returns whether the run came to its end; if not, its state was saved.
        Raises UserError.
        """
        keep_memory()
        self.clock.start(self.step)
        try:
            with forms.on(self.updater.verified_forms()):
                self.ranks.check_same(self.optimizer.data, f"weights after step {self.step:,}")
                if self.step < self.settings.steps:
                    self.log.say(
                        "trial    running the largest batches first, to find out whether they "
                        "fit into memory"
                    )
                    for batch in self.largest_batches():  # now or never
                        self.updater.try_batch(batch)
                if self.ranks.rank == 0 and not self.folder.checkpoint.exists():
                    self._write_checkpoint()  # if the disk is full, fail now
                limit = self._train()
                if self.stop.agreed:
                    self.save(keep=False, model=False)
        except MemoryError:
            raise UserError(
                f"out of memory after step {self.step}: lower --batch-tokens, which is "
                f"{self.settings.batch_tokens}, and raise --accumulate"
            ) from None
        if not self.stop.agreed:
            trained = self.step > self.clock.first_step
            self.log.say(f"stopped  {limit}{'' if trained else ': no update was left to do'}")
        return not self.stop.agreed

    def largest_batches(self):
        """Return this rank's slices of the batches that may need the most memory.

        The largest slices, if an update has several such batches.
        """
        batches = []
        for indices in self.dataset.largest(self.cursor.plan):
            sizes = [len(indices)] * self.settings.accumulate
            mine = slices_of(sizes, self.ranks.size)[self.ranks.rank]
            n_rows = max((stop - start for _, start, stop in mine), default=1)
            batches.append(self.dataset.batch(indices).rows(0, n_rows))
        return batches

    def _train(self):
        """Update until a limit is reached or a stop is agreed on; return the limit, if any."""
        self._validate_if_due()  # if the last session was stopped in the middle of a validation
        self.clock.next_lap()
        self._next_status = 0.0  # the first update is shown at once
        with Progress("updates", self.settings.steps) as self.log.bar:
            while not (limit := self._agree()) and not self.stop.agreed:
                self.update()
                self._log_if_due()
                with self.clock.pause():
                    self._validate_if_due()
            self.updater.fetch_figures()
            if self.updater.unlogged:
                self._log_updates()
        if not self.stop.agreed and self.scores.validated < self.step:
            self.validate()
        return limit

    def _agree(self):
        """Return the limit that the run has reached, or None, and agree on requests to stop.

        The result is the same on every rank: else some would wait for others that have stopped.
        """
        if self.log.closed:
            self.stop.ask("the output was closed")
        votes = self.ranks.all_gather((self.stop.reason, self._limit_reached()))
        self.stop.agreed = any(asked for asked, _ in votes)
        _, limit = votes[0]  # by the clock of rank 0
        return limit

    def _limit_reached(self):
        """Return the limit that the run has reached, or None."""
        settings = self.settings
        if self.step >= settings.steps:
            return f"all steps are done ({settings.steps:,})"
        trained = self.step > self.clock.first_step
        if settings.minutes and trained and self.clock.session() >= 60 * settings.minutes:
            limit = f"{settings.minutes:g} minute{'s' * (settings.minutes != 1)}"
            total = amount(settings.steps, "update")
            return f"time limit of {limit} reached after {self.step:,} of {total}"
        if self.out_of_patience():
            validations = amount(settings.patience, "validation")
            return f"neither BLEU nor perplexity improved in {validations}"
        return None

    def out_of_patience(self):
        """Return whether too many validations in a row found no improvement."""
        patience = 0 if self.settings.cooldown else self.settings.patience
        return bool(patience) and self.scores.bad_validations >= patience

    # One update -----------------------------------------------------------------------------------

    def update(self, batches: UpdateBatches | None = None):
        """Change the weights once, by the gradient of the next batches, or of other batches.

        Returns and raises what `Updater.update` does.
        """
        batches = batches or self.cursor.next(self.settings.accumulate)
        rate = learning_rate(self.settings, self.config.d_model, self.step + 1)
        return self.updater.update(batches, rate)

    # The log --------------------------------------------------------------------------------------

    def _log_if_due(self):
        """Log the updates since the last entry if one is due, else show that the run is alive."""
        settings = self.settings
        due = self.step % settings.log_every == 0 or self.step % settings.valid_every == 0
        if due or self.step == settings.steps:
            self._log_updates()
            return
        if time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + STATUS_AFTER
            self.updater.fetch_figures()  # on a GPU this waits, so not after every update
            if not self.log.bar.possible:
                self.log.say(entry_line(self._entry()))
        self.log.bar.desc = f"step {self.step:,}  loss {self.updater.loss:.3f}"
        self.log.bar.update_to(self.step)

    def _log_updates(self):
        self.updater.fetch_figures()  # on a GPU, that waits for the updates
        self.log.add(self._entry())
        self.updater.unlogged.clear()
        self.clock.next_lap()
        self._next_status = time.monotonic() + STATUS_AFTER

    def _entry(self):
        """Return the average figures of the updates since the last entry of the log."""
        seconds = self.clock.lap()
        tokens = [n for *_, n in self.updater.unlogged]
        figures = [row[:3] for row in self.updater.unlogged]
        loss, nll, norm = np.average(figures, axis=0, weights=tokens).tolist()
        return {
            "step": self.step,
            "epoch": self.cursor.epochs(),
            "loss": loss,
            "perplexity": math.exp(min(nll, 50)),
            "tokens_per_second": sum(tokens) / seconds,  # of the target
            "learning_rate": learning_rate(self.settings, self.config.d_model, self.step),
            "gradient_norm": norm,
            "seconds_left": self.clock.left(self.step, self.settings.steps, self.settings.minutes),
        }

    # Validation -----------------------------------------------------------------------------------

    def _validate_if_due(self):
        """Validate or save if that is due after this step."""
        settings = self.settings
        if self.step % settings.valid_every == 0 and self.scores.validated < self.step:
            self.validate()
            self.log.draw(REDRAW_AFTER)
        elif (
            settings.save_every
            and self.step % settings.save_every == 0
            and self.step > self.clock.first_step
        ):
            self.save(model=False)

    def validate(self):
        """Measure perplexity and BLEU on the validation text, and save.

        A validation at the end of a session counts for --patience and the average only if one was
        due: so a run that is resumed afterwards goes on as if it had not been stopped.
        """
        measured = self.ranks.broadcast(self._measure() if self.ranks.rank == 0 else None)
        if measured is None:
            self.stop.agreed = True
            return
        perplexity, bleu = measured
        self.log.add({"step": self.step, "valid_perplexity": perplexity, "valid_bleu": bleu})
        due = self.step % self.settings.valid_every == 0
        if due:
            self.scores.add(self.step, perplexity, bleu)
        self.save(due)

    def _measure(self):
        """Return (perplexity, BLEU), None if the run was asked to stop."""
        # As training/commandline.py reads the saved model: a line of up to max_length is one part.
        length, subwords, notes = self.settings.max_length, self.dataset.subwords, self.notes
        capitals, placeholders = notes.get("reads_capitals", False), notes.get("placeholders")
        translator = Translator(self.model, subwords, length, length, capitals, placeholders)
        try:
            with self.model.evaluating():
                perplexity, bleu = self.validator.measure(translator)
        except Interrupted:
            return None
        return perplexity, bleu.score

    # Checkpoints ----------------------------------------------------------------------------------

    def save(self, keep=True, model=True):
        """Write the average of the last weights as the model, and after it the checkpoint.

        keep: whether the weights of this step are part of later averages. model: False leaves the
        present model, if there is one, because to average large ones takes longer than an update.
        """
        self.updater.fetch_figures()
        self.ranks.check_same(self.optimizer.data, f"weights after step {self.step:,}")
        if self.ranks.rank:
            return
        state = self.model.state()
        count = self.settings.average
        names, first = self.weight_files, cooldown_start(self.settings)
        if self.settings.cooldown and self.step > first:
            # The weights improve so quickly that those from before it would spoil an average.
            names = [name for name in names if self.folder.step_of(name) > first]
        names = self.folder.save_weights(names, self.step, state, count, keep)
        if model or not exists(self.folder.path / CONFIG):
            names, averaged = self.folder.average(names, state)
            self.save_model(averaged, len(names))
        if keep:
            self.weight_files = names
        self._write_checkpoint()
        self.folder.delete_old_weights(self.weight_files)

    def save_model(self, arrays, count):
        """Write the model for translate.py; `arrays` are the average of `count` sets of weights."""
        corpus = self.dataset.corpus
        notes = self.notes | {
            "step": self.step,
            "averaged": count,
            # A tuned model has learned from lines that may be longer than those of this text.
            "max_subwords": max(self.notes.get("max_subwords", 0), self.dataset.longest),
            # Only a model tuned from a public one reads lines in capitals as they are.
            "reads_capitals": self.notes.get("reads_capitals", False),
            "corpus": corpus.name,
            "source_language": corpus.source_language,
            "target_language": corpus.target_language,
        }
        numbers, path = functools.partial(probe, self.model), self.folder.path
        config, subwords = self.config.to_dict(), self.dataset.subwords
        save_model(path, arrays, config, subwords, notes=notes, probe=numbers)

    def _write_checkpoint(self):
        corpus = self.dataset.corpus
        meta = {
            "step": self.step,
            "epoch": self.cursor.epoch,
            "position": self.cursor.position,
            "weights": self.weight_files,
            **dataclasses.asdict(self.scores),
            "seconds": self.clock.total(),
            "settings": dataclasses.asdict(self.settings),
            "config": self.config.to_dict(),
            "facts": self.facts,
            "probe": probe(self.model),
            "notes": self.notes,
            "languages": [corpus.source_language, corpus.target_language],
        }
        self.folder.save_checkpoint(
            self.model.state(), self.optimizer.state(), meta, self.dataset.subwords
        )

    def load(self, model, optimizer, meta):
        """Continue from a checkpoint. model, optimizer, meta: as `save` wrote them."""
        self.model.load_state(model)
        check_probe(self.model, meta["probe"])
        self.optimizer.load_state(optimizer)
        self.cursor.move(meta["epoch"], meta["position"])
        self.weight_files = meta["weights"]
        self.notes = kept_notes(meta["notes"])
        self.scores = ValidationScores(**{name: meta[name] for name in vars(self.scores)})
        self.clock.earlier = meta["seconds"]
