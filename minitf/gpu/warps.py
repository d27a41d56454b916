"""Computations that GPU kernels share: sums, maxima, the masks of dropout, rounding.

All threads of a warp have to call `warp_*` and `decisions` together, and all threads of a block
`block_*` and `stripe_sum`. See minitf/gpu/kernels.py for what a warp is, and why numbers are
converted by name.
"""

import numpy as np

from minitf.backend import xp
from minitf.gpu.launch import cuda

WARP = 32
THREADS = 256  # in a block where each thread computes some numbers, or all compute one row
STRIPE = 8  # rows that a block of (32, 8) threads adds up at a time when it sums columns
CHUNK = 512  # columns for which a warp draws decisions at a time, 16 with each thread
FULL_MASK = 0xFFFFFFFF  # 32 bits: every thread of the warp takes part

# Sums and maxima ----------------------------------------------------------------------------------


def warp_sum(value):
    """Return the sum of the values of a warp's 32 threads, with the same bits in each thread."""
    for halving in range(5):
        value += cuda.shfl_xor_sync(FULL_MASK, value, 16 >> halving)
    return value


def warp_max(value):
    """Return the largest of the values of a warp's 32 threads."""
    for halving in range(5):
        value = max(value, cuda.shfl_xor_sync(FULL_MASK, value, 16 >> halving))
    return value


