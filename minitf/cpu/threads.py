"""Threads for forms: replicas lend theirs, and a form that can use several takes them."""

import contextlib
import contextvars

__all__ = ["each", "lent"]

_FEW = 8  # items of about 0.1 ms each; for fewer it takes too long to wake the threads

# The pool that was lent to this thread, and its number of threads.
_lent = contextvars.ContextVar("_lent", default=(None, 1))


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
