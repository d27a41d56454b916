"""GPU kernels for the operations limited by memory and not by arithmetic: the programs of a thread.

They are Python functions. On a GPU, CuPy (cupyx.jit) compiles them to CUDA; the tests run the same
functions on NumPy arrays, thread by thread, and compare them with the equation of each operation.
fused.py launches most of them; functions.py, loss.py and matmul.py launch one each.

Threads are grouped into blocks, and 32 threads of a block are a warp, which advances together. A
thread knows its index in its block (`cuda.threadIdx`) and the index of the block (`cuda.blockIdx`);
from these it computes which numbers to work on. The threads of a warp can exchange values
(`cuda.shfl_sync`). The threads of a block can share memory, with a barrier (`cuda.syncthreads`)
between the write of one thread and the read of another. Blocks cannot communicate.

Kernels with dropout, norms and the softmax assign each row to one warp: a block (32, n) computes n
rows. Where columns need nothing of each other, each 512 columns of a row have a warp of their own,
and `cuda.blockIdx.y` says which: so a few long rows, too, keep a GPU busy. Thread `lane` computes
every 32nd column, because memory is fast when neighbouring threads read neighbouring numbers.
Random bits come for 16 elements at a time: `skip` is how many of the first 16 belong to the row
before, and the columns of a thread begin at lane - skip, or 32 later. Numbers are converted by name
(`xp.float32(n)`), because CUDA and NumPy differ in how they mix integers and floats. An array that
"may be rounded" is of float32, or of 16-bit integers, which are numbers rounded to bfloat16
(matmul.py): `cuda.as_float(x)` is the number that an element of either stands for, and
`cuda.as_element(number, array)` the element that stands for a number. `cuda.initial(x[i])` is x[i],
which the kernel has not written: a thread may read the next ones before it writes, and only with
several reads under way is a memory as fast as it can be.

Letters: N rows (all axes but the last), D features, and those of minitf/functions.py. The last
arguments of a kernel with dropout are MaskNumbers (fused.py).
"""

from minitf.backend import xp
from minitf.gpu.launch import cuda
from minitf.gpu.warps import (
    CHUNK,
    FULL_MASK,
    STRIPE,
    WARP,
    add_slices,
    block_max,
    block_sum,
    decisions,
    is_last_slice,
    next_of_thread,
    stripe_sum,
    upper_bits,
    warp_max,
    warp_sum,
    write_slice,
)

# Dropout and the feed-forward network -------------------------------------------------------------


def dropout(x, y, seed, draw, start, threshold, factor):
    """y = keep * x * factor, where element (r, c) has the random number start + r * columns + c.

    x, y: (N, D)
    """
    lane = xp.int32(cuda.threadIdx.x)
    row = xp.int32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    columns = xp.int32(x.shape[1])
    if row >= x.shape[0]:
        return
    first = start + xp.uint64(row) * xp.uint64(columns)
    # Decisions come 16 at a time: those before this row are skipped.
    skip = xp.int32(first % xp.uint64(16))
    begin = xp.int32(cuda.blockIdx.y) * CHUNK - skip
    keep = decisions(seed, draw, first + xp.uint64(begin + skip), threshold, lane)
    mine = begin + lane
    if mine < 0:  # it belongs to the row before
        mine += WARP
        keep = keep >> 1
    for column in range(mine, min(begin + CHUNK, columns), WARP):
        value = cuda.initial(x[row, column]) * factor
        y[row, column] = value if keep & 1 else 0.0
        keep = keep >> 1


def bias_relu_dropout(x, bias, seed, draw, start, threshold, factor):
    """x = keep * max(0, x + bias) * factor, in place.

    x: (N, D), may be rounded   bias: (D,)
    """
    lane = xp.int32(cuda.threadIdx.x)
    row = xp.int32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    columns = xp.int32(x.shape[1])
    if row >= x.shape[0]:
        return
    first = start + xp.uint64(row) * xp.uint64(columns)
    skip = xp.int32(first % xp.uint64(16))
    begin = xp.int32(cuda.blockIdx.y) * CHUNK - skip
    keep = decisions(seed, draw, first + xp.uint64(begin + skip), threshold, lane)
    mine = begin + lane
    if mine < 0:
        mine += WARP
        keep = keep >> 1
    for column in range(mine, min(begin + CHUNK, columns), WARP):
        y = cuda.as_float(cuda.initial(x[row, column])) + cuda.initial(bias[column])
        y = max(y, 0.0) * factor
        x[row, column] = cuda.as_element(y if keep & 1 else 0.0, x)
        keep = keep >> 1


