"""The simulator of GPU threads notices mistakes that a GPU would not report."""

import blocks
import numpy as np
import pytest

from minitf.backend import xp
from minitf.gpu.launch import cuda

ALL = 0xFFFFFFFF


def reverse(x, y):
    shared = cuda.shared_memory(xp.float32, 64)
    shared[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    y[cuda.threadIdx.x] = shared[cuda.blockDim.x - 1 - cuda.threadIdx.x]


def reverse_without_barrier(x, y):
    shared = cuda.shared_memory(xp.float32, 64)
    shared[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    y[cuda.threadIdx.x] = shared[cuda.blockDim.x - 1 - cuda.threadIdx.x]


def read_before_it_is_written(x, y):
    y[cuda.threadIdx.x] = x[cuda.threadIdx.x + 1]
    x[cuda.threadIdx.x] = 0.0


def all_to_one_place(x, y):
    y[0] = x[cuda.threadIdx.x]


def read_what_another_block_wrote(x, y):
    y[cuda.blockIdx.x] = 1.0
    if cuda.blockIdx.x == 1:
        x[0] = y[0]


def read_without_a_fence(x, y):
    if cuda.threadIdx.x == 0:
        x[cuda.blockIdx.x] = 1.0
        cuda.atomic_add(y, 0, 1.0)
        y[1] = x[0]


def read_without_counting(x, y):
    if cuda.threadIdx.x == 0:
        if cuda.blockIdx.x == 0:
            x[0] = 1.0
            cuda.threadfence()
            cuda.atomic_add(y, 0, 1.0)
        else:
            y[1] = x[0]


def fence_after_counting(x, y):
    if cuda.threadIdx.x == 0:
        x[cuda.blockIdx.x] = 1.0
        cuda.atomic_add(y, 0, 1.0)
        cuda.threadfence()
        if cuda.blockIdx.x == 1:
            y[1] = x[0]


def last_block_reads(x, y):
    if cuda.threadIdx.x == 0:
        x[cuda.blockIdx.x] = 1.0
        cuda.threadfence()
        if cuda.atomic_add(y, 0, 1.0) == 1.0:
            y[1] = x[0] + x[1]


def write_what_another_block_read(x, y):
    if cuda.blockIdx.x == 0:
        y[0] = x[0]
    else:
        x[0] = 1.0


def atomic_and_plain(x, y):
    cuda.atomic_add(y, 0, x[cuda.threadIdx.x])
    if cuda.threadIdx.x == 5:
        x[5] = y[0]


def beyond_the_end(x, y):
    y[cuda.threadIdx.x + 1] = 0.0


def before_the_beginning(x, y):
    y[cuda.threadIdx.x - 1] = 0.0


def half_of_them_wait(x, y):
    if cuda.threadIdx.x < 32:
        cuda.syncthreads()


def two_barriers(x, y):
    if cuda.threadIdx.x < 32:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


def part_of_a_warp_waits(x, y):
    if cuda.threadIdx.x < 5:
        cuda.syncthreads()


def part_of_a_warp_hands_over(x, y):
    if cuda.threadIdx.x < 5:
        y[cuda.threadIdx.x] = cuda.shfl_xor_sync(ALL, x[cuda.threadIdx.x], 1)


def wider(x, y):
    y[cuda.threadIdx.x] = x[cuda.threadIdx.x] * xp.int32(2)


def listed(x, y):
    y[cuda.threadIdx.x] = x[1.0]


MISTAKES = {
    reverse_without_barrier: blocks.Race,
    read_before_it_is_written: blocks.Race,
    all_to_one_place: blocks.Race,
    read_what_another_block_wrote: blocks.Race,
    read_without_a_fence: blocks.Race,
    read_without_counting: blocks.Race,
    fence_after_counting: blocks.Race,
    write_what_another_block_read: blocks.Race,
    atomic_and_plain: blocks.Race,
    beyond_the_end: blocks.OutOfBounds,
    before_the_beginning: blocks.OutOfBounds,
    half_of_them_wait: blocks.Stray,
    two_barriers: blocks.Stray,
    part_of_a_warp_waits: blocks.Stray,
    part_of_a_warp_hands_over: blocks.Stray,
    wider: TypeError,
    listed: TypeError,
}


@pytest.mark.parametrize("kernel", MISTAKES, ids=lambda kernel: kernel.__name__)
def test_a_mistake_is_seen(kernel):
    x, y = np.arange(65, dtype=np.float32), np.zeros(64, np.float32)
    with pytest.raises(MISTAKES[kernel]):
        blocks.launch(kernel, (2,), (64,), x, y)


def test_a_block_reads_what_others_wrote_before_they_counted_themselves():
    x, y = np.zeros(2, np.float32), np.zeros(2, np.float32)
    blocks.launch(last_block_reads, (2,), (32,), x, y)
    assert np.array_equal(y, [2, 2])


def test_a_barrier_makes_it_right():
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    blocks.launch(reverse, (1,), (64,), x, y)
    assert np.array_equal(y, x[::-1])


def test_two_arrays_may_be_the_same_memory():
    """In place each thread overwrites what another one reads, though the names differ."""
    x = np.arange(65, dtype=np.float32)
    with pytest.raises(blocks.Race):
        blocks.launch(shift, (1,), (64,), x[:64], x[1:])
    y = np.zeros(64, np.float32)
    blocks.launch(shift, (1,), (64,), x[:64], y)
    assert np.array_equal(y, x[:64])


def shift(x, y):
    y[cuda.threadIdx.x] = x[cuda.threadIdx.x]


def totals(x, y):
    total = warp_total(x[cuda.blockIdx.x, cuda.threadIdx.x])
    if cuda.threadIdx.x == 0:
        y[cuda.blockIdx.x] = total


def warp_total(value):
    for step in range(5):
        value += cuda.shfl_xor_sync(ALL, value, 16 >> step)
    return value


def test_a_function_that_a_kernel_calls_may_wait():
    x, y = np.arange(96, dtype=np.float32).reshape(3, 32), np.zeros(3, np.float32)
    blocks.launch(totals, (3,), (32,), x, y)
    assert y.tolist() == x.sum(axis=1).tolist()


def broadcast(x, y):
    y[cuda.threadIdx.x] = cuda.shfl_sync(ALL, x[cuda.threadIdx.x], 3)


def test_values_go_to_the_threads_that_ask():
    y = np.zeros(64, np.float32)
    blocks.launch(broadcast, (1,), (64,), np.arange(64, dtype=np.float32), y)
    assert y.tolist() == [3] * 32 + [35] * 32


def count(x, y):
    cuda.atomic_add(y, x[cuda.blockIdx.x, cuda.threadIdx.y], 1)


def test_atomic_additions_do_not_race():
    x, y = np.array([[0, 1, 1], [2, 1, 0]]), np.zeros(3, np.int32)
    blocks.launch(count, (2,), (1, 3), x, y)
    assert y.tolist() == [2, 3, 1]


def unwritten(x, y):
    shared = cuda.shared_memory(xp.float32, 64)
    y[cuda.threadIdx.x] = shared[cuda.threadIdx.x]


def test_shared_memory_begins_as_nonsense():
    y = np.zeros(64, np.float32)
    blocks.launch(unwritten, (1,), (64,), y, y)
    assert np.isnan(y).all()


def first_row(x, y):
    y[cuda.blockIdx.x, cuda.threadIdx.x] = x[cuda.blockIdx.x, cuda.threadIdx.x % 3]


def test_arrays_that_repeat_themselves():
    x, y = np.broadcast_to(np.arange(3, dtype=np.float32), (2, 3)), np.zeros((2, 4), np.float32)
    blocks.launch(first_row, (2,), (4,), x, y)
    assert y.tolist() == [[0, 1, 2, 0]] * 2


def test_the_words_of_a_kernel_mean_nothing_elsewhere():
    with pytest.raises(AttributeError, match="only inside a kernel"):
        shift(np.zeros(1), np.zeros(1))
