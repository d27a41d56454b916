"""The checks of lesson 06, the Transformer."""

import numpy as np

from minitf import functions as F
from minitf.config import Config
from minitf.course.checks.compare import equal, parts_of, short
from minitf.tensor import Tensor
from minitf.text import make_batch
from minitf.transformer import Transformer, causal_mask

__all__ = [
    "check_find_leaks",
    "check_packed_mask",
    "check_predict_what_moves",
    "check_shift_right",
]


def check_predict_what_moves(predict_what_moves):
    """Check which outputs move if one token changes."""
    config = Config(20, n_layers=2, d_model=8, d_ff=16, n_heads=2, dropout=0.0)
    model = Transformer(config).astype(np.float64)
    before = model(np.array([[5, 6, 7, 8]]), np.array([[2, 9, 10, 11, 12]])).numpy()
    predicted = predict_what_moves()
    assert isinstance(predicted, dict), (
        f"found {short(predicted)}, expected a dict, such as {{'source 2': [0, 1]}}"
    )
    predicted = {" ".join(str(change).split()): moved for change, moved in predicted.items()}
    for side, position in (("source", 2), ("target", 0), ("target", 3)):
        ids = {"source": np.array([[5, 6, 7, 8]]), "target": np.array([[2, 9, 10, 11, 12]])}
        ids[side][0, position] = 15
        after = model(ids["source"], ids["target"]).numpy()
        moved = np.flatnonzero((after != before).any(axis=(0, 2))).tolist()
        change = f"{side} {position}"
        assert change in predicted, (
            f"found no answer to {change!r} among {short(list(predicted))}, expected a list"
        )
        try:
            answer = sorted({int(each) for each in predicted[change]})
        except (ValueError, TypeError):
            raise AssertionError(
                f"{change}: found {short(predicted[change])}, expected a list of positions"
            ) from None
        if answer == moved:
            continue
        known = _moved(side, position, moved)
        looks_like = next((text for text, value in known.items() if value == answer), "")
        raise AssertionError(
            f"{change}: the positions that move are not {answer}"
            + (f": that looks like {looks_like}" if looks_like else "")
        )


def _moved(side, position, right):
    """Return {mistake: the positions that it gives} of a change at this position."""
    known = {
        "the position of the change alone": [position],
        "positions counted from 1: the first is 0": [each + 1 for each in right],
        "the positions that do not move": [each for each in range(5) if each not in right],
        "nothing: then it would not be read at all": [],
        "the positions before the change: a position looks back, so later ones move": [
            *range(position + (side == "target"))
        ],
    }
    if side == "source":
        known |= {
            "a causal source: each position of the decoder reads all of the source": [
                *range(position, 5)
            ],
            "a causal source without its own position": [*range(position + 1, 5)],
            "the positions up to the change: the decoder reads all of the source": [
                *range(position + 1)
            ],
            "the positions of the source: these are those of the logits": [*range(4)],
            "the positions before: the decoder reads all of the source": [*range(position)],
        }
    else:
        known |= {
            "later positions only: a position reads its own token, too": [*range(position + 1, 5)],
            "the positions up to the change: it is read later": [*range(position + 1)],
            "the position of the change and the next one: all later ones read it": [
                position,
                position + 1,
            ],
            "all positions: the decoder must not see the future": [*range(5)],
            "one position too early: the token is read at its own position": [
                *range(position - 1, 5)
            ],
        }
    return known


def check_shift_right(shift_right):
    """Check what the decoder reads and what it must predict."""
    for rows in (
        [[6, 9, 7, 5], [8, 4]],
        [[5, 5, 7], [8], [4, 9]],
        [[11, 6, 12, 7, 9, 10], [9, 8, 7], [6, 4, 8, 5], [7, 10, 13, 14, 6]],
    ):
        batch = make_batch(rows, rows, 15)
        target = batch.target_out[:, :-1] * (batch.target_out[:, :-1] != 3)
        name = f"target ids {target.shape}"
        found = shift_right(target.copy())
        assert not (isinstance(found, np.ndarray) and found.ndim == 2), (
            f"{name}: found one array, expected two: reads, predicts"
        )
        found = parts_of(name, found, ["reads", "predicts"])
        starts = np.full((len(rows), 1), 2)
        right_reads = np.concatenate([starts, target], axis=1)
        right_predicts = batch.target_out
        same = all(np.array_equal(each, right_predicts) for each in found)
        both = {
            "what it must predict in both": (right_predicts if same else 0, 0),
            "reads and predicts exchanged": (right_predicts, right_reads),
        }
        others = _shifts(target, right_reads, right_predicts)
        for i, (part, right) in enumerate(
            (("the decoder reads", right_reads), ("it must predict", right_predicts))
        ):
            mistakes = {text: value[i] for text, value in both.items()} | others
            mistakes |= {
                "one token less: both have one column more than target": right[:, :-1],
                "start marks in place of padding": np.where(right == 0, 2, right),
                "end marks alone: the words are to stay": np.where(right == 3, 3, 0),
            }
            equal(f"{name}, {part}", found[i], right, mistakes)