def bias_relu_dropout_gradient(gy, y, factor, gx, g_bias, sums, arrived, slice_rows):
    """gx = gy * factor where y > 0, else 0;  g_bias = sum_r gx.

    gy, y, gx: (N, D), may be rounded   g_bias: (D,)   sums, arrived: see `add_slices`
    Elements that the ReLU or dropout set to zero are zero in y, so no mask is drawn here. A block
    (32, 8) computes 32 columns of a slice of rows, 8 rows at a time, one sum for each thread; then
    the 8 sums of each column are added in their order, and those of all slices in theirs. So the
    result does not depend on which thread is first, as it would if all added to one number.
    """
    lane = xp.int32(cuda.threadIdx.x)
    thread_row = xp.int32(cuda.threadIdx.y)
    column = xp.int32(cuda.blockIdx.x) * WARP + lane
    slice_index = xp.int32(cuda.blockIdx.y)
    first = slice_index * slice_rows
    total = 0.0
    if column < gy.shape[1]:
        for row in range(
            first + thread_row, min(first + slice_rows, xp.int32(gy.shape[0])), STRIPE
        ):
            g = cuda.as_float(cuda.initial(gy[row, column])) * factor  # read before y is looked at
            is_positive = cuda.as_float(cuda.initial(y[row, column])) > 0.0
            g = g if is_positive else 0.0
            gx[row, column] = cuda.as_element(g, gx)
            total += g
    write_slice(stripe_sum(total), sums, 0)
    if is_last_slice(arrived):
        add_slices(sums, 0, g_bias)


def column_sums(x, y, sums, arrived, slice_rows):
    """y = sum_r x, as above: (N, D) -> (D,)."""
    lane = xp.int32(cuda.threadIdx.x)
    thread_row = xp.int32(cuda.threadIdx.y)
    column = xp.int32(cuda.blockIdx.x) * WARP + lane
    slice_index = xp.int32(cuda.blockIdx.y)
    first = slice_index * slice_rows
    total = 0.0
    if column < x.shape[1]:
        for row in range(first + thread_row, min(first + slice_rows, xp.int32(x.shape[0])), STRIPE):
            total += x[row, column]
    write_slice(stripe_sum(total), sums, 0)
    if is_last_slice(arrived):
        add_slices(sums, 0, y)


# Residual, dropout and layer norm -----------------------------------------------------------------


def add_norm(x, added, gain, bias, eps, y, normal, deviation, seed, draw, start, threshold, factor):
    """y = gain * normal + bias,  normal = (s - mean s) / sqrt(var s + eps).

    s = x + keep * added * factor
    x, added, y, normal: (N, D)   gain, bias: (D,)   deviation: (N,), the divisor of each row
    """
    lane = xp.int32(cuda.threadIdx.x)
    row = xp.int32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    columns = xp.int32(x.shape[1])
    if row >= x.shape[0]:
        return
    first = start + xp.uint64(row) * xp.uint64(columns)
    skip = xp.int32(first % xp.uint64(16))
    total = 0.0
    for begin in range(-skip, columns, CHUNK):
        keep = decisions(seed, draw, first + xp.uint64(begin + skip), threshold, lane)
        mine = begin + lane
        if mine < 0:
            mine += WARP
            keep = keep >> 1
        for column in range(mine, min(begin + CHUNK, columns), WARP):
            s = cuda.initial(added[row, column]) * factor
            s = cuda.initial(x[row, column]) + (s if keep & 1 else 0.0)
            normal[row, column] = s
            total += s
            keep = keep >> 1
    mean = warp_sum(total) / xp.float32(columns)
    total = 0.0
    own = lane - skip if lane >= skip else lane - skip + WARP  # the first column of this thread
    for column in range(own, columns, WARP):  # each thread takes the columns that it wrote
        total += (normal[row, column] - mean) * (normal[row, column] - mean)
    divisor = xp.sqrt(warp_sum(total) / xp.float32(columns) + eps)
    if lane == 0:
        deviation[row] = divisor
    inverse = 1.0 / divisor  # a division takes a GPU as long as ten products
    for column in range(own, columns, WARP):
        n = (normal[row, column] - mean) * inverse
        normal[row, column] = n
        y[row, column] = cuda.initial(gain[column]) * n + cuda.initial(bias[column])


