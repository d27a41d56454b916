"""The pieces of `my_transformer.py`: where each is derived, how it is tried, how it goes wrong.

A piece is a function or a method of examples/whole.py. `try_it` calls it in a module with that
page's names, and returns what came out as named arrays; the student's and the page's must agree.
`wrong` has typical mistakes, each as (text of the page, the wrong text, what a student is told).
The result of a wrong answer is compared with theirs, so that the message names the mistake.
"""

import numpy as np


class Piece:
    """A function of the page whose body the student writes.

    name: as in `softmax` or `Tensor.backward`. section: the heading in the lesson that derives it.
    """

    def __init__(self, name, lesson, section, hint, try_it, *wrong):
        self.name, self.lesson, self.section = name, lesson, section
        self.hint, self.try_it, self.wrong = hint, try_it, wrong


def numbers(*shape, seed=0):
    """Return random numbers, none of them near 0."""
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(0.2, 1.5, shape) * rng.choice([-1, 1], shape)


def walked(w, function, **arrays):
    """Return the result of a function of Tensors, and the gradient of each of its inputs.

    L is the sum of the outputs, each times a random number, as lesson 02 advises.
    """
    inputs = {name: w.Tensor(array) for name, array in arrays.items()}
    return gradients_of(w, function(*inputs.values()), inputs)


def gradients_of(w, y, inputs):
    """Walk back from y; return its value and the gradients of the inputs."""
    if not isinstance(y, w.Tensor):
        raise AssertionError(f"it returns {kind_of(y)}, where a Tensor is needed")
    found = {"the result": np.array(y.data)}
    c = numbers(*y.data.shape, seed=7)
    weighted_sum(w, y, c).backward()
    return found | {f"the gradient of {name}": gradient_of(x) for name, x in inputs.items()}


def gradient_of(x):
    """Return the gradient that a Tensor has, as an array; in words that it has none."""
    gradient = np.array(x.grad)
    nothing = gradient.shape == () != x.data.shape and gradient == 0
    return "none: has the result its inputs and input_gradients?" if nothing else gradient


def weighted_sum(w, y, c):
    """Return the sum of c * y as a Tensor, a loss for tests."""
    return w.Tensor((c * y.data).sum(), (y,), lambda gy: (gy * c,))


def kind_of(value):
    """Return "nothing", "an array" or another word for what a function returned."""
    if value is None:
        return "nothing (is `return` missing?)"
    return "an array" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def config(w, **changes):
    """Return the settings of a small model, whose sizes all differ."""
    sizes = {"vocab_size": 11, "N": 2, "N_decoder": 2, "d_model": 12, "d_ff": 16, "h": 3}
    return w.Config(**sizes | {"P_drop": 0.5} | changes)


def filled(module, seed=1):
    """Give every parameter of a module other numbers, in double precision; return the module."""
    for i, x in enumerate(module.parameters().values()):
        x.data = numbers(*x.data.shape, seed=seed + i) * 0.5
    return module


def tried(w, call, parameters, **arguments):
    """Call a module; return the result, and the gradients of its inputs and of the parameters."""
    w.rng = np.random.default_rng(3)  # for dropout
    inputs = {name: x for name, x in arguments.items() if isinstance(x, w.Tensor)}
    return gradients_of(w, call(*arguments.values()), inputs | parameters)


def under(title, found):
    """Return the named arrays with the case in front of each name."""
    return {f"{title}: {name}": array for name, array in found.items()}


SOURCE = np.array([[4, 5, 6, 3], [9, 3, 0, 0]])
TARGET = np.array([[2, 7, 8, 7, 9], [2, 10, 4, 0, 0]])
MASK = np.array([[True, True, False, True, True, False], [True] * 6])[:, None, None, :]


# Lesson 01 ----------------------------------------------------------------------------------------


def _try_softmax(w):
    x = numbers(2, 3, 5)
    return {
        "the weights": w.softmax(x),
        "of scores near 1000": w.softmax(x + 1000),
        "of the rows [0, 0] and [1000, 1000]": w.softmax(np.array([[0.0, 0.0], [1e3, 1e3]])),
    }


def _try_attention_weights(w):
    Q, K = numbers(2, 3, 4, 5), numbers(2, 3, 6, 5, seed=1)
    everything = np.ones((1, 1, 1, 6), dtype=bool)
    return {
        "without a mask": w.attention_weights(Q, K, everything),
        "with a mask": w.attention_weights(Q, K, MASK),
    }


# Lesson 02 ----------------------------------------------------------------------------------------


def diamond(w):
    """Return Tensors, of which a and b are used twice, and the last is the loss."""
    a, W = w.Tensor(numbers(2, 3)), w.Tensor(numbers(3, 4))
    b = a * 2.0
    c = b * 3.0
    d = b + c
    e = (d + a) @ W
    loss = weighted_sum(w, e, numbers(2, 4, seed=7))
    return {
        "a": a,
        "W": W,
        "b = 2a": b,
        "c = 3b": c,
        "d = b + c": d,
        "(d + a) W": e,
        "the loss": loss,
    }


def _try_backward(w):
    nodes = diamond(w)
    nodes["the loss"].backward()
    found = {f"the gradient of {name}": gradient_of(node) for name, node in nodes.items()}
    weighted_sum(w, nodes["a"], 5.0 * numbers(2, 3, seed=3)).backward()
    return found | {"the gradient of a, after a second walk": gradient_of(nodes["a"])}


def _try_topological_order(w):
    nodes = list(diamond(w).values())
    found = w.topological_order(nodes[-1])
    if not isinstance(found, list):
        raise AssertionError(f"it returns {kind_of(found)}, where a list is needed")
    places = {id(node): place for place, node in enumerate(found)}
    after = [places.get(id(x), 99) < places[id(node)] for node in found for x in node.inputs]
    return {
        "the number of nodes in the list": len(found),
        "how many of them are different": len(places),
        "how many have no inputs": sum(not node.inputs for node in found),
        "every node is after its inputs": all(after),
        "the last one is the node itself": bool(found) and found[-1] is nodes[-1],
    }


def _try_add(w):
    same = walked(w, lambda a, b: a + b, a=numbers(2, 3, 4), b=numbers(2, 3, 4, seed=1))
    bias = walked(w, lambda a, b: a + b, a=numbers(2, 3, 4), b=numbers(4, seed=1))
    table = walked(w, lambda a, b: a + b, a=numbers(2, 3, 4), b=numbers(3, 4, seed=1))
    return (
        under("a sum of equal shapes", same)
        | under("a bias", bias)
        | under("(2, 3, 4) plus (3, 4)", table)
    )


