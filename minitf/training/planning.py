"""A run before its first update: the largest batches tried, memory and time predicted."""

import dataclasses
import math
import time

import numpy as np

from minitf.cpu.machine import free_memory, keep_memory, largest_memory, memory_of
from minitf.terminal import Progress, counted
from minitf.training.settings import Settings

__all__ = ["Workload", "arithmetic", "report", "summary", "try_batches", "workload"]

# Sections 5.1 and 5.2: the updates of the base model, and target tokens in each.
PAPER_STEPS, PAPER_TOKENS = 100_000, 25_000
LONG = 600  # seconds; a shorter run is not predicted unless asked for
SAFE = 0.9  # fraction of the free memory that arrays may take; a process needs more than arrays
SLICE_TOKENS = 2048  # tokens of the smaller of the two slices that predict a batch's memory
SAMPLE = 500  # batches whose shapes represent an epoch
FEWEST_TOKENS = 50  # tokens of a batch, about one sentence
MEASURE_SECONDS = 10  # seconds that the measured updates should take together ...
FEWEST_UPDATES, MOST_UPDATES = 3, 20  # ... if that is between so many updates


@dataclasses.dataclass(frozen=True)
class Workload:
    """What a run computes: its settings, and averages over an epoch.

    steps: updates to come. pairs, updates: in an epoch. tokens, work: the target tokens and the
    operations of an update on average. ranks: how many share it.
    """

    settings: Settings
    steps: int
    pairs: int
    updates: float
    tokens: float
    work: float
    ranks: int


