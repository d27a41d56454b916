"""The learning rate of a run: the paper's, and its end in a cooldown."""

from types import SimpleNamespace

import pytest

from minitf.optim import warmup_rate
from minitf.training.schedule import cooldown_start, fill_in, learning_rate
from minitf.training.settings import Settings


@pytest.mark.parametrize(
    ("steps", "cooldown", "length"),
    [(8, 0.5, 4), (11, 0.25, 3), (9, 0.25, 2), (3, 1.0, 3), (7, 0.0, 0), (100, 0.004, 0)],
)
def test_the_cooldown_is_the_nearest_number_of_steps_and_falls_to_its_last(steps, cooldown, length):
    run = SimpleNamespace(steps=steps, warmup_steps=3, learning_rate=0.7, cooldown=cooldown)
    factors = [
        learning_rate(run, 5, step) / warmup_rate(step, 5, 3, 0.7) for step in range(1, steps + 3)
    ]
    falling = [(length - i) / (length + 1) for i in range(length)]
    last = falling[-1] if falling else 1
    assert factors == pytest.approx([1] * (steps - length) + falling + [last, last])
    assert cooldown_start(run) == steps - length


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"warmup_steps": 400}, 400),  # a third of 40 epochs of 30 updates
        ({"warmup_steps": 401}, 120),
        ({"warmup_steps": 401, "steps": 1200}, 401),
        ({"warmup_steps": 401, "minutes": 5}, 401),
    ],
)
def test_a_warm_up_over_a_third_of_the_default_steps_is_shortened(given, expected):
    assert fill_in(Settings(**given), 30)[0].warmup_steps == expected
