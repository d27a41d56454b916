"""Public models, the parser, and a run by the recipe for small data: on a GPU as on the CPU."""

import contextlib

import numpy as np
import pytest
import strict
from public_files import hugging_face

from minitf import Translator, forms
from minitf import functions as F
from minitf.backend import to_numpy, using
from minitf.config import Config
from minitf.parsing.parser import Parser
from minitf.public.importing import import_model
from minitf.text import Subwords, make_batch
from minitf.text.trees import WORD
from minitf.training import commandline
from minitf.transformer import Transformer
from minitf.translation.loading import load_model

LINES = [
    "the dog sleeps",
    ">>deu<< in the old house",
    "",
    "see",
    "the children sleep in the garden.",
]
TARGETS = ["der Hund ist gut", "das alte Haus", "gut", "die Kinder"]
DEVICES = {
    "strict": (strict.module, contextlib.nullcontext),
    "kernels": (strict.with_kernels, contextlib.nullcontext),
    "cupy": ("cupy", contextlib.nullcontext),
    "cupy, forms off": ("cupy", forms.off),
}


MARKS = {"kernels": pytest.mark.slow, "cupy": pytest.mark.gpu, "cupy, forms off": pytest.mark.gpu}


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, ())) for name in DEVICES])
def device(request):
    """A function that makes a context in which a GPU, or a stand-in, computes."""

    @contextlib.contextmanager
    def on_it():
        library, mode = DEVICES[request.param]
        with using(library), mode():
            yield

    return on_it


@pytest.fixture(params=["swish", pytest.param("relu", marks=pytest.mark.slow)])
def folder(request, tmp_path):
    settings = {"activation_function": request.param}
    source = hugging_face(tmp_path / "in", settings=settings)
    import_model(source, tmp_path / "public", "float32", say=lambda line: None)
    return tmp_path / "public"


@pytest.mark.parametrize("beam", [1, 3])
def test_it_translates_as_on_the_cpu(device, folder, beam):
    here = Translator.load(folder).translate(LINES, beam=beam, n_best=beam, max_extra=4)
    with device():
        there = Translator.load(folder).translate(LINES, beam=beam, n_best=beam, max_extra=4)
    assert (
        [len(best) for best in there] == [len(best) for best in here] == [beam, beam, 1, beam, beam]
    )
    for mine, other in zip(there, here, strict=True):
        assert [each.text for each in mine] == [each.text for each in other]
        assert [e.score for e in mine] == pytest.approx([e.score for e in other], rel=1e-4)


def step_of(folder):
    """Return the loss of a step of fine-tuning, with dropout, and all gradients."""
    model, subwords, _ = load_model(folder)
    sources = subwords.encode([line for line in LINES if line])
    batch = make_batch(sources, subwords.encode(TARGETS, side="target"), len(subwords))
    with F.dropout_state(seed=3, step=1):
        loss, _ = model.train().loss(batch.source, batch.target_in, batch.target_out)
    loss.backward()
    return float(loss), {name: to_numpy(p.grad) for name, p in model.named_parameters()}


def test_a_step_of_fine_tuning_has_the_gradients_of_the_cpu(device, folder):
    expected, gradients = step_of(folder)
    with device():
        loss, found = step_of(folder)
    assert loss == pytest.approx(expected, rel=1e-5)
    assert found.keys() == gradients.keys() and {"output_bias", "embedding.weight"} <= found.keys()
    for name, gradient in gradients.items():
        if name.endswith("key.bias"):
            continue  # the softmax ignores it: its gradient is 0, but for rounding
        assert np.abs(found[name] - gradient).max() < 1e-4 * np.abs(gradient).max(), name
    assert not found["output_bias"][[0, 1, 2]].any(), "ids that are never written"


RECIPE = (
    "--recipe small-data --train {text} --valid {text} --vocabulary-size 300 --steps 3 --cooldown "
    "0.5 --batch-tokens 60 --accumulate 2 --set n_layers=1 --set d_model=16 "
    "--set d_ff=12 --set n_heads=2"
)
SYMBOLS = [WORD, "(S", ")S", "(NP", ")NP"]
SENTENCES = [["a", "dog", "sat", "."], ["Go"], [], ["the", "cat", "(", "S", ")"]]


@pytest.mark.parametrize("beam", [1, 3])
def test_the_parser_writes_the_same_trees(device, beam):
    """The allowed tokens are told by the CPU, step by step."""
    subwords = Subwords.train(
        ["the cat sat on the mat .", "(S (NP XX XX )NP XX )S"] * 3,
        300,
        log=lambda notice: None,
        symbols=SYMBOLS,
    )

    def trees():
        config = Config(len(subwords), n_layers=1, d_model=16, d_ff=16, n_heads=2)
        model = Transformer(config, seed=1)
        for parameter in model.parameters():  # a wild model, whose favourite texts are no trees
            parameter.data *= 3
        return Parser(model, subwords).parse(SENTENCES, beam=beam, max_extra=8)

    here = trees()
    with device():
        assert trees() == here
    assert [leaf.word for leaf in here[0] if not isinstance(leaf, str)] == SENTENCES[0]


@pytest.mark.parametrize(
    "device",  # not with simulated kernels, which take a minute: test_fused_step trains with them
    [pytest.param(name, marks=MARKS.get(name, ())) for name in DEVICES if name != "kernels"],
    indirect=True,
)
def test_a_run_with_the_recipe_for_small_data_has_the_same_losses(device, tmp_path):
    """It samples subwords, sums gradients over several batches, and lowers the rate at the end."""
    for name in ("train.en", "train.de"):
        lines = [f"the {a} dog sees {b} cats" for a in ("old", "bad", "new") for b in (1, 2, 3, 4)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = [str(tmp_path / name) for name in ("train.en", "train.de")]
    command = RECIPE.format(text=" ".join(text)).split()

    def losses(out):
        settings, _ = commandline.parse([*command, "--out", str(tmp_path / out)])
        trainer = commandline.build(settings)
        return [float(trainer.update()[0]) for _ in range(3)]

    expected = losses("here")
    with device():
        assert losses("there") == pytest.approx(expected, rel=1e-4)
