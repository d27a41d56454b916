"""The whole Transformer on one page computes what minitf computes."""

import ast
import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from lesson_files import load
from paths import EXAMPLES, ROOT

from minitf.config import Config
from minitf.data import toy
from minitf.decode import beam_search, greedy
from minitf.optim import Adam, warmup_rate
from minitf.transformer import Transformer
from minitf.translation import Translator

PAGE = EXAMPLES / "whole.py"
BUNDLED = EXAMPLES / "models" / "en-de"
both_classes = pytest.mark.parametrize("model_class", ["Transformer", "PreNormTransformer"])


@pytest.fixture(scope="module")
def whole():
    return load(PAGE)


@pytest.fixture(scope="module")
def bundled(whole):
    return *whole.load(BUNDLED), Translator.load(BUNDLED)


def small(whole, model_class="Transformer", **changes):
    sizes = {"vocab_size": 11, "N": 2, "N_decoder": 1, "d_model": 12, "d_ff": 16, "h": 3}
    return getattr(whole, model_class)(whole.Config(**sizes | changes))


def in_double_precision(whole, model, seed=2):
    """Move every parameter off its first value, so that no bias is 0, and make it float64."""
    rng = np.random.default_rng(seed)
    for x in model.parameters().values():
        x.data = x.data.astype(np.float64) + 0.1 * rng.standard_normal(x.data.shape)
    return model


def of_minitf(whole, model):
    """Return minitf's model with the same numbers."""
    c = model.c
    config = Config(
        c.vocab_size,
        n_layers=c.N,
        n_decoder_layers=c.N_decoder,
        d_model=c.d_model,
        d_ff=c.d_ff,
        n_heads=c.h,
        dropout=0.0,
        norm="pre" if isinstance(model, whole.PreNormTransformer) else "post",
    )
    theirs = Transformer(config).astype(np.float64)
    numbers = {name: x.data for name, x in model.parameters().items()}
    theirs.load_state({name: numbers[renamed(whole, name)] for name in theirs.state()})
    return theirs


def renamed(whole, name):
    for old, new in whole.NAMES.items():
        name = name.replace(old, new)
    return name


PAIRS = [([4, 5, 6], [7, 8]), ([9], [10, 5, 4, 6, 7]), ([5, 5, 10, 4], [9, 8, 4])]


def test_the_logits_of_the_bundled_model(whole, bundled):
    model, _, translator = bundled
    source, target_in, _ = whole.make_batch([([i, 17, 5], [80, i]) for i in range(9, 40)] + PAIRS)
    logits = model(source, target_in).data
    np.testing.assert_allclose(
        logits, translator.model.eval()(source, target_in).numpy(), rtol=1e-5, atol=1e-5
    )


def loss_of(whole, model, pairs=PAIRS):
    source, target_in, target_out = whole.make_batch(pairs)
    logits = model(source, target_in)
    return whole.cross_entropy(logits, target_out, model.c.epsilon_ls)


@both_classes
@pytest.mark.parametrize("training", [False, True])
def test_gradients(whole, model_class, training):
    """Of every parameter, along a random direction; with dropout, through the same masks."""
    model = in_double_precision(whole, small(whole, model_class, training=training))

    def loss():
        whole.rng = np.random.default_rng(3)
        return loss_of(whole, model)

    loss().backward()
    rng = np.random.default_rng(4)
    for name, x in model.parameters().items():
        start, direction = x.data, rng.standard_normal(x.data.shape)
        x.data = start + 1e-5 * direction
        above = loss().data
        x.data = start - 1e-5 * direction
        below = loss().data
        x.data = start
        measured = (above - below) / 2e-5
        np.testing.assert_allclose((x.grad * direction).sum(), measured, 1e-6, 1e-9, err_msg=name)