def block_sum(value):
    """Return the sum of the values of a block of n threads: of each warp, then of all warps."""
    warp_sums = cuda.shared_memory(xp.float32, WARP)
    value = warp_sum(value)
    cuda.syncthreads()  # the shared memory may still be in use from the call before
    if cuda.threadIdx.x % WARP == 0:
        warp_sums[cuda.threadIdx.x // WARP] = value
    cuda.syncthreads()
    total = 0.0
    for warp in range(cuda.blockDim.x // WARP):
        total += warp_sums[warp]
    return total


def block_max(value):
    """Return the largest of the values of a block of n threads."""
    warp_maxima = cuda.shared_memory(xp.float32, WARP)
    value = warp_max(value)
    cuda.syncthreads()
    if cuda.threadIdx.x % WARP == 0:
        warp_maxima[cuda.threadIdx.x // WARP] = value
    cuda.syncthreads()
    for warp in range(cuda.blockDim.x // WARP):
        value = max(value, warp_maxima[warp])
    return value


def stripe_sum(value):
    """Return, in a block (32, 8), the sum of the values of the 8 threads of each column."""
    lane = xp.int32(cuda.threadIdx.x)
    values = cuda.shared_memory(xp.float32, WARP * STRIPE)
    cuda.syncthreads()
    values[xp.int32(cuda.threadIdx.y) * WARP + lane] = value
    cuda.syncthreads()
    total = 0.0
    for row in range(STRIPE):
        total += values[row * WARP + lane]
    return total


# Sums of columns over slices of rows: block (x, y) sums columns 32 x to 32 x + 31 of slice y. The
# block that comes last adds up the sums of all slices, always in the order of the slices. `sums` is
# memory for them, (sums of a column, blocks along x, slices, 32); so no two blocks along x share a
# line of the cache.


def write_slice(total, sums, which):
    """Write the block's sum of each column, which all 8 threads of the column have."""
    if cuda.threadIdx.y == 0:
        sums[which, cuda.blockIdx.x, cuda.blockIdx.y, cuda.threadIdx.x] = total


def is_last_slice(arrived):
    """Return whether all other slices of these columns are written; all threads call it together.

    arrived: int32, for each block along x how many slices are written; 0 before and afterwards.
    """
    before = cuda.shared_memory(xp.int32, 1)
    others = xp.int32(cuda.gridDim.y) - 1
    if cuda.threadIdx.y == 0:  # these threads have written
        cuda.threadfence()  # whoever reads the count of this block, made below, can read its slice
    cuda.syncthreads()
    if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:
        before[0] = cuda.atomic_add(arrived, cuda.blockIdx.x, 1)
        if before[0] == others:
            cuda.atomic_add(arrived, cuda.blockIdx.x, -others - 1)
    cuda.syncthreads()
    if before[0] == others:
        cuda.threadfence()  # nothing is read before the counts were
    return before[0] == others


def add_slices(sums, which, y):
    """Write the sums over all slices to y (D,)."""
    column = xp.int32(cuda.blockIdx.x) * WARP + xp.int32(cuda.threadIdx.x)
    total = 0.0
    for i in range(xp.int32(cuda.threadIdx.y), xp.int32(cuda.gridDim.y), STRIPE):
        total += sums[which, cuda.blockIdx.x, i, cuda.threadIdx.x]
    total = stripe_sum(total)
    if cuda.threadIdx.y == 0 and column < y.size:
        y[column] = total


def next_of_thread(logits, row, value, token):
    """Return the column of the logit that follows `value`, at `token`, among one thread's columns.

    They are every n-th, for n threads of a block. All threads of a warp have to call this together:
    each looks at some of these columns. If none above -1e30 follows, the result is the row's size.
    """
    threads = xp.int32(cuda.blockDim.x)
    size = xp.int32(logits.shape[1])
    first = token % threads + xp.int32(cuda.threadIdx.x) % WARP * threads
    best = -1e30
    best_id = size
    for column in range(first, size, WARP * threads):
        z = logits[row, column]
        if z > best and (z < value or (z == value and column > token)):
            best = z
            best_id = column
    for halving in range(5):
        other = cuda.shfl_xor_sync(FULL_MASK, best, 16 >> halving)
        other_id = cuda.shfl_xor_sync(FULL_MASK, best_id, 16 >> halving)
        if other > best or (other == best and other_id < best_id):
            best = other
            best_id = other_id
    return best_id


# Dropout ------------------------------------------------------------------------------------------

LOW = np.uint64(0xFFFFFFFF)
MULTIPLIER_A, MULTIPLIER_C = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
WEYL_A, WEYL_C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


def multiply_high(a, b):
    """Return the upper 64 of the 128 bits of a product, by halves, as one multiplies on paper."""
    low = (a & LOW) * (b & LOW)
    middle = (a >> 32) * (b & LOW) + (low >> 32)
    other = (a & LOW) * (b >> 32) + (middle & LOW)
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)


def decisions(seed, draw, index, threshold, lane):
    """Decide which of 512 elements to keep, each with probability 1 - threshold / 65536.

    Bit i of a thread's result is 1 if element n + 32 i + lane stays; n is index rounded down to a
    multiple of 16. Each thread draws for 16 elements in a row; then they exchange them.
    """
    mine = 0xFFFF
    if threshold > 0:
        bits = drawn_bits(seed, draw, index // xp.uint64(16) + xp.uint64(lane), threshold)
        mine = 0
        for i in cuda.range(16, unroll=4):  # all unrolled, each needs a register for its index
            other_bits = cuda.shfl_sync(FULL_MASK, bits, 2 * i + lane // 16)
            mine |= (other_bits >> lane % 16 & 1) << i
    return mine


def drawn_bits(seed, draw, count, threshold):
    """Draw 16 decisions with Philox-4x64-10 (Salmon et al. 2011).

    Its 256 random bits are a function of (seed, draw) and count. So any thread can draw the bits it
    needs, the backward pass can draw them again, and NumPy's Philox draws the same mask.
    """
    a = count + xp.uint64(1)  # NumPy adds 1 before it draws
    b = xp.uint64(0)
    c = xp.uint64(0)
    d = xp.uint64(0)
    # Not unrolled, it needs half the registers, so more warps run at a time.
    for i in cuda.range(10, unroll=1):
        low_a = MULTIPLIER_A * a
        high_a = multiply_high(MULTIPLIER_A, a)
        a = multiply_high(MULTIPLIER_C, c) ^ b ^ (seed + WEYL_A * xp.uint64(i))
        b = MULTIPLIER_C * c
        c = high_a ^ d ^ (draw + WEYL_C * xp.uint64(i))
        d = low_a
    bits = 0
    for i in range(4):
        bits |= stays(a, i, threshold) << i
        bits |= stays(b, i, threshold) << (i + 4)
        bits |= stays(c, i, threshold) << (i + 8)
        bits |= stays(d, i, threshold) << (i + 12)
    return bits


def stays(word, i, threshold):
    """Return 1 if the i-th 16 bits of a word reach the threshold, else 0."""
    return 1 if xp.int32(word >> xp.uint64(16 * i) & xp.uint64(0xFFFF)) >= threshold else 0


# Rounding -----------------------------------------------------------------------------------------


def upper_bits(bits):
    """Return the bits of a float32 rounded to bfloat16: 16 of 32, to nearest, ties to even.

    NaN stays NaN: a GPU's NaN, 0x7FFFFFFF, would be rounded to -0.
    """
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return xp.uint16(bits >> 16 | 0x40 if is_nan else rounded)
