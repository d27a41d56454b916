"""What a long run will take, before it begins: memory, arithmetic, and days."""

import math
import time

import numpy as np

from minitf.cpu.machine import free_memory, keep_memory, largest_memory, memory_of

__all__ = ["arithmetic", "report", "summary"]

# Section 5.1 and 5.2: the base model's updates, target tokens in each.
PAPER_STEPS, PAPER_TOKENS = 100_000, 25_000
LONG = 600  # seconds; a run of less needs no plan
SAFE = 0.9  # of the free memory: what is counted is arrays, and there is more than arrays
PART = 2048  # tokens of the largest batch that tell what the rest of it takes; and twice as many
SOME = 500  # batches whose shapes stand for those of an epoch
FEWEST = 50  # tokens in a batch, about a sentence
# Seconds that the updates should take together, at least and at most so many of them.
MEASURED = 10, 3, 20


def arithmetic(config, rows, source, target, n_tokens):
    """Count the operations of the matrix products of one update, forward and backward.

        a product of (m, k) and (k, n) is 2 m k n operations;
        with R rows, S and T positions, A = h d_k, C = h d_v,
        encoder layer:  projections  2 R S D (2 A + 2 C)
                        attention    2 R S S (A + C)
                        FFN          4 R S D F
        decoder layer:  the same over T; and
                        2 R D (T (A + C) + S (A + C)) + 2 R T S (A + C)  to the source
        output:         2 n D V  of the n targets that are no padding
            all times 3, because backward has two products for each one,
            the gradients of its two inputs

    rows, source, target: the shape of the batch, end marks included; numbers, or arrays with
    one entry per batch. Norms, softmax and Adam are left out: they take time, but hardly any
    arithmetic. Source: sections 3.2 to 3.4.
    """
    c = config
    heads = c.n_heads * (c.d_k + c.d_v)
    encoder = rows * source * (4 * c.d_model * heads + 2 * source * heads + 4 * c.d_model * c.d_ff)
    decoder = rows * target * (4 * c.d_model * heads + 2 * target * heads + 4 * c.d_model * c.d_ff)
    across = 2 * rows * heads * (c.d_model * (source + target) + source * target)
    return 3 * (
        c.n_layers * (encoder + decoder + across) + 2 * n_tokens * c.d_model * c.vocabulary_size
    )


def report(trainer):
    """Measure some updates and yield the lines that say what the run will take, each as soon
    as it is known.

    The model is changed by the updates. Memory is judged by a part of the largest batch first:
    where the whole of it does not fit, it is not tried.
    """
    s, data = trainer.settings, trainer.dataset
    left = max(0, s.steps - trainer.step)
    tokens, work = _averages(trainer)
    accumulated = f" x {s.accumulate}" if s.accumulate > 1 else ""
    each = f" on each of {trainer.ranks.size} ranks" if trainer.ranks.size > 1 else ""
    yield (
        f"update   {s.batch_tokens:,}{accumulated} padded tokens a side at the most, "
        f"{tokens:,.0f} target tokens on average; {len(trainer.plan) / s.accumulate:,.0f} updates "
        f"an epoch of {len(data.targets):,} pairs"
    )
    yield f"products {_short(work)}FLOP an update, forward and backward"
    keep_memory()
    yield "measure  a part of the largest batch first, which tells how long the rest takes"
    passes, seconds = _passes(trainer)
    times = f"{_duration(seconds)} each: {_duration(passes * seconds)}"
    yield f"measure  about {passes} passes forward and backward, {times}"
    free, (always, batch) = free_memory(), _needed(trainer)
    if free is not None and always + batch > SAFE * free:
        yield from _does_not_fit(s, always, batch, free)
        return
    speed, n = _measured_speed(trainer)
    largest, seconds = largest_memory() or always + batch, tokens / speed
    yield f"memory   {_short(largest)}B at the most{each}" + (
        f"; {_short(free)}B are free" if free else ""
    )
    yield (
        f"speed    {speed:,.0f} target tokens/s, {_short(work / seconds)}FLOP/s, measured "
        f"over {n} updates"
    )
    yield (
        (
            f"time     {_duration(seconds)} an update, {_duration(left * seconds)} for the "
            f"{left:,} updates to come"
        )
        + _cut_short(s, left * seconds)
    )
    yield (
        f"paper    {_duration(PAPER_STEPS * PAPER_TOKENS / speed)} for the paper's "
        f"{PAPER_STEPS:,} updates of {PAPER_TOKENS:,} target tokens; validations are not counted"
    )


def summary(trainer, trial):
    """Say in one line what a long run will take, judged by the largest batch; None where the
    run is not long.

    trial: the seconds that the first pass over the largest batches took, which is more than a pass
    takes later on.
    """
    s, left = trainer.settings, trainer.settings.steps - trainer.step
    if trial * s.accumulate * left < LONG:
        return None
    tokens, work = _averages(trainer)
    *_, batch = trainer.largest_shares()
    started = time.perf_counter()
    float(trainer.replicas.backward(batch, batch.n_tokens, s.seed, 0)[0])
    seconds = (
        (time.perf_counter() - started) * tokens / (batch.n_tokens * trainer.ranks.size) * left
    )
    trainer.model.zero_grad()
    if min(seconds, 60 * s.minutes or seconds) < LONG:
        return None
    memory = largest_memory()
    return (
        f"plan     {tokens:,.0f} target tokens and {_short(work)}FLOP an update, "
        + (f"{_short(memory)}B of memory, " if memory else "")
        + (
            f"about {_duration(seconds)} for the {left:,} updates to come{_cut_short(s, seconds)}; "
            "--plan says more"
        )
    )


def _cut_short(settings, seconds):
    return (
        f" (--minutes {settings.minutes:g} ends it before)"
        if 0 < 60 * settings.minutes < seconds
        else ""
    )


