"""Threads for forms: a program that has some lends them, and forms that can use several take them.

In training, replicas lend their pool, and `each` uses it. In decoding, one other thread helps with
a product in which fetching the matrix takes most of the time: see Helper.
"""

import contextlib
import contextvars
import os
import signal
import threading
import time
from queue import SimpleQueue

from threadpoolctl import ThreadpoolController

__all__ = [
    "FasterWay",
    "Helper",
    "each",
    "helped",
    "helper",
    "lent",
    "libraries",
    "one_blas_thread",
]

_FEW = 8  # items of about 0.1 ms each; for fewer it takes too long to wake the threads
_TRIALS = 4  # timings of each of two ways
_WORTH_IT = 0.9  # of the time alone: a helper that saves less is not used

# The pool that was lent to this thread, and its number of threads.
_lent = contextvars.ContextVar("_lent", default=(None, 1))
_helper = contextvars.ContextVar("_helper", default=None)  # the Helper of this thread, or None
libraries = ThreadpoolController()  # made once: searching for the libraries takes 0.5 ms
_lock = threading.Lock()
_one_blas_thread = {"blocks": 0, "limit": None}  # how many are open; the limit, a `with` block


@contextlib.contextmanager
def one_blas_thread():
    """Let BLAS compute with one thread in a `with` block.

    The number of its threads belongs to the whole process. So the first block that opens limits it,
    and the last that closes restores it; threads may leave their blocks in any order.
    """
    with _lock:
        if _one_blas_thread["blocks"] == 0:
            _one_blas_thread["limit"] = libraries.limit(limits=1, user_api="blas")
            _one_blas_thread["limit"].__enter__()
        _one_blas_thread["blocks"] += 1
    try:
        yield
    finally:
        with _lock:
            _one_blas_thread["blocks"] -= 1
            if _one_blas_thread["blocks"] == 0:
                _one_blas_thread["limit"].__exit__(None, None, None)


@contextlib.contextmanager
def lent(pool, count):
    """Let the forms called in this block use the `count` threads of a pool."""
    token = _lent.set((pool, count))
    try:
        yield
    finally:
        _lent.reset(token)


def each(function, items):
    """Call a function with every item, in any order, on all threads that were lent."""
    pool, count = _lent.get()
    if count == 1 or len(items) < _FEW:
        for item in items:
            function(item)
    else:
        list(pool.map(lambda i: [function(item) for item in items[i::count]], range(count)))


class Helper(threading.Thread):
    """A second thread that shares the items of a call with the thread that calls.

    A pool would take five times as long to hand over a call.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.process = os.getpid()
        self.calls = SimpleQueue()
        with without_signals():
            self.start()

    def run(self):
        """Help with one call after the other."""
        while True:
            self.calls.get()()

    def each(self, function, items):
        """Call a function with every item: each thread takes the next one until none is left.

        The caller does not wait for a helper that did not begin, because other programs keep the
        cores busy.
        """
        remaining, end = iter(items), SimpleQueue()
        begin = threading.Lock()  # taken once: by the helper, or in the end by the caller

        def work():
            for item in remaining:
                function(item)

        def help():
            if begin.acquire(blocking=False):
                try:
                    end.put(work())
                except BaseException as error:
                    end.put(error)

        self.calls.put(help)
        try:
            work()
        finally:
            error = None if begin.acquire(blocking=False) else end.get()
        if error is not None:
            raise error


@contextlib.contextmanager
def without_signals():
    """Let threads that start in this block receive no signals.

    They would be handled although the main thread defers them: see workers.py.
    """
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_of_this_process = []  # its Helper, once there is one


@contextlib.contextmanager
def helped():
    """Let forms use a helper in this block."""
    if not _of_this_process or _of_this_process[0].process != os.getpid():
        _of_this_process[:] = [Helper()]  # a forked process does not have its parent's threads
    token = _helper.set(_of_this_process[0])
    try:
        yield
    finally:
        _helper.reset(token)


def helper():
    """Return the Helper that forms may use here, or None."""
    return _helper.get()


class FasterWay:
    """Does some work in the faster of two ways, which have the same result.

    The first calls take turns and are timed; then the choice is made once and for all. The second
    way has to save a tenth of the time.
    """

    def __init__(self):
        self.seconds, self.chosen = ([], []), None

    def take(self, *ways):
        """Do the work in one of two ways, functions without arguments; return its result."""
        if self.chosen is not None:
            return ways[self.chosen]()
        one, other = self.seconds
        turn = 0 if len(one) == len(other) else 1
        start = time.perf_counter()
        result = ways[turn]()
        self.seconds[turn].append(time.perf_counter() - start)
        if len(other) >= _TRIALS:
            self.chosen = int(_median(other) < _WORTH_IT * _median(one))
        return result


def _median(numbers):
    return sorted(numbers)[len(numbers) // 2]
