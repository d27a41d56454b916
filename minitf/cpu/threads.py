"""The thread pool that a program shares with its forms.

In training it is the pool of the replicas, for `parallel_for`. A program that decodes on one core
alone has a second thread, for products with a large matrix.
"""

import contextlib
import contextvars
import functools
import os
import signal
import threading

from threadpoolctl import ThreadpoolController

_MIN_ITEMS = 8  # items of about 0.1 ms each; for fewer, it takes longer to wake the threads

_pool = contextvars.ContextVar("_pool", default=(None, 1))  # and its number of threads
_has_second = contextvars.ContextVar("_has_second", default=False)
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
def use_pool(pool, count):
    """Let the forms called in this block use the `count` threads of a pool."""
    token = _pool.set((pool, count))
    try:
        yield
    finally:
        _pool.reset(token)


@contextlib.contextmanager
def use_second_thread():
    """Let forms use one more thread in this block: see `second_thread`."""
    token = _has_second.set(True)
    try:
        yield
    finally:
        _has_second.reset(token)


def second_thread():
    """Return a pool of one thread that may compute while this one does, or None."""
    return _pool_of(os.getpid()) if _has_second.get() else None


@functools.cache
def _pool_of(process):  # a forked process does not have its parent's threads
    from concurrent.futures import ThreadPoolExecutor  # lazily: it loads logging

    with without_signals():
        pool = ThreadPoolExecutor(1)
        pool.submit(int).result()  # starts the thread
    return pool


def parallel_for(function, items):
    """Call a function with every item, in any order, on all threads of the pool."""
    pool, count = _pool.get()
    if count == 1 or len(items) < _MIN_ITEMS:
        for item in items:
            function(item)
    else:
        list(pool.map(lambda i: [function(item) for item in items[i::count]], range(count)))


@contextlib.contextmanager
def without_signals():
    """Let threads that start in this block receive no signals.

    They would be handled although the main thread defers them: see processes.py.
    """
    if not hasattr(signal, "pthread_sigmask"):  # as on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