def _try_matmul(w):
    one = walked(w, lambda x, W: x @ W, x=numbers(3, 4), W=numbers(4, 5))
    many = walked(w, lambda x, W: x @ W, x=numbers(2, 3, 4), W=numbers(4, 5))
    return under("(3, 4) times (4, 5)", one) | under("(2, 3, 4) times (4, 5)", many)


def _try_transpose(w):
    two = walked(w, lambda x: x.transpose(1, 0), x=numbers(2, 3))
    four = walked(w, lambda x: x.transpose(1, 2, 0, 3), x=numbers(2, 3, 4, 5))
    return under("axes 1, 0", two) | under("axes 1, 2, 0, 3", four)


# Lesson 04 ----------------------------------------------------------------------------------------


def _try_layer_norm(w):
    arrays = {"x": 2 + numbers(2, 3, 5), "gain": numbers(5), "bias": numbers(5, seed=1)}
    equal = {"x": np.full((1, 1, 4), 3.0), "gain": numbers(4), "bias": numbers(4, seed=1)}
    found = w.layer_norm(*map(w.Tensor, equal.values())).data
    return walked(w, w.layer_norm, **arrays) | {"equal features: the result": found}


def _try_dropout(w):
    x = numbers(40, 50)
    found = under("not training", walked(w, lambda x: w.dropout(x, config(w)), x=x))
    for P_drop in (0.3, 0.5):  # far from where a rounded share of zeros would jump
        c = config(w, training=True, P_drop=P_drop)
        w.rng = np.random.default_rng(5)
        mask = walked(w, lambda x, c=c: w.dropout(x, c), x=x)
        result, gradient = mask["the result"] / x, mask["the gradient of x"]
        again = w.dropout(w.Tensor(x), c).data / x
        w.rng = np.random.default_rng(5)
        repeated = w.dropout(w.Tensor(x), c).data / x
        zeros, ratio = result == 0, gradient / numbers(40, 50, seed=7)
        case = {
            "the share of zeros": np.round(zeros.mean(), 1),
            "the other numbers, divided by x": np.unique(np.round(result[~zeros], 9)),
            "the gradient, divided by gy": np.unique(np.round(ratio, 9)),
            "the gradient is 0 where the result is": ((gradient == 0) == zeros).all(),
            "a second call has another mask": not np.array_equal(result, again),
            "rng with the same seed draws the same mask": np.array_equal(result, repeated),
            "each row has another mask": len(np.unique(zeros, axis=0)) == 40,
            "each column has another mask": len(np.unique(zeros, axis=1)[0]) == 50,
        }
        found |= under(f"P_drop {P_drop}", case)
    small = w.dropout(w.Tensor(x.astype(np.float32)), config(w, training=True))
    return found | {"the dtype, if x has float32": str(small.data.dtype)}


def both_ways(w, layer, **arguments):
    """Return what a module computes while translating, without dropout, and while training."""
    found = {}
    for title, training in {"translating": False, "training": True}.items():
        module = filled(layer(config(w, training=training)))
        inputs = {
            name: array if array.dtype == bool else w.Tensor(array)
            for name, array in arguments.items()
        }
        found |= under(title, tried(w, module, module.parameters(), **inputs))
    return found


# Lessons 05 and 06 --------------------------------------------------------------------------------


def _try_enter(w):
    found = {}
    for training in (False, True):
        model = filled(w.Transformer(config(w, training=training, N=1, N_decoder=1)))
        made = tried(w, lambda m=model: w.enter(m.E, TARGET, m.c), {"E": model.E})
        found |= under("training" if training else "translating", made)
    small = w.enter(w.Tensor(numbers(11, 12).astype(np.float32)), TARGET, config(w))
    return found | {"the dtype, if E has float32": str(small.data.dtype)}


def _try_decode(w):
    memory = w.Tensor(numbers(2, 4, 12))
    target = np.where(TARGET == w.PAD, 6, TARGET)  # what is computed at padding is used by nobody
    return whole_model(w, lambda model: model.decode(target, memory, SOURCE))


def whole_model(w, call):
    """Return what a call of a model gives: of the paper's, and of the one with the norms first."""
    found = {}
    for model_class in (w.Transformer, w.PreNormTransformer):
        model = filled(model_class(config(w)))
        made = tried(w, lambda m=model: call(m), {"E": model.E})
        found |= under(model_class.__name__, made)
    return found


def _try_make_batch(w):
    pairs = [([4, 5, 6], [7, 8]), ([9], [10, 5, 4, 6, 7])]
    batch = w.make_batch(pairs)
    if not isinstance(batch, tuple | list) or len(batch) != 3:
        raise AssertionError("it must return three arrays: source, target_in, target_out")
    source, target_in, target_out = batch
    if np.shape(target_in) == np.shape(target_out):
        # What is read where nothing is to be written, padding or an end mark, is used by nobody.
        target_in = np.where(np.equal(target_out, w.PAD), w.PAD, target_in)
    found = {"source": source, "target_in": target_in, "target_out": target_out}
    return found | {"the pairs that were given": str(pairs)}


# Lesson 07 ----------------------------------------------------------------------------------------


def _try_cross_entropy(w):
    found = {}
    for epsilon in (0.1, 0.0):
        case = walked(
            w, lambda z, e=epsilon: w.cross_entropy(z, TARGET, e), logits=2 * numbers(2, 5, 11)
        )
        found |= under(f"epsilon_ls {epsilon}", case)
    large = w.Tensor(numbers(2, 5, 11) + 1000)
    return found | {"logits near 1000": np.array(w.cross_entropy(large, TARGET, 0.1).data)}


def _try_adam(w):
    x, y = w.Tensor(numbers(2, 3)), w.Tensor(numbers(4))
    adam = w.Adam([x, y], config(w))
    found = {}
    for step in (1, 2, 3):
        x.grad, y.grad = numbers(2, 3, seed=step), 1e-3 * numbers(4, seed=step)
        adam.update(0.1)
        found[f"the parameter after update {step}"] = np.array(x.data)
        found[f"one with small gradients after update {step}"] = np.array(y.data)
        found[f"its gradient after update {step}"] = np.array(y.grad)
        found[f"m after update {step}"] = np.array(adam.m[0])
        found[f"v after update {step}"] = np.array(adam.v[0])
        found[f"t after update {step}"] = adam.t
    return found


