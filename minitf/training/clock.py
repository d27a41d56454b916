"""The time that a run has taken, and how long it will still take."""

import contextlib
import time

__all__ = ["Clock"]

WARM_UP = 3  # updates of a session that take longer than later ones, and say nothing about them


class Clock:
    """Measures a session, from `start` to now. All times are in seconds.

    A run has one session or, if it is resumed, several; a session has laps, one for each entry of
    the log.
    earlier: what earlier sessions of the run took.
    first_step: the number of updates done before this session.
    """

    def __init__(self):
        self.earlier = 0.0
        self.start(0)

    def start(self, step):
        """Begin the session; `step` updates were done before it."""
        self.first_step, self.started = step, time.perf_counter()
        self._lap, self._warm = self.started, None

    def session(self):
        """Return the seconds since `start`."""
        return time.perf_counter() - self.started

    def total(self):
        """Return the seconds of all sessions together."""
        return self.earlier + self.session()

    def lap(self):
        """Return the seconds since `next_lap`, without pauses."""
        return time.perf_counter() - self._lap

    def next_lap(self):
        """Begin a lap: the updates between two entries of the log."""
        self._lap = time.perf_counter()

    @contextlib.contextmanager
    def pause(self):
        """Leave the time of this block, such as a validation, out of the lap."""
        started = time.perf_counter()
        yield
        self._lap += time.perf_counter() - started

    def count(self, step):
        """Take note that `step` updates are done; call it after each update."""
        if step == self.first_step + WARM_UP:
            self._warm = step, time.perf_counter()

    def left(self, step, steps, minutes=0.0):
        """Return the seconds until the run ends, None while they cannot be judged yet.

            left = (steps - step) * (now - t_w) / (step - w),  at most 60 minutes - session()

        w is the step after the first three updates of the session, which take longer than later
        ones, and t_w the time when it was done. So validations count as well.
        step, steps: updates done, and in all. minutes: the time limit of a session, 0 for none.
        """
        if step >= steps:
            return 0.0
        if self._warm is None or step == self._warm[0]:
            return None
        warm_step, warm_time = self._warm
        seconds = (time.perf_counter() - warm_time) / (step - warm_step)
        left = (steps - step) * seconds
        if minutes:
            left = min(left, 60 * minutes - self.session())
        return max(0.0, left)