def add_norm_gradient(
    gy, normal, deviation, gain, gx, g_added, seed, draw, start, threshold, factor
):
    """gx = (g - mean g - normal * mean(g * normal)) / deviation,  g_added = keep * gx * factor.

    g = gain * gy. Without dropout (threshold 0) g_added is gx, and is not written.
    gy, normal, gx, g_added: (N, D)   deviation: (N,)   gain: (D,)
    """
    lane = xp.int32(cuda.threadIdx.x)
    row = xp.int32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    columns = xp.int32(gy.shape[1])
    if row >= gy.shape[0]:
        return
    total = 0.0
    along = 0.0
    for column in range(lane, columns, WARP):
        g = gain[column] * gy[row, column]
        total += g
        along += g * normal[row, column]
    mean = warp_sum(total) / xp.float32(columns)
    along = warp_sum(along) / xp.float32(columns)
    inverse = 1.0 / deviation[row]
    first = start + xp.uint64(row) * xp.uint64(columns)
    skip = xp.int32(first % xp.uint64(16))
    for begin in range(-skip, columns, CHUNK):
        keep = decisions(seed, draw, first + xp.uint64(begin + skip), threshold, lane)
        mine = begin + lane
        if mine < 0:
            mine += WARP
            keep = keep >> 1
        for column in range(mine, min(begin + CHUNK, columns), WARP):
            g = cuda.initial(gain[column]) * cuda.initial(gy[row, column])
            g = (g - mean - cuda.initial(normal[row, column]) * along) * inverse
            gx[row, column] = g
            if threshold > 0:
                g_added[row, column] = g * factor if keep & 1 else 0.0
            keep = keep >> 1


def norm_parameter_gradients(gy, normal, g_gain, g_bias, sums, arrived, slice_rows):
    """g_gain = sum_r gy * normal,  g_bias = sum_r gy, as above.

    gy, normal: (N, D)   g_gain, g_bias: (D,)
    """
    lane = xp.int32(cuda.threadIdx.x)
    thread_row = xp.int32(cuda.threadIdx.y)
    column = xp.int32(cuda.blockIdx.x) * WARP + lane
    slice_index = xp.int32(cuda.blockIdx.y)
    first = slice_index * slice_rows
    gain_total = 0.0
    bias_total = 0.0
    if column < gy.shape[1]:
        for row in range(
            first + thread_row, min(first + slice_rows, xp.int32(gy.shape[0])), STRIPE
        ):
            gain_total += gy[row, column] * normal[row, column]
            bias_total += gy[row, column]
    write_slice(stripe_sum(gain_total), sums, 0)
    write_slice(stripe_sum(bias_total), sums, 1)
    if is_last_slice(arrived):
        add_slices(sums, 0, g_gain)
        add_slices(sums, 1, g_bias)


# Attention ----------------------------------------------------------------------------------------


def masked_softmax(scores, mask, scale, weights, used, seed, draw, start, threshold, factor):
    """weights = softmax(scale * scores), 0 under the mask,  used = keep * weights * factor.

    All are (B, H, T, S). used: the weights after dropout; without dropout (threshold 0) not
    written. The weights may replace the scores: each thread writes only where it alone has read.
    """
    lane = xp.int32(cuda.threadIdx.x)
    row = xp.int32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    heads = xp.int32(scores.shape[1])
    queries = xp.int32(scores.shape[2])
    columns = xp.int32(scores.shape[3])
    batch = row // queries // heads
    if batch >= scores.shape[0]:
        return
    head = row // queries % heads
    query = row % queries
    first = start + xp.uint64(row) * xp.uint64(columns)
    skip = xp.int32(first % xp.uint64(16))
    own = lane - skip if lane >= skip else lane - skip + WARP  # the first column of this thread
    largest = -1e30  # also the largest of a row that may attend to nothing: its weights are 0
    for column in range(own, columns, WARP):
        if mask[batch, head, query, column]:
            largest = max(largest, scores[batch, head, query, column] * scale)
    largest = warp_max(largest)
    total = 0.0
    for column in range(own, columns, WARP):
        if mask[batch, head, query, column]:
            total += xp.exp(scores[batch, head, query, column] * scale - largest)
    total = max(warp_sum(total), 1.0)  # the sum of such a row is 0, of any other at least 1
    inverse = 1.0 / total
    for begin in range(-skip, columns, CHUNK):
        keep = decisions(seed, draw, first + xp.uint64(begin + skip), threshold, lane)
        mine = begin + lane
        if mine < 0:
            mine += WARP
            keep = keep >> 1
        for column in range(mine, min(begin + CHUNK, columns), WARP):
            weight = 0.0
            if mask[batch, head, query, column]:
                score = scores[batch, head, query, column] * scale
                weight = xp.exp(score - largest) * inverse
            weights[batch, head, query, column] = weight
            if threshold > 0:
                used[batch, head, query, column] = weight * factor if keep & 1 else 0.0
            keep = keep >> 1


