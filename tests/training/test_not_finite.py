"""A loss or gradient that is not finite stops the run before it changes any weight."""

import shlex

import numpy as np
import pytest
import strict
from runs import PACE, SMALL, prepare_folder, run

from minitf import backend, forms
from minitf.backend import to_numpy
from minitf.errors import UserError
from minitf.files.arrays import load_arrays
from minitf.training import commandline
from minitf.training.settings import parse
from minitf.training.trainer import Trainer
from minitf.transformer import Positions


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return prepare_folder(tmp_path, monkeypatch)


# What is injected ---------------------------------------------------------------------------------


def weight(name, value):
    """Put a value that is not finite into a weight, as faulty memory might."""

    def poison(trainer):
        dict(trainer.model.named_parameters())[name].data[..., 0] = value

    return poison


def after_backward(spoil):
    """Change the results of the backward pass: spoil(trainer, loss, nll) returns (loss, nll)."""

    def poison(trainer):
        backward = trainer.updater.backward
        trainer.updater.backward = lambda *arguments: spoil(trainer, *backward(*arguments))

    return poison


def gradient(name, value):
    def spoil(trainer, loss, nll):
        dict(trainer.model.named_parameters())[name].grad[..., -1] = value
        return loss, nll

    return after_backward(spoil)


class Spoiled(Positions):
    def __call__(self, x, start=0):
        return super().__call__(x, start) * np.nan


def positions(trainer):
    trainer.model.source_positions.__class__ = Spoiled


WEIGHT, GRADIENT = "the weight {} is not finite", "the gradient of {} is not finite"
NAMES = [
    "embedding.weight",
    "encoder.layers.0.feed_forward.inner.weight",
    "encoder.layers.0.attention_residual.norm.gain",
    "decoder.layers.0.feed_forward.outer.bias",
    "decoder.layers.0.source_attention.output.weight",
]
PLACES = {
    **{
        WEIGHT.format(name): weight(name, value)
        for name, value in zip(NAMES, [np.nan, np.inf] * 3, strict=False)
    },
    **{
        GRADIENT.format(name): gradient(name, value)
        for name, value in zip(NAMES, [-np.inf, np.nan] * 3, strict=False)
    },
    "the loss is nan": after_backward(lambda trainer, loss, nll: (loss * np.nan, nll)),
    "the loss is inf": after_backward(lambda trainer, loss, nll: (loss * np.inf, nll)),
    # Its square overflows in float32.
    "the norm of the gradient is not finite": gradient(NAMES[1], 1e30),
    "the loss is nan ": positions,
}


def state(optimizer):
    return [to_numpy(array).copy() for array in (optimizer.data, optimizer.m, optimizer.v)]


def build(*more):
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de --out here")
    return commandline.build(parse([*texts, *SMALL, *PACE, *more])[0])


devices = pytest.mark.parametrize(
    "device", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu), "strict"]
)


def using(device):
    return backend.using(strict.module if device == "strict" else device)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "clip, device",  # by default every place with both values of clip, on one device each
    [
        *(("0", "numpy"), ("1", "strict")),
        *(
            pytest.param(*pair, marks=pytest.mark.slow)
            for pair in (("1", "numpy"), ("0", "strict"))
        ),
        *(pytest.param(clip, "cupy", marks=pytest.mark.gpu) for clip in "01"),
    ],
)
@pytest.mark.parametrize("words", PLACES)
def test_it_stops_before_the_update_and_names_the_place(folder, words, clip, device):
    with using(device):
        trainer = build("--clip", clip)
        trainer.update()
        trainer.update()
        PLACES[words](trainer)
        before = state(trainer.optimizer)
        with pytest.raises(UserError) as error:
            for _ in range(3):  # on a GPU, later updates change nothing either
                trainer.update()
            trainer.updater.fetch_figures()
        assert (trainer.step, trainer.optimizer.step_count) == (2, 2)
        for old, new in zip(before, state(trainer.optimizer), strict=True):
            assert np.array_equal(old, new, equal_nan=True)
    assert (
        f"{words.strip()} at step 3 (epoch 1, batch 3): the update was not made; continue"
        in str(error.value)
    )
    assert "\n" not in str(error.value)


