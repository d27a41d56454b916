"""The progress of long work: one line on the terminal that changes, or lines now and then where
there is none.
"""

import sys
import time

__all__ = ["Pace", "Progress"]

# seconds: work that is done sooner shows nothing, and drawing must cost nothing.
AFTER, EVERY = 1.0, 0.2
# Seconds between two lines where there is no terminal: the first pause, the longest one.
PAUSE, LONGEST = 10, 30


class Pace:
    """The pauses between lines, each longer than the one before. pause:
    the first one, in seconds.
    """

    def __init__(self, pause=PAUSE):
        self.pause, self.last = pause, time.monotonic()

    def due(self):
        """Return whether the pause is over; then the next one begins."""
        if time.monotonic() - self.last < self.pause:
            return False
        self.pause = min(self.pause + PAUSE, LONGEST)
        self.restart()
        return True

    def restart(self):
        """Begin the pause again, because something else was said."""
        self.last = time.monotonic()


class Progress:
    """A bar for a `with` block, which wipes it in the end.

    what: the text beside it. total: the amount of work, 0 if unknown. begin: the amount that was
    done before. say: where there is no terminal, this takes a line now and then; without it nothing
    is written there.
    """

    def __init__(self, what, total=0, begin=0, say=None):
        self.what, self.total, self.begin, self.say = what, total, begin, say
        self.possible = bool(sys.stderr and sys.stderr.isatty())
        self.started, self.pace = time.monotonic(), Pace()
        self.drawn, self.width = self.started + AFTER - EVERY, 0

    def __enter__(self):
        return self

    def to(self, done, left=None):
        """Show the amount that is done. left: the seconds that are left, if known better than
        from the rate.
        """
        if not self.possible:
            if self.say and self.pace.due():
                self.say(
                    f"working  {done:,} {f'of {self.total:,} ' if self.total else ''}{self.what}"
                )
            return
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
        """Take the bar away, for a line of text; the next `to` draws it again."""
        if self.width:
            print(f"\r{'':{self.width}}\r", end="", file=sys.stderr, flush=True)
            self.width = 0

    def __exit__(self, *error):
        self.wipe()
