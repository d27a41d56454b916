"""The training loop: updates, validations, checkpoints, and how it stops."""

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable

import numpy as np

from minitf import backend
from minitf.backend import to_device, to_numpy, xp
from minitf.config import Config
from minitf.cpu.machine import keep_memory
from minitf.cpu.replicas import Replicas, machine, threads_for
from minitf.data.dataset import Dataset
from minitf.errors import UserError
from minitf.optim import Adam, clip_gradient, gradient_norm, warmup_rate
from minitf.terminal import Pace, Progress
from minitf.training import planning
from minitf.training.checkpoints import RunFolder
from minitf.training.distributed import Ranks
from minitf.training.evaluation import bleu, perplexity
from minitf.training.log import RunLog, step_line
from minitf.training.settings import Settings, fill_in
from minitf.training.signals import Interrupted, stop_on_signals
from minitf.transformer import Transformer
from minitf.translation import Translator
from minitf.translation.loading import check_size, load_weights
from minitf.translation.probe import check_probe, probe

__all__ = ["Trainer"]

COUNTS = ("step", "epoch", "position", "weights")  # where a run is; and how far it has come:
MERITS = ("validated", "best", "best_perplexity", "bad_validations", "seconds")


class Trainer:
    """A run in a folder: everything between a corpus and a model that translate.py reads.

    The state of a run is the weights, Adam's moments, and a few numbers: updates done, epoch,
    batches of the epoch done, and what the validations found. Data order and dropout are functions
    of these and the seed, so a run that was stopped goes on exactly as if it had not been.

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
        self.plan = dataset.plan(0, settings.batch_tokens, settings.seed)
        epoch = len(self.plan) / settings.accumulate
        self.settings, chosen = fill_in(settings, epoch)
        if chosen:
            log.say(
                f"chosen   {chosen} (updates in an epoch: {math.ceil(epoch):,}; "
                "--help has the rule)"
            )
        self.dataset, self.config, self.log = dataset, config, log
        self.folder = RunFolder(settings.out, log.say)
        self.make_model, self.model = model, model(config, settings.seed)
        if model is Transformer:  # or it could not be read from its files
            check_size(config, dict(self.model.named_parameters()))
        self.optimizer = Adam(self.model.named_parameters())
        self.ranks = ranks or Ranks()
        n_replicas = 1 if backend.on_gpu() else settings.replicas or self.ranks.cores()
        self.replicas = Replicas(self.model, lambda: model(config, initialise=False), n_replicas)
        self.machine = machine(n_replicas) | {"ranks": self.ranks.size}
        self.fingerprint = dataset.fingerprint()
        self.step = self.epoch = self.position = 0
        self.validated, self.best, self.best_perplexity, self.bad_validations = 0, -1.0, math.inf, 0
        self.weights = []  # the files that the next average is made of
        # The seconds of earlier sessions; this one's first step, and when it began.
        self.seconds, self.began = 0.0, (0, time.perf_counter())
        # The figures of updates not looked at yet; those looked at but not logged.
        self.unseen, self.seen = [], []
        self.loss = math.nan  # of the last update looked at
        self.finite = True  # whether all was finite so far; on a GPU a flag there
        self.stopping, self.interrupted = None, False

    # One update -----------------------------------------------------------------------------------

    def update(self):
        """Take the next batches, sum their gradients, and change the weights once.

        Returns (loss, plain negative log-likelihood, gradient norm, target tokens). Where these
        are not finite nothing is changed: on the CPU that raises UserError at once. On a GPU, where
        looking would mean waiting, a flag there turns this update and all that follow into none,
        until `look` raises.
        """
        self.ranks.order("update")
        self._turn_page()
        place = self.step, self.epoch, self.position
        *figures, n_tokens = self._gradient()
        self.unseen.append((place, figures, n_tokens))
        if self._looks_later():
            self.finite &= xp.isfinite(figures[0]) & xp.isfinite(figures[2])
        else:
            self.look()
        self.step += 1
        with self.replicas.lend_threads():
            self.optimizer.step(self.rate(), self.finite)
        return *figures, n_tokens

    def _looks_later(self):
        """Whether figures stay on the device until they are logged: several ranks tell each other
        each one at once.
        """
        return backend.on_gpu() and self.ranks.size == 1

    def _gradient(self):
        """Leave the gradient of the next batches in the optimizer;
        returns what `update` returns.
        """
        s = self.settings
        rows = [self._next_rows() for _ in range(s.accumulate)]
        mine = self.ranks.share([len(each) for each in rows])
        parts = [(i, self.dataset.batch(rows[i]).rows(start, stop)) for i, start, stop in mine]
        (n_tokens,) = self.ranks.total(sum(part.n_tokens for _, part in parts))
        self.optimizer.zero_grad()
        total, plain = 0.0, 0.0
        for i, part in parts:
            loss, nll = self.replicas.backward(part, n_tokens, s.seed, self.step * s.accumulate + i)
            total, plain = total + loss, plain + nll
        gradients = self.optimizer.collect()
        self.ranks.sum(gradients)
        with threads_for(2 * gradients.size):
            norm = gradient_norm(gradients)
        if self.ranks.size > 1:
            total, plain, asked = self.ranks.total(float(total), float(plain), self.interrupted)
            if asked and not self.interrupted:
                self.stopping, self.interrupted = "another rank received a signal", True
            norm = self.ranks.tell(float(norm))  # whose last bits depend on the machine
            total, plain, norm = (
                to_device(figure, gradients.dtype) for figure in (total, plain, norm)
            )
        if s.clip:  # a length that is not finite is reported, with the gradient as it is
            clip_gradient(gradients, s.clip, xp.where(xp.isfinite(norm), norm, 0))
        return total, plain, norm, n_tokens

    def look(self):
        """Read the figures of the updates since the last look.

        Raises UserError at the first that is not finite.
        """
        if not self.unseen:
            return
        places, figures, tokens = zip(*self.unseen, strict=True)
        # Waits once, however many updates it is.
        table = to_numpy(xp.stack([xp.stack(row) for row in figures]))
        self.unseen = []
        for place, row, n_tokens in zip(places, table.tolist(), tokens, strict=True):
            if not all(map(math.isfinite, row)):
                self._stop_not_finite(place, row[0])
            self.loss = row[0]
            if self.ranks.rank == 0:  # the others write no log
                self.seen.append((*row, n_tokens))

    def _stop_not_finite(self, place, loss):
        """Go back to before the update at this place, and say what was not finite there."""
        self.step, self.epoch, self.position = step, epoch, position = place
        if self._looks_later():  # the gradient is that of a later update, but can be computed again
            self.optimizer.step_count = step
            self.plan = self.dataset.plan(epoch, self.settings.batch_tokens, self.settings.seed)
            self._gradient()
        last = position + self.settings.accumulate
        batches = f"batch {last}" if last == position + 1 else f"batches {position + 1} to {last}"
        raise UserError(
            f"{self._not_finite(loss)} at step {step + 1} (epoch {epoch + 1}, {batches}): "
            "nothing was changed; --resume goes on from the last checkpoint, with a lower "
            "--learning-rate or --clip 1 if you give it"
        )

    def rate(self):
        """The learning rate of the current step."""
        return warmup_rate(
            self.step, self.config.d_model, self.settings.warmup_steps, self.settings.learning_rate
        )

    def _turn_page(self):
        # More than one epoch further only if a resumed run has less data.
        while self.position >= len(self.plan):
            self.epoch, self.position = self.epoch + 1, 0
            self.plan = self.dataset.plan(
                self.epoch, self.settings.batch_tokens, self.settings.seed
            )

    def _next_rows(self):
        self._turn_page()
        self.position += 1
        return self.plan[self.position - 1]

    def _not_finite(self, loss):
        """Name the first thing that is not finite: weights come before the loss, and it
        before gradients.
        """
        finite = xp.isfinite
        for name, parameter in self.model.named_parameters():
            if not bool(finite(parameter.data).all()):
                return f"the weight {name} is not finite"
        if not math.isfinite(loss):
            return f"the loss is {loss}, not finite,"
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None and not bool(finite(parameter.grad).all()):
                return f"the gradient of {name} is not finite"
        return "the length of the gradient is not finite"

    def largest_shares(self):
        """Give what this rank takes of the batches that need the most memory."""
        for indices in self.dataset.largest(self.plan):
            parts = self.ranks.share([len(indices)] * self.settings.accumulate)
            yield self.dataset.batch(indices).rows(
                0, max((stop - start for _, start, stop in parts), default=1)
            )

    def try_largest_batches(self):
        """Run the batches that need the most memory forward and backward, and forget the results.

        Then memory runs out in the first seconds, or never. Returns how long it took.
        """
        self.ranks.order("try_largest_batches")
        started = time.perf_counter()
        with Progress("of the largest batches tried", say=self.log.say) as bar:
            for i, batch in enumerate(self.largest_shares(), 1):
                loss, _ = self.replicas.backward(batch, batch.n_tokens, self.settings.seed, 0)
                float(loss)  # so that a GPU has come as far as the clock
                self.model.zero_grad()
                bar.to(i)
        return time.perf_counter() - started

    def check_ranks(self):
        """Raise UserError unless all ranks have the same weights, which they should
        have at any step.
        """
        self.ranks.order("check_ranks")
        self.ranks.check_same(self.optimizer.data, f"the weights after step {self.step:,}")

    # The loop -------------------------------------------------------------------------------------

    def run(self):
        """Train until the steps, the minutes or the patience are used up, or a signal asks to stop.

        Returns whether the run came to its end; if not, its state was saved as it was.
        Raises UserError.
        """
        keep_memory()
        self.began = self.step, time.perf_counter()
        try:
            if self.ranks.rank:
                return self._follow()
            self.check_ranks()
            self.log.say(
                "trial    trying the largest batches first, so that a lack of memory shows now"
            )
            if line := planning.summary(self, self.try_largest_batches()):
                self.log.say(line)
            if not self.folder.has_checkpoint():  # a disk that is full says so now
                self.folder.save_subwords(self.dataset.subwords)
                self._save_checkpoint()
            with contextlib.suppress(Interrupted):
                self._loop()
            if self.interrupted:
                self._save_interrupted()
        except MemoryError:
            size = self.settings.batch_tokens
            raise UserError(
                f"out of memory after step {self.step} with --batch-tokens {size}: lower it, "
                "and raise --accumulate"
            ) from None
        if self.interrupted:
            self.log.say(f"stopped  {self.stopping}: --resume goes on from step {self.step:,}")
        else:
            self.log.say(
                f"stopped  {self.stopping}"
                + ("" if self.step > self.began[0] else ": nothing to train on")
            )
        return not self.interrupted

    def _follow(self):
        """On any rank but the first: do what the first one does, until it ends."""
        with stop_on_signals(self):
            while (method := self.ranks.tell()) is not None:
                getattr(self, method)()

    def _loop(self):
        self._validate_if_due()  # where the last session was stopped in the middle of it
        mark, pace = time.perf_counter(), Pace(pause=0)  # the first update is shown at once
        with Progress("updates", self.settings.steps) as self.log.bar:
            s, stops = self.settings, self._stops()
            while not stops:
                self.update()
                stops = self._stops()
                if self.step % s.log_every == 0 or self.step % s.valid_every == 0 or stops:
                    self.look()
                    self.log.step(self._entry(mark))
                    self.seen = []
                    mark = time.perf_counter()
                    pace.restart()
                else:
                    self._show(pace, mark)
                mark += self._validate_if_due()
                stops = stops or self._stops()
        if not self.interrupted and self.validated < self.step:
            self.validate()

    def _show(self, pace, mark):
        """Show between two log entries that the run goes on: by the bar, or by a line where there
        is no terminal.
        """
        if pace.due():  # on a GPU, to look means to wait
            self.look()
            if not self.log.bar.possible:
                self.log.say(step_line(self._entry(mark)))
        self.log.bar.what = f"step {self.step:,}  loss {self.loss:.3f}"
        self.log.bar.to(self.step, self._left())

    def _validate_if_due(self):
        """Validate or save every so many steps; returns the seconds it took."""
        started = time.perf_counter()
        if self.step % self.settings.valid_every == 0 and self.validated < self.step:
            self.validate()
            self.log.draw(60)
        elif (
            self.settings.save_every
            and self.step % self.settings.save_every == 0
            and self.step > self.began[0]
        ):
            self.save(model=False)
        return time.perf_counter() - started

    def _stops(self):
        s = self.settings
        if self.log.closed:
            self.stopping, self.interrupted = "the output was closed", True
        elif self.stopping:
            pass
        elif self.step >= s.steps:
            self.stopping = f"all {s.steps:,} steps are done"
        elif s.minutes and self.step > self.began[0] and self._elapsed() >= 60 * s.minutes:
            limit = f"{s.minutes:g} minute{'s' * (s.minutes != 1)}"
            self.stopping = (
                f"time limit of {limit} reached after {self.step:,} of {s.steps:,} updates"
            )
        elif self.patience_is_over():
            self.stopping = f"neither BLEU nor perplexity got better in {s.patience} validations"
        return bool(self.stopping)

    def patience_is_over(self):
        """Return whether too many validations in a row brought nothing."""
        return bool(self.settings.patience) and self.bad_validations >= self.settings.patience

    def _elapsed(self):
        return time.perf_counter() - self.began[1]

    def trained_seconds(self):
        """How long the run has taken, over all sessions."""
        return self.seconds + self._elapsed()

    def _left(self):
        """How long it will take, judged by all that was done in this session,
        validations included.
        """
        seconds, steps = self._elapsed(), self.step - self.began[0]
        left = (self.settings.steps - self.step) * seconds / steps
        if self.settings.minutes:
            left = min(left, 60 * self.settings.minutes - seconds)
        return max(0, left)

    def _entry(self, mark):
        """Return the figures of the updates since the last entry of the log, which were begun at
        the time `mark`.
        """
        # After look(), because on a GPU that is what waits for the updates.
        seconds = time.perf_counter() - mark
        tokens = [n for _, _, _, n in self.seen]
        mean = np.average([row[:3] for row in self.seen], axis=0, weights=tokens).tolist()
        return {
            "step": self.step,
            "epoch": self.epoch + self.position / len(self.plan),
            "loss": mean[0],
            "perplexity": math.exp(min(mean[1], 50)),
            "tokens_per_second": sum(tokens) / seconds,  # of the target
            "learning_rate": self.rate(),
            "gradient_norm": mean[2],
            "seconds_left": self._left(),
        }

    def validate(self):
        """Measure perplexity and BLEU on the validation text, save, and see whether it got better.

        The validation at the end of a session counts only where one was due: so a run that goes on
        afterwards goes on as if it had not been stopped.
        """
        translator = Translator(
            self.model, self.dataset.subwords, self.settings.max_length, self.settings.max_length
        )
        # A method replaced in the model itself still belongs to it, not to the fast copy.
        with self.model.evaluating():
            value, score = self.measure(translator)
        self.log.step({"step": self.step, "valid_perplexity": value, "valid_bleu": score.score})
        due = self.step % self.settings.valid_every == 0
        if due:
            better = score.score > self.best or value < self.best_perplexity
            self.bad_validations = 0 if better else self.bad_validations + 1
            self.best, self.best_perplexity = (
                max(score.score, self.best),
                min(value, self.best_perplexity),
            )
            self.validated = self.step
        self.save(due)

    def measure(self, translator):
        """Perplexity and greedy BLEU on the validation text."""
        valid = self.dataset.valid
        with self.watch("pairs validated") as progress:
            value = perplexity(translator.model, self.dataset.subwords, valid, progress=progress)
        with self.watch("sentences translated") as progress:
            found = translator.translate(
                valid.source, 1, max_extra=self.settings.max_extra, progress=progress
            )
        return value, self.score([best[0].text for best in found], valid.target)

    def score(self, lines, references):
        """Score translations; text that came tokenised is not tokenised again."""
        references = self.dataset.references(references)
        return bleu(
            lines, references, **({"tokenize": "none"} if self.dataset.corpus.tokenized else {})
        )

    @contextlib.contextmanager
    def watch(self, what):
        """Give a function for `progress=` that shows how much is done, and leaves in the middle
        after a signal.
        """
        with Progress(what, say=self.log.say) as bar:

            def progress(done, total):
                if self.interrupted:
                    raise Interrupted
                bar.total = total
                bar.to(done)

            yield progress

    # Checkpoints ----------------------------------------------------------------------------------

    def save(self, keep=True, model=True):
        """Write the model averaged over the last weights, and after it the state for --resume.

        keep: whether the weights of this step are part of later averages. model: False leaves the
        model that is there as it is, because to average large ones takes longer than an update.
        """
        self.look()
        state = self.model.state()
        names = self.folder.add_weights(self.weights, self.step, state, self.settings.average)
        if model or not self.folder.has_model():
            names, averaged = self.folder.average(names, self.step, state)
            self.save_model(averaged, len(names))
        if keep:
            self.weights = names
        self._save_checkpoint()
        self.folder.forget_weights(self.weights)

    def save_model(self, arrays, count):
        """Write what translate.py --model reads: weights that are the average of so
        many checkpoints.
        """
        corpus = self.dataset.corpus
        notes = {
            "step": self.step,
            "averaged": count,
            "longest": self.dataset.longest,
            "corpus": corpus.name,
        }
        notes |= {
            "source_language": corpus.source_language,
            "target_language": corpus.target_language,
        }
        self.folder.save_model(self.model, arrays, self.dataset.subwords, notes)

    def _save_checkpoint(self):
        self.check_ranks()
        meta = {key: getattr(self, key) for key in COUNTS + MERITS} | {
            "seconds": self.trained_seconds()
        }
        meta |= {"settings": dataclasses.asdict(self.settings), "config": self.config.to_dict()}
        meta |= {"machine": self.machine, "data": self.fingerprint, "probe": probe(self.model)}
        self.folder.save_checkpoint(
            self.model.state(), self.optimizer.state(), meta, self.dataset.subwords
        )

    def _save_interrupted(self):
        """Save the state between two validations; the model only where there is none yet."""
        self.look()
        if not self.folder.has_model():
            self.save_model(self.model.state(), 1)
        self._save_checkpoint()

    def load(self, model, optimizer, meta):
        """Take over the state that `save` wrote."""
        for key in COUNTS:
            setattr(self, key, meta[key])
        for key in MERITS:
            setattr(self, key, meta.get(key, getattr(self, key)))
        self.validated = meta.get("validated", self.step)
        load_weights(self.model, model)
        check_probe(self.model, meta.get("probe"))
        self.optimizer.load_state(optimizer)
        self.plan = self.dataset.plan(self.epoch, self.settings.batch_tokens, self.settings.seed)

    def changes(self, meta):
        """Say what is not as it was when the checkpoint was written: {what: (before, now)}."""
        before = {"ranks": 1} | meta.get("machine", {})
        pairs = {what: (before.get(what, now), now) for what, now in self.machine.items()}
        if meta.get("data", self.fingerprint) != self.fingerprint:
            pairs["training pairs"] = "others", "these"
        return {what: pair for what, pair in pairs.items() if pair[0] != pair[1]}
