"""Threads for forms: a program that has some lends them, and forms that can use several take them.

In training, replicas lend their pool, and `each` uses it. A program that decodes on one core alone
lends a spare thread, for products with a large matrix.
"""

import contextlib
import contextvars
import functools
import os
import signal
import threading

from threadpoolctl import ThreadpoolController

__all__ = [
    "each",
    "kernels",
    "lent",
    "libraries",
    "one_blas_thread",
    "spare",
    "spare_lent",
    "without_signals",
]

_FEW = 8  # items of about 0.1 ms each; for fewer it takes too long to wake the threads

# The pool that was lent to this thread, and its number of threads.
_lent = contextvars.ContextVar("_lent", default=(None, 1))
_has_spare = contextvars.ContextVar("_has_spare", default=False)
libraries = ThreadpoolController()  # made once: searching for the libraries takes 0.5 ms
_lock = threading.Lock()
_one_blas_thread = {"blocks": 0, "limit": None}  # how many are open; the limit, a `with` block


def kernels():
    """Return the name of the kernels that OpenBLAS uses, such as "Haswell"; None without it."""
    blas = [library for library in libraries.lib_controllers if library.user_api == "blas"]
    return next((getattr(library, "architecture", None) for library in blas), None)


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


@contextlib.contextmanager
def spare_lent():
    """Let forms use one more thread in this block: see `spare`."""
    token = _has_spare.set(True)
    try:
        yield
    finally:
        _has_spare.reset(token)


def spare():
    """Return a pool of one thread that may compute while this one does, or None."""
    return _pool_of(os.getpid()) if _has_spare.get() else None


@functools.cache
def _pool_of(process):  # a forked process does not have its parent's threads
    from concurrent.futures import ThreadPoolExecutor  # lazily: it loads logging

    with without_signals():
        pool = ThreadPoolExecutor(1)
        pool.submit(int).result()  # starts the thread
    return pool


def each(function, items):
    """Call a function with every item, in any order, on all threads that were lent."""
    pool, count = _lent.get()
    if count == 1 or len(items) < _FEW:
        for item in items:
            function(item)
    else:
        list(pool.map(lambda i: [function(item) for item in items[i::count]], range(count)))


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
