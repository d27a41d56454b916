"""Threads for forms: the pool that replicas lend, and the helper of a decoder."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from minitf import Config, Transformer
from minitf.cpu import threads, workers
from minitf.cpu.decoder import for_decoding
from minitf.cpu.strips import in_strips, product
from minitf.cpu.threads import FasterWay, Helper
from minitf.decode import beam_search


def test_few_items_are_computed_by_the_caller():
    names = set()
    with ThreadPoolExecutor(2) as pool, threads.lent(pool, 2):
        threads.each(lambda item: names.add(threading.current_thread().name), range(3))
    assert names == {threading.current_thread().name}


def test_a_helper_shares_the_items():
    seen, both = [], threading.Barrier(2, timeout=20)

    def work(item):
        both.wait()  # only two threads can pass
        seen.append((item, threading.current_thread().name))

    Helper().each(work, range(6))
    assert sorted(item for item, _ in seen) == list(range(6))
    assert len({name for _, name in seen}) == 2


def test_nobody_waits_for_a_helper_that_did_not_begin():
    helper, free = Helper(), threading.Event()
    helper.calls.put(lambda: free.wait(20))  # as if other programs kept the cores busy
    seen = []
    helper.each(seen.append, range(5))
    assert seen == list(range(5))
    free.set()  # what it missed must not be done a second time
    helper.each(seen.append, [5])
    assert seen == list(range(6))


def test_two_callers_share_a_helper():
    """As two threads that translate at a time: each returns when its own items are done."""
    helper, wrong = Helper(), []

    def call():
        for _ in range(300):
            done = np.zeros(6, dtype=int)
            helper.each(lambda item, done=done: np.add.at(done, item, 1), range(6))
            if not (done == 1).all():
                wrong.append(done)

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not wrong and not any(caller.is_alive() for caller in callers)


@pytest.mark.parametrize("fails", ["the caller", "the helper"])
def test_an_error_of_either_thread_reaches_the_caller(fails):
    caller, both = threading.current_thread(), threading.Barrier(2, timeout=20)

    def work(item):
        both.wait()
        if (threading.current_thread() is caller) == (fails == "the caller"):
            raise MemoryError(item)

    helper = Helper()
    with pytest.raises(MemoryError):
        helper.each(work, range(2))
    found = []
    helper.each(found.append, range(3))  # the helper is still there
    assert sorted(found) == [0, 1, 2]


@pytest.mark.parametrize(("other", "chosen"), [(0.5, 1), (0.95, 0), (2.0, 0)])
def test_the_faster_way_is_chosen_after_both_were_timed(other, chosen, monkeypatch):
    now, calls = [0.0], []

    def way(name, seconds):
        calls.append(name)
        now[0] += seconds
        return name

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    either = FasterWay()
    for _ in range(20):
        assert either.take(lambda: way(0, 1.0), lambda: way(1, other)) == calls[-1]
    assert calls == [0, 1] * threads._TRIALS + [chosen] * (20 - 2 * threads._TRIALS)


def test_only_a_single_item_gets_a_helper(monkeypatch):
    """Several items have a core each; and one core has no second thread."""
    helpers = []

    def note(item):
        helpers.append(threads.helper())

    for count, items in ((2, 1), (1, 1), (2, 2)):
        monkeypatch.setattr(workers, "cores", lambda count=count: count)
        monkeypatch.setattr(workers, "_can_fork", lambda: False)
        list(workers.over_cores(note, range(items)))
    assert [isinstance(helper, Helper) for helper in helpers] == [True, False, False, False]
    assert threads.helper() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork of several threads
def test_a_forked_process_has_a_helper_of_its_own():
    with threads.helped():
        mine = threads.helper()
    child = os.fork()
    if not child:
        with threads.helped():
            found = []
            threads.helper().each(found.append, range(100))
            os._exit(0 if len(found) == 100 and threads.helper() is not mine else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="as on Windows")
def test_a_helper_receives_no_signals():
    """Otherwise a signal that the main thread defers, as during a fork, would be handled."""
    blocked = []

    def work(item):
        both.wait()
        blocked.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    both = threading.Barrier(2, timeout=20)
    Helper().each(work, range(2))
    caller, helper = sorted(blocked, key=len)
    assert signal.SIGINT not in caller and {signal.SIGINT, signal.SIGTERM} <= helper


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_a_product_has_the_same_bits_with_a_helper(rng, rows):
    x, matrix = rng.normal(size=(rows, 40)), rng.normal(size=(40, 1000))
    strips = in_strips(matrix.astype("f"))
    alone = product(x.astype("f"), strips, 1000)
    assert np.array_equal(alone, product(x.astype("f"), strips, 1000, Helper()))
    assert np.allclose(alone, x @ matrix, atol=1e-4)


@pytest.mark.parametrize("chosen", [0, 1])
def test_translations_have_the_same_bits_with_a_helper(chosen, monkeypatch):
    monkeypatch.setattr(FasterWay, "take", lambda self, *ways: ways[chosen]())
    model = Transformer(Config(300, n_layers=2, d_model=32, d_ff=64, n_heads=4)).eval()
    source = np.random.default_rng(3).integers(4, 300, (3, 6))
    alone = beam_search(for_decoding(model), source)
    with threads.helped():
        assert beam_search(for_decoding(model), source) == alone


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
