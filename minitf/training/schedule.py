"""The learning rate of each update of a run: the paper's schedule, and its end in a cooldown."""

from minitf.optim import warmup_rate

__all__ = ["cooldown_start", "learning_rate"]


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
