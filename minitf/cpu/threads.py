"""Threads for forms: who has some lends them, and a form that can use several takes them."""

import contextlib
import contextvars

__all__ = ["each", "lent"]

_FEW = 8  # items, each a tenth of a millisecond: fewer are not worth waking the threads

_lent = contextvars.ContextVar("_lent", default=(None, 1))  # of this thread: a pool, and its size


@contextlib.contextmanager
def lent(pool, count):
    """Let the forms called inside a `with` block use the `count` threads of a pool."""
    token = _lent.set((pool, count))
    try:
        yield
    finally:
        _lent.reset(token)


def each(function, items):
    """Call a function with every item, in any order, on all threads that are lent."""
    pool, count = _lent.get()
    if count == 1 or len(items) < _FEW:
        for item in items:
            function(item)
    else:
        list(pool.map(lambda i: [function(item) for item in items[i::count]], range(count)))
