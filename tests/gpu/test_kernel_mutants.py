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
from minitf.gpu import functions as gpu_functions
from minitf.gpu import fused
from minitf.gpu import loss as gpu_loss

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


def picks():
    checks.test_best_of_rows(None, 300, 9)
    checks.test_best_of_rows(None, 1100, 2)


def drop():
    checks.test_dropout_draws_the_mask_of_numpy(None, (2, 600), 5)


def embedding():
    checks.test_add_segments(None, "some", 33)


MUTANTS = {  # who has to notice: (what stands in the source, what stands there in the mutant)
    loss: [
        ("value, 16 >> halving))", "value, 8 >> halving))"),
        ("            q = 0.0\n", "            q = each\n"),
        ("            counted += 1.0\n", "            counted += 2.0\n"),
        ("log_total - (true_logit", "log_total - (logits[row, target[row]]"),
        ("total * xp.exp(largest - highest)", "total"),
        ("    if thread == 0:\n        log_total", "    if thread < 2:\n        log_total"),
    ],
    norm: [
        ("range(5):\n        value +=", "range(4):\n        value +="),
        ("for column in range(lane, columns, WARP)", "for column in range(columns + 1)"),
        ("if lane == 0:\n        deviation", "if lane < 9:\n        deviation"),
        (" - cuda.initial(normal[row, column]) * along", ""),
        ("add_slices(sums, 1, g_bias)", "add_slices(sums, 0, g_bias)"),
        ("if cuda.threadIdx.y == 0 and column < y.size", "if column < y.size"),
        ("if cuda.threadIdx.y == 0:\n        sums", "if cuda.threadIdx.y < 2:\n        sums"),
        ("if row >= gy.shape[0]", "if row > gy.shape[0]"),
        ("    cuda.syncthreads()\n    values[xp.int32(cuda", "    values[xp.int32(cuda"),
    ],
    sums: [
        ("return before[0] == others", "return before[0] >= 0"),
        ("cuda.threadfence()  # whoever", "pass  # whoever"),
        ("cuda.atomic_add(arrived, cuda.blockIdx.x, -others - 1)", "pass"),
        ("first + slice_rows, xp", "first + slice_rows + 1, xp"),
    ],
    embedding: [
        ("    cuda.syncthreads()\n    total = 0.0\n    for row", "    total = 0.0\n    for row"),
        ("if begin > 0 and ids[begin - 1] == ids[begin]", "if begin > 99"),
        ("while i < ids.size and ids", "while ids"),
    ],
    feed_forward: [("for row in range(STRIPE)", "for row in range(STRIPE - 1)")],
    rounded: [
        ("            total += g\n", "            total += 1.0\n"),
        ("gradient[row, column] = cuda.as_element", "logits[row, column] = cuda.as_element"),
    ],
    attention: [
        ("if batch >= scores.shape[0]", "if lane > 30"),
        ("mask[batch, head, query, column]:\n", "mask[batch, head, 0, column]:\n"),
    ],
    step: [
        ("        cuda.syncthreads()\n    for token in range(warp", "    for token in range(warp"),
        ("score * scale\n    cuda.syncthreads()\n", "score * scale\n"),
        ("newest = first + w", "newest = first"),
        ("value = projected[row, (2 * heads + head)", "value = projected[row, (heads + head)"),
    ],
    picks: [
        ("warp_ids[j] < token", "warp_ids[j] > token"),
        ("other_id < token", "other_id > token"),
        ("elif z > best:", "elif z >= best:"),
        (" or (z == value and column > token))", ")"),
        ("token % threads // WARP == warp", "token % threads // WARP == warp - 1"),
        ("column == pad or", "column == -1 or"),
        ("if thread == 0:\n            results", "if thread < 2:\n            results"),
    ],
    drop: [
        ("2 * i + lane // 16", "2 * i"),
        ("first = start + xp.uint64(row)", "first = xp.uint64(row)"),
        ("mine += WARP\n        keep = keep >> 1\n", "mine += WARP\n"),
        ("begin = xp.int32(cuda.blockIdx.y) * CHUNK - skip", "begin = -skip"),
        ("cuda.range(10,", "cuda.range(9,"),
        (" + (middle >> 32)", ""),
    ],
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
@pytest.mark.parametrize(
    ("check", "old", "new"), [(check, *pair) for check, pairs in MUTANTS.items() for pair in pairs]
)
def test_a_mutant_is_noticed(check, old, new, tmp_path, monkeypatch):
    kernels = mutated(tmp_path, monkeypatch, old, new)
    for module in (fused, gpu_loss, gpu_functions):
        monkeypatch.setattr(module, "kernels", kernels)
    # Counts that a mutant left behind are not for the next one.
    monkeypatch.setattr(fused, "_arrivals", functools.cache(fused._arrivals.__wrapped__))
    with (
        using(strict.with_kernels),
        pytest.raises((AssertionError, blocks.Race, blocks.OutOfBounds, blocks.Stray)),
    ):
        check()
