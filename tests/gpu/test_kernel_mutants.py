"""Kernels with one mistake each, which the simulator or the comparison has to notice."""

import functools
import importlib.util
import sys
from pathlib import Path

import blocks
import pytest
import strict
import test_kernels as checks

from minitf.backend import using
from minitf.gpu import fused
from minitf.gpu import loss as gpu_loss
from minitf.gpu import optim as gpu_optim

PACKAGE = Path(fused.__file__).parent
RATE = checks.RATE


def loss():
    checks.test_cross_entropy(None, 300, 0.1, ())
    checks.test_cross_entropy(None, 300, 0.1, (1, 10, 270))


def norm():
    with pytest.MonkeyPatch.context() as patch:  # so many rows that a block computes several
        patch.setattr(fused, "BLOCKS", 4)
        checks.test_add_norm(None, (9, 33), RATE)


def feed_forward():
    checks.test_bias_relu_dropout(None, (9, 33), RATE)


def rounded():
    checks.test_bias_relu_dropout_of_rounded_numbers(None, RATE)
    checks.test_cross_entropy_writes_a_rounded_gradient(None)


def sums():
    checks.test_sums_over_more_rows_than_one_block_takes(None)


def attention():
    checks.test_attention(None, "causal and padding", RATE)


def step():
    checks.test_a_step_of_attention_to_the_own_text(None, 35, 33)


def logsumexp():
    checks.test_logsumexp(None, 700)


def picks():
    checks.test_best_of_rows(None, 300, 9)
    checks.test_best_of_rows(None, 1100, 2)


def drop():
    checks.test_dropout_draws_the_mask_of_numpy(None, (2, 600), 5)


def embedding():
    checks.test_add_segments(None, "some", 33)


