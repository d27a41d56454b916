"""Load a model's folder as a Transformer with its weights; refuse one whose code has changed."""

import contextlib
import math
import reprlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from minitf import decode, forms
from minitf.backend import to_device, to_numpy, xp
from minitf.beyond.shortlist import Shortlist
from minitf.config import Config
from minitf.cpu.threads import one_blas_thread
from minitf.errors import UserError, in_file
from minitf.files.arrays import user_errors
from minitf.files.models import CONFIG, SHORTLIST, check_notes, read_model, read_shortlist
from minitf.tensor import no_grad
from minitf.text import BOS, EOS, PAD, UNK, Vocabulary
from minitf.transformer import Transformer


def load_model(
    folder: str | Path, model: Callable[..., Transformer] = Transformer
) -> tuple[Transformer, Vocabulary, dict]:
    """Return the model of a folder that `save_model` wrote, its subwords, and the notes.

    model: called as model(config, initialise=False); a model whose code was changed is made by
    its own function.
    Raises UserError as `read_model` does, for weights of another model, if the model computes other
    numbers than the one that was saved, and for impossible notes.
    """
    return load_and_probe(folder, model)[:3]


def load_and_probe(
    folder: str | Path, model: Callable[..., Transformer] = Transformer
) -> tuple[Transformer, Vocabulary, dict, np.ndarray | None]:
    """Return what `load_model` returns, and the logits that it has computed for the probe."""
    arrays, fields, subwords, notes = read_model(folder)
    with in_file(folder):
        config = Config.from_dict(fields)
        try:
            if model is Transformer:
                check_size(config, arrays)
            made = model(config, initialise=False).load_state(arrays)
        except (TypeError, ValueError) as error:
            if model is not Transformer:  # a mistake in the given code is shown with its traceback
                raise
            raise UserError(f"its {CONFIG} is damaged ({error}): copy the model again") from None
        check_subwords(config, len(subwords))
        logits = check_probe(made, notes.pop("probe", None))
        check_notes(notes)
    return made, subwords, notes, logits


def is_parser(notes: dict) -> bool:
    """Return whether the notes of a model are those of a parser, which writes trees."""
    return notes.get("target_language", "").startswith("trees")


def load_shortlist(folder: str | Path, config: Config) -> Shortlist:
    """Return the shortlist of a folder that `load_model` has read.

    Raises UserError if it has none, or another model's.
    """
    arrays = read_shortlist(folder)
    if arrays is None:
        raise UserError(
            f"{folder} has no shortlist: leave out --shortlist (a model of Firefox has one if "
            "its lex.*.bin was in the folder that was converted)"
        )
    with user_errors(Path(folder) / SHORTLIST):
        return Shortlist(config, **arrays)


def check_size(config: Config, arrays: dict) -> None:
    """Raise UserError if a model of this configuration would be far larger than these arrays.

    Call it before building a model from a file: then a damaged number does not fill the memory. The
    number of parameters may differ a little, because a layer may have been changed in the code.
    """
    size = sum(array.size for array in arrays.values())
    layers = max(config.n_layers, config.n_decoder_layers)
    if config.count_parameters() > 2 * size or layers > len(arrays):
        raise UserError(
            f"{size:,} numbers in {len(arrays)} arrays are too few for a model of "
            f"{layers} layers and {config.count_parameters():,} parameters: copy the folder again"
        )


def check_subwords(config: Config, count: int) -> None:
    """Raise UserError unless the model has as many ids as its subwords, and the same marks."""
    marks = config.pad_id, config.unk_id, config.bos_id, config.eos_id
    if (count, marks) != (config.vocabulary_size, (PAD, UNK, BOS, EOS)):
        known = f"the model knows {config.vocabulary_size:,} (0 to 3 are special, there {marks})"
        raise UserError(f"{count:,} subwords, but {known}: copy both files from the same model")


# A probe ------------------------------------------------------------------------------------------

# A few numbers that a model computes when it is saved, and again when it is loaded. Weights alone
# do not show how they were used: if a layer without parameters was changed in the code, such as the
# ReLU to a GELU, the weights fit the original layer as well, and it would translate badly without
# an error. The probe would differ.
_SECOND = slice(1, 2)  # of its two sentences
_TOKENS = 2  # tokens after which the logits are compared with those of the forms
# Relative difference that is accepted. Weights rounded to float16 change the numbers by 0.001; a
# GELU in place of the ReLU changes those of an untrained model by 0.07, of a trained one by 0.4.
_TOLERANCE = 0.02