@both_classes
def test_ten_training_steps(whole, model_class):
    model = in_double_precision(whole, small(whole, model_class))
    theirs = of_minitf(whole, model)
    adam = whole.Adam(list(model.parameters().values()), model.c)
    their_adam = Adam(theirs.named_parameters())
    for step in range(1, 11):
        pairs = PAIRS[step % 2 :]
        loss_of(whole, model, pairs).backward()
        adam.update(whole.learning_rate(step, 12, 4))
        their_adam.zero_grad()
        theirs.loss(*whole.make_batch(pairs))[0].backward()
        their_adam.step(warmup_rate(step, 12, 4))
    numbers = model.parameters()
    for name, array in theirs.state().items():
        found = numbers[renamed(whole, name)].data
        np.testing.assert_allclose(found, array, rtol=1e-7, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(("a", "b"), [((2, 3), (2, 1)), ((2, 3), (1, 3)), ((3,), (2, 3))])
def test_a_shape_whose_gradient_would_be_wrong_is_not_added(whole, a, b):
    with pytest.raises(AssertionError, match=re.escape(f"cannot add shape {b} to shape {a}")):
        whole.Tensor(np.ones(a)) + whole.Tensor(np.ones(b))


def test_an_untrained_model_writes_what_minitf_writes(whole):
    """Its texts have no end: the greedy one and the beam end at the same limit."""
    model = in_double_precision(whole, small(whole))
    theirs = of_minitf(whole, model)
    for ids in ([4, 5, 6], [9]):
        source = np.array([[*ids, whole.EOS]])
        for alpha in (0.0, 0.6, 2.0):
            model.c.alpha = alpha
            found = whole.beam_search(model, ids)
            expected = beam_search(theirs, source, alpha=alpha)[0][0].ids
            assert text_of(whole, found) == expected
        assert text_of(whole, whole.greedy(model, ids)) == greedy(theirs, source)[0].ids


def text_of(whole, ids):
    return [i for i in ids if i not in (whole.BOS, whole.EOS)]


@pytest.mark.slow
def test_sixty_translations(whole, bundled):
    model, subwords, translator = bundled
    lines = toy.splits(n_train=0)["test"][0][:60]
    for line in lines:
        ids = subwords.encode(line)
        source = np.array([[*ids, whole.EOS]])
        found = text_of(whole, whole.greedy(model, ids))
        assert found == greedy(translator.model, source)[0].ids, line
        found = text_of(whole, whole.beam_search(model, ids))
        assert found == beam_search(translator.model, source)[0][0].ids, line


def test_a_sentence_by_the_command(whole, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["whole.py", "The children are playing in the garden."])
    whole.main()
    assert capsys.readouterr().out == "Die Kinder spielen im Garten.\n"


def test_the_batches_hold_every_pair_once_and_no_more_than_their_tokens(whole):
    pairs = [
        ([7] * int(n), [i]) for i, n in enumerate(np.random.default_rng(1).integers(1, 30, 99))
    ]
    batches = whole.make_batches(pairs, 100)
    assert sorted(target for batch in batches for _, target in batch) == [[i] for i in range(99)]
    for batch in batches:
        source, _, target_out = whole.make_batch(batch)
        assert source.size <= 100 and target_out.size <= 100


def test_no_sentence_of_the_test_was_learned(whole, monkeypatch, capsys):
    """Also if more are asked for than there are."""
    learned = []
    monkeypatch.setattr(whole, "train", lambda *arguments: learned.extend(arguments[2]))
    monkeypatch.setattr(whole, "translate", lambda _, subwords, line: subwords.encode(line))
    whole.learn_toy_corpus(steps=1, n_test=999)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("0 of 200 ")
    tested = {line.partition("->   ")[2].partition("   wrong")[0] for line in lines[-201:-1]}
    assert len(tested) > 100 and tested.isdisjoint(str(english) for english, _ in learned)


@pytest.mark.parametrize("steps", [1, 10])
def test_a_training_of_a_few_steps(whole, steps):
    """It has checkpoints, shows a translation of each, and ends as it began: not training."""
    model = small(whole, steps=steps, n_tokens=20)
    subwords = SimpleNamespace(encode=lambda line: [4, 5], decode=str)
    before = {name: x.data for name, x in model.parameters().items()}
    whole.train(model, subwords, PAIRS, "a sentence")
    assert not model.c.training
    for name, x in model.parameters().items():
        assert not np.array_equal(x.data, before[name]), name


def test_the_weights_of_another_model_are_refused(whole, tmp_path):
    config = json.loads((BUNDLED / "config.json").read_text(encoding="utf-8"))
    (weights,) = BUNDLED.glob("*.safetensors")
    (tmp_path / weights.name).symlink_to(weights)
    for change, error in (({"n_layers": 5}, AssertionError), ({"n_layers": 7}, KeyError)):
        text = json.dumps({"model": config["model"] | change})
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(error, match="encoder"):
            whole.load(tmp_path)


def test_help_is_not_translated(whole, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["whole.py", "-h"])
    whole.main()
    assert capsys.readouterr().out == f"{whole.__doc__}\n"


def test_the_checkpoints_are_averaged(whole):
    first, second = [np.zeros(2), np.ones(1)], [np.ones(2), np.array([3.0])]
    assert [array.tolist() for array in whole.average([first, second])] == [[0.5, 0.5], [2.0]]


def test_the_toy_corpus_is_that_of_the_grammar():
    lines = (EXAMPLES / "toy.tsv").read_text(encoding="utf-8").splitlines()
    texts = toy.splits(n_train=len(lines) - 200, n_test=200)
    expected = [list(zip(*texts[name], strict=True)) for name in ("train", "test")]
    assert [tuple(line.split("\t")) for line in lines] == expected[0] + expected[1]


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_the_page_is_numpy_and_400_statements():
    tree = ast.parse(PAGE.read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [node for node in imports if "minitf" in ast.unparse(node)]
    code = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not is_text(node)]
    assert len({node.lineno for node in code}) == len(code) < 405


@pytest.mark.slow
def test_it_learns_the_toy_corpus(whole, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["whole.py"])
    monkeypatch.chdir(ROOT)
    whole.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert int(last.split()[0]) > 160