BARRIER = "    cuda.syncthreads()\n"
MUTANTS = {  # name: (who has to notice, what stands in the source, what stands there in the mutant)
    "block_sum: no barrier before writing": (
        loss,
        (
            "warp_sum(value)\n    cuda.syncthreads()  # the shared memory may still be in use from "
            "the call before\n"
        ),
        "warp_sum(value)\n",
    ),
    "block_max: no barrier before reading": (
        loss,
        BARRIER + "    for warp in range(cuda.blockDim.x // WARP):\n        value =",
        "    for warp in range(cuda.blockDim.x // WARP):\n        value =",
    ),
    "warp_sum: one step less": (norm, "range(5):\n        value +=", "range(4):\n        value +="),
    "warp_max: half a warp": (loss, "value, 16 >> step))", "value, 8 >> step))"),
    "loss: a suppressed id has a share": (loss, "            q = 0.0\n", "            q = each\n"),
    "loss: a suppressed id counts": (loss, "counted = size - n_suppressed", "counted = size"),
    "loss: the target's logit read after it was overwritten": (
        loss,
        "log_total - (true_logit",
        "log_total - (logits[row, target[row]]",
    ),
    "loss: the sum of a warp not scaled to the largest": (
        loss,
        "total * xp.exp(largest - highest)",
        "total",
    ),
    "loss: every thread writes": (
        loss,
        "    if thread == 0:\n        log_total",
        "    if thread < 2:\n        log_total",
    ),
    "norm: another thread's columns": (
        norm,
        "for column in range(own, columns, WARP):  # each",
        "for column in range(lane, columns, WARP):  # each",
    ),
    "norm: a column too many": (
        norm,
        "for column in range(lane, columns, WARP)",
        "for column in range(columns + 1)",
    ),
    "norm: all lanes write the deviation": (
        norm,
        "if lane == 0:\n        deviation",
        "if lane < 9:\n        deviation",
    ),
    "norm: no correction along the normal": (
        norm,
        " - cuda.initial(normal[row, column]) * along",
        "",
    ),
    "norm: both sums are the first": (
        norm,
        "add_slices(sums, 1, g_bias)",
        "add_slices(sums, 0, g_bias)",
    ),
    "sums: every row of threads writes": (
        norm,
        "if cuda.threadIdx.y == 0 and column < y.size",
        "if column < y.size",
    ),
    "sums: two rows of threads write a slice": (
        norm,
        "if cuda.threadIdx.y == 0:\n        sums",
        "if cuda.threadIdx.y < 2:\n        sums",
    ),
    "sums: every block adds up": (
        sums,
        "return before[0] == others",
        "return before[0] >= 0",
    ),
    "sums: a slice need not have arrived when its block is counted": (
        sums,
        "cuda.threadfence()  # whoever",
        "pass  # whoever",
    ),
    "sums: a block is counted before all of its threads have written": (
        sums,
        BARRIER + "    if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:\n        before",
        "    if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:\n        before",
    ),
    "sums: the count stays for the next kernel": (
        sums,
        "cuda.atomic_add(arrived, cuda.blockIdx.x, -others - 1)",
        "pass",
    ),
    "norm: a row too many": (norm, "if row >= gy.shape[0]", "if row > gy.shape[0]"),
    "stripe_sum: no barrier before writing": (
        norm,
        BARRIER + "    values[xp.int32(cuda",
        "    values[xp.int32(cuda",
    ),
    "stripe_sum: no barrier before reading": (
        embedding,
        BARRIER + "    total = 0.0\n    for row",
        "    total = 0.0\n    for row",
    ),
    "stripe_sum: one of the eight is lost": (
        feed_forward,
        "for row in range(STRIPE)",
        "for row in range(STRIPE - 1)",
    ),
    "feed-forward: a slice too long": (
        sums,
        "first + slice_rows, xp",
        "first + slice_rows + 1, xp",
    ),
    "feed-forward: the ReLU before the bias": (
        feed_forward,
        "y = cuda.as_float(cuda.initial(x[row, column])) + cuda",
        "y = max(cuda.as_float(cuda.initial(x[row, column])), 0.0) + cuda",
    ),
    "feed-forward: the bits of a rounded number as a number": (
        rounded,
        "g = cuda.as_float(cuda.initial(gy[row, column])) * factor",
        "g = xp.float32(gy[row, column]) * factor",
    ),
    "feed-forward: the sum of the signs": (
        rounded,
        "            total += g\n",
        "            total += 1.0\n",
    ),
    "loss: the gradient is not written to its array": (
        rounded,
        "gradient[row, column] = cuda.as_element",
        "logits[row, column] = cuda.as_element",
    ),
    "attention: another thread's columns": (
        attention,
        "range(own, columns, WARP):\n        weight",
        "range(lane, columns, WARP):\n        weight",
    ),
    "attention: some lanes leave early": (attention, "if batch >= scores.shape[0]", "if lane > 30"),
    "attention: the mask of another query": (
        attention,
        "mask[batch, head, query, column]:\n",
        "mask[batch, head, 0, column]:\n",
    ),
    "step: the newest key is read before it is written": (
        step,
        "        cuda.syncthreads()\n    for token in range(warp",
        "    for token in range(warp",
    ),
    "step: the scores are read before they are written": (
        step,
        "score * scale\n    cuda.syncthreads()\n",
        "score * scale\n",
    ),
    "step: a hidden token is read": (
        step,
        "if mask[sentence, w, token]:\n                    weight",
        "if token >= 0:\n                    weight",
    ),
    "step: three of four tokens are left out": (
        step,
        "range(warp, tokens, STRIPE):\n                if mask",
        "range(warp, tokens, WARP):\n                if mask",
    ),
    "step: all texts write one token": (step, "newest = first + w", "newest = first"),
    "step: the keys for values": (
        step,
        "value = projected[row, (2 * heads + head)",
        "value = projected[row, (heads + head)",
    ),
    "logsumexp: every thread writes": (
        logsumexp,
        "    if thread == 0:\n        y[row]",
        "    if thread < 2:\n        y[row]",
    ),
    "best: the picks of two rounds in one memory": (
        picks,
        BARRIER.rstrip() + "  # the shared memory may still be in use from the pick before\n",
        "    pass\n",
    ),
    "best: read before the warps have written": (
        picks,
        "= token\n" + "    " + BARRIER + "        value = warp_values",
        "= token\n        value = warp_values",
    ),
    "best: the higher id of equals": (picks, "warp_ids[j] < token", "warp_ids[j] > token"),
    "best: the higher id of a warp's equals": (picks, "other_id < token", "other_id > token"),
    "best: the higher id of a thread's equals": (picks, "elif z > best:", "elif z >= best:"),
    "best: of equals, a thread gives one": (picks, " or (z == value and column > token))", ")"),
    "best: another warp looks for the next": (
        picks,
        "token % threads // WARP == warp",
        "token % threads // WARP == warp - 1",
    ),
    "best: padding is among them": (picks, "column == pad or", "column == -1 or"),
    "best: every thread writes": (
        picks,
        "if thread == 0:\n            results",
        "if thread < 2:\n            results",
    ),
    "dropout: 16 decisions for 32 lanes": (drop, "2 * i + lane // 16", "2 * i"),
    "dropout: the row's beginning is forgotten": (
        drop,
        "first = start + xp.uint64(row)",
        "first = xp.uint64(row)",
    ),
    "dropout: a thread that begins later takes the decisions from the beginning": (
        drop,
        "mine += WARP\n        keep = keep >> 1\n",
        "mine += WARP\n",
    ),
    "dropout: every chunk is the first": (
        drop,
        "begin = xp.int32(cuda.blockIdx.y) * CHUNK - skip",
        "begin = -skip",
    ),
    "dropout: one round less": (drop, "cuda.range(10,", "cuda.range(9,"),
    "dropout: a carry lost": (drop, " + (middle >> 32)", ""),
    "embedding: every position sums its run": (
        embedding,
        "if begin > 0 and ids[begin - 1] == ids[begin]",
        "if begin > 99",
    ),
    "embedding: beyond the last id": (embedding, "while i < ids.size and ids", "while ids"),
}


def mutated(folder, monkeypatch, old, new):
    """Give minitf.gpu.kernels with a line changed, there or in minitf.gpu.warps."""
    texts = [(PACKAGE / f"{name}.py").read_text(encoding="utf-8") for name in ("warps", "kernels")]
    assert sum(old in text for text in texts) == 1, "the mutant follows the code no more"
    modules = []
    for name, text in zip(("mutant_warps", "mutant_kernels"), texts, strict=True):
        path = folder / f"{name}.py"
        path.write_text(
            text.replace(old, new).replace("minitf.gpu.warps", "mutant_warps"), encoding="utf-8"
        )
        spec = importlib.util.spec_from_file_location(name, path)
        modules.append(importlib.util.module_from_spec(spec))
        monkeypatch.setitem(sys.modules, name, modules[-1])
        spec.loader.exec_module(modules[-1])
    return modules[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name, tmp_path, monkeypatch):
    check, old, new = MUTANTS[name]
    kernels = mutated(tmp_path, monkeypatch, old, new)
    for module in (fused, gpu_loss, gpu_optim):
        monkeypatch.setattr(module, "kernels", kernels)
    # Counts that a mutant left behind are not for the next one.
    monkeypatch.setattr(fused, "_arrived", functools.cache(fused._arrived.__wrapped__))
    with (
        using(strict.with_kernels),
        pytest.raises((AssertionError, blocks.Race, blocks.OutOfBounds, blocks.Stray)),
    ):
        check()
