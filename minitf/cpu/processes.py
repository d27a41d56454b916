"""Decoding on all cores of one machine: each worker, a copy of this process, has some sentences.

Python's threads take turns at everything but the long computations inside NumPy. Decoding a token
takes hundreds of small operations, so two threads wait for each other for a fifth of the time. A
forked process has the model at once, because it shares the memory until one of them writes; its
results come back through a pipe.

A ProcessPoolExecutor would be shorter, but its workers survive a parent killed by SIGKILL, and a
Ctrl-C during the fork can make a worker continue with the parent's program.
"""

import contextlib
import os
import pickle
import signal
import sys
import threading
import warnings

from minitf.cpu.machine import cores
from minitf.cpu.threads import use_second_thread
from minitf.forms import in_threads

_MAX_PROCESSES = 8  # each needs memory for the sentences that it decodes
_MAX_THREADS = 4  # more threads would only wait for each other
_DEFERRED_SIGNALS = {
    getattr(signal, name, signal.SIGINT) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
}


def over_cores(function, items):
    """Yield function(item) for each item, in their order, computed by several processes.

    Each of n processes, this one included, computes every n-th item. A result that a worker does
    not deliver, because it failed or was killed, is computed here; so errors are raised here too.
    """
    n = min(cores(), len(items), _MAX_PROCESSES)
    if n < 2 <= cores():  # at most one item: there is another core
        with use_second_thread():
            results = [function(item) for item in items]
        yield from results
    elif n < 2:
        yield from map(function, items)
    elif not _can_fork():
        from concurrent.futures import ThreadPoolExecutor  # lazily: it loads logging

        with ThreadPoolExecutor(min(n, _MAX_THREADS)) as pool:
            yield from pool.map(in_threads(function), items)
    else:
        workers = [_Worker(function, items[i::n]) for i in range(1, n)]
        try:
            for worker in workers:
                worker.start(workers)
            for i, item in enumerate(items):
                yield function(item) if i % n == 0 else workers[i % n - 1].next()
        finally:
            with _deferred_signals():
                for worker in workers:
                    worker.end()


def _can_fork():
    """Return whether this process may be forked.

    On macOS the system's libraries fail after a fork, Windows has none, and MPI forbids it.
    """
    return sys.platform == "linux" and "mpi4py.MPI" not in sys.modules


@contextlib.contextmanager
def _deferred_signals():
    """Hold back signals, including Ctrl-C, until the end of the block.

    Where there are other threads, a signal that is blocked here arrives in one of them, and Python
    runs its handler in the main thread all the same. So there the handlers wait as well.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _DEFERRED_SIGNALS)
    handlers, received = {}, []
    try:
        if threading.current_thread() is threading.main_thread():
            for number in _DEFERRED_SIGNALS:
                handlers[number] = signal.signal(number, lambda number, _: received.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number in received:
            signal.raise_signal(number)


class _Worker:
    """A copy of this process, which computes the results of some items and ends."""

    def __init__(self, function, items):
        self.function, self.items, self.pid, self.results = function, iter(items), None, None

    def start(self, workers):
        """Fork; if the system allows no more processes, `next` computes the results here."""
        reading, writing = os.pipe()
        self.results = os.fdopen(reading, "rb")
        with os.fdopen(writing, "wb") as file, _deferred_signals(), warnings.catch_warnings():
            # Python warns of locks that other threads may hold now. A worker takes none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            with contextlib.suppress(OSError):
                self.pid = os.fork()
            if self.pid == 0:
                self._work(file, workers)

    def _work(self, file, workers):
        """Send all results, and exit without Python's clean-up; signals are held back here."""
        try:
            # With every reading end closed here, writing fails as soon as the parent has ended.
            for worker in workers:
                if worker.results:
                    worker.results.close()
            for item in self.items:
                pickle.dump(self.function(item), file)
                file.flush()
        finally:
            os._exit(0)

    def next(self):
        """Return the result of the next item."""
        item = next(self.items)
        if self.pid is not None:
            try:
                return pickle.load(self.results)
            except (EOFError, pickle.UnpicklingError):
                self.end()
        return self.function(item)

    def end(self):
        """Kill the process and wait for it."""
        if self.results:
            self.results.close()
        if self.pid is not None:
            # Its end may have been noticed elsewhere already.
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            self.pid = None
