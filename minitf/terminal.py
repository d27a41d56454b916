"""Progress of long work: a bar on a terminal, or a line now and then where there is none."""

import sys
import time

__all__ = ["Pace", "Progress"]

AFTER = 1.0  # seconds; shorter work shows no bar
EVERY = 0.2  # seconds between two drawings, so that they cost nothing
PAUSE = 10  # seconds before the first line; each pause is longer than the last by as much
LONGEST = 30  # seconds; the longest pause
CELLS = 30  # characters; the length of the bar


class Pace:
    """The pauses between lines, each longer than the one before. pause: seconds; the first one."""

    def __init__(self, pause=PAUSE):
        self.pause = pause
        self.restart()

    def due(self):
        """Return whether the pause is over; if so, begin the next one."""
        if time.monotonic() - self.last < self.pause:
            return False
        self.pause = min(self.pause + PAUSE, LONGEST)
        self.restart()
        return True

    def restart(self):
        """Begin the pause again, because another line was written."""
        self.last = time.monotonic()


class Progress:
    """A progress bar for a `with` block, which removes it at its end.

    what: the text beside the bar, such as "lines read". total: the amount of work, 0 if unknown.
    say: a function that takes a line now and then if there is no terminal; without it nothing is
    written there.
    The time left is judged by the work after the first call of `to`: work begins slowly.
    """

    def __init__(self, what, total=0, *, say=None):
        self.what, self.total, self.say = what, total, say
        self.possible = bool(sys.stderr and sys.stderr.isatty())
        self.pace = Pace()
        self.first = None  # when `to` was called first, and with how much
        self.drawn = time.monotonic() + AFTER - EVERY
        self.width = 0  # characters on the terminal

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.wipe()

    def to(self, done, left=None):
        """Show the amount that is done. left: seconds, if known better than from the rate."""
        now = time.monotonic()
        if now - self.drawn < EVERY:
            return
        self.drawn = now
        text = f"{self.what}  {done:,}"
        if self.total:
            share = min(1, done / self.total)
            rate = max(done - self.begin, 1) / (now - self.started)
            left = int(max(self.total - done, 0) / rate if left is None else left)
            text = (
                f"[{'#' * round(30 * share):<30}] {share:4.0%}  "
                f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
            )
            text += f"  {self.what}"
        print(f"\r{text:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(text)

    def wipe(self):
        """Remove the bar, so that a line can be written; the next `to` draws it again."""
        if self.width:
            print(f"\r{'':{self.width}}\r", end="", file=sys.stderr, flush=True)
            self.width = 0
