"""The plan of a run: what the size of its text decides, and how much memory and time it takes.

A batch of 25,000 tokens takes a laptop a minute and gigabytes. A prediction measures slices of it
instead, some of its rows: it continues the straight line through the memory of two,

    memory = fixed + slope * rows

and takes the time of one to be in proportion to the operations of its matrix products. That is
exact enough: all rows of a batch have about the same width, and Adam, whose time does not depend on
the rows, takes one or two hundredths of the time of 2,000 tokens.
"""

import dataclasses
import statistics
import time
from datetime import timedelta

import numpy as np

from minitf.backend import on_gpu
from minitf.cli import amount
from minitf.cpu.machine import free_memory, keep_memory, memory_of, used_memory
from minitf.data.dataset import UpdateBatches
from minitf.errors import UserError
from minitf.optim import warmup_rate
from minitf.training.settings import flag
from minitf.translation.loading import check_subwords

SMALLER = "choose a smaller --preset or --set, or a machine or a GPU of more memory"
SAFE_FRACTION = 0.9  # of the free memory; a process needs more than its arrays
SLICE_TOKENS = 2048  # tokens of a slice on one side; a second one for memory has a quarter of them
TIMED_UPDATES = 3  # updates of a slice that are timed, after a first one
SAMPLED_BATCHES = 500  # batches whose shapes represent an epoch


# What follows from the size of the text -----------------------------------------------------------

# As --help says. First the paper's, for a large text.
_PAPER = {"learning_rate": 1.0, "warmup_steps": 4000, "steps": 100_000, "valid_every": 1000}
# Epochs, the least updates, the longest warm-up, and the rate relative to the paper's: of a new
# model, which --patience may end earlier, and of a trained one, which a higher rate would damage.
_NEW, _TUNED = (40, 1000, _PAPER["warmup_steps"], 1.0), (5, 100, 50, 0.25)
_MIN_VALID_EVERY = 50  # updates; with fewer, validations would take longer than training


def learning_rate(settings, d_model, step):
    """Return the learning rate of a step: the paper's, and less and less in the cooldown.

        rate = warmup_rate * min(1, (steps + 1 - step) / (n + 1)),  n = round(c * steps)

    settings: steps, warmup_steps, learning_rate (a factor), and c = cooldown, a fraction of the
    steps. d_model: the width of the model. step: 1 for the first update; after `steps`, the second
    factor stays what it was there.
    In the last n steps the second factor falls linearly from n / (n + 1) to 1 / (n + 1): the last
    update still has some. c = 0 is the paper's schedule.
    Source: section 5.3 for warmup_rate; Hägele et al. 2024 for the cooldown.

    >>> from types import SimpleNamespace
    >>> run = SimpleNamespace(steps=8, warmup_steps=1, learning_rate=1.0, cooldown=0.5)
    >>> [round(learning_rate(run, 1, step) * step**0.5, 2) for step in range(1, 9)]
    [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2]
    """
    rate = warmup_rate(step, d_model, settings.warmup_steps, settings.learning_rate)
    length = settings.steps - cooldown_start(settings)
    return rate * min(1, max(1, settings.steps + 1 - step) / (length + 1))


def cooldown_start(settings):
    """Return the last step before the cooldown, steps - n; without one, the last step."""
    return settings.steps - round(settings.cooldown * settings.steps)