# Lesson 08 ----------------------------------------------------------------------------------------


class TableModel:
    """A model of random numbers: its logits depend on all tokens so far, and on the source."""

    def __init__(self, w, seed, **changes):
        self.w, self.sources, self.c = w, [], w.Config(**changes)
        rng = np.random.default_rng(seed)
        self.logits_of_last, self.logits_of_sum = rng.normal(0, 1.5, (2, 11, 11))
        self.logits_of_last[:, w.EOS] += seed % 4 - 1  # some end their texts later than others

    def encode(self, source):
        self.sources.append(np.array(source))
        return self.w.Tensor(np.array(source)[:, :, None] * 1.0)

    def decode(self, target, memory, source):
        sums = np.cumsum(target, axis=1) + int(memory.data[0].sum())
        return self.w.Tensor(self.logits_of_last[target] + self.logits_of_sum[sums % 11])


def _try_next_ln_p(w):
    model, source = TableModel(w, 1), SOURCE[:1]
    memory, text = w.Tensor(np.ones((1, 4, 1))), [2, 5, 6]
    found = {"ln p": np.array(w.next_ln_p(model, text, memory, source))}
    model.logits_of_last = model.logits_of_last + 1000
    return found | {"of logits near 1000": np.array(w.next_ln_p(model, text, memory, source))}


def _try_greedy(w):
    found = {}
    for seed in range(1, 9):
        model = TableModel(w, seed)
        model.logits_of_last[:, w.EOS] -= 99 * (seed % 2)  # half of the texts never end
        text = np.array(w.greedy(model, [4, 5, 6][: 1 + seed % 3]))
        found[f"the source, as it is encoded, {seed}"] = model.sources[-1]
        found[f"the text of model {seed}"] = text
    return found


def _try_beam_search(w):
    found = {}
    for seed in range(1, 27):
        alpha = (0.6, 1.0, 0.0, 2.0, 0.6)[seed % 5]
        ids, beam_size = [4, 5, 6][: 1 + seed % 3], 2 + seed % 2 * 2
        model = TableModel(w, seed, beam_size=beam_size, alpha=alpha)
        model.logits_of_last[:, w.EOS] -= 99 * (seed % 12 == 0)  # two texts never end
        text = np.array(w.beam_search(model, ids))
        found[f"the source, as it is encoded, {seed}"] = model.sources[-1]
        found[f"the text of model {seed}, beam_size {beam_size}, alpha {alpha}"] = text
    return found


# Lesson 09 ----------------------------------------------------------------------------------------


def _try_make_batches(w):
    w.rng = np.random.default_rng(1)
    lengths = np.random.default_rng(2).integers(2, 30, (99, 1)) + [[0, 1], [0, 0], [1, 0]] * 33
    pairs = [([7] * int(s), [i] * int(t)) for i, (s, t) in enumerate(lengths)]
    pairs += [([7] * 120, [99]), ([7] * 3, [100] * 150)]
    batches = list(w.make_batches(pairs, 100))
    empty = sum(not len(batch) for batch in batches)
    empty += sum(not len(batch) for batch in w.make_batches(pairs[-2:], 100))
    batches = [batch for batch in batches if len(batch)]
    longest = [max(max(len(s), len(t)) for s, t in batch) + 1 for batch in batches]
    tokens = [len(batch) * n for batch, n in zip(batches, longest, strict=True)]
    rows = sorted(target[0] for batch in batches for _, target in batch)
    return {
        "the pairs 0 to 98, each in one batch": rows[:99] == list(range(99)),
        "two pairs that are longer than n_tokens are there": rows[99:] == [99, 100],
        "the batches that are empty": empty,
        "the batches of several pairs with more than n_tokens": sum(
            n > 100 and len(batch) > 1 for batch, n in zip(batches, tokens, strict=True)
        ),
        "pairs of about equal length are together": (
            sum(tokens) < 1.2 * (lengths.max(1) + 1).sum() + 121 + 151
        ),
        "the batches are full": len(batches) < 32,
        "short batches do not all come first": sorted(longest) != longest,
    }


def _try_average(w):
    rows = [[numbers(2, 3, seed=i), numbers(4, seed=i)] for i in range(3)]
    found = {f"array {i}": array for i, array in enumerate(w.average(rows), 1)}
    return found | {
        "the first checkpoint, afterwards": np.concatenate([x.ravel() for x in rows[0]])
    }


