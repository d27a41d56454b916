"""The learning rate of each update: the paper's schedule, a cooldown, and how long both are."""

import dataclasses

from minitf.optim import warmup_rate
from minitf.training.settings import flag

__all__ = ["cooldown_start", "fill_in", "learning_rate"]

# What follows from the size of the text, as --help says. First the paper's, for a large text.
_PAPER = {"learning_rate": 1.0, "warmup_steps": 4000, "steps": 100_000, "valid_every": 1000}
_EPOCHS, _MIN_STEPS = 40, 1000  # epochs and updates of a new model; --patience may end it earlier
_TUNING_EPOCHS, _MIN_TUNING_STEPS = 5, 100  # the same for a trained model,
_TUNING_WARMUP, _TUNING_RATE = 50, 0.25  # which a higher rate would damage
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
    """Return the settings without None, and the chosen values as command-line options.

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
    tuning = bool(settings.start_from)
    if tuning:
        epochs, min_steps = _TUNING_EPOCHS, _MIN_TUNING_STEPS
        max_warmup, rate = _TUNING_WARMUP, _TUNING_RATE
    else:
        epochs, min_steps = _EPOCHS, _MIN_STEPS
        max_warmup, rate = _PAPER["warmup_steps"], 1
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
    chosen = {name: value for name, value in values.items() if getattr(settings, name) is None}
    options = " ".join(f"{flag(name)} {value:g}" for name, value in chosen.items())
    return dataclasses.replace(settings, **chosen), options