def workload(settings, config, dataset, plan, steps, ranks):
    """Return the Workload of a run. plan: the batches of an epoch. steps: updates to come."""
    sides = dataset.sources, dataset.targets
    tokens = float(sides[1].lengths.sum() + len(sides[1])) / len(plan)  # with the end marks
    sample = plan[:: len(plan) // SAMPLE + 1]  # a plan is in random order
    lengths = [[int(side.lengths[rows].max()) + 1 for side in sides] for rows in sample]
    source, target = np.array(lengths, float).T
    n_rows = np.array([len(rows) for rows in sample], float)
    work = arithmetic(config, n_rows, source, target, tokens).mean()
    n = settings.accumulate
    return Workload(
        settings, steps, len(sides[1]), len(plan) / n, tokens * n, float(work) * n, ranks
    )


def arithmetic(config, rows, source, target, n_tokens):
    """Count the operations of the matrix products of one batch, forward and backward.

        a product of (m, k) and (k, n) is 2 m k n operations;
        with R rows, S and T positions, A = h d_k, C = h d_v,
        encoder layer:  projections  2 R S D (2 A + 2 C)
                        attention    2 R S S (A + C)
                        FFN          4 R S D F
        decoder layer:  the same over T; and
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
    decoder = rows * target * (4 * c.d_model * heads + 2 * target * heads + 4 * c.d_model * c.d_ff)
    across = 2 * rows * heads * (c.d_model * (source + target) + source * target)
    return 3 * (
        c.n_layers * encoder
        + c.n_decoder_layers * (decoder + across)
        + 2 * n_tokens * c.d_model * c.vocabulary_size
    )


def try_batches(team, batches, say):
    """Run batches forward and backward, discard the results, and return the seconds it took.

    team: the Team that computes. say: takes lines that show progress.
    With the largest batches of a run, memory runs out now or never.
    """
    seconds = 0.0
    with Progress("of the largest batches tried", say=say) as bar:
        for i, batch in enumerate(batches, 1):
            seconds += team.try_batch(batch)
            bar.to(i)
    return seconds


def summary(load, team, batch, first_seconds):
    """Return a line that predicts the memory and the time of a run, None if the run is short.

    batch: one of its largest. first_seconds: what the first pass over such batches took, which is
    more than a later pass takes.
    """
    s = load.settings
    if first_seconds * s.accumulate * load.steps < LONG:
        return None
    each = team.try_batch(batch) * load.tokens / (batch.n_tokens * load.ranks)
    seconds = each * load.steps
    if min(seconds, 60 * s.minutes or seconds) < LONG:
        return None
    memory = largest_memory()
    return (
        f"plan     {load.tokens:,.0f} target tokens and {_short(load.work)}FLOP per update, "
        + (f"{_short(memory)}B of memory, " if memory else "")
        + f"about {_duration(seconds)} for the remaining {counted(load.steps, 'update')}"
        + f"{_time_limit(s, seconds)}; --plan measures it in detail"
    )


def report(load, team, batches, update, say):
    """Measure some updates, and yield lines that predict the memory and the time of a run.

    batches: this rank's slices of the largest ones. update: makes an update, waits for it and
    returns its target tokens. say: takes lines that show progress.
    Each line comes as soon as it is known. The updates change the model. Memory is predicted from a
    slice of the largest batch: if the batch does not fit, it is not tried.
    All ranks measure; rank 0 decides.
    """
    s, tell = load.settings, team.ranks.tell
    times = f" x {s.accumulate}" if s.accumulate > 1 else ""
    yield (
        f"update   at most {s.batch_tokens:,}{times} tokens on each side, padding included; "
        f"{load.tokens:,.0f} target tokens on average; {counted(round(load.updates), 'update')} "
        f"per epoch of {counted(load.pairs, 'pair')}"
    )
    yield f"products {_short(load.work)}FLOP per update, forward and backward"
    keep_memory()
    yield "measure  a slice of the largest batch first, to predict how long the rest takes"
    passes, seconds = _passes(team, batches, s.accumulate)
    yield (
        f"measure  about {passes} passes forward and backward, {_duration(seconds)} each: "
        f"{_duration(passes * seconds)}"
    )
    free, (fixed, batch) = tell((free_memory(), _needed(team, batches)))
    if free is not None and fixed + batch > SAFE * free:
        yield from _does_not_fit(s, fixed, batch, free)
        return
    try_batches(team, batches, say)
    speed, n = _measured_speed(update, tell)
    most, seconds = largest_memory() or fixed + batch, load.tokens / speed
    each_rank = f" on each of {load.ranks} ranks" if load.ranks > 1 else ""
    yield f"memory   at most {_short(most)}B{each_rank}" + (
        f"; {_short(free)}B are free" if free else ""
    )
    yield (
        f"speed    {speed:,.0f} target tokens/s, {_short(load.work / seconds)}FLOP/s, measured "
        f"over {n} updates"
    )
    yield (
        f"time     {_duration(seconds)} per update, {_duration(load.steps * seconds)} for the "
        f"remaining {counted(load.steps, 'update')}{_time_limit(s, load.steps * seconds)}"
    )
    yield (
        f"paper    {_duration(PAPER_STEPS * PAPER_TOKENS / speed)} for the paper's "
        f"{PAPER_STEPS:,} updates of {PAPER_TOKENS:,} target tokens, without validations"
    )


def _time_limit(settings, seconds):
    """Return a remark if --minutes ends a run that takes `seconds`."""
    limited = 0 < 60 * settings.minutes < seconds
    return f" (--minutes {settings.minutes:g} ends the run earlier)" if limited else ""


def _needed(team, batches):
    """Predict the bytes of a run: (independent of the batch, for the largest batch)."""
    gradients = team.optimizer.gradients.nbytes * len(team.replicas.models)
    fixed, batch = max((_predicted(team, batch) for batch in batches), key=sum)
    return gradients + fixed, batch


def _predicted(team, batch):
    """Predict the bytes for a batch: (whatever its size, in proportion to its rows).

    They are measured for two slices of it, small enough to fit where the batch would not.
    """
    few, more = _slice_sizes(batch)
    team.try_batch(batch.rows(0, few))  # allocates what is made only once, such as positions
    small, large = (memory_of(lambda n=n: team.try_batch(batch.rows(0, n))) for n in (few, more))
    row = (large - small) / (more - few) if more > few else small / few
    return max(0, small - few * row), len(batch.source) * row


def _slice_sizes(batch):
    """Return how many rows two slices of a batch have: an eighth and a quarter, or fewer."""
    total, width = len(batch.source), max(batch.source.shape[1], batch.target_in.shape[1])
    most = 1 + SLICE_TOKENS // width
    few = max(1, min(total // 8, most))
    return few, min(max(few + 1, min(total // 4, 2 * most)), total)


def _passes(team, batches, accumulate):
    """Predict how many passes over a batch will be measured, and the seconds of each."""
    few, _ = _slice_sizes(batches[0])
    seconds = team.try_batch(batches[0].rows(0, few)) * len(batches[0].source) / few
    updates = math.ceil(MEASURE_SECONDS / (seconds * accumulate))
    updates = 1 + min(max(updates, FEWEST_UPDATES), MOST_UPDATES)
    return len(batches) + updates * accumulate, seconds


def _measured_speed(update, tell):
    """Make some updates; return target tokens per second, and the number of updates."""
    update()  # slower: it touches Adam's moments for the first time
    tokens, n, started = 0, 0, time.perf_counter()

    def is_enough():
        return n >= FEWEST_UPDATES and time.perf_counter() - started >= MEASURE_SECONDS

    while n < MOST_UPDATES and not tell(is_enough()):
        tokens += update()
        n += 1
    return tokens / (time.perf_counter() - started), n


def _does_not_fit(settings, fixed, batch, free):
    """Yield what is missing, and settings that make the same update in the free memory."""
    s = settings
    yield (
        f"memory   this run does not fit: it needs another {_short(fixed + batch)}B "
        f"({_short(batch)}B of that for the largest batch), but only {_short(free)}B are free"
    )
    # 0.9: a batch of fewer tokens may be filled better.
    tokens = int(0.9 * (SAFE * free - fixed) / batch * s.batch_tokens)
    if tokens < FEWEST_TOKENS:
        yield "change   even small batches do not fit: choose a smaller model with --preset"
        return
    tokens -= tokens % 10 ** (len(str(tokens)) - 2)  # two digits are enough
    times = math.ceil(s.accumulate * s.batch_tokens / tokens)
    shorter = f" --max-length {tokens - 1}" if tokens <= s.max_length else ""
    yield (
        f"change   use --batch-tokens {tokens} --accumulate {times}{shorter}; or a smaller "
        "model with --preset"
    )


def _short(number):
    """Return a number in three digits, with the prefix of its unit.

    >>> _short(63_082_496), _short(3.1e9), _short(999.7), _short(100e12)
    ('63.1 M', '3.10 G', '1.00 k', '100 T')
    """
    prefixes = iter(["", "k", "M", "G", "T", "P"])
    prefix = next(prefixes)
    while number >= 999.5:
        number, prefix = number / 1000, next(prefixes)
    return f"{number:#.3g}".rstrip(".") + f" {prefix}"


def _duration(seconds):
    """Return a time in its two largest units.

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