@pytest.fixture
def injected(monkeypatch):
    """Return the function that chooses what is injected after step 6 of later runs."""
    chosen, update = [], Trainer.update

    def update_and_inject(self):
        result = update(self)
        if self.step == 6 and chosen:
            chosen.pop()(self)
        return result

    monkeypatch.setattr(Trainer, "update", update_and_inject)
    return chosen.append


@devices
def test_the_last_good_checkpoint_is_untouched(folder, injected, capsys, device):
    injected(PLACES["the loss is nan"])
    with using(device):
        # The flag of step 7 is read at step 8, where a validation is due.
        assert run("here", "--log-every", "5") == 2
    error = capsys.readouterr().err
    assert "the loss is nan at step 7" in error and error.count("\n") == 1
    arrays, meta = load_arrays("here/checkpoint.safetensors")
    assert meta["step"] == 4 and all(np.isfinite(array).all() for array in arrays.values())


def test_a_fault_that_does_not_recur_is_reported_too(folder):
    """On a GPU the batches are computed again to find the parameter; the fault may be gone then."""
    with using(strict.with_kernels), forms.on():
        trainer = build("--accumulate", "2", "--batch-tokens", "30")
        trainer.update()
        assert trainer.updater.unlogged == [], "it was not read"
        backward, calls = trainer.updater.backward, []

        def faulty_once(*arguments):
            calls.append(0)
            loss, nll = backward(*arguments)
            return (loss * np.nan, nll) if len(calls) == 1 else (loss, nll)

        trainer.updater.backward = faulty_once
        before = state(trainer.optimizer)
        trainer.update()
        trainer.update()  # this one has no fault, and changes nothing either
        with pytest.raises(
            UserError, match=r"the loss is nan at step 2 \(epoch 1, batch 3 and the one after it\)"
        ):
            trainer.updater.fetch_figures()
        assert len(calls) == 6
        assert all(
            np.array_equal(*pair) for pair in zip(before, state(trainer.optimizer), strict=True)
        )


def test_no_checkpoint_contains_nan(folder, injected, capsys):
    """Moments are not checked in every step, so a checkpoint is, before it replaces another."""

    def poison(trainer):
        trainer.optimizer.m[7] = np.nan
        trainer.stop.ask("somebody asked to")

    injected(poison)
    assert run("here") == 2
    assert (
        "m.embedding.weight contains NaN or infinity after step 6; the checkpoint before it is "
        "kept: continue" in capsys.readouterr().err
    )
    assert load_arrays("here/checkpoint.safetensors")[1]["step"] == 4


# Without waiting ----------------------------------------------------------------------------------


def waiting(action):
    before = strict.synchronisations
    action()
    return strict.synchronisations - before


@pytest.mark.parametrize(
    ("library", "waits"),
    [
        pytest.param(strict.with_kernels, 0, marks=pytest.mark.slow, id="forms"),
        pytest.param(strict.module, 3, id="equations"),
    ],
)
def test_between_two_log_lines_nothing_waits_for_the_device(folder, monkeypatch, library, waits):
    """Where Adam's equation computes, each update waits for its figures."""
    monkeypatch.setattr("minitf.training.update._MIN_ACTIVATIONS", 1)
    with backend.using(library), forms.on():
        tiny = ("--batch-tokens", "10", "--set", "d_model=4")
        trainer = build("--accumulate", "2", "--clip", "0.5", "--replicas", "2", *tiny)
        assert waiting(lambda: [trainer.update() for _ in range(3)]) == waits
        assert waiting(trainer.updater.fetch_figures) == (waits == 0)
        assert len(trainer.updater.unlogged) == 3 and all(
            type(x) is float for row in trainer.updater.unlogged for x in row[:3]
        )
        assert waiting(trainer.updater.fetch_figures) == 0
        trainer.update()
        saved = []
        monkeypatch.setattr(
            trainer.folder,
            "save_weights",
            lambda *arguments: saved.append(len(trainer.updater.unlogged)) or 1 / 0,
        )
        with pytest.raises(ZeroDivisionError):
            trainer.save()
        assert saved == [4], "what is saved has been looked at"