PIECES = [
    Piece(
        "softmax", "01", "What does the library compute?",
        "Which number may one subtract from all scores of a row, so that no power overflows?",
        _try_softmax,
        (" - x.max(axis=-1, keepdims=True)", "", "exp overflows: subtract the largest score"),
        ("e.sum(axis=-1, keepdims=True)", "e.sum()", "divided by the sum of all numbers, not of each row"),
        ("e.sum(axis=-1, keepdims=True)", "e.sum(axis=0)", "the sum runs over the first axis: divide each row by its own sum, the last axis"),
        ("return e / e.sum(axis=-1, keepdims=True)", "return e", "the weights do not sum to 1: divide by their sum"),
        ("x.max(axis=-1, keepdims=True)", "x.max()", "the largest of all numbers was subtracted, so that a row far below it is 0 / 0: subtract the largest of each row"),
    ),
    Piece(
        "attention_weights", "01", "How is a position kept from looking?",
        "Scores, root, mask, softmax. swapaxes(-1, -2) transposes the last two axes.",
        _try_attention_weights,
        (" / math.sqrt(Q.shape[-1])", "", "the scores are not divided by sqrt(d_k)"),
        ("math.sqrt(Q.shape[-1])", "Q.shape[-1]", "divided by d_k, not by its root"),
        ("np.where(mask, scores, -np.inf)", "np.where(mask, -np.inf, scores)", "the mask is upside down: True means may look"),
        ("softmax(np.where(mask, scores, -np.inf))", "softmax(scores) * mask", "zero afterwards: the weights no longer sum to 1"),
        ("np.where(mask, scores, -np.inf)", "np.where(mask, scores, 0)", "a masked score of 0 still gets a weight: it must be minus infinity"),
    ),
    Piece(
        "padding_mask", "01", "How is a position kept from looking?",
        "ids != PAD is True at tokens. None in an index adds an axis of length 1.",
        lambda w: {"the mask": w.padding_mask(SOURCE)},
        ("!=", "==", "upside down: True at padding, where nobody may look"),
        ("[:, None, None, :]", "", "the axes for heads and queries are missing"),
        ("[:, None, None, :]", "[:, None, :, None]", "the last axis must be that of the keys: this hides queries"),
        ("(ids != PAD)", "(ids != EOS)", "it hides the end mark, not the padding"),
        ("(ids != PAD)[:, None, None, :]", "np.where(ids != PAD, 0.0, -np.inf)[:, None, None, :]", "numbers to be added to scores, where True and False are needed"),
    ),
    Piece(
        "causal_mask", "01", "How is a position kept from looking?",
        "np.tri is a triangle of ones.",
        lambda w: {"the mask of 4 positions": w.causal_mask(4), "of 1 position": w.causal_mask(1)},
        ("np.tri(length, dtype=bool)", "np.tri(length, k=-1, dtype=bool)", "a position does not see itself"),
        ("np.tri(length, dtype=bool)", "np.tri(length, k=1, dtype=bool)", "a position sees the next one, which it must predict"),
        ("np.tri(length, dtype=bool)", "np.tri(length, dtype=bool).T", "transposed: positions see the future and not the past"),
        ("[None, None]", "", "two axes are missing, for sentences and heads"),
        ("np.tri(length, dtype=bool)", "np.tri(length)", "numbers, where True and False are needed"),
    ),
    Piece(
        "Tensor.backward", "02", "Why does the order matter?",
        "Begin with 1 at this node. topological_order(self) is the order, to be read from its end; node.input_gradients(node.grad) are the gradients of node.inputs.",
        _try_backward,
        ("x.grad = x.grad + gx", "x.grad = gx", "a gradient replaces the one that came before: they add up"),
        ("reversed(topological_order(self))", "topological_order(self)", "a node was asked before its own gradient was there: the walk begins with the loss, at the end of topological_order"),
        ("x.grad = x.grad + gx", "if np.shape(x.grad) == ():\n                    x.grad = gx\n                else:\n                    x.grad += gx", "+= changes the array itself, which is another Tensor's gradient as well: x.grad = x.grad + gx makes a new one"),
        ("x.grad = x.grad + gx", "x.grad = x.grad + gx if x.inputs else x.grad", "a Tensor without inputs gets no gradient: parameters are such Tensors"),
        ("        for node in reversed(topological_order(self)):\n            gradients = node.input_gradients(node.grad)\n            for x, gx in zip(node.inputs, gradients, strict=True):\n                x.grad = x.grad + gx\n", "        def walk(node):\n            for x, gx in zip(node.inputs, node.input_gradients(node.grad), strict=True):\n                x.grad = x.grad + gx\n                walk(x)\n\n        walk(self)\n", "a node hands on each time that it is reached, and so hands on twice what had come before"),
    ),
    Piece(
        "Tensor.__add__", "02", "What does each operation hand back?",
        "Both inputs get gy; one that was added to many rows gets the sum over these rows.",
        _try_add,
        ("return gy, gy.reshape(-1, *b_shape).sum(axis=0)", "return gy, gy", "a bias gets one gradient for each row: add them up"),
        ("gy.reshape(-1, *b_shape).sum(axis=0)", "gy.sum(axis=(0, 1))", "the sum runs over the axes that the second input lacks, which may be one or two"),
        ("gy.reshape(-1, *b_shape).sum(axis=0)", "gy.sum(axis=0)", "the sum runs over the first axis only: gy may have several axes that the second input lacks"),
        (".sum(axis=0)", ".mean(axis=0)", "the bias gets the mean over its copies, not the sum"),
        ("(self, other), input_gradients", "(other, self), input_gradients", "the inputs are listed in the other order than their gradients"),
    ),
    Piece(
        "Tensor.__matmul__", "02", "What does a matrix product hand back?",
        "W serves all positions of all sentences, so its gradient is a sum over them: make rows of all positions with reshape(-1, x.shape[-1]); then gW is one product.",
        _try_matmul,
        ("return gy @ W.T, rows.T @ g_rows", "return rows.T @ g_rows, gy @ W.T", "the two gradients are exchanged"),
        ("rows.T @ g_rows", "g_rows.T @ rows", "gW is transposed: x^T gy, not gy^T x"),
        ("gy @ W.T, rows.T", "gy @ W, rows.T", "W must be transposed in gx"),
        ("rows.T @ g_rows", "x.swapaxes(-1, -2) @ gy", "of several sentences, W gets one gradient for each: add them up"),
        ("rows.T @ g_rows", "x.T @ gy", "x.T reverses all axes of x, also that of the sentences: make rows first"),
    ),
    Piece(
        "Tensor.transpose", "02", "What does each operation hand back?",
        "For the axes 1, 2, 0 write down where each axis of x has gone: these places, in order, lead back. np.argsort finds them.",
        _try_transpose,
        ("np.argsort(axes)", "axes[::-1]", "the axes in reverse are not the way back: argsort"),
        ("np.argsort(axes)", "axes", "the axes of the gradient are moved again, not put back"),
        ("gy.transpose(back)", "gy", "the gradient keeps y's axes"),
        ("gy.transpose(back)", "gy.reshape(self.data.shape)", "reshape does not move numbers: use transpose"),
        ("self.data.transpose(axes)", "self.data.reshape([self.data.shape[i] for i in axes])", "the result has the right shape with the numbers in the old order"),
    ),
    Piece(
        "topological_order", "02", "Why does the order matter?",
        "Write list_inputs_first of that section as a function visit(node) inside this one: unless the node was seen, it visits the inputs, then appends the node.",
        _try_topological_order,
        ("            order.append(node)", "            order.insert(0, node)", "the list begins with the loss: each node must come after its inputs"),
        ("if node not in seen:", "if True:", "a node that is used twice is in the list twice: keep a set of those that were visited"),
        ("            seen.add(node)\n", "            seen.add(node)\n            order.append(node)\n", "each node is listed before its inputs, and after them again"),
        ("if node not in seen:", "if node.inputs and node not in seen:", "Tensors without inputs are left out"),
        ("    return order", "    return seen", "a set has no order: return the list"),
    ),
    Piece(
        "attention", "02", "What does attention hand back?",
        "The table of that section has the lines of input_gradients; its Z is scores here, its S is product.",
        lambda w: walked(
            w, lambda Q, K, V: w.attention(Q, K, V, MASK),
            Q=numbers(2, 3, 4, 5), K=numbers(2, 3, 6, 5), V=numbers(2, 3, 6, 5, seed=2),
        ),
        ("g_scores / math.sqrt(Q.data.shape[-1])", "g_scores", "the gradient misses the division by sqrt(d_k)"),
        ("P * (gP - (gP * P).sum(axis=-1, keepdims=True))", "P * gP", "in the softmax, the average of gP is not subtracted"),
        ("(gP * P).sum(axis=-1, keepdims=True)", "(gP * P).mean(axis=-1, keepdims=True)", "a mean over the keys, where a sum with the weights P belongs"),
        ("return g_product @ K.data, g_product.swapaxes(-1, -2) @ Q.data, gV", "return g_product.swapaxes(-1, -2) @ Q.data, g_product @ K.data, gV", "the gradients of Q and K are exchanged"),
        ("g_product.swapaxes(-1, -2) @ Q.data", "g_product @ Q.data", "in gK, g_product must be transposed"),
    ),
    Piece(
        "split_heads", "03", "How are the heads cut apart?",
        "Reshape to (B, L, h, d_k), then exchange the axes of positions and heads.",
        lambda w: walked(w, lambda x: w.split_heads(x, 3), x=numbers(2, 5, 12)),
        (".transpose(0, 2, 1, 3)", "", "the heads must come before the positions: the axes were not exchanged"),
        ("x.reshape(B, L, h, d_model // h).transpose(0, 2, 1, 3)", "x.reshape(B, h, L, d_model // h)", "the right shape, but each head has whole positions: reshape does not move numbers"),
        ("x.reshape(B, L, h, d_model // h).transpose(0, 2, 1, 3)", "x.reshape(B, L, d_model // h, h).transpose(0, 3, 1, 2)", "head i has every h-th feature, not neighbours"),
        ("return x.reshape", "return x.data.reshape", "the Tensor's own reshape and transpose keep the way back"),
        ("d_model // h", "d_model / h", "d_model / h is a float: // divides integers"),
    ),
    Piece(
        "merge_heads", "03", "How are the heads cut apart?",
        "The way back: exchange the axes first, then reshape.",
        lambda w: walked(w, w.merge_heads, heads=numbers(2, 3, 5, 4)),
        ("heads.transpose(0, 2, 1, 3).reshape(B, L, h * d_k)", "heads.reshape(B, L, h * d_k)", "the axes were not exchanged back: positions are mixed"),
        ("heads.transpose(0, 2, 1, 3).reshape(B, L, h * d_k)", "heads.transpose(0, 2, 3, 1).reshape(B, L, h * d_k)", "the features of the heads alternate: they belong side by side"),
        ("heads.transpose(0, 2, 1, 3).reshape(B, L, h * d_k)", "heads.transpose(0, 2, 1, 3)", "the heads are not joined: reshape is missing"),
        ("return heads.transpose", "return heads.data.transpose", "the Tensor's own transpose and reshape keep the way back"),
        ("B, h, L, d_k = heads.data.shape", "B, L, h, d_k = heads.data.shape", "the axes of heads are (B, h, L, d_k), in this order"),
    ),
    Piece(
        "MultiHeadAttention.__call__", "03", "What is multi-head attention, exactly?",
        "Queries come from x, keys and values from the memory; self.c.h is the number of heads. dropout(..., self.c), from lesson 04, is lent until you write it.",
        lambda w: both_ways(
            w, w.MultiHeadAttention, x=numbers(2, 5, 12), memory=numbers(2, 6, 12), mask=MASK
        ),
        ("V = split_heads(memory", "V = split_heads(x", "the values are made of x: they come from the memory"),
        ("K = split_heads(memory @ self.W_K", "K = split_heads(x @ self.W_K", "the keys are made of x: they come from the memory"),
        ("attention(Q, K, V, mask)", "attention(Q, K, V, True)", "the mask is not used"),
        (" @ self.W_O", "", "the last product, with W^O, is missing"),
        ("dropout(merge_heads(heads) @ self.W_O, self.c)", "merge_heads(heads) @ self.W_O", "dropout is missing"),
    ),
    Piece(
        "layer_norm", "04", "What is the gradient of layer norm?",
        "With u = gain * gy, gx has three terms; each mean runs over the features.",
        _try_layer_norm,
        ("gx = (u - mean_u - n * mean_un) / s", "gx = (u - n * mean_un) / s", "in gx the mean of u is missing: the mean of x depends on x too"),
        ("gx = (u - mean_u - n * mean_un) / s", "gx = (u - mean_u) / s", "in gx the term n * mean of u n is missing: s depends on x too"),
        ("u = gain.data * gy", "u = gy", "in gx the gain is missing"),
        ("var(axis=-1, keepdims=True)", "var(axis=-1, ddof=1, keepdims=True)", "the variance divides by D - 1, where the number of features belongs"),
        ("np.sqrt(x.data.var(axis=-1, keepdims=True) + 1e-6)", "np.sqrt(x.data.var(axis=-1, keepdims=True)) + 1e-6", "10^-6 belongs inside the root"),
    ),
    Piece(
        "relu", "04", "What is the feed-forward network for?",
        "np.maximum(0, x.data); the slope is 1 where x is positive, and 0 elsewhere.",
        lambda w: walked(w, w.relu, x=numbers(2, 3, 5)),
        ("gy * (x.data > 0)", "gy", "the gradient passes where x is negative too"),
        ("gy * (x.data > 0)", "np.maximum(0, gy)", "the sign of gy decides: it is the sign of x that does"),
        ("gy * (x.data > 0)", "gy * x.data * (x.data > 0)", "the slope is 1, not x"),
        ("gy * (x.data > 0)", "1.0 * (x.data > 0)", "the slope alone: gy is missing"),
        ("np.maximum(0, x.data)", "np.abs(x.data)", "this is the absolute value"),
    ),
    Piece(
        "dropout", "04", "What does dropout do?",
        "rng.random(x.data.shape) >= c.P_drop keeps a number. What keeps the mean?",
        _try_dropout,
        (">= c.P_drop", "< c.P_drop", "it keeps with probability P_drop; it must drop with it"),
        (" / (1 - c.P_drop)", "", "the numbers that stay are not scaled by 1 / (1 - P_drop)"),
        ("lambda gy: (gy * mask,)", "lambda gy: (gy * (mask > 0),)", "the gradient is not scaled"),
        ("    if not c.training:\n        return x\n", "", "it drops numbers although the model is not training"),
        ("rng.random(x.data.shape)", "np.random.default_rng().random(x.data.shape)", "the numbers are not drawn from rng, the generator of this file: nobody could repeat a training"),
    ),
    Piece(
        "FeedForward.__call__", "04", "What is the feed-forward network for?",
        "Two products with a relu between them; dropout(..., self.c) comes last.",
        lambda w: both_ways(w, w.FeedForward, x=numbers(2, 5, 12)),
        ("relu(x @ self.W_1 + self.b_1)", "(x @ self.W_1 + self.b_1)", "the relu is missing"),
        ("x @ self.W_1 + self.b_1", "x @ self.W_1", "b_1 is missing"),
        ("return dropout", "return x + dropout", "x is not added here but in the layer, around the sub-layer"),
        ("        inner = relu(x @ self.W_1 + self.b_1)  # (B, L, d_ff)\n        return dropout(inner @ self.W_2 + self.b_2, self.c)", "        inner = x @ self.W_1 + self.b_1\n        return dropout(relu(inner @ self.W_2 + self.b_2), self.c)", "the relu comes after the second product: it belongs between the two"),
        ("dropout(inner @ self.W_2 + self.b_2, self.c)", "inner @ self.W_2 + self.b_2", "dropout is missing"),
    ),
    Piece(
        "EncoderLayer.__call__", "04", "Why is x added to the output of a sub-layer?",
        "One line for each sub-layer; self.self_norm(...) is a layer norm. The sub-layers end with dropout themselves.",
        lambda w: both_ways(w, w.EncoderLayer, x=numbers(2, 6, 12), mask=MASK),
        ("self.self_attention(x, x, mask)", "self.self_attention(x, x, True)", "the mask is not used: padding is looked at"),
        ("        x = self.self_norm(", "        a = self.self_norm(", "the feed-forward network takes the layer's x, not what the first line has made of it"),
        ("        x = self.self_norm(x + self.self_attention(x, x, mask))\n        return self.feed_forward_norm(x + self.feed_forward(x))\n", "        x = x + self.self_attention(self.self_norm(x), self.self_norm(x), mask)\n        return x + self.feed_forward(self.feed_forward_norm(x))\n", "the norms come before the sub-layers: in the paper they come after the sums"),
        ("        x = self.self_norm(x + self.self_attention(x, x, mask))\n        return self.feed_forward_norm(x + self.feed_forward(x))\n", "        x = self.self_norm(self.self_attention(x, x, mask))\n        return self.feed_forward_norm(self.feed_forward(x))\n", "x is not added"),
        ("        x = self.self_norm(x + self.self_attention(x, x, mask))\n        return self.feed_forward_norm(x + self.feed_forward(x))\n", "        x = x + self.self_norm(self.self_attention(x, x, mask))\n        return x + self.feed_forward_norm(self.feed_forward(x))\n", "the norms are of the sub-layers alone: they must be of the sums"),
    ),
    Piece(
        "embedding", "05", "How does a word become a vector?",
        "E.data[ids] are the rows. np.add.at(gE, ids, gy) adds also where an id occurs twice.",
        lambda w: walked(w, lambda E: w.embedding(E, TARGET), E=numbers(11, 4)),
        ("np.add.at(gE, ids, gy)", "np.add.at(gE, ids, gy)\n        gE /= np.maximum(1, np.bincount(ids.ravel(), minlength=len(gE)))[:, None]", "a row that was taken twice gets the mean of its gradients, not the sum"),
        ("np.add.at(gE, ids, gy)", "gE[ids] += gy", "a row that was taken twice gets the last gradient only (= and += add once): use np.add.at"),
        ("np.add.at(gE, ids, gy)", "np.add.at(gE, ids, 1.0)", "it counts the uses of a row: gy is missing"),
        ("np.zeros_like(E.data)", "E.data.copy()", "the gradient begins with the table itself, not with 0"),
        ("E.data[ids], (E,)", "E.data[ids] * math.sqrt(E.data.shape[-1]), (E,)", "the factor sqrt(d_model) is not here but in enter"),
    ),
    Piece(
        "sinusoids", "05", "How does a position become a vector?",
        "i runs from 0 to d_model / 2 - 1. PE[:, 0::2] are the even columns.",
        lambda w: {"7 positions": w.sinusoids(7, 12), "1 position": w.sinusoids(1, 4)},
        ("2 * i / d_model", "i / d_model", "the exponent is 2i / d_model, not i / d_model"),
        ("PE[:, 0::2] = np.sin(angles)\n    PE[:, 1::2] = np.cos(angles)", "PE[:, 0::2] = np.cos(angles)\n    PE[:, 1::2] = np.sin(angles)", "sine and cosine are exchanged"),
        ("PE[:, 0::2] = np.sin(angles)\n    PE[:, 1::2] = np.cos(angles)", "PE[:, : d_model // 2] = np.sin(angles)\n    PE[:, d_model // 2 :] = np.cos(angles)", "all sines before all cosines: the paper has them in turn"),
        ("PE[:, 1::2] = np.cos(angles)", "PE[:, 1::2] = np.cos(np.arange(length)[:, None] / 10000 ** ((2 * i + 1) / d_model))", "sine and cosine of a pair have the same angle, with 2i in its exponent"),
        ("np.arange(d_model // 2)", "np.arange(0, d_model, 2)", "i counts the pairs of columns, 0, 1, 2, ..., not 0, 2, 4, ..."),
    ),
    Piece(
        "enter", "05", "What enters the model?",
        "Embedding, times the root, plus positions (as a Tensor of the same dtype), dropout.",
        _try_enter,
        (" * math.sqrt(c.d_model)", "", "the factor sqrt(d_model) is missing"),
        (" * math.sqrt(c.d_model)", " * c.d_model", "times d_model, where its root belongs"),
        ("return dropout(x + Tensor(PE.astype(x.data.dtype)), c)", "return x + Tensor(PE.astype(x.data.dtype))", "dropout is missing"),
        ("return dropout(x + Tensor(PE.astype(x.data.dtype)), c)", "return dropout((embedding(E, ids) + Tensor(PE.astype(x.data.dtype))) * math.sqrt(c.d_model), c)", "the positions are scaled too: only the embedding is"),
        ("PE.astype(x.data.dtype)", "PE", "the positions are float64, and so is then everything that follows: PE.astype(x.data.dtype)"),
    ),
    Piece(
        "DecoderLayer.__call__", "06", "How do the pieces make a Transformer?",
        "As EncoderLayer, with an attention more; target_mask is for the first, source_mask for the second.",
        lambda w: both_ways(
            w, w.DecoderLayer, y=numbers(2, 5, 12), memory=numbers(2, 6, 12, seed=1),
            target_mask=np.tri(5, dtype=bool)[None, None], source_mask=MASK,
        ),
        ("self.self_attention(y, y, target_mask)", "self.self_attention(y, y, True)", "self-attention has no mask: it sees the future"),
        ("self.source_attention(y, memory, source_mask)", "self.source_attention(y, memory, True)", "attention to the source has no mask: it sees padding"),
        ("self.source_attention(y, memory, source_mask)", "self.source_attention(y, y, target_mask)", "the second attention looks at the target, not at the memory"),
        ("        y = self.self_norm(y + self.self_attention(y, y, target_mask))\n        y = self.source_norm(y + self.source_attention(y, memory, source_mask))\n        return self.feed_forward_norm(y + self.feed_forward(y))\n", "        y = y + self.self_attention(self.self_norm(y), self.self_norm(y), target_mask)\n        y = y + self.source_attention(self.source_norm(y), memory, source_mask)\n        return y + self.feed_forward(self.feed_forward_norm(y))\n", "the norms come before the sub-layers: in the paper they come after the sums"),
        ("        y = self.self_norm(y + self.self_attention(y, y, target_mask))\n        y = self.source_norm(y + self.source_attention(y, memory, source_mask))\n        return self.feed_forward_norm(y + self.feed_forward(y))\n", "        y = self.self_norm(self.self_attention(y, y, target_mask))\n        y = self.source_norm(self.source_attention(y, memory, source_mask))\n        return self.feed_forward_norm(self.feed_forward(y))\n", "y is not added"),
    ),
    Piece(
        "Transformer.encode", "06", "How do the pieces make a Transformer?",
        "enter(self.E, source, self.c) makes the first x; each layer of self.encoder takes x and the padding mask.",
        lambda w: whole_model(w, lambda model: model.encode(SOURCE)),
        ("padding_mask(source)", "True", "the mask is missing: padding is looked at"),
        ("padding_mask(source)", "causal_mask(source.shape[1])", "the encoder must see the whole source, not only the past"),
        ("enter(self.E, source, self.c)", "embedding(self.E, source)", "the source enters without scale and positions: use enter"),
        ("x = layer(x, padding_mask(source))", "layer(x, padding_mask(source))", "what a layer returns is not used"),
        ("x = layer(x, padding_mask(source))", "x = layer(enter(self.E, source, self.c), padding_mask(source))", "each layer begins with the embeddings, not with what the one before has made"),
    ),
    Piece(
        "Transformer.decode", "06", "How do the pieces make a Transformer?",
        "As encode, with two masks; at the end self.logits(y).",
        _try_decode,
        ("causal_mask(target.shape[1])", "padding_mask(target)", "the future is not hidden: a causal mask is needed"),
        ("self.logits(y)", "y @ self.E.transpose(1, 0)", "call self.logits(y): in the model of the bundled weights, it has a norm as well"),
        ("y = enter(self.E, target, self.c)", "y = embedding(self.E, target)", "the target enters without scale and positions: use enter"),
        ("y, memory, causal_mask(target.shape[1]), padding_mask(source)", "y, memory, padding_mask(source), causal_mask(target.shape[1])", "the two masks are exchanged"),
        ("memory, causal_mask", "enter(self.E, source, self.c), causal_mask", "the decoder looks at the embeddings of the source, not at the memory"),
    ),
    Piece(
        "make_batch", "06", "How can it learn all positions at once without seeing the answer?",
        "Three lines, each pad([... for source, target in pairs]); target_in is the target shifted to the right by the start mark.",
        _try_make_batch,
        ("pad([[BOS] + target for", "pad([target + [EOS] for", "the decoder reads the very tokens that it must write: shift them"),
        ("pad([source + [EOS] for", "pad([source for", "the end mark of the source is missing"),
        ("pad([target + [EOS] for", "pad([target for", "what is to be written has no end mark"),
        ("pad([[BOS] + target for", "pad([[BOS] + target + [EOS] for", "the decoder's input has an end mark: it is one token too long"),
        ("pad([source + [EOS] for source, _ in pairs])", "pad([source for source, _ in pairs if not source.append(EOS)])", "append changes the pairs themselves: source + [EOS] is a new list"),
    ),
    Piece(
        "cross_entropy", "07", "When is a model sure enough?",
        "Make ln p, then q, then the loss; p is np.exp(ln_p). np.where chooses between two numbers: where target[..., None] is the number of the token, and elsewhere.",
        _try_cross_entropy,
        ("epsilon_ls / (ln_p.shape[-1] - 1)", "epsilon_ls / ln_p.shape[-1]", "the other tokens share epsilon_ls: divide by their number, vocab_size - 1"),
        ("-(counts * q * ln_p)", "-(q * ln_p)", "padding adds to the loss: only the targets count"),
        ("n_targets = int(counts.sum())", "n_targets = counts.size", "divided by all positions: padding must not be counted"),
        ("(np.exp(ln_p) - q) / n_targets", "(np.exp(ln_p) - q)", "the gradient is not divided by n_targets"),
        ("gy * counts * (np.exp(ln_p) - q)", "gy * (np.exp(ln_p) - q)", "padding gets a gradient"),
    ),
    Piece(
        "learning_rate", "07", "How large is the learning rate?",
        "One line, equation 3.",
        lambda w: {f"step {n}": w.learning_rate(n, 12, 40) for n in (1, 2, 39, 40, 41, 400)},
        ("min(", "max(", "max, where min belongs"),
        ("step * warmup_steps**-1.5", "step * warmup_steps**-0.5", "warmup_steps has the exponent -1.5"),
        ("min(step**-0.5, step * warmup_steps**-1.5)", "step**-0.5", "there is no warm-up"),
        ("min(step**-0.5, step", "min((step + 1) ** -0.5, (step + 1)", "the first step is 1, not 0: do not add 1"),
        ("min(step**-0.5, step * warmup_steps**-1.5)", "step * warmup_steps**-1.5", "the rate never falls"),
    ),
    Piece(
        "Adam.update", "07", "How far should each number move?",
        "self.m[i] and self.v[i] belong to parameter i; both are kept as they are, only the step uses m_hat and v_hat.",
        _try_adam,
        ("m_hat = self.m[i] / (1 - c.beta_1**self.t)\n            v_hat = self.v[i] / (1 - c.beta_2**self.t)", "m_hat = self.m[i]\n            v_hat = self.v[i]", "neither m nor v is corrected"),
        ("self.m[i] = c.beta_1 * self.m[i] + (1 - c.beta_1) * x.grad\n            self.v[i] = c.beta_2 * self.v[i] + (1 - c.beta_2) * x.grad**2\n            m_hat = self.m[i] / (1 - c.beta_1**self.t)\n            v_hat = self.v[i] / (1 - c.beta_2**self.t)", "m = c.beta_1 * self.m[i] + (1 - c.beta_1) * x.grad\n            v = c.beta_2 * self.v[i] + (1 - c.beta_2) * x.grad**2\n            m_hat = m / (1 - c.beta_1**self.t)\n            v_hat = v / (1 - c.beta_2**self.t)", "the new m and v are not kept: m = ... leaves the list as it was, self.m[i] = ... changes it"),
        ("        self.t += 1\n", "", "t is not counted: self.t += 1"),
        ("            x.grad = 0.0", "            pass", "the gradient is kept: the next one would be added to it"),
        ("np.sqrt(v_hat)", "v_hat", "divided by v, where its root belongs"),
    ),
    Piece(
        "next_ln_p", "08", "How does a model write a sentence?",
        "model.decode takes an array of texts, here of one: np.array([text]). .data[0, -1] are the logits at its last position.",
        _try_next_ln_p,
        (".data[0, -1]", ".data[0, 0]", "these are the logits of the first position, not of the last"),
        ("ln_p[[PAD, BOS]] = -np.inf", "pass", "padding and the start mark are possible"),
        ("log_softmax(logits)", "logits", "not normalised: the p must sum to 1"),
        ("    ln_p = log_softmax(logits)\n    ln_p[[PAD, BOS]] = -np.inf", "    logits[[PAD, BOS]] = -np.inf\n    ln_p = log_softmax(logits)", "forbidden before the softmax, so that the other tokens share the probability: forbid afterwards"),
        (".data[0, -1]", ".data[:, -1]", "the result has an axis of texts: (vocab_size,) is needed"),
    ),
    Piece(
        "greedy", "08", "How does a model write a sentence?",
        "Encode once. Then, until the end mark or the limit: ask next_ln_p, append the argmax.",
        _try_greedy,
        ("np.array([ids + [EOS]])", "np.array([ids])", "the source has no end mark"),
        ("len(text) <= len(ids) + 50", "len(text) < len(ids) + 50", "one token too few: at most 50 more than the source, the start mark not counted"),
        ("text[-1] != EOS and ", "", "it goes on after the end mark"),
        ("next_ln_p(model, text,", "next_ln_p(model, text[-1:],", "the model sees the last token only, not the whole text"),
        ("return text", "return text[1:]", "the start mark is missing: the text is returned with its marks"),
    ),
    Piece(
        "length_penalty", "08", "Why do short texts win?",
        "One line.",
        lambda w: {
            f"length {n}, alpha {a}": w.length_penalty(n, a) for n in (1, 8, 12) for a in (0.6, 1)
        },
        ("** alpha", "* alpha", "times alpha, where alpha is the exponent"),
        ("((5 + length) / 6) ** alpha", "(5 + length / 6) ** alpha", "5 + length is divided by 6 as a whole"),
        ("((5 + length) / 6) ** alpha", "((5 + length) / 6) ** -alpha", "the exponent is alpha, not -alpha"),
        ("((5 + length) / 6) ** alpha", "length**alpha", "5 and 6 are missing"),
        ("((5 + length) / 6) ** alpha", "(5 + length) ** alpha / 6", "the 6 has the exponent alpha too"),
    ),
    Piece(
        "beam_search", "08", "When does a text end, and when the search?",
        "The program of that section has all rules; continuations, which is given, finds the best; in its pairs, the number comes first. c.beam_size and c.alpha are numbers of the Config.",
        _try_beam_search,
        ("source, 2 * c.beam_size)", "source, c.beam_size)", "a list is empty here: none may be finished yet, or none goes on, as with only beam_size continuations"),
        (" / length_penalty(length, c.alpha), text", ", text", "the score is not divided by the length penalty"),
        ("in longer[: c.beam_size]:", "in longer:", "a text is finished although it is not among the beam_size best"),
        ("len(finished) >= c.beam_size and best_possible <= max(finished)[0]", "len(finished) >= c.beam_size", "it stops when beam_size texts are finished, though another may still win"),
        ("max(finished or beam)[1]", "max(finished)[1]", "no text may have ended: then the best that goes on is the result"),
    ),
    Piece(
        "make_batches", "09", "What is a batch of 25,000 tokens?",
        "Sort by length; begin a batch when there is none, or when a pair more would be too much; at the end rng.shuffle.",
        _try_make_batches,
        ("+ 1 for source, target in pairs", "for source, target in pairs", "the mark at the end is not counted: some batches are too large"),
        ("    rng.shuffle(batches)\n", "", "the short batches all come first"),
        ("sorted(rng.permutation(len(pairs)), key=lambda i: lengths[i])", "rng.permutation(len(pairs))", "pairs of different length are together: sort them"),
        ("(len(batches[-1]) + 1) * lengths[i] > n_tokens", "sum(len(s) for s, _ in batches[-1]) > n_tokens", "padding is not counted: rows times the longest"),
        ("        batches[-1].append(pairs[i])", "        if lengths[i] <= n_tokens:\n            batches[-1].append(pairs[i])", "a pair that is longer than n_tokens is lost: it is a batch alone"),
    ),
    Piece(
        "average", "09", "Why average the last checkpoints?",
        "zip(*checkpoints) gives the same array of all checkpoints, one after the other.",
        _try_average,
        ("sum(arrays) / len(arrays)", "sum(arrays)", "a sum: divide by the number of checkpoints"),
        ("sum(arrays) / len(arrays)", "arrays[-1]", "the last checkpoint alone"),
        ("sum(arrays) / len(arrays)", "np.mean(arrays)", "one number: the mean over the checkpoints alone"),
        ("zip(*checkpoints, strict=True)", "checkpoints", "the mean of the arrays of one checkpoint: go through all checkpoints for each array"),
        ("return [sum(arrays) / len(arrays) for arrays in zip(*checkpoints, strict=True)]", "mean = checkpoints[0]\n    for arrays in checkpoints[1:]:\n        for x, more in zip(mean, arrays, strict=True):\n            x += more\n    for x in mean:\n        x /= len(checkpoints)\n    return mean", "the first checkpoint was changed: add into new arrays"),
    ),
]  # fmt: skip