def masked_softmax_gradient(g, weights, scale, used, seed, draw, start, threshold, factor):
    """g = scale * weights * (d - sum_c d * weights), in place, with d = keep * g * factor.

    g: the gradient of the weights after dropout, replaced by the gradient of the scores.
    used: as above. All are (B, H, T, S).
    """
    lane = xp.int32(cuda.threadIdx.x)
    row = xp.int32(cuda.blockIdx.x * cuda.blockDim.y + cuda.threadIdx.y)
    heads = xp.int32(g.shape[1])
    queries = xp.int32(g.shape[2])
    columns = xp.int32(g.shape[3])
    batch = row // queries // heads
    if batch >= g.shape[0]:
        return
    head = row // queries % heads
    query = row % queries
    first = start + xp.uint64(row) * xp.uint64(columns)
    skip = xp.int32(first % xp.uint64(16))
    total = 0.0
    for begin in range(-skip, columns, CHUNK):
        keep = decisions(seed, draw, first + xp.uint64(begin + skip), threshold, lane)
        mine = begin + lane
        if mine < 0:
            mine += WARP
            keep = keep >> 1
        for column in range(mine, min(begin + CHUNK, columns), WARP):
            weight = weights[batch, head, query, column]
            d = g[batch, head, query, column]
            if threshold > 0:
                used[batch, head, query, column] = weight * factor if keep & 1 else 0.0
                d = d * factor if keep & 1 else 0.0
                g[batch, head, query, column] = d
            total += d * weight
            keep = keep >> 1
    total = warp_sum(total)
    own = lane - skip if lane >= skip else lane - skip + WARP
    for column in range(own, columns, WARP):
        weight = cuda.initial(weights[batch, head, query, column])
        d = g[batch, head, query, column]
        g[batch, head, query, column] = scale * weight * (d - total)


def attend_newest(projected, first, scale, cache, mask, scores, y):
    """y = softmax(scale * q k^T) v for the newest token of each of R = B * W texts, (R, H*K).

    projected: the queries of all heads (R, H*K). If first >= 0, the newest keys and values follow
    them, (R, 3*H*K), and are written to the cache: those of text w of a sentence at first + w.
    cache: the keys of all heads, then the values, (B, 2*H, capacity, K). mask: (B, W, n).
    scores: memory for the scores (R, H, n).
    A block (32, 8) computes one head of one text, each of its warps every eighth token, with the
    features side by side. It reads no token that the mask hides, and so none that another block
    writes.
    """
    lane = xp.int32(cuda.threadIdx.x)
    warp = xp.int32(cuda.threadIdx.y)
    heads = xp.int32(cache.shape[1]) // 2
    size = xp.int32(cache.shape[3])
    row = xp.int32(cuda.blockIdx.x) // heads
    head = xp.int32(cuda.blockIdx.x) % heads
    width = xp.int32(mask.shape[1])
    tokens = xp.int32(mask.shape[2])
    sentence = row // width
    w = row % width
    if first >= 0:
        newest = first + w
        for i in range(warp * WARP + lane, size, WARP * STRIPE):
            key = projected[row, (heads + head) * size + i]
            cache[sentence, head, newest, i] = key
            value = projected[row, (2 * heads + head) * size + i]
            cache[sentence, heads + head, newest, i] = value
        cuda.syncthreads()
    for token in range(warp, tokens, STRIPE):
        if mask[sentence, w, token]:
            score = 0.0
            for i in range(lane, size, WARP):
                score += projected[row, head * size + i] * cache[sentence, head, token, i]
            score = warp_sum(score)
            if lane == 0:
                scores[row, head, token] = score * scale
    cuda.syncthreads()
    largest = -1e30
    for token in range(lane, tokens, WARP):
        if mask[sentence, w, token]:
            largest = max(largest, scores[row, head, token])
    largest = warp_max(largest)
    total = 0.0
    for token in range(lane, tokens, WARP):
        if mask[sentence, w, token]:
            total += xp.exp(scores[row, head, token] - largest)
    total = max(warp_sum(total), 1.0)  # 0 if there is nothing to attend to, else at least 1
    for i in range(0, size, WARP):
        value = 0.0
        if i + lane < size:
            for token in range(warp, tokens, STRIPE):
                if mask[sentence, w, token]:
                    weight = xp.exp(scores[row, head, token] - largest)
                    value += weight * cache[sentence, heads + head, token, i + lane]
        value = stripe_sum(value)
        if warp == 0 and i + lane < size:
            y[row, head * size + i + lane] = value / total


