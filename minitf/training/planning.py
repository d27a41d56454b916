"""A run before its first update: the largest batches tried, memory and time predicted.

A batch of 25,000 tokens takes a laptop a minute and gigabytes. A prediction measures two slices of
it instead, each some of its rows, and continues the straight line through both:

    y = fixed + slope x        memory: x = rows; time: x = operations of the matrix products

That is exact enough, because all rows of a batch have the same width: a slice attends over as
many positions as the batch does, and has the same proportion of products to everything else.
"""

import dataclasses
import math
import statistics
import time

import numpy as np

from minitf.backend import on_gpu
from minitf.cli import Progress, counted
from minitf.config import Config
from minitf.cpu.machine import free_memory, keep_memory, largest_memory, memory_of, used_memory
from minitf.training.settings import Settings, smaller_model

__all__ = ["Workload", "arithmetic", "report", "summary", "try_batches", "workload"]

# Sections 5.1 and 5.2: the updates of the base model, and target tokens in each.
PAPER_STEPS, PAPER_TOKENS = 100_000, 25_000
LONG = 600  # seconds; a shorter run is not predicted unless asked for
SAFE = 0.9  # fraction of the free memory that arrays may take; a process needs more than arrays
SLICE_TOKENS = 2048  # tokens of the larger slice on one side; the other has a quarter of them
ENOUGH = 1.0  # seconds of a pass over the larger slice; if it takes less, the slice is doubled
REPEAT_SECONDS = 4  # seconds that the repetitions of one measurement should take together ...
FEWEST_REPEATS, MOST_REPEATS = 2, 20  # ... if that is between so many repetitions
SAMPLE = 500  # batches whose shapes represent an epoch
FEWEST_TOKENS = 50  # tokens of a batch, about one sentence


@dataclasses.dataclass(frozen=True)
class Workload:
    """The settings of a run, and averages over an epoch.

    steps: updates to come. pairs, updates: in an epoch. tokens, work: the target tokens and the
    operations of an update on average. typical: the pairs of a batch with about the average work,
    as indices into the dataset. ranks: how many share an update.
    """

    settings: Settings
    config: Config
    steps: int
    pairs: int
    updates: float
    tokens: float
    work: float
    typical: np.ndarray
    ranks: int


