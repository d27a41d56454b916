"""The checks of lesson 06, the Transformer."""

import numpy as np

from minitf import functions as F
from minitf.config import Config
from minitf.course.checks.compare import as_array, check, parts_of, short
from minitf.tensor import Tensor
from minitf.transformer import Transformer, causal_mask

EVERY = [0, 1, 2, 3, 4]


def _what_moves():
    """Return {change of a token: the positions of the logits that move}."""
    model = Transformer(Config(20, n_layers=2, d_model=8, d_ff=16, n_heads=2, dropout=0.0))
    ids = {"source": np.array([[5, 6, 7, 8]]), "target": np.array([[2, 9, 10, 11, 12]])}
    before, moved = model.astype(np.float64)(*ids.values()).numpy(), {}
    for side, position in (("source", 2), ("target", 0), ("target", 3)):
        changed = {name: array.copy() for name, array in ids.items()}
        changed[side][0, position] = 15
        differs = model(*changed.values()).numpy() != before
        moved[f"{side} {position}"] = np.flatnonzero(differs.any(axis=(0, 2))).tolist()
    return moved


def _moves(source_2, target_0, target_3):
    return lambda: {"source 2": source_2, "target 0": target_0, "target 3": target_3}


@check(
    right=_what_moves,
    wrong={
        "the position of the change alone": _moves([2], [0], [3]),
        "positions counted from 1: the first is 0": _moves(
            [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [4, 5]
        ),
        "a causal source: each position of the decoder reads all of it": _moves(
            [2, 3, 4], EVERY, [3, 4]
        ),
        "later positions only: a position reads its own token, too": _moves(EVERY, EVERY, [4]),
        "all positions: the decoder must not see the future": _moves(EVERY, EVERY, EVERY),
    },
    shown=False,
)
def check_predict_what_moves(predict_what_moves):
    """Check which outputs move if one token changes."""
    predicted = predict_what_moves()
    assert isinstance(predicted, dict), (
        f"found {short(predicted)}, expected a dict, such as {{'source 2': [0, 1]}}"
    )
    predicted = {" ".join(str(change).split()): moved for change, moved in predicted.items()}
    for change in "source 2", "target 0", "target 3":
        assert change in predicted, (
            f"found no answer to {change!r} among {short(list(predicted))}, expected a list"
        )
        yield f"{change}, the positions that move", sorted(set(predicted[change]))


def _shifted(target):
    """Return what the decoder reads, and what it must predict."""
    reads = np.pad(target, ((0, 0), (1, 0)), constant_values=2)
    predicts = np.pad(target, ((0, 0), (0, 1)))
    predicts[np.arange(len(target)), (target != 0).sum(axis=1)] = 3
    return reads, predicts


def _end_in_place_of_the_last_word(target):
    reads, predicts = _shifted(target)
    rows, ends = np.nonzero(predicts == 3)
    predicts[rows, ends], predicts[rows, ends - 1] = 0, 3
    return reads, predicts


@check(
    right=_shifted,
    wrong={
        "the end mark behind the padding: it follows the last word": lambda target: (
            _shifted(target)[0],
            np.pad(target, ((0, 0), (0, 1)), constant_values=3),
        ),
        "the end mark in place of the last word": _end_in_place_of_the_last_word,
        "no end mark": lambda target: (_shifted(target)[0], np.pad(target, ((0, 0), (0, 1)))),
        "reads and predicts exchanged": lambda target: _shifted(target)[::-1],
        "the target alone, without its mark": lambda target: (target, target),
    },
)
def check_shift_right(shift_right):
    """Check what the decoder reads and what it must predict."""
    for rows in (
        [[6, 9, 7, 5], [8, 4]],
        [[5, 5, 7], [8], [4, 9]],
        [[11, 6, 12, 7, 9, 10], [9, 8, 7], [6, 4, 8, 5], [7, 10, 13, 14, 6]],
    ):
        longest = max(map(len, rows))
        target = np.array([row + [0] * (longest - len(row)) for row in rows])
        name = f"target ids {target.shape}"
        reads, predicts = parts_of(name, shift_right(target), ["reads", "predicts"])
        yield f"{name}, the decoder reads", reads
        yield f"{name}, it must predict", predicts


def _same_sentence(lengths):
    own = np.repeat(np.arange(len(lengths)), lengths)
    return (own[:, None] == own)[None, None]


def _packed(lengths):
    return _same_sentence(lengths) & np.tri(sum(lengths), dtype=bool)


@check(
    right=_packed,
    wrong={
        "each sentence sees all of itself: the future is forbidden": _same_sentence,
        "the sentences see one another: only the future is forbidden": lambda lengths: np.tri(
            sum(lengths), dtype=bool
        )[None, None],
        "the mask the wrong way round: rows ask, columns are looked at": lambda lengths: _packed(
            lengths
        ).swapaxes(-1, -2),
        "True where looking is forbidden": lambda lengths: ~_packed(lengths),
        "a position that does not see itself": lambda lengths: (
            _packed(lengths) & ~np.eye(sum(lengths), dtype=bool)
        ),
    },
)
def check_packed_mask(packed_mask):
    """Check the decoder's mask for several sentences in one row."""
    for lengths in ([4], [2, 3], [1, 2, 2], [3, 1, 2, 4]):
        name = f"sentences of {lengths}"
        found = as_array(name, packed_mask(lengths))
        assert found.dtype == bool, (
            f"{name}: found dtype {found.dtype}, expected a mask of True and False (dtype bool)"
        )
        yield name, found


def _reads(begin=lambda shape, t: np.random.default_rng(t).standard_normal(shape[1:]), seen=None):
    """Return an answer that sends `begin` back from row t, and looks at x.grad by `seen`."""

    def find_leaks(run, x):
        reads = []
        for t in range(len(x)):
            x.grad, gradient = None, np.zeros(x.shape)
            gradient[t] = begin(x.shape, t)
            run(x).backward(gradient)
            grad = Tensor(x.grad).numpy()
            reads.append(seen(grad) if seen else (grad != 0).any(axis=1))
        return np.array(reads)

    return find_leaks


@check(
    right=_reads(),
    wrong={
        "gradients that add up: x.grad is to be None before each walk": lambda run, x: (
            np.logical_or.accumulate(_reads()(run, x), axis=0)
        ),
        "rows and columns exchanged: row t is output t": lambda run, x: _reads()(run, x).T,
        "a sum: some of a gradient may be negative, and cancel": _reads(
            lambda shape, t: 1.0, lambda grad: grad.sum(axis=1) > 0
        ),
        "a mask or a limit: a leak is found by its gradient, however small": lambda run, x: np.tri(
            len(x), dtype=bool
        ),
        "a gradient that begins at one feature, and not at all of output t": _reads(
            lambda shape, t: np.eye(shape[1])[0]
        ),
    },
)
def check_find_leaks(find_leaks):
    """Check which rows each output of a function depends on."""
    rng = np.random.default_rng(5)
    for name, (run, shape) in _leaking_runs(rng).items():
        found = as_array(name, find_leaks(run, Tensor(rng.standard_normal(shape))))
        if found.dtype != bool:
            assert np.isin(found, (0, 1)).all(), (
                f"{name}: found numbers such as {found.flat[abs(found).argmax()]:.3g}, expected "
                "True and False"
            )
        yield name, found.astype(bool)


def _leaking_runs(rng):
    """Return {name: (a function from Tensor to Tensor, the shape of x)}."""
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
        "attention (6, 4), causal": (attention(six), (6, 4)),
        "attention (6, 4), one leak": (attention(with_a_leak), (6, 4)),
        "negative weights (5, 3), one small leak": (lambda x: Tensor(weights) @ (x * x), (5, 3)),
        "differences of features (5, 4)": (
            lambda x: Tensor(weights) @ (x @ Tensor(differences)),
            (5, 4),
        ),
        "one feature of three (5, 3)": (
            lambda x: Tensor(weights) @ (x * x) @ Tensor(np.diag([0.0, 1.0, 0.0])),
            (5, 3),
        ),
    }