def _shifts(target, right_reads, right_predicts):
    """Return {mistake: what it gives} of the texts that the decoder reads and must predict."""
    start, end, pad = (np.full((len(target), 1), each) for each in (2, 3, 0))
    unmended = np.concatenate([target, end], axis=1)
    ends = (right_predicts == 3).argmax(axis=1)
    over_last = np.concatenate([target, pad], axis=1)
    over_last[np.arange(len(target)), ends - 1] = 3
    reads_end = right_reads.copy()
    for row, last in enumerate(ends):
        reads_end[row, last + 1 :] = 3 if last + 1 < reads_end.shape[1] else 0
    with_end = right_reads.copy()
    for row, last in enumerate(ends):
        if last + 1 < with_end.shape[1]:
            with_end[row, last + 1] = 3
    in_all_rows, at_first = np.concatenate([target, pad], axis=1), right_predicts.copy()
    in_all_rows[:, ends] = 3
    at_first[ends == ends.max(), 0] = 3
    at_first[:, -1] = 0
    full_of_ends = np.where(unmended == 0, 3, unmended)
    return {
        "the end mark behind the padding: it follows the last word": unmended,
        "the end mark in place of the last word": over_last,
        "no end mark": np.concatenate([target, pad], axis=1),
        "end marks in place of all padding": full_of_ends,
        "an end mark of each row in all rows": in_all_rows,
        "an end mark in front, where a row has no padding": at_first,
        "an end mark in what the decoder reads": with_end,
        "end marks in place of padding": reads_end,
        "the target without its start mark": np.concatenate([target, pad], axis=1),
        "the target alone, without its mark": target,
        "the start mark in both": right_reads,
        "padding in front: it stays behind": np.concatenate([pad, target], axis=1),
        "a start mark of 3, which is the end mark": np.concatenate([end, target], axis=1),
        "an end mark of 2, which is the start mark": np.where(
            right_predicts == 3, 2, right_predicts
        ),
        "what the decoder reads, and its start mark at the end (np.roll)": np.roll(
            right_reads, -1, axis=1
        ),
        "the first word left out: it must be predicted, too": np.concatenate(
            [right_predicts[:, 1:], pad], axis=1
        ),
        "the target without its first word, and an end mark": unmended[:, 1:],
        "the end mark in front of the last word": _before_the_last(right_predicts),
        "an end mark behind a start mark": np.concatenate([start, unmended], axis=1),
    }


def _before_the_last(predicts):
    """Return rows whose end mark has changed places with the word before it."""
    found, rows = predicts.copy(), np.arange(len(predicts))
    ends = (predicts == 3).argmax(axis=1)
    found[rows, ends], found[rows, ends - 1] = predicts[rows, ends - 1], predicts[rows, ends]
    return found


def check_packed_mask(packed_mask):
    """Check the decoder's mask for several sentences in one row."""
    for lengths in ([4], [2, 3], [1, 2, 2], [3, 1, 2, 4]):
        T = sum(lengths)
        blocks, start = np.zeros((T, T), dtype=bool), 0
        for length in lengths:
            blocks[start : start + length, start : start + length] = True
            start += length
        causal, right = np.tri(T, dtype=bool), blocks & np.tri(T, dtype=bool)
        found = packed_mask(list(lengths))
        found = found.numpy() if isinstance(found, Tensor) else np.asarray(found)
        name = f"sentences of {lengths}"
        mistakes = {
            "each sentence sees all of itself: the future is forbidden": blocks,
            "the sentences see one another: only the future is forbidden": causal,
            "the mask the wrong way round: rows ask, columns are looked at": right.T,
            "a position that does not see itself": right & ~np.eye(T, dtype=bool),
            "True where looking is forbidden": ~right,
            "positions that see the other sentences only": ~blocks,
            "positions that see the other sentences of the past only": causal & ~blocks,
            "nothing forbidden": np.ones((T, T), dtype=bool),
            "positions that see themselves alone": np.eye(T, dtype=bool),
            "the past or the own sentence: both are needed": causal | blocks,
            "the mask of the longest sentence alone": np.tri(max(lengths), dtype=bool),
            "True where looking is forbidden, within the past": causal & ~right,
            "a position that sees the next one, too": right | np.eye(T, k=1, dtype=bool),
            "sentences of equal length taken for one": causal
            & (np.repeat(lengths, lengths)[:, None] == np.repeat(lengths, lengths)),
            "the lengths in the opposite order": right[::-1, ::-1].T,
            "the future of the own sentence alone": blocks & ~causal,
            "the first sentence alone": right & (np.arange(T) < lengths[0]),
        }
        if found.dtype != bool and found.dtype.kind in "iuf":
            minus = found.dtype.kind == "f" and (found < 0).any()
            assert not minus, f"{name}: found numbers to add, expected True and False (dtype bool)"
            kind = f"a mask is of True and False: found dtype {found.dtype}, expected bool"
            assert set(np.unique(found)) - {0, 1} == set(), f"{name}: {kind}"
            equal(name, found.astype(bool), right[None, None], _as_masks(mistakes, found.ndim))
            raise AssertionError(f"{name}: {kind}")
        if found.ndim < 4 and found.shape[-2:] == (T, T) and (found == right).all():
            raise AssertionError(
                f"{name}: found the shape {found.shape}, expected {(1, 1, T, T)}: the mask is "
                "right, but lacks its two axes of length 1"
            )
        equal(name, found, right[None, None], _as_masks(mistakes, found.ndim))