def workload(settings, config, dataset, plan, steps, ranks):
    """Return the Workload of a run. plan: the batches of an epoch. steps: updates to come."""
    sides = dataset.sources, dataset.targets
    tokens = float(sides[1].lengths.sum() + len(sides[1])) / len(plan)  # with the end marks
    sample = plan[:: len(plan) // SAMPLE + 1]  # a plan is in random order
    lengths = [[int(side.lengths[rows].max()) + 1 for side in sides] for rows in sample]
    source, target = np.array(lengths, float).T
    n_rows = np.array([len(rows) for rows in sample], float)
    work = arithmetic(config, n_rows, source, target, tokens)
    n = settings.accumulate
    return Workload(
        settings,
        config,
        steps,
        pairs=len(sides[1]),
        updates=len(plan) / n,
        tokens=tokens * n,
        work=float(work.mean()) * n,
        typical=sample[int(np.abs(work - work.mean()).argmin())],
        ranks=ranks,
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


def try_batches(updater, batches, say):
    """Run batches forward and backward, discard the results, and return the seconds it took.

    updater: the Updater that computes. say: takes lines that show progress.
    With the largest batches of a run, memory runs out now or hardly ever: with --sample-subwords,
    those of a later epoch may be a little larger.
    """
    seconds = 0.0
    with Progress("of the largest batches tried", say=say) as bar:
        for i, batch in enumerate(batches, 1):
            seconds += updater.try_batch(batch)
            bar.to(i)
    return seconds


def summary(load, updater, batch, first_seconds):
    """Return a line that predicts the time of a run that has begun, None if the run is short.

    batch: this rank's slice of a typical one. first_seconds: of the pass over the largest batches.
    """
    s = load.settings
    if updater.ranks.tell(first_seconds) * s.accumulate * load.steps < LONG:
        return None
    passes, _ = _passes(load, updater, batch)
    seconds = passes * load.steps
    if min(seconds, 60 * s.minutes or seconds) < LONG:
        return None
    memory = largest_memory()
    return (
        f"plan     {load.tokens:,.0f} target tokens and {_short(load.work)}FLOP per update, "
        + (f"{_short(memory)}B of memory, " if memory else "")
        + f"about {_duration(seconds)} for the remaining {counted(load.steps, 'update')}"
        + f"{_time_limit(s, seconds)}; --plan says more"
    )


def report(load, updater, largest, typical, update):
    """Measure slices of batches, and yield lines that predict the memory and the time of a run.

    largest, typical: this rank's slices of the largest batches, and of a typical one. update:
    makes an update in which every rank has one pair, and waits for it; it changes the model.
    Each line comes as soon as it is known. Slices are so small that they fit where a batch does
    not. All ranks measure; rank 0 decides.
    """
    s, tell = load.settings, updater.ranks.tell
    times = f" x {s.accumulate}" if s.accumulate > 1 else ""
    updates = max(1, round(load.updates))
    yield (
        f"update   at most {s.batch_tokens:,}{times} tokens on each side, padding included; "
        f"{load.tokens:,.0f} target tokens on average; "
        f"{counted(updates, 'update')} per epoch of {counted(load.pairs, 'pair')}"
    )
    yield (
        f"products {_short(load.work)}FLOP (floating-point operations) per update, forward and "
        "backward"
    )
    keep_memory()
    yield (
        "measure  slices (some rows) of the largest batches for the memory, of a typical batch for "
        "the time; a figure extrapolated from them may be off by a fifth, and on a busy machine by "
        "much more"
    )
    used, free = tell((used_memory(), free_memory()))
    fixed, batch, slices = tell(_needed(updater, largest))
    copies = _copied(updater)
    if free is not None and fixed + max(batch, copies) > SAFE * free:
        yield from _does_not_fit(s, fixed, batch, copies, free)
        return
    each_rank = f" on each of {load.ranks} ranks" if load.ranks > 1 else ""
    most = max((used or 0) + fixed + max(batch, copies), largest_memory() or 0)
    yield f"memory   at most about {_short(most)}B{each_rank} ({slices})" + (
        f"; {_short(free)}B are free" if free else ""
    )
    passes, slices = _passes(load, updater, typical)
    seconds = passes + tell(_rest_of_update(updater, typical, update))
    speed = load.tokens / seconds
    yield (
        f"time     {_duration(seconds)} per update ({slices}), "
        f"{_duration(load.steps * seconds)} for the remaining {counted(load.steps, 'update')}"
        f", validations not included{_time_limit(s, load.steps * seconds)}"
    )
    yield f"speed    {speed:,.0f} target tokens/s, {_short(load.work / seconds)}FLOP/s"
    yield (
        f"paper    {_duration(PAPER_STEPS * PAPER_TOKENS / speed)} for the paper's "
        f"{PAPER_STEPS:,} updates of {PAPER_TOKENS:,} target tokens, at this speed and without "
        "validations"
    )


def _time_limit(settings, seconds):
    """Return a remark if --minutes ends a run that takes `seconds`."""
    limited = 0 < 60 * settings.minutes < seconds
    return f" (--minutes {settings.minutes:g} ends the run earlier)" if limited else ""


# Slices -------------------------------------------------------------------------------------------


def _line(few, small, more, large):
    """Return fixed and slope of the line through the points (few, small) and (more, large).

    If there is one point only, if the line would start below 0, or if it would fall, because the
    machine was busy with something else, it is the line from 0 to the second point.

    >>> _line(1, 5, 3, 9), _line(3, 9, 3, 9), _line(1, 2, 3, 9), _line(1, 9.5, 3, 9)
    ((3.0, 2.0), (0.0, 3.0), (0.0, 3.0), (0.0, 3.0))
    """
    slope = (large - small) / (more - few) if more > few and large > small else math.inf
    slope = min(slope, large / more)
    return large - slope * more, slope


def _rows(updater, batch, tokens):
    """Return how many rows a slice of about so many tokens has: equally many for each replica."""
    n = len(updater.models)
    return min(max(tokens // _width(batch) // n, 1) * n, len(batch.source))


def _width(batch):
    """Return the number of positions in a row, on the longer side."""
    return max(batch.source.shape[1], batch.target_in.shape[1])


def _described(batch, few, more):
    """Return the basis of a prediction as text. few, more: the rows of both slices."""
    if more >= len(batch.source):
        return f"measured on a batch of {len(batch.source) * _width(batch):,} tokens"
    few, more = few * _width(batch), more * _width(batch)
    return f"extrapolated from slices of {few:,} and {more:,} tokens"


# Memory -------------------------------------------------------------------------------------------


def _needed(updater, batches):
    """Predict the memory of the largest batch: (bytes of any batch, bytes of its rows, slices)."""
    fixed, batch, slices = max(
        (_predicted(updater, batch) for batch in batches), key=lambda found: found[0] + found[1]
    )
    return _untouched(updater) + fixed, batch, slices


def _untouched(updater):
    """Return the bytes of arrays that are allocated, but take memory only in the first update.

    They are the gradients of each replica. On a GPU they take memory at once.
    """
    return 0 if on_gpu() else updater.optimizer.gradients.nbytes * len(updater.models)


def _copied(updater):
    """Return the bytes of the copies from which files are written, when no batch is in memory.

    About 20 a parameter: the weights, Adam's m and v, and the average of weights in float64. Those
    of a GPU are in the memory of its host.
    """
    return 0 if on_gpu() else 5 * updater.optimizer.gradients.nbytes


def _predicted(updater, batch):
    """Predict the memory of a batch: (bytes of any batch, bytes of its rows, slices)."""
    total = len(batch.source)
    tokens = min(SLICE_TOKENS, total * _width(batch) // 2)
    few, more = _rows(updater, batch, tokens // 4), _rows(updater, batch, tokens)
    updater.try_batch(batch.rows(0, few))  # allocates what is made only once, such as positions
    small, large = (memory_of(lambda n=n: updater.try_batch(batch.rows(0, n))) for n in (few, more))
    fixed, slope = _line(few, small, more, large)
    return fixed, slope * total, _described(batch, few, more)


def _does_not_fit(settings, fixed, batch, copies, free):
    """Yield the memory needed, and settings that make the same update in the free memory."""
    s = settings
    yield (
        f"memory   this run does not fit: it needs another {_short(fixed + max(batch, copies))}B "
        f"({_short(batch)}B for the largest batch, or {_short(copies)}B to write the files), but "
        f"only {_short(free)}B are free"
    )
    # 0.9: a batch of fewer tokens may be filled better.
    tokens = int(0.9 * (SAFE * free - fixed) / batch * s.batch_tokens)
    if tokens < FEWEST_TOKENS or fixed + copies > SAFE * free:
        yield f"change   even small batches do not fit: {smaller_model(s)}"
        return
    tokens -= tokens % 10 ** (len(str(tokens)) - 2)  # two digits are enough
    times = math.ceil(s.accumulate * s.batch_tokens / tokens)
    shorter = f" --max-length {tokens - 1}" if tokens <= s.max_length else ""
    yield (
        f"change   use --batch-tokens {tokens} --accumulate {times}{shorter}; or {smaller_model(s)}"
    )


# Time ---------------------------------------------------------------------------------------------


def _passes(load, updater, batch):
    """Predict the seconds of the passes that an average update makes; return them and the slices.

    batch: this rank's slice of a typical one. The slowest rank counts: the others wait for it.
    """
    most = min(updater.ranks.gather(len(batch.source)))
    tokens = SLICE_TOKENS
    more = min(_equal_rows(updater, batch, tokens), most)
    updater.try_batch(batch.rows(0, more))  # the first pass also fetches memory from the system
    large = _pass_seconds(updater, batch, more)
    while large < ENOUGH and more < most:
        tokens *= 2
        more = min(_equal_rows(updater, batch, tokens), most)
        large = _pass_seconds(updater, batch, more)
    few, small = more, large
    if more < most:
        few = min(_equal_rows(updater, batch, tokens // 4), most)
        small = _pass_seconds(updater, batch, few)
    fixed, slope = _line(_work(load, batch, few), small, _work(load, batch, more), large)
    passes = math.ceil(load.settings.accumulate / load.ranks)  # of this rank
    return passes * fixed + slope * load.work / load.ranks, _described(batch, few, more)


def _equal_rows(updater, batch, tokens):
    """Return the rows of a slice by `_rows` of rank 0, so that all ranks make the same passes."""
    return updater.ranks.tell(_rows(updater, batch, tokens))


def _pass_seconds(updater, batch, rows):
    """Return the seconds of a pass over a slice; of the slowest rank."""
    sliced = batch.rows(0, rows)
    return max(updater.ranks.gather(_repeated(lambda: updater.try_batch(sliced), updater.ranks)))


def _work(load, batch, rows):
    """Count the operations of a pass over a slice."""
    sliced = batch.rows(0, rows)
    width = sliced.source.shape[1], sliced.target_in.shape[1]
    return float(arithmetic(load.config, rows, *width, sliced.n_tokens))


def _rest_of_update(updater, batch, update):
    """Return the seconds that an update takes beside its passes: Adam, and sums over the ranks.

    update: makes an update in which every rank has one pair.
    """
    update()  # slower: it touches Adam's moments for the first time
    pair = batch.rows(0, 1)
    complete = _repeated(lambda: _timed(update), updater.ranks)
    return max(0.0, complete - _repeated(lambda: updater.try_batch(pair), updater.ranks))


def _timed(action):
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _repeated(measure, ranks):
    """Return the median of some measurements of seconds, equally many on every rank."""
    first = measure()
    n = ranks.tell(math.ceil(REPEAT_SECONDS / max(first, 1e-9)))
    n = min(max(n, FEWEST_REPEATS), MOST_REPEATS)
    return statistics.median([first, *(measure() for _ in range(n - 1))])


# Numbers ------------------------------------------------------------------------------------------


def _short(number):
    """Return a number in three digits, with the prefix of its unit.

    >>> _short(63_082_496), _short(3.1e9), _short(999.7), _short(100e12), _short(2e18)
    ('63.1 M', '3.10 G', '1.00 k', '100 T', '2.00 E')
    """
    prefixes = iter(["", "k", "M", "G", "T", "P", "E", "Z", "Y", "R", "Q"])
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
