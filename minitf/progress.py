"""One line on the terminal that says how much of a long piece of work is done; nothing where there is no terminal."""

import sys
import time

__all__ = ["Progress"]

AFTER, EVERY = 1.0, 0.2  # seconds: work that is done sooner shows nothing, and drawing must cost nothing


class Progress:
    """A bar for a `with` block, which wipes it in the end.

    what: is written beside it. total: how much there is to do, 0 if nobody knows. begin: what was done before.
    """

    def __init__(self, what, total=0, begin=0):
        self.what, self.total, self.begin = what, total, begin
        self.possible = bool(sys.stderr and sys.stderr.isatty())
        self.started = time.monotonic()
        self.drawn, self.width = self.started + AFTER - EVERY, 0

    def __enter__(self):
        return self

    def to(self, done):
        """Say how much is done."""
        now = time.monotonic()
        if not self.possible or now - self.drawn < EVERY:
            return
        self.drawn = now
        text = f"{self.what}  {done:,}"
        if self.total:
            share = min(1, done / self.total)
            rate = max(done - self.begin, 1) / (now - self.started)
            left = int(max(self.total - done, 0) / rate)
            text = (
                f"[{'#' * round(30 * share):<30}] {share:4.0%}  {left // 3600}:{left // 60 % 60:02}:{left % 60:02} left"
            )
            text += f"  {self.what}"
        print(f"\r{text:<{self.width}}", end="", file=sys.stderr, flush=True)
        self.width = len(text)

    def __exit__(self, *error):
        if self.width:
            print(f"\r{'':{self.width}}\r", end="", file=sys.stderr, flush=True)
