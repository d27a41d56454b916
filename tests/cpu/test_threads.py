"""Threads for forms: the pool that replicas lend, and how many BLAS uses."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from minitf.cpu import packed, processes, threads


def test_few_items_are_computed_by_the_caller():
    names = set()
    with ThreadPoolExecutor(2) as pool, threads.use_pool(pool, 2):
        threads.parallel_for(lambda item: names.add(threading.current_thread().name), range(3))
    assert names == {threading.current_thread().name}


def test_only_a_single_item_has_a_spare_thread(monkeypatch):
    """Several items have a core each; and one core has no second thread."""
    second = []
    for count, items in ((2, 1), (1, 1), (2, 2)):
        monkeypatch.setattr(processes, "cores", lambda count=count: count)
        monkeypatch.setattr(processes, "_can_fork", lambda: False)
        list(
            processes.over_cores(
                lambda item: second.append(threads.second_thread() is not None), range(items)
            )
        )
    assert second == [True, False, False, False] and threads.second_thread() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork of several threads
def test_a_forked_process_has_a_spare_thread_of_its_own():
    with threads.use_second_thread():
        mine = threads.second_thread()
    child = os.fork()
    if not child:
        with threads.use_second_thread():
            done = threads.second_thread().submit(int).result(timeout=20) == 0
            os._exit(0 if done and threads.second_thread() is not mine else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("rows", [1, 3, 4, 7])
def test_a_spare_thread_computes_half_of_a_large_product(rng, rows, monkeypatch):
    monkeypatch.setattr(packed, "_CUT", False)
    monkeypatch.setattr(packed, "_LARGE", 8 * 40 * 101)
    x, matrix = rng.normal(size=(rows, 40)), rng.normal(size=(40, 101))
    with threads.use_second_thread():
        y = packed.product(x, *packed.in_panels([matrix], [matrix.shape], matrix.dtype), 101)
    np.testing.assert_allclose(y, x @ matrix, rtol=1e-12, atol=1e-12)


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
