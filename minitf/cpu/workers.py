"""Decoding on all cores of one machine: copies of the process, each with sentences of its own.

Threads of Python take turns at everything but the long computations inside NumPy. A word of
decoding is hundreds of small operations, and two threads wait for each other for a fifth of the
time. A process that is forked has the model and all else at once, as its memory is shared until
somebody writes; its results come back through a pipe.
"""

import contextlib
import os
import pickle
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

from minitf.cpu.machine import cores

__all__ = ["over_cores"]

_MOST = 8  # processes: each takes memory for the sentences that it works on
_MOST_THREADS = 4  # more of them would only wait for each other
_DISTURBANCES = {
    getattr(signal, name, signal.SIGINT) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
}


def over_cores(function, items):
    """Yield function(item) for each item, in their order.

    Of n processes, each takes every n-th item.

    What a copy of the process does not deliver, because it failed or was killed, is computed here:
    so errors arise here as well.
    """
    n = min(cores(), len(items), _MOST)
    if n < 2:
        yield from map(function, items)
    elif not _can_fork():
        with ThreadPoolExecutor(min(n, _MOST_THREADS)) as pool:
            yield from pool.map(function, items)
    else:
        copies = [_Copy(function, items[i::n]) for i in range(1, n)]
        try:
            for copy in copies:
                copy.start(copies)
            for i, item in enumerate(items):
                yield function(item) if i % n == 0 else copies[i % n - 1].next()
        finally:
            with _undisturbed():
                for copy in copies:
                    copy.end()


def _can_fork():
    """Linux can.

    On macOS its own libraries fail afterwards, Windows has no such thing, and MPI forbids it.
    """
    return sys.platform == "linux" and "mpi4py.MPI" not in sys.modules


@contextlib.contextmanager
def _undisturbed():
    """Let signals wait, Ctrl-C among them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _DISTURBANCES)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Copy:
    """A copy of this process, which works on some items and ends."""

    def __init__(self, function, items):
        self.function, self.items, self.pid, self.results = function, iter(items), None, None

    def start(self, copies):
        """Fork; where the system allows no more processes, the items are worked on here."""
        reading, writing = os.pipe()
        self.results = os.fdopen(reading, "rb")
        with os.fdopen(writing, "wb") as file, _undisturbed(), warnings.catch_warnings():
            # Python warns of locks that other threads may hold just now: the copy only computes,
            # and takes none.
            warnings.simplefilter("ignore", DeprecationWarning)
            with contextlib.suppress(OSError):
                self.pid = os.fork()
            if self.pid == 0:
                self._work(file, copies)

    def _work(self, file, copies):
        """Send all results, and end without the tidying up that is left to the original.

        No signal comes here.
        """
        try:
            # Where nobody can read any more, writing fails: so a copy ends when the original does.
            for copy in copies:
                if copy.results:
                    copy.results.close()
            for item in self.items:
                pickle.dump(self.function(item), file)
                file.flush()
        finally:
            os._exit(0)

    def next(self):
        """Give the result of the next item."""
        item = next(self.items)
        if self.pid is not None:
            try:
                return pickle.load(self.results)
            except (EOFError, pickle.UnpicklingError):
                self.end()
        return self.function(item)

    def end(self):
        """End the process, whatever it is doing."""
        if self.results:
            self.results.close()
        if self.pid is not None:
            # Somebody else has waited for it.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            self.pid = None
