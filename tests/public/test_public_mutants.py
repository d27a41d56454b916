"""Importers and exporters with one mistake each: a test of this folder has to notice every one."""

import importlib
import sys
import types
from pathlib import Path

import pytest
import test_public_export as way_back
import test_public_import as way_in
import test_public_refusals as refusals

import minitf
from minitf.errors import UserError


def logits(folder):
    way_in.test_the_logits_are_those_of_transformers("model.safetensors", folder)


def offsets(folder):
    folder.mkdir(exist_ok=True)
    refusals.test_a_tensor_may_begin_anywhere_in_its_storage(False, folder)


def logits_of_marian(folder):
    way_in.test_a_marian_file_has_the_logits_of_transformers(False, folder)


def round_trip(folder):
    for i, switches in enumerate(way_back.SWITCHES):
        way_back.test_the_round_trip_is_bit_for_bit(switches, folder / str(i))


def halves(folder):
    way_back.test_the_halves_compute_what_the_interleaved_model_computes()


def by_name(check):
    return lambda folder: check(*([folder] if check.__code__.co_argcount else []))


logits_of_relu = by_name(way_in.test_relu_has_the_logits_of_transformers)
like_marian = by_name(way_in.test_by_default_it_computes_as_marian_does)
rows = by_name(way_in.test_rows_are_renumbered_and_start_is_their_pad)
sides = by_name(way_in.test_the_vocabulary_cuts_each_side_by_its_own_model)
copied = by_name(way_in.test_subwords_of_the_source_alone_are_text_in_the_target)
languages = by_name(way_in.test_a_language_token_is_one_id_and_begins_every_part)
opus = by_name(way_in.test_the_source_is_normalised_as_opus_does)
as_it_came = by_name(way_back.test_an_imported_model_goes_out_as_it_came)
special_ids = by_name(way_back.test_the_configuration_names_the_special_ids)

EPS = 'eps=1e-6 if like == "marian" else 1e-5'
DECODER = '''"self_residual", "self_attn", "self"),
        ("source_attention", "source_residual"'''
GAIN_AND_BIAS = '''.norm.gain", f"{theirs}.weight", f"{marian}_ln_scale", (d_model,)
    yield f"{ours}.norm.bias"'''