def _averages(trainer):
    """The target tokens of an update, on average over an epoch; and its arithmetic, over some
    hundred batches.
    """
    sides, plan = (trainer.dataset.sources, trainer.dataset.targets), trainer.plan
    tokens = float(sides[1].lengths.sum() + len(sides[1])) / len(plan)  # with the end marks
    some = plan[:: len(plan) // SOME + 1]  # whose order is random
    widths = np.array(
        [[int(side.lengths[rows].max()) + 1 for side in sides] for rows in some], float
    )
    n_rows = np.array([len(rows) for rows in some], float)
    work = arithmetic(trainer.config, n_rows, *widths.T, tokens).mean()
    return tokens * trainer.settings.accumulate, work * trainer.settings.accumulate


def _needed(trainer):
    """Predict the bytes that the run has still to take: whatever the size of a batch, and for
    the largest one.
    """
    gradients = trainer.optimizer.gradients.nbytes * len(trainer.replicas.models)
    always, batch = max((_predicted(trainer, batch) for batch in trainer.largest_shares()), key=sum)
    return gradients + always, batch


def _predicted(trainer, whole):
    """What a batch takes grows with its rows, so that two parts of it tell what all will take.

    An eighth and a quarter of the rows, but few enough to fit where the whole batch is
    far too large.
    """
    few, more, total = _parts(whole)
    # What only the first run makes, such as the table of positions, is no part of a batch.
    _pass(trainer, whole, few)
    small, large = (
        memory_of(lambda rows=rows: _pass(trainer, whole, rows)) for rows in (few, more)
    )
    row = (large - small) / (more - few) if more > few else small / few
    return max(0, small - few * row), total * row


def _parts(whole):
    """Return how many rows the two parts of a batch have, and how many it has itself."""
    total = len(whole.source)
    most = 1 + PART // max(whole.source.shape[1], whole.target_in.shape[1])
    few = max(1, min(total // 8, most))
    return few, min(max(few + 1, min(total // 4, 2 * most)), total), total


def _pass(trainer, whole, n):
    """Run the first n rows of a batch forward and backward, and forget the result."""
    part = whole.rows(0, n)
    loss, _ = trainer.replicas.backward(part, part.n_tokens, trainer.settings.seed, 0)
    float(loss)  # so that a GPU has come as far as the clock
    trainer.model.zero_grad()


def _passes(trainer):
    """Guess how many passes over a batch the measuring takes, and the seconds of each, by a part
    of the largest one.
    """
    batches, accumulate = list(trainer.largest_shares()), trainer.settings.accumulate
    few, _, total = _parts(batches[0])
    started = time.perf_counter()
    _pass(trainer, batches[0], few)
    seconds = (time.perf_counter() - started) * total / few
    wanted, least, most = MEASURED
    updates = 1 + min(max(math.ceil(wanted / (seconds * accumulate)), least), most)
    return len(batches) + updates * accumulate, seconds


def _measured_speed(trainer):
    """Take some updates; returns target tokens per second, and of how many updates."""
    trainer.try_largest_batches()
    trainer.update()  # touches the moments for the first time, which takes longer
    trainer.look()
    tokens, started, n = 0, time.perf_counter(), 0
    seconds, least, most = MEASURED
    while n < most and (n < least or time.perf_counter() - started < seconds):
        tokens += trainer.update()[-1]
        trainer.look()  # so that a GPU has come as far as the clock
        n += 1
    return tokens / (time.perf_counter() - started), n


def _does_not_fit(settings, always, batch, free):
    """Say what is missing, and which settings would do the same update in the memory there is."""
    s = settings
    needed = (
        f"{_short(always + batch)}B more are needed, of them {_short(batch)}B for the largest batch"
    )
    lines = [f"memory   {needed}, but {_short(free)}B are free: this run does not fit"]
    # 0.9: a longest pair may fill it better.
    tokens = int(0.9 * (SAFE * free - always) / batch * s.batch_tokens)
    if tokens < FEWEST:
        return [
            *lines,
            "change   even small batches do not fit: take a smaller model with --preset",
        ]
    tokens -= tokens % 10 ** (len(str(tokens)) - 2)
    times = math.ceil(s.accumulate * s.batch_tokens / tokens)
    shorter = f" --max-length {tokens - 1}" if tokens <= s.max_length else ""
    return [
        *lines,
        (
            f"change   --batch-tokens {tokens} --accumulate {times}{shorter}; or a smaller "
            "model with --preset"
        ),
    ]


def _short(number):
    """A number in three digits with the prefix of its unit.

    >>> _short(63_082_496), _short(3.1e9), _short(999.7), _short(100e12)
    ('63.1 M', '3.10 G', '1.00 k', '100 T')
    """
    prefixes = iter(["", "k", "M", "G", "T", "P"])
    prefix = next(prefixes)
    while number >= 999.5:
        number, prefix = number / 1000, next(prefixes)
    return f"{number:#.3g}".rstrip(".") + f" {prefix}"


def _duration(seconds):
    """Time in two units.

    >>> [_duration(s) for s in (0.0312, 5.04, 75, 119.7, 3700, 90_000, 3.2e6)]
    ['31 ms', '5.0 s', '1 min 15 s', '2 min 0 s', '1 h 01 min', '1 day 1 h', '37 days 0 h']
    """
    if seconds < 59.95:
        return f"{1000 * seconds:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"
    seconds = round(seconds)
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    if seconds < 86_400:
        return f"{seconds // 3600:.0f} h {seconds // 60 % 60:02.0f} min"
    days = int(seconds // 86_400)
    return f"{days:,} day{'s' if days > 1 else ''} {seconds // 3600 % 24:.0f} h"
