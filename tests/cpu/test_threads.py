"""Threads for forms: the pool that replicas lend, and how many BLAS uses."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from minitf.cpu import threads


def test_few_items_are_computed_by_the_caller():
    names = set()
    with ThreadPoolExecutor(2) as pool, threads.lent(pool, 2):
        threads.each(lambda item: names.add(threading.current_thread().name), range(3))
    assert names == {threading.current_thread().name}


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="as on Windows")
def test_a_thread_without_signals_receives_none():
    """Otherwise a signal that the main thread defers, as during a fork, would be handled."""
    blocked = []
    with threads.without_signals():
        thread = threading.Thread(
            target=lambda: blocked.extend(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        )
        thread.start()
    thread.join()
    assert {signal.SIGINT, signal.SIGTERM} <= set(blocked)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_one_blas_thread_in_overlapping_blocks():
    """The first that opens limits BLAS, the last that closes gives its threads back."""

    def count():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, "blas"):
        first, second = threads.one_blas_thread(), threads.one_blas_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert count() == {1}
        second.__exit__(None, None, None)
        assert count() == {2}
        with threads.one_blas_thread():
            assert count() == {1}
        assert count() == {2}