# name: (who notices it, file in minitf/, correct text, text of the mutant). A mistake that changes
# only the shape of an array is not worth a row: every shape is checked.
MUTANTS = {
    # the architecture
    "eps of Marian for transformers": (logits, "public/hugging_face", EPS, "eps=1e-6"),
    "eps of transformers for Marian": (like_marian, "public/hugging_face", EPS, "eps=1e-5"),
    "tensor2tensor's exponents for transformers": (
        *(logits, "public/hugging_face", '"t2t" if like == "marian" else "paper"', '"t2t"'),
    ),
    "the paper's exponents for Marian": (
        *(like_marian, "public/hugging_face", '"t2t" if like == "marian" else "paper"', '"paper"'),
    ),
    "sines and cosines interleaved": (logits, "public/formats", '="halves"', '="interleaved"'),
    "ReLU for swish": (logits, "public/hugging_face", '"swish": "swish"', '"swish": "relu"'),
    "swish for ReLU": (
        *(logits_of_relu, "public/hugging_face", '"relu": "relu"', '"relu": "swish"'),
    ),
    "another number of heads": (
        *(logits, "public/hugging_face", '_entry(settings, "encoder_attention_heads"),'),
        '_entry(settings, "encoder_attention_heads") // 2,',
    ),
    "another number of heads of Marian": (
        *(logits_of_marian, "public/marian", '_number(settings, "transformer-heads")'),
        '_number(settings, "transformer-heads") // 2',
    ),
    "ReLU for Marian's swish": (
        *(logits_of_marian, "public/marian", "activation=activation", 'activation="relu"'),
    ),
    # the arrays
    "square matrices are not transposed": (
        *(logits, "public/hugging_face", "array.T if array.ndim == 2 else"),
        "array.T if len({*array.shape}) == 2 else",
    ),
    "square matrices of Marian are transposed": (
        *(logits_of_marian, "public/marian", "return layers | {"),
        "return {n: a.T if a.shape[-1:] == a.shape[:-1] else a for n, a in layers.items()} | {",
    ),
    "queries are keys": (
        *(logits, "public/names", '(("query", "q"), ("key", "k"),'),
        '(("query", "k"), ("key", "q"),',
    ),
    "values are keys": (
        *(logits, "public/names", '("key", "k"), ("value", "v")'),
        '("key", "v"), ("value", "k")',
    ),
    "the decoder's norms change places": (
        *(logits, "public/names", DECODER),
        DECODER.replace("self_r", "-").replace("source_r", "self_r").replace("-", "source_r"),
    ),
    "the self-attention of the decoder reads the source's": (
        *(logits_of_marian, "public/names", '"encoder_attn", "context"'),
        '"encoder_attn", "self"',
    ),
    "no bias on the logits": (
        *(logits, "public/hugging_face", '"output_bias": bias}', '"output_bias": 0 * bias}'),
    ),
    "no bias on Marian's logits": (
        *(logits_of_marian, "public/marian", '"output_bias": bias}', '"output_bias": 0 * bias}'),
    ),
    "biases of attention are lost": (
        *(logits, "public/formats", "layers[names.minitf] = array.reshape(-1) if"),
        'layers[names.minitf] = array.reshape(-1) * ("attention." not in names.minitf) if',
    ),
    "gains are biases": (
        *(logits, "public/names", GAIN_AND_BIAS),
        GAIN_AND_BIAS.replace("gain", "-").replace("norm.bias", "norm.gain").replace("-", "bias"),
    ),
    "a tensor of .bin begins elsewhere": (
        *(offsets, "public/torch_file", "[offset : offset + size]", "[:size]"),
    ),
    # the vocabulary
    "the bias keeps the file's order": (
        *(rows, "public/importing", "_rows(array, model.rows)"),
        "_rows(array, model.rows if array.ndim == 2 else sorted(model.rows))",
    ),
    "the start mark is the end mark": (
        *(logits, "public/formats", "special = pad, unk, start, eos"),
        "special = pad, unk, eos, eos",
    ),
    "padding is the unknown subword": (
        *(rows, "public/formats", "special = pad, unk, start, eos"),
        "special = unk, pad, start, eos",
    ),
    "Marian starts with a subword": (
        *(logits_of_marian, "public/importing", "chosen[rows < 0] = 0", "pass"),
    ),
    "special subwords are written": (
        *(like_marian, "public/formats", "suppressed_ids=(PAD, UNK, BOS)", "suppressed_ids=(PAD,)"),
    ),
    "the target is cut like the source": (
        *(
            sides,
            "text/paired",
            "self._processors[side].encode",
            'self._processors["source"].encode',
        ),
    ),
    "the source's sign of a space is written": (
        *(copied, "text/paired", 'text.replace("\\u2581", " ")', "text"),
    ),
    "the token of the language is forgotten": (
        *(languages, "text/paired", "            ids + [self", "            [self"),
    ),
    "punctuation stays as it is": (
        *(opus, "text/paired", "normalise(rest) if self.opus else rest", "rest"),
    ),
    # the way back
    "nothing is renumbered on the way out": (
        *(halves, "public/layout", "[*range(0, d, 2), *range(1, d, 2)]", "[*range(d)]"),
    ),
    "cosines first": (
        *(halves, "public/layout", "[*range(0, d, 2), *range(1, d, 2)]"),
        "[*range(1, d, 2), *range(0, d, 2)]",
    ),
    "the way in renumbers otherwise": (round_trip, "public/layout", ".reshape(2, d // 2).T", ""),
    "what reads the features is not renumbered": (
        *(halves, "public/layout", '("query", "key", "value", "inner")'),
        '("query", "key", "value", "inner") and 0',
    ),
    "norms are not renumbered": (
        *(halves, "public/layout", "        else:\n"),
        '        elif layer != "norm":\n',
    ),
    "the table is not renumbered": (*(halves, "public/layout", '{"embedding.weight": 1}', "{}"),),
    "an exported model forgets its eps": (
        round_trip,
        "public/layout",
        '                "eps",\n',
        "",
    ),
    "an exported model keeps zeros for biases": (
        *(round_trip, "public/layout", "not before.attention_bias", "False"),
    ),
    "exported matrices are not transposed": (
        *(as_it_came, "public/export", "array.T if array.ndim == 2 else array"),
        "array.T if len({*array.shape}) == 2 else array",
    ),
    "an exported model starts with its end mark": (
        *(special_ids, "public/export", '"decoder_start_token_id": config.bos_id'),
        '"decoder_start_token_id": config.eos_id',
    ),
    "ids that are never written are forgotten": (
        *(special_ids, "public/export", '{"bad_words_ids": [[i] for i in config.suppressed_ids]}'),
        "{}",
    ),
}


def source_of(file):
    return (Path(minitf.__file__).parent / f"{file}.py").read_text(encoding="utf-8")


def plant(monkeypatch, file, right, wrong):
    """Run the source of a module with a mistake, and use its functions wherever they are used."""
    module = importlib.import_module(f"minitf.{file.replace('/', '.')}")
    mutant = types.ModuleType(module.__name__)
    exec(compile(source_of(file).replace(right, wrong), file, "exec"), vars(mutant))
    made_here = {
        id(value): name
        for name, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
    }
    for other in [
        each for name, each in sys.modules.items() if name.startswith(("minitf", "test_"))
    ]:
        for name, value in list(vars(other).items()):
            if id(value) in made_here:
                monkeypatch.setattr(other, name, getattr(mutant, made_here[id(value)]))


def test_the_mistakes_follow_the_code():
    for _, file, right, wrong in MUTANTS.values():
        assert source_of(file).count(right) == 1, f"{right!r} in {file}.py"
        assert right != wrong


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_noticed(name, tmp_path, monkeypatch):
    notices, file, right, wrong = MUTANTS[name]
    plant(monkeypatch, file, right, wrong)
    with pytest.raises((AssertionError, KeyError, UserError)):
        notices(tmp_path)


@pytest.mark.parametrize("file", sorted({file for _, file, *_ in MUTANTS.values()}))
def test_a_file_that_is_only_planted_is_right(file, tmp_path, monkeypatch):
    plant(monkeypatch, file, "", "")
    for i, notices in enumerate({notices for notices, at, *_ in MUTANTS.values() if at == file}):
        notices(tmp_path / str(i))
