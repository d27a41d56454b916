"""my_transformer.py: made of the page, its pieces checked one by one."""

import ast
import importlib
import json
import re
import sys
import textwrap
from copy import deepcopy

import pytest
from lesson_files import LESSONS, ROOT

from minitf.course import building
from minitf.course.building import answer, checked, page, skeleton
from minitf.course.pieces import PIECES
from minitf.errors import UserError

sys.path.insert(0, str(ROOT / "lessons"))
build = importlib.import_module("build")
each_piece = pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.name)


@pytest.mark.slow
@each_piece
def test_the_page_is_right_and_each_typical_mistake_is_named(piece):
    assert checked(page(), piece, "page.py") == ("right", "")
    assert len({words for *_, words in piece.wrong}) == len(piece.wrong) <= 5
    for old, new, words in piece.wrong:
        state, message = checked(answer(piece, (old, new)), piece, "answer.py")
        assert state == "wrong", f"accepted: {words}"
        assert message.endswith(words), f"{words}: {message}"


def test_the_first_softmax_that_one_writes_is_told_both_its_mistakes():
    naive = answer(PIECES[0], *(mistake[:2] for mistake in PIECES[0].wrong[:2]))
    message = checked(naive, PIECES[0], "answer.py")[1]
    assert "exp overflows" in message and "; and divided by the sum of all" in message


SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
# Changes that change no result, or only for inputs that no model has: x exactly 0 in relu, a third
# continuation of a beam, an exact fit of a batch, an axis counted from the other end.
HARMLESS = {
    ("relu", "x.data > 0"),
    ("dropout", "rng.random(x.data.shape) >= c.P_drop"),
    ("make_batches", "(len(batches[-1]) + 1) * lengths[i] > n_tokens"),
    ("beam_search", "len(finished) >= c.beam_size"),
    ("beam_search", "best_possible <= max(finished)[0]"),
    ("beam_search", "if len(finished) >= c.beam_size and best_possible <= max(finished)[0]:"),
}


def small_changes(function):
    """Yield copies of a function with one operator or one statement changed, and what it was.

    An assert stays, as it changes no result.
    """
    for i, node in enumerate(ast.walk(function)):

        def copied(i=i):
            copy = deepcopy(function)
            return copy, list(ast.walk(copy))[i]

        if isinstance(node, ast.BinOp):
            changed, same_node = copied()
            same_node.op = SWAPS[type(node.op)]()
            yield changed, ast.unparse(node)
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            changed, same_node = copied()
            same_node.ops = [SWAPS[type(node.ops[0])]()]
            yield changed, ast.unparse(node)
        statements = getattr(node, "body", None)
        for k in range(len(statements) if isinstance(statements, list) else 0):
            is_text = isinstance(getattr(statements[k], "value", 0), ast.Constant)
            if len(statements) > 1 and not is_text and not isinstance(statements[k], ast.Assert):
                changed, same_node = copied()
                del same_node.body[k]
                yield changed, ast.unparse(statements[k]).splitlines()[0]


@pytest.mark.slow
@each_piece
def test_every_small_change_of_a_piece_is_refused(piece, monkeypatch):
    building.expected_of(piece)  # in as much time as it needs
    monkeypatch.setattr(building, "SECONDS", 2)
    monkeypatch.setattr(building, "outcomes_of_mistakes", lambda *_: [])
    function = building.definitions(ast.parse(page()))[piece.name]
    lines = page().splitlines()
    indent = " " * function.col_offset
    for changed, was in small_changes(function):
        body = textwrap.indent(ast.unparse(changed), indent).splitlines()
        text = [*lines[: function.lineno - 1], *body, *lines[function.end_lineno :]]
        state, _ = checked("\n".join(text), piece, "answer.py")
        assert state != "right" or (piece.name, was) in HARMLESS, f"accepted without: {was}"


def test_the_empty_file_has_everything_to_do_and_runs():
    text = skeleton()
    for piece in PIECES:
        assert checked(text, piece, "my_transformer.py") == ("to do", ""), piece.name
    names = building.module_with(ast.parse(text), None, "my_transformer.py")
    assert names.load and names.train and not hasattr(names, "learn_toy_corpus")


def test_the_pieces_are_in_the_order_of_the_page_and_of_the_lessons():
    names = list(building.definitions(ast.parse(page())))
    places = [names.index(piece.name) for piece in PIECES]
    assert places == sorted(places)
    lessons = [piece.lesson for piece in PIECES]
    assert lessons == sorted(lessons) and set(lessons) == {f"0{n}" for n in range(1, 10)}


@each_piece
def test_the_lesson_has_the_section_that_derives_a_piece(piece):
    lesson = next(path for path in LESSONS if path.stem.startswith(piece.lesson))
    assert f"# ## {piece.section}\n" in lesson.read_text(encoding="utf-8")