# The loss, Adam, the embedding --------------------------------------------------------------------


def cross_entropy(logits, target, gradient, losses, nlls, smoothing):
    """loss = - sum_v q_v ln p_v,  nll = - ln p_target,  gradient = p - q,  p = softmax(logits).

    logits: (N, V)   target, losses, nlls: (N,)
    gradient: (N, V), rounded, or the array of the logits itself
    q is 1 - smoothing for the target, 0 for other ids with a logit of -infinity, and
    smoothing / (n - 1) for the rest, if n ids have another logit.
    Each block computes one row. It reads the logits once for both the largest and the sum of
    exponentials: the sum so far is scaled down whenever a larger logit appears.
    """
    thread = xp.int32(cuda.threadIdx.x)
    row = xp.int32(cuda.blockIdx.x)
    size = xp.int32(logits.shape[1])
    true_id = target[row]
    true_logit = logits[row, true_id]
    largest = -1e30
    total = 0.0
    counted = 0.0
    for column in range(thread, size, cuda.blockDim.x):
        z = logits[row, column]
        if z > largest:
            total *= xp.exp(largest - z)
            largest = z
        total += xp.exp(z - largest)
        if z > -1e30:
            counted += 1.0
    highest = block_max(largest)
    total = block_sum(total * xp.exp(largest - highest))
    counted = block_sum(counted)
    each = smoothing / (counted - 1.0) if counted != 1.0 else smoothing
    inverse = 1.0 / total
    shifted = 0.0
    for column in range(thread, size, cuda.blockDim.x):
        z = logits[row, column] - highest
        q = 1.0 - smoothing if column == true_id else each
        if z > -1e30:
            shifted += z
        elif column != true_id:
            q = 0.0
        gradient[row, column] = cuda.as_element(xp.exp(z) * inverse - q, gradient)
    shifted = block_sum(shifted)
    if thread == 0:
        log_total = xp.log(total)
        nll = log_total - (true_logit - highest)
        nlls[row] = nll
        # the sum of each (ln total - z) over the ids that are possible
        losses[row] = (1.0 - smoothing - each) * nll + each * (counted * log_total - shifted)


