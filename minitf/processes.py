"""Decoding on all cores of one machine: copies of the process, each with sentences of its own.

Threads of Python take turns at everything but the long computations inside NumPy. A word of decoding is hundreds of
small operations, and two threads wait for each other for a fifth of the time. A process that is forked has the model
and all else at once, as its memory is shared until somebody writes; its results come back through a pipe.
"""

import contextlib
import os
import pickle
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

from minitf.backend import UserError, cores

__all__ = ["over_cores"]


def over_cores(function, items):
    """Yield function(item) for each item, in their order; what it raises arrives here.

    Of n cores, each takes every n-th item. Raises UserError where one of the processes is killed.
    """
    n = min(cores(), len(items))
    if n < 2:
        yield from map(function, items)
    elif not _can_fork():
        with ThreadPoolExecutor(n) as pool:
            yield from pool.map(function, items)
    else:
        copies = []
        try:
            copies += (_Copy(function, items[i::n]) for i in range(1, n))
            for i, item in enumerate(items):
                yield function(item) if i % n == 0 else copies[i % n - 1].next()
        finally:
            for copy in copies:
                copy.end()


def _can_fork():
    """Linux can. On macOS its own libraries fail afterwards, Windows has no such thing, and MPI forbids it."""
    return sys.platform == "linux" and "mpi4py.MPI" not in sys.modules


class _Copy:
    """A copy of this process, which works on some items and ends."""

    def __init__(self, function, items):
        self.function, self.items, self.pid = function, iter(items), None
        reading, writing = os.pipe()
        self.results = os.fdopen(reading, "rb")
        with os.fdopen(writing, "wb") as file, contextlib.suppress(OSError), warnings.catch_warnings():
            # Python warns of locks that other threads may hold just now: the copy only computes, and takes none.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
            if self.pid == 0:
                self._work(file)

    def _work(self, file):
        """Send all results, and end without the tidying up that is left to the original."""
        self.results.close()  # so that writing fails when the original is gone
        try:
            for item in self.items:
                try:
                    result = self.function(item), None
                except Exception as error:
                    result = None, error
                pickle.dump(result, file)
                file.flush()
        finally:
            os._exit(0)

    def next(self):
        """Give the result of the next item."""
        if self.pid is None:  # the system allows no more processes
            return self.function(next(self.items))
        try:
            result, error = pickle.load(self.results)
        except (EOFError, pickle.UnpicklingError):
            raise UserError(
                "a process that shared the work was killed, as the system does where memory runs out: "
                "make the batches smaller (--batch-tokens), or the beam narrower"
            ) from None
        if error is not None:
            raise error
        return result

    def end(self):
        """End the process, whatever it is doing."""
        self.results.close()
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)  # it is there until it has been waited for
            os.waitpid(self.pid, 0)