def probe(model: Transformer, arrays: dict[str, np.ndarray] | None = None) -> list[float] | None:
    """Return some logits of the made-up texts, or None if one of them is not finite.

    There is one for each position, alternating between the two sentences.
    arrays: weights by name, used in place of the model's own.
    """
    with _replaced_weights(model, arrays) if arrays else contextlib.nullcontext():
        logits = some_logits(model)
    (ids, _), _ = decode.made_up_texts(model.config)
    positions = np.arange(len(ids))
    chosen = logits[positions % 2, positions, ids].astype(np.float64)
    return [float(f"{x:.6g}") for x in chosen] if np.isfinite(chosen).all() else None


def some_logits(model: Transformer, sentences: slice = slice(None)) -> np.ndarray:
    """Return a model's logits (2, length, V) of the made-up texts, or of some of them."""
    source, target = decode.made_up_texts(model.config)
    # A form in bfloat16 would change the logits of a deep model by 0.02.
    with forms.off(), one_blas_thread(), np.errstate(all="ignore"), model.evaluating(), no_grad():
        return to_numpy(model(source[sentences], target[sentences]).data)


def verified_decoding(
    model: Transformer, shortlist: Shortlist | None = None, logits: np.ndarray | None = None
) -> tuple[list[Callable], decode.Decoding]:
    """Return the ops whose forms may translate with a model (`forms.verified`), and its Decoding.

    Compared are the logits after a few tokens, and what a search makes of them.
    logits: those of the equations, as `load_and_probe` has them.
    """
    source, texts = (ids[_SECOND] for ids in decode.made_up_texts(model.config))
    texts = texts[:, :_TOKENS]
    expected = (some_logits(model, _SECOND) if logits is None else logits)[:, texts.size - 1]
    if shortlist:
        expected = np.take_along_axis(expected, shortlist(source), axis=1)

    def numbers(logits):
        both = xp.concatenate([to_device(logits)] * 2)  # of two texts
        *_, totals = decode.continuations(both, np.array([[0.0, -1.0]]), 4)
        return [logits, decode.logsumexp(both), totals]

    def numbers_of(decoding):
        return numbers(decode.last_logits(decoding, source, texts))

    with one_blas_thread(), np.errstate(all="ignore"), model.evaluating(), no_grad():
        with forms.off():
            expected = numbers(expected)
        with forms.on():
            fused = decode.fast_decoding(model, shortlist)
            if fused and forms.agree(lambda: numbers_of(fused), expected):
                return list(forms.all_forms()), fused
        fused = None  # `fastest_decoding` may make another, and needs its memory
        # Which form is wrong? The modules tell, which call each of the others.
        modules = decode.Decoding(model, False, shortlist)
        verified = forms.verified(lambda: numbers_of(modules), expected)
        with forms.on(verified):
            return verified, decode.fastest_decoding(model, shortlist)


def check_probe(model: Transformer, expected: object) -> np.ndarray | None:
    """Raise UserError unless the model computes the numbers expected (None: anything).

    Of the two sentences, the second is computed, which has padding: this takes half as long.
    Return its logits (1, length, V), None if nothing was expected.
    """
    if expected is None:
        return None
    (ids, _), _ = decode.made_up_texts(model.config)
    numbers = isinstance(expected, list) and len(expected) == len(ids)
    if not numbers or not all(type(x) in (int, float) and abs(x) < 1e30 for x in expected):
        raise UserError(f'damaged (entry "probe": {reprlib.repr(expected)}): copy the model again')
    logits, positions = some_logits(model, _SECOND), np.arange(1, len(ids), 2)
    computed = logits[0, positions, ids[positions]].astype(np.float64)
    wanted = expected[1::2]
    if not math.dist(computed, wanted) <= _TOLERANCE * math.hypot(*wanted):  # also of NaN
        raise UserError(
            "the model computes other numbers than when it was saved: give its own code to "
            "Translator.load(folder, model=MyTransformer) or train(settings, model=MyTransformer), "
            "or, if you changed minitf itself, delete `probe` in config.json"
        )
    return logits


@contextlib.contextmanager
def _replaced_weights(model, arrays):
    """Replace the model's weights inside a `with` block."""
    before = [(parameter, parameter.data) for parameter in model.parameters()]
    try:
        for name, parameter in model.named_parameters():
            parameter.data = to_device(arrays[name], parameter.dtype)
        yield
    finally:
        for parameter, data in before:
            parameter.data = data