def adam(data, gradients, m, v, beta_1, beta_2, eps, rate, finite):
    """m = beta_1 m + (1 - beta_1) g,  v = beta_2 v + (1 - beta_2) g^2,  data -= rate * m / root.

    root = sqrt(v) + eps. The two bias corrections are contained in rate and eps. Nothing changes if
    finite[0] is false. All arrays are flat.
    """
    i = xp.int32(cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i < data.size and finite[0]:
        g = gradients[i]
        m_new = beta_1 * m[i] + (1.0 - beta_1) * g
        v_new = beta_2 * v[i] + (1.0 - beta_2) * g * g
        m[i] = m_new
        v[i] = v_new
        data[i] = data[i] - rate * m_new / (xp.sqrt(v_new) + eps)


def add_segments(ids, order, rows, out):
    """out[v] += sum of rows[order[i]] over all i with ids[i] = v; ids are sorted.

    ids, order: (N,)   rows: (N, D)   out: (V, D)

    The block (32, 8) at index i does something only if a run of equal ids begins there: it adds 8
    rows at a time, as in column_sums, and so with the same result every time.
    """
    lane = xp.int32(cuda.threadIdx.x)
    thread_row = xp.int32(cuda.threadIdx.y)
    begin = xp.int32(cuda.blockIdx.x)
    column = xp.int32(cuda.blockIdx.y) * WARP + lane
    if begin > 0 and ids[begin - 1] == ids[begin]:
        return
    total = 0.0
    if column < rows.shape[1]:
        i = begin + thread_row
        while i < ids.size and ids[i] == ids[begin]:
            total += rows[order[i], column]
            i += STRIPE
    total = stripe_sum(total)
    if thread_row == 0 and column < rows.shape[1]:
        out[ids[begin], column] = out[ids[begin], column] + total


def round_to_bfloat16(x, y):
    """y = the upper 16 of the 32 bits of x, as integers, rounded to nearest, ties to even.

    x: uint32 (n,)   y: uint16 (n,)
    A thread reads four numbers before it writes any: so enough reads are under way to keep the
    memory busy, although each is short. Indices have 64 bits, since the scores of an attention may
    be more than 2^31 numbers.
    """
    threads = xp.int64(cuda.blockDim.x)
    i = xp.int64(cuda.blockIdx.x) * 4 * threads + xp.int64(cuda.threadIdx.x)
    if i + 3 * threads < x.size:
        a = x[i]
        b = x[i + threads]
        c = x[i + 2 * threads]
        d = x[i + 3 * threads]
        y[i] = upper_bits(a)
        y[i + threads] = upper_bits(b)
        y[i + 2 * threads] = upper_bits(c)
        y[i + 3 * threads] = upper_bits(d)
    else:
        for j in range(i, xp.int64(x.size), threads):
            y[j] = upper_bits(x[j])


# Decoding -----------------------------------------------------------------------------------------


def best_of_rows(logits, pad, bos, lowest, count, results, tokens):
    """results = ln sum_v exp(logits) and the `count` greatest logits, tokens = the ids of these.

    logits: (R, V)   results: (R, 1 + 2 * count): the logsumexp, the logits, and space for the ids
    tokens: the same memory as int32.
    The greatest come first, and of equals the lower id. Ids that are never next, pad and bos, count
    in the sum and then get the logit `lowest`, which is -infinity. Where less than `count` logits
    are above -1e30, the rest of the row is `lowest`, with the id V.
    Each block computes one row. Each thread keeps the best of its columns. The block picks the best
    of all threads; then the warp of the thread that had it finds the next of that thread's columns.
    """
    thread = xp.int32(cuda.threadIdx.x)
    threads = xp.int32(cuda.blockDim.x)
    lane = thread % WARP
    warp = thread // WARP
    row = xp.int32(cuda.blockIdx.x)
    size = xp.int32(logits.shape[1])
    warp_values = cuda.shared_memory(xp.float32, WARP)
    warp_ids = cuda.shared_memory(xp.int32, WARP)
    largest = -1e30
    total = 0.0
    best = -1e30
    best_id = size
    for column in range(thread, size, threads):
        z = logits[row, column]
        if z > largest:
            total *= xp.exp(largest - z)
            largest = z
        total += xp.exp(z - largest)
        if column == pad or column == bos:  # noqa: SIM109 (a kernel has no tuples)
            logits[row, column] = lowest
        elif z > best:
            best = z
            best_id = column
    highest = block_max(largest)
    total = block_sum(total * xp.exp(largest - highest))
    if thread == 0:
        results[row, 0] = xp.log(total) + highest
    for i in range(count):
        value = best
        token = best_id
        for halving in range(5):
            other = cuda.shfl_xor_sync(FULL_MASK, value, 16 >> halving)
            other_id = cuda.shfl_xor_sync(FULL_MASK, token, 16 >> halving)
            if other > value or (other == value and other_id < token):
                value = other
                token = other_id
        cuda.syncthreads()  # the shared memory may still be in use from the pick before
        if lane == 0:
            warp_values[warp] = value
            warp_ids[warp] = token
        cuda.syncthreads()
        value = warp_values[0]
        token = warp_ids[0]
        for j in range(1, threads // WARP):
            if warp_values[j] > value or (warp_values[j] == value and warp_ids[j] < token):
                value = warp_values[j]
                token = warp_ids[j]
        if thread == 0:
            results[row, 1 + i] = value if token < size else lowest
            tokens[row, 1 + count + i] = token
        if token < size and token % threads // WARP == warp:
            following = next_of_thread(logits, row, value, token)
            if thread == token % threads:
                best = logits[row, following] if following < size else -1e30
                best_id = following