def _as_masks(mistakes, ndim):
    return {
        text: mask.reshape((1,) * max(0, ndim - 2) + mask.shape) for text, mask in mistakes.items()
    }


def check_find_leaks(find_leaks):
    """Check which rows each output of a function depends on."""
    rng = np.random.default_rng(5)
    for name, (run, shape, reads) in _leaking_runs(rng).items():
        x, T = Tensor(rng.standard_normal(shape)), shape[0]
        found = find_leaks(run, x)
        array = found.numpy() if isinstance(found, Tensor) else np.asarray(found)
        if array.shape == (T, T) and array.dtype.kind in "iuf":
            assert np.isin(array, (0, 1)).all(), (
                f"{name}: found numbers such as {array.flat[abs(array).argmax()]:.3g}, expected "
                "True and False"
            )
            found = array = array.astype(bool)
        past = np.tri(T, dtype=bool)
        mistakes = {
            "gradients that add up: x.grad is to be None before each walk": np.maximum.accumulate(
                reads, axis=0
            ),
            "rows and columns exchanged: row t is output t": reads.T,
            "True where nothing is read": ~reads,
            "False everywhere": ~past & past,
            "True everywhere": ~past | past,
            "the leaks alone: True belongs to everything that is read": reads & ~past,
            "a mask or a limit: a leak is found by its gradient, however small": past,
        }
        if array.shape == (T, T) and array.dtype == bool and not (array & ~reads).any():
            text = (
                "a sum, a sign or all numbers: some of a gradient may be negative, or 0, and cancel"
            )
            if "one feature" in name:
                text = "a gradient that begins at one feature, and not at all of output t"
            mistakes = {text: array} | mistakes if "feature" in name else mistakes | {text: array}
        equal(name, found, reads, mistakes)


def _leaking_runs(rng):
    """Return {name: (a function from Tensor to Tensor, the shape of x, what it reads)}."""
    six, five = causal_mask(6)[0, 0], causal_mask(5)[0, 0]
    with_a_leak, tiny = six.copy(), five.copy()
    with_a_leak[1, 4] = tiny[0, 3] = True
    weights = -np.where(tiny, rng.uniform(0.5, 1.5, (5, 5)), 0)
    weights[0, 3] = -1e-12
    # Differences of two features: a row's gradient sums to 0, and is 0 at the first and the last.
    differences = np.zeros((4, 4))
    differences[1] = [1.0, 0.0, 2.0, 1.0]
    differences[2] = -differences[1]

    def attention(mask):
        # Row by row: what is not read does not even change the rounding.
        def run(x):
            read = [x[np.flatnonzero(row)] for row in mask]
            rows = [F.attention(x[t : t + 1], keys, keys) for t, keys in enumerate(read)]
            return F.concatenate(rows, axis=0)

        return run

    return {
        "attention (6, 4), causal": (attention(six), (6, 4), six),
        "attention (6, 4), one leak": (attention(with_a_leak), (6, 4), with_a_leak),
        "negative weights (5, 3), one small leak": (
            lambda x: Tensor(weights) @ (x * x),
            (5, 3),
            tiny,
        ),
        "differences of features (5, 4)": (
            lambda x: Tensor(weights) @ (x @ Tensor(differences)),
            (5, 4),
            tiny,
        ),
        "one feature of three (5, 3)": (
            lambda x: Tensor(weights) @ (x * x) @ Tensor(np.diag([0.0, 1.0, 0.0])),
            (5, 3),
            tiny,
        ),
    }