def fill_in(settings, epoch):
    """Return the settings without None, and the derived values as command-line options.

    epoch: updates in an epoch of the text.

    >>> from minitf.training.settings import Settings
    >>> fill_in(Settings(), 250)[1]
    '--steps 10000 --warmup-steps 1000 --learning-rate 0.5 --valid-every 250'
    >>> fill_in(Settings(start_from="model"), 250)[1]
    '--steps 1250 --warmup-steps 50 --learning-rate 0.028 --valid-every 250'
    >>> fill_in(Settings(warmup_steps=1000, learning_rate=1.0), 1)[1]
    '--steps 1000 --warmup-steps 100 --learning-rate 0.316 --valid-every 50'
    >>> fill_in(Settings(), 30_000)[1]
    '--steps 100000 --warmup-steps 4000 --learning-rate 1 --valid-every 1000'
    """
    epochs, min_steps, max_warmup, rate = _TUNED if settings.start_from else _NEW
    steps = settings.steps or round(min(max(epochs * epoch, min_steps), _PAPER["steps"]))
    warmup = settings.warmup_steps or min(max(1, steps // 10), max_warmup)
    # The peak of the schedule is factor * (d_model * warmup)^-0.5. This factor makes it the
    # paper's for every shorter warm-up.
    factor = rate * min(1, warmup / _PAPER["warmup_steps"]) ** 0.5
    if settings.steps is None and not settings.minutes and 3 * warmup > steps:
        # A recipe's warm-up on a small text: shorter, with the same peak.
        warmup, before = max(1, steps // 10), warmup
        factor = (settings.learning_rate or factor) * (warmup / before) ** 0.5
        settings = dataclasses.replace(settings, warmup_steps=None, learning_rate=None)
    values = {
        "steps": _PAPER["steps"] if settings.minutes else steps,
        "warmup_steps": warmup,
        "learning_rate": float(f"{factor:.3g}"),
        "valid_every": round(min(max(epoch, _MIN_VALID_EVERY), _PAPER["valid_every"])),
    }
    derived = {name: value for name, value in values.items() if getattr(settings, name) is None}
    options = " ".join(f"{flag(name)} {value:g}" for name, value in derived.items())
    return dataclasses.replace(settings, **derived), options


# Memory and time ----------------------------------------------------------------------------------


def arithmetic(config, rows, source, target, n_tokens):
    """Count the operations of the matrix products of one batch, forward and backward.

        a product of (m, k) and (k, n) is 2 m k n operations;
        with R rows, S and T positions, A = h d_k, C = h d_v,
        encoder layer:  projections  2 R S D (2 A + 2 C)
                        attention    2 R S S (A + C)
                        FFN          4 R S D F
        decoder layer:  the same over T, with an SSRU 4 R T D D for both of the first; and
                        2 R D (T (A + C) + S (A + C)) + 2 R T S (A + C)  to the source
        output:         2 n D V  for the n target tokens that are not padding
        all times 3: for each product, backward has two, for the gradients of its two inputs

    rows, source, target: the shape of the batch, end marks included; numbers, or arrays with
    one entry per batch. Norms, softmax and Adam take time, but hardly any operations: they are
    not counted. Source: sections 3.2 to 3.4.
    """
    c = config
    heads = c.n_heads * (c.d_k + c.d_v)
    encoder = rows * source * (4 * c.d_model * heads + 2 * source * heads + 4 * c.d_model * c.d_ff)
    own = 4 * c.d_model**2 if c.decoder == "ssru" else heads * (4 * c.d_model + 2 * target)
    decoder = rows * target * (own + 4 * c.d_model * c.d_ff)
    across = 2 * rows * heads * (c.d_model * (source + target) + source * target)
    return 3 * (
        c.n_layers * encoder
        + c.n_decoder_layers * (decoder + across)
        + 2 * n_tokens * c.d_model * c.vocabulary_size
    )


def check_model(settings, config, n_subwords):
    """Raise UserError for a model that does not fit the memory or the text."""
    check_subwords(config, n_subwords)
    count, free = config.count_parameters(), free_memory()
    if free is not None and 16 * count > free:  # weights, gradients, and two moments
        raise UserError(
            f"a model of {count:,} parameters needs {16 * count / 1e9:,.1f} GB before training "
            f"begins, but only {free / 1e9:,.1f} GB are free: {SMALLER}"
        )
    if config.positions == "learned" and settings.max_length >= config.max_length:
        longer = f" or --set max_length={settings.max_length + 1}"
        raise UserError(
            f"--max-length {settings.max_length} and the end mark are more than the "
            f"{config.max_length} positions that the model learns: use --max-length "
            f"{config.max_length - 1}{'' if settings.start_from or settings.resume else longer}"
        )


def log_plan(trainer):
    """Log the memory and the time of a run, measured on slices of its batches.

    If the batches do not fit into memory, suggest smaller ones. Else a few updates of slices are
    made, which change the weights. All ranks measure; rank 0 decides.
    """
    settings, say = trainer.settings, trainer.log.say
    tokens, work, typical = _average(trainer)
    updates = max(1, round(len(trainer.cursor.plan) / settings.accumulate))
    n_pairs = amount(len(trainer.dataset.pairs.targets), "pair")
    say(
        f"update   at most {settings.accumulate} x {settings.batch_tokens:,} tokens on each side, "
        f"padding included; {tokens:,.0f} target tokens on average; "
        f"{amount(updates, 'update')} per epoch of {n_pairs}"
    )
    keep_memory()
    used, free = trainer.ranks.broadcast((used_memory(), free_memory()))
    needed = trainer.ranks.broadcast(_memory(trainer))
    if free is not None and needed > SAFE_FRACTION * free:
        say(
            f"memory   this run does not fit: it needs another {needed / 1e9:,.2f} GB, but only "
            f"{free / 1e9:,.2f} GB are free"
        )
        say(
            f"change   lower --batch-tokens, which is {settings.batch_tokens}, and raise "
            f"--accumulate; or {SMALLER}"
        )
        return
    free_text = f"; {free / 1e9:,.2f} GB are free" if free else ""
    say(f"memory   at most about {((used or 0) + needed) / 1e9:,.2f} GB on each rank{free_text}")
    steps = max(0, settings.steps - trainer.step)  # before those that are measured
    seconds = _seconds(trainer, typical, work)
    say(
        f"time     {seconds:.2f} s per update, {timedelta(seconds=round(steps * seconds))} "
        f"(hours:minutes:seconds) for the remaining {amount(steps, 'update')}, validations not "
        "included; may be off by a fifth, and on a busy machine by much more"
    )
    say(
        f"speed    {tokens / seconds:,.0f} target tokens/s, {work / seconds / 1e9:,.1f} GFLOP/s "
        "(floating-point operations of the matrix products)"
    )


def _average(trainer):
    """Return averages over an epoch, and a typical batch.

    They are the target tokens and the operations of an update, and the indices of the batch whose
    operations are nearest to the average.
    """
    dataset, batches, n = trainer.dataset, trainer.cursor.plan, trainer.settings.accumulate
    sources, targets = dataset.pairs.sources.lengths, dataset.pairs.targets.lengths
    tokens = float(targets.sum() + len(targets)) / len(batches)  # with the end marks
    sample = batches[:: len(batches) // SAMPLED_BATCHES + 1]  # a plan is in random order
    shapes = [(len(rows), sources[rows].max() + 1, targets[rows].max() + 1) for rows in sample]
    work = arithmetic(trainer.config, *np.array(shapes, float).T, tokens)
    typical = sample[np.abs(work - work.mean()).argmin()]
    return tokens * n, float(work.mean()) * n, typical


def _memory(trainer):
    """Predict the bytes that the largest batch takes, or the writing of files if that is more."""
    updater, predicted = trainer.updater, []
    n, parameters = len(updater.models), updater.optimizer.gradients.nbytes
    for batch in trainer.largest_batches():
        total, width = len(batch.source), max(batch.source.shape[1], batch.target_in.shape[1])
        tokens = min(SLICE_TOKENS, total * width // 2)
        # Equally many rows for each replica.
        few, more = (min(max(limit // width // n, 1) * n, total) for limit in (tokens // 4, tokens))
        updater.try_batch(batch.rows(0, few))  # allocates what is made only once
        small, large = (
            memory_of(lambda rows=rows: updater.try_batch(batch.rows(0, rows)))  # noqa: B023
            for rows in (few, more)
        )
        slope = large / more
        if more > few and large > small:  # a line that starts below 0 would promise too little
            slope = min(slope, (large - small) / (more - few))
        predicted.append(large + slope * (total - more))
    if on_gpu():
        return max(predicted)
    # The flat gradients are allocated, but take memory only in the first update. When files are
    # written, no batch is in memory, but about 20 bytes a parameter: copies of the weights and of
    # Adam's m and v, and the average of weights in float64.
    return parameters + max(*predicted, 5 * parameters)


def _seconds(trainer, typical, work):
    """Predict the seconds of an update with `work` operations, from updates of a few rows."""
    whole = trainer.dataset.batch(typical)
    width = max(whole.source.shape[1], whole.target_in.shape[1])
    indices = typical[: max(SLICE_TOKENS * trainer.ranks.size // width, trainer.ranks.size)]
    batch = trainer.dataset.batch(indices)
    shape = len(indices), batch.source.shape[1], batch.target_in.shape[1]
    times = []
    for _ in range(1 + TIMED_UPDATES):
        started = time.perf_counter()
        trainer.update(UpdateBatches(0, 0, [indices]))
        trainer.updater.fetch_figures()  # waits for a GPU
        times.append(trainer.ranks.broadcast(time.perf_counter() - started))
    # The first one is slower: it fetches memory from the system.
    seconds = statistics.median(times[1:])
    return seconds * work / arithmetic(trainer.config, *shape, batch.n_tokens)