def filled_in():
    """Return the file of a student who has written every piece as the page has it."""
    lines = page().splitlines()
    tree = ast.parse(page())
    end = next(node for node in tree.body if getattr(node, "name", "") == building.LAST).lineno - 1
    own = "\n".join(lines[:end]).replace("HERE = Path(__file__).parent\n", "")
    return own + building.CLOSING


@pytest.mark.slow
def test_when_all_is_right_the_students_own_code_learns_and_translates(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(building, "QUICK_STEPS", 20)
    monkeypatch.setattr(sys, "argv", ["my_transformer.py"])
    file = tmp_path / "my_transformer.py"
    text = 'SENTENCE = "Where is the station?"\n' + filled_in()
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        building.run(str(file))
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0 and f"{len(PIECES)} of {len(PIECES)} pieces are yours." in lines
    assert [line.split() for line in lines[-3:]] == [
        ["Where", "is", "the", "station?"],
        ["your", "Transformer:", "Wo", "ist", "der", "Bahnhof?"],
        ["examples/whole.py:", "Wo", "ist", "der", "Bahnhof?"],
    ]
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_pieces_that_fail_in_any_way_are_wrong_and_the_others_are_judged(tmp_path, capsys):
    """An answer that raises, ends Python, returns nothing, is deleted, or prints."""
    text = filled_in()
    for old, new in {
        "    return PE\n": "    PE\n",
        "    e = np.exp(x - x.max(axis=-1, keepdims=True))\n": "    sys.exit(0)\n",
        "    return (ids != PAD)[:, None, None, :]\n": "    print('hello')\n    return ids[9, 9]\n",
        "def causal_mask(": "def another_mask(",
    }.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    assert building.grade(text, str(tmp_path / "my_transformer.py")) == 1
    result = json.loads(capsys.readouterr().out)
    found = {row["name"]: row for row in result["exercises"]}
    wrong = {name for name, row in found.items() if row["state"] == "wrong"}
    assert wrong == {"softmax", "padding_mask", "causal_mask", "sinusoids"}
    assert "return" in found["sinusoids"]["message"] and "line" in found["padding_mask"]["message"]
    assert result["right"] == result["total"] - 4


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    broken = tmp_path / "my_transformer.py"
    broken.write_text("def softmax(x:\n", encoding="utf-8")
    for path in (broken, tmp_path / "none.py"):
        with pytest.raises(UserError, match=path.name):
            build.code_of(path)


def test_the_notebook_has_the_pieces_too(tmp_path, capsys):
    """It is read as that of a lesson is: with magics, and whatever its format and encoding."""
    path = tmp_path / "my_transformer.ipynb"
    book = json.loads(building.notebook())
    assert book["metadata"]["language_info"]["file_extension"] == ".py"
    cells = [{**cell, "input": cell.pop("source")} for cell in book["cells"]]
    for cell in cells[1:]:
        ast.parse("".join(cell["input"]))
    cells[2]["input"] = ["%%time\n", *cells[2]["input"], "\n!pip list"]
    path.write_text(json.dumps({"worksheets": [{"cells": cells}]}), encoding="utf-16")
    assert building.grade(build.code_of(path), path.name) == 1
    result = json.loads(capsys.readouterr().out)
    assert {row["state"] for row in result["exercises"]} == {"to do"}
    path.write_text("{}")
    with pytest.raises(UserError, match="this is no notebook"):
        build.code_of(path)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_each_lesson_ends_with_its_pieces(path):
    numbers = [n for n, piece in enumerate(PIECES, 1) if piece.lesson == path.stem[:2]]
    text = path.read_text(encoding="utf-8")
    assert f"**Now yours: pieces {numbers[0]} to {numbers[-1]}**" in text
    paragraph = text.partition("**Now yours")[2].partition("# %%")[0]
    for piece in PIECES:
        if piece.lesson == path.stem[:2]:
            assert piece.name.removesuffix(".__call__") in paragraph, piece.name


OTHER_RIGHT_ANSWERS = {
    "Tensor.backward": """
    def backward(self):
        order = topological_order(self)
        self.grad = 1.0
        while order:
            node = order.pop()
            if node.inputs:
                for i, gx in enumerate(node.input_gradients(node.grad)):
                    node.inputs[i].grad += gx
""",
    "Adam.update": """
    def update(self, rate):
        beta_1, beta_2 = self.c.beta_1, self.c.beta_2
        self.t = self.t + 1
        for x, m, v in zip(self.parameters, self.m, self.v):
            m *= beta_1
            m += (1 - beta_1) * x.grad
            v[...] = beta_2 * v + (1 - beta_2) * x.grad * x.grad
            x.data -= rate * m / (1 - beta_1**self.t) / ((v / (1 - beta_2**self.t)) ** 0.5 + 1e-9)
            x.grad = 0
""",
    "make_batch": """
def make_batch(pairs):
    source = pad([list(source) + [EOS] for source, _ in pairs])
    target = pad([[BOS] + target + [EOS] for _, target in pairs])
    return [source, target[:, :-1], target[:, 1:]]
""",
    "topological_order": """
def topological_order(loss):
    order, seen, stack = [], set(), [loss]
    while stack:
        top = stack[-1]
        waiting = [x for x in top.inputs if x not in seen]
        if waiting:
            stack.append(waiting[0])
        else:
            stack.pop()
            if top not in seen:
                seen.add(top)
                order.append(top)
    return order
""",
    "beam_search": """
def beam_search(model, ids):
    beam, alpha = model.c.beam_size, model.c.alpha
    source = pad([ids + [EOS]])
    memory = model.encode(source)
    living, finished = [(0.0, [BOS])], []
    for length in range(1, len(ids) + 51):
        candidates = continuations(model, living, memory, source, 2 * beam)
        living = []
        for rank, (total, text) in enumerate(candidates, 1):
            if text[-1] == EOS and rank <= beam:
                finished.append((text, total / length_penalty(length, alpha)))
            if text[-1] != EOS and len(living) < beam:
                living.append((total, text))
        finished.sort(key=lambda found: -found[1])
        if len(finished) >= beam:
            if living[0][0] / length_penalty(len(ids) + 50, alpha) <= finished[0][1]:
                break
    return finished[0][0] if finished else living[0][1]
""",
}


def verdict_on(name, definition):
    """Return the verdict on a definition of a piece in a file that is empty otherwise."""
    piece = next(piece for piece in PIECES if piece.name == name)
    text = skeleton()
    if "." in name:
        node = building.definitions(ast.parse(text))[name]
        lines = text.splitlines()
        text = "\n".join([*lines[: node.lineno - 1], definition, *lines[node.end_lineno :]])
    else:
        text += definition  # a later definition is the one that counts
    return checked(text, piece, "answer.py")


@pytest.mark.parametrize("name", OTHER_RIGHT_ANSWERS)
def test_another_right_answer_is_right(name):
    assert verdict_on(name, OTHER_RIGHT_ANSWERS[name]) == ("right", "")


@pytest.mark.parametrize(
    ("head", "body", "said"),
    [
        ("relu(x)", "np.exp(x)", "take arrays: x.data, not x (line"),
        ("relu(x)", "x.clip(0)", "has no attribute 'clip': its array is x.data (line"),
        ("relu(x)", "x / 2", "take arrays: x.data, not x (line"),
        ("relu(x)", "Tensor(x.data * 2, (x,), lambda gy: (None,))", "something is None here"),
        ("relu(x)", "Tensor(x.data * 2, (x,), lambda gy: (gy, gy))", "not as many gradients as"),
        ("relu(x)", "Tensor(np.maximum(0, x.data))", "of x: found none: has the result its inputs"),
        ("softmax(x)", "x.data / 2", "x.data of an array x is no array: .data is for Tensors"),
        ("softmax(x)", "max(x)", "True or False is needed here, but this is an array of them"),
        ("softmax(x)", "x @ x[0]", "matrices that do not fit: 5 columns times 3 rows (line"),
        ("softmax(x)", "2 * np.exp(x)", ""),
        ("split_heads(x, h)", "x.transpose(0, 1)", "transpose needs one number for each axis"),
        ("enter(E, ids, c)", "E + embedding(E, ids)", "cannot add shape (2, 5, 12) to"),
        ("average(checkpoints)", "np.mean(checkpoints, axis=0)", "inhomogeneous"),
        ("learning_rate(a, b, c)", "-3.0 * b**-0.5 * min(a**-0.5, a * c**-1.5)", "found -0."),
    ],
)
def test_what_python_says_is_said_for_students(head, body, said):
    state, message = verdict_on(head.partition("(")[0], f"def {head}:\n    return {body}\n")
    assert state == "wrong" and said in message, message


def test_what_was_found_is_told_from_what_was_expected_and_the_mistake_is_named():
    head = "def learning_rate(step, d_model, warmup_steps):\n    return "
    rate = "d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)"
    _, message = verdict_on("learning_rate", f"{head}1.00001 * {rate}")
    found, expected = re.findall(r"(?:found|expected) (\S+?)(?:,|$)", message)
    assert found != expected, message
    _, message = verdict_on("learning_rate", head + rate.replace("min", "max"))
    assert message.startswith("step 1: found ")
    assert message.endswith(": max, where min belongs")
