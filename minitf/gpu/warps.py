"""What the threads of a GPU kernel do together: sums and maxima, and the decisions of dropout.

These functions are called by the kernels of minitf/gpu/kernels.py, by every thread of a warp or
of a block at once: what that means, and why numbers are converted by name, is said there.
"""

import numpy as np

from minitf.backend import xp
from minitf.gpu.launch import cuda

WARP = 32
STRIPE = 8  # rows that a block of (32, 8) threads adds up at a time, where it sums columns
ALL = 0xFFFFFFFF  # the 32 bits that say: every thread of the warp takes part

# Sums and maxima ----------------------------------------------------------------------------------


def warp_sum(value):
    """Add up what the 32 threads of a warp hold; each gets the sum, to the same bit."""
    for step in range(5):
        value += cuda.shfl_xor_sync(ALL, value, 16 >> step)
    return value


def warp_max(value):
    """Find the largest of what the 32 threads of a warp hold."""
    for step in range(5):
        value = max(value, cuda.shfl_xor_sync(ALL, value, 16 >> step))
    return value


def block_sum(value):
    """Add up what all threads of a block (n) hold: each warp its own, then the sums of the warps,
    in their order.
    """
    of_warp = cuda.shared_memory(xp.float32, WARP)
    value = warp_sum(value)
    cuda.syncthreads()  # the shared memory may still be in use from the call before
    if cuda.threadIdx.x % WARP == 0:
        of_warp[cuda.threadIdx.x // WARP] = value
    cuda.syncthreads()
    total = 0.0
    for warp in range(cuda.blockDim.x // WARP):
        total += of_warp[warp]
    return total


def block_max(value):
    """Find the largest of what all threads of a block (n) hold."""
    of_warp = cuda.shared_memory(xp.float32, WARP)
    value = warp_max(value)
    cuda.syncthreads()
    if cuda.threadIdx.x % WARP == 0:
        of_warp[cuda.threadIdx.x // WARP] = value
    cuda.syncthreads()
    for warp in range(cuda.blockDim.x // WARP):
        value = max(value, of_warp[warp])
    return value


def stripe_sum(value):
    """Add up, in a block (32, 8), what the 8 threads of each column hold, in their order."""
    lane = xp.int32(cuda.threadIdx.x)
    values = cuda.shared_memory(xp.float32, WARP * STRIPE)
    cuda.syncthreads()
    values[xp.int32(cuda.threadIdx.y) * WARP + lane] = value
    cuda.syncthreads()
    total = 0.0
    for place in range(STRIPE):
        total += values[place * WARP + lane]
    return total


# Dropout ------------------------------------------------------------------------------------------

LOW = np.uint64(0xFFFFFFFF)
MULTIPLIER_A, MULTIPLIER_C = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
STEP_A, STEP_C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


def multiply_high(a, b):
    """The upper 64 of the 128 bits of a product, by halves, as one multiplies on paper."""
    low = (a & LOW) * (b & LOW)
    middle = (a >> 32) * (b & LOW) + (low >> 32)
    other = (a & LOW) * (b >> 32) + (middle & LOW)
    return (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)


def keep_bits(seed, draw, place, threshold):
    """Decide which of 16 elements stay, each with probability 1 - threshold / 65536: bit i is 1 for
    element n + i.

    n is `place` rounded down to a multiple of 16.
    """
    return 0xFFFF if threshold == 0 else drawn_bits(seed, draw, place // xp.uint64(16), threshold)


def drawn_bits(seed, draw, count, threshold):
    """Draw 16 decisions by Philox-4x64-10 (Salmon et al. 2011): 256 random bits, a function of
    (seed, draw) and count.

    So any thread draws what it needs, the backward pass draws it once more, and NumPy, which has
    the same generator, draws the same mask.
    """
    a = count + xp.uint64(1)  # NumPy adds 1 before it draws
    b = xp.uint64(0)
    c = xp.uint64(0)
    d = xp.uint64(0)
    # As a loop it needs half the registers, so that more warps run at a time.
    for i in cuda.range(10, unroll=1):
        low_a = MULTIPLIER_A * a
        high_a = multiply_high(MULTIPLIER_A, a)
        a = multiply_high(MULTIPLIER_C, c) ^ b ^ (seed + STEP_A * xp.uint64(i))
        b = MULTIPLIER_C * c
        c = high_a ^ d ^ (draw + STEP_C * xp.uint64(i))
        d = low_a
    bits = 0
    for i in range(4):
        bits |= stays(a, i, threshold) << i
        bits |= stays(b, i, threshold) << (i + 4)
        bits |= stays(c, i, threshold) << (i + 8)
        bits |= stays(d, i, threshold) << (i + 12)
    return bits


def stays(word, i, threshold):
    """Compare the i-th 16 bits of a word with the threshold: 1 if they reach it, else 0."""
    return 1 if xp.int32(word >> xp.uint64(16 * i) & xp.uint64(0xFFFF)) >= threshold else 0


def kept(bits, i, lane):
    """Tell whether decision i + lane of the warp's row is to keep: another thread of the
    warp has drawn it.
    """
    return cuda.shfl_sync(ALL, bits, i % 512 // 16 + lane // 16) >> lane % 16 & 1
