"""A model of Marian: an .npz or .bin with weights and settings, and its vocabulary."""

import io
import os
import re
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from minitf.beyond.shortlist import Shortlist
from minitf.errors import UserError, in_file
from minitf.files.arrays import user_errors
from minitf.public import formats
from minitf.public.binary import files_of, is_binary, read_binary, read_decompressed, read_shortlist
from minitf.public.names import arrays_of_model, pop_checked
from minitf.text import PairedSubwords
from minitf.text.vocabulary import SPECIALS, processor

_SETTINGS = "special:model.yml"
_NEEDED = {  # setting: (the values that minitf needs, what another one means); "" if it is missing
    "type": (("transformer", ""), "it is not a Transformer"),
    "transformer-decoder-autoreg": (
        ("self-attention", "rnn", ""),
        "its decoder has neither self-attention nor an SSRU",
    ),
    # Pre-norm: findings/marian-pre-norm.sh. The letters: dropout, addition, normalisation.
    "transformer-preprocess": (("", "d"), "its norms come before the sub-layers (pre-norm)"),
    "transformer-postprocess": (("dan", "an"), "its sub-layers do not end in Add & Norm"),
    "transformer-postprocess-emb": (("d", ""), "its embeddings are normalised"),
    "transformer-postprocess-top": (("", "d"), "it has a last norm, as pre-norm models have"),
    "transformer-ffn-depth": (("2", ""), "its feed-forward networks have other depths"),
    "transformer-decoder-ffn-depth": (("2", "0", ""), "its feed-forward networks differ in depth"),
    "right-left": (("false", ""), "it writes from the last word to the first"),
}
_OF_SSRU = {"dec-cell": (("ssru",), "its decoder has another recurrent cell than the SSRU")}
# Any other setting of a Transformer changes the architecture, unless it has one of these values,
_OFF = {"", "false", "0", "[]", "default"}
# or is read, or has no effect. Positions are learned only if there is an array of them.
_WITHOUT_EFFECT = re.compile("transformer-(heads|dim-|aan-|ffn-activation|guided|train-position)")
_SETTING = re.compile(r"^([\w-]+):(.*(?:\n[ \t]+.*)*)", re.MULTILINE)


def read_marian(path: Path, like: str = "marian") -> formats.PublicModel:
    """Return the model of an .npz or .bin file, and of the vocabulary in its folder.

    like: as for `read_hugging_face`. Raises UserError for a missing or damaged file, and for a
    model of another architecture.
    """
    folder = path.parent
    lists = [each for each in files_of(folder, ".bin") if each.name.startswith("lex")]
    formats.refuse_lfs_pointers(path, *lists, *files_of(folder, ".spm"), *folder.glob("*vocab.yml"))
    arrays = read_binary(path) if is_binary(path) else read_npz(path)
    with in_file(path):
        config, tables = _config_and_tables(arrays, like)
    pieces, subwords_of = _vocabulary(folder, list(map(len, tables[:2])))
    if not all("</s>" in each for each in pieces):
        raise UserError(f"{folder}: its vocabulary lacks </s>: copy the model again")
    if config.tie and pieces[0] != pieces[1]:
        raise UserError(
            f"{folder}: its vocabularies differ, but not its tables: copy the model again"
        )
    target = pieces[1]
    rows = formats.file_rows(len(target), -1, target.index("<unk>"), -1, target.index("</s>"))
    names = [target[i] for i in rows[len(SPECIALS) :]]
    with in_file(path):
        weights = arrays_of_model(arrays, config, tables[1], "decoder_ff_logit_out_b", "marian")
    of_source = of_target = rows
    if not config.tie:
        joined = _merged_vocabularies(config, weights, rows, names, *pieces, tables)
        config, names, of_source, of_target = joined
        rows = list(range(len(names) + len(SPECIALS)))
    with in_file(folder):
        subwords = subwords_of(names)
    config = config.replace(vocabulary_size=len(rows))
    notes = formats.languages_of_name(path.name) | formats.licence_of_card(folder)
    shortlist = None
    if lists:
        if len(lists) > 1:
            raise UserError(
                f"{folder} has {len(lists)} shortlists, lex*.bin: keep the model's only"
            )
        shortlist = _shortlist(lists[0], config, np.array(of_source), np.array(of_target))
    return formats.PublicModel(config, weights, rows, subwords, notes, shortlist=shortlist)


def _shortlist(path, config, of_source, of_target):
    """Return the arrays of a Shortlist, by name, with minitf's ids in the place of the file's.

    of_source, of_target: for each of minitf's ids the id of the file, -1 for none.
    """
    first, starts, candidates = read_shortlist(path, of_target.max() + 1)
    with user_errors(path):
        if len(starts) != of_source.max() + 2:
            raise ValueError(f"it is not for {of_source.max() + 1:,} subwords")
        known = np.flatnonzero(of_target >= 0)
        ours = np.zeros(of_target.max() + 1, np.int64)
        ours[of_target[known]] = known
        pieces = np.split(ours[candidates], starts[1:-1])
        lists = [pieces[i] if i >= 0 else candidates[:0] for i in of_source]
        small = np.min_scalar_type(len(of_source))
        arrays = {
            "first": ours[:first].astype(small),
            "starts": np.cumsum([0, *map(len, lists)]).astype(np.uint32),
            "candidates": np.concatenate(lists).astype(small),
        }
        Shortlist(config, **arrays)
    return arrays


def _merged_vocabularies(config, weights, rows, names, source, target, tables):
    """Return the Config and names of a model whose two vocabularies become one list of ids.

    Two lists follow: for each id its row in the table of the source, and in that of the target.
    First come the subwords of the target, then those that only the source has, which the model
    never writes. A row that a table lacks is of zeros; weights gets the tables in this order.
    tables: of the source, of the target, and of the output.
    """
    known = set(target)
    only = [piece for piece in source if piece not in known]
    rows, names = [*rows, *[-1] * len(only)], [*names, *only]
    places = {piece: i for i, piece in enumerate(source)}
    special = -1, places["<unk>"], -1, places["</s>"]
    read = [*special, *(places.get(x, -1) for x in names)]
    parts = "embedding", "target_embedding", "output_embedding"
    for part, table, of_rows in zip(parts, tables, (read, rows, rows), strict=True):
        weights[f"{part}.weight"] = formats.take_rows(table, of_rows)
    weights["output_bias"] = formats.take_rows(weights["output_bias"], rows)
    never = *config.suppressed_ids, *range(len(rows) - len(only), len(rows))
    config = config.replace(vocabulary_size=len(rows), suppressed_ids=never)
    return config, names, read, rows


def _config_and_tables(arrays, like):
    """Return minitf's Config, and three tables: of the source, of the target, of the output.

    Raises UserError for another architecture.
    """
    settings = _settings(arrays)
    d_model = _number(settings, "dim-emb")
    tied, tied_source, tied_output = (
        settings.get(f"tied-embeddings{end}") == "true" for end in ("-all", "-src", "")
    )
    names = ("Wemb",) if tied or tied_source else ("encoder_Wemb", "decoder_Wemb")
    shapes = [(*np.shape(arrays.get(name, ()))[:1], d_model) for name in names]
    tables = [pop_checked(arrays, *each) for each in zip(names, shapes, strict=True)]
    read, written = tables[0], tables[-1]
    output = written
    if not (tied or tied_output):
        output = pop_checked(arrays, "decoder_ff_logit_out_Wt", written.shape)
    if settings.get("output-omit-bias") == "true":
        arrays["decoder_ff_logit_out_b"] = np.zeros((1, len(output)), np.float32)
    recurrent = settings.get("transformer-decoder-autoreg") == "rnn"
    config = formats.config_of(
        like,
        settings.get("transformer-ffn-activation", "swish"),
        vocabulary_size=len(written),
        n_layers=_number(settings, "enc-depth"),
        n_decoder_layers=_number(settings, "dec-depth"),
        d_model=d_model,
        d_ff=_number(settings, "transformer-dim-ffn"),
        n_heads=_number(settings, "transformer-heads"),
        decoder="ssru" if recurrent else "self-attention",
        tie=read is output,
    )
    return config, (read, written, output)


def _settings(arrays):
    """Return the settings, taken out of the arrays. Raises UserError for another architecture."""
    if _SETTINGS not in arrays:
        raise UserError("not a model of Marian: name the file of its weights")
    text = arrays.pop(_SETTINGS).tobytes().rstrip(b"\0").decode("utf-8", errors="replace")
    settings = {name: value.strip().strip("\"'") for name, value in _SETTING.findall(text)}
    is_recurrent = settings.get("transformer-decoder-autoreg") == "rnn"
    needs = _NEEDED | (_OF_SSRU if is_recurrent else {})
    for name, (needed, meaning) in needs.items():
        if settings.get(name, "") not in needed:
            raise UserError(f"{meaning} ({name}): minitf cannot run this architecture")
    for name, value in settings.items():
        is_other = name.startswith("transformer-") and name not in needs
        if is_other and value not in _OFF and not _WITHOUT_EFFECT.match(name):
            raise UserError(f"its setting {name} is on: minitf cannot run this architecture")
    return settings


def _number(settings, name):
    value = settings.get(name, "")
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise UserError(f"its setting {name!r} is not a number: copy the file again")
    return int(value)


# The arrays ---------------------------------------------------------------------------------------


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an .npz file; nothing is unpickled.

    Raises UserError for a missing or damaged file. numpy.load would take the memory that a header
    claims before it reads the data.
    """
    arrays = {}
    with user_errors(path), zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if sum(member.compress_size for member in members) > os.path.getsize(path):
            raise ValueError("its arrays are larger than the file")
        for member in members:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or name in arrays:
                raise ValueError(f"entry {member.filename!r} is not an array")
            with user_errors(f"{path}: array {name!r}"):
                arrays[name] = _array(archive, member)
    return arrays


def _array(archive, member):
    """Return an array, made of the bytes that are there, whatever its header claims."""
    # With other compressions, a few bytes can unpack to gigabytes.
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("unknown compression")
    content = archive.read(member)
    stream = io.BytesIO(content)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("unknown header")
    shape, by_columns, dtype = npy.read_array_header_1_0(stream)
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise ValueError(f"dtype {dtype} is not a plain number")
    array = np.frombuffer(content, dtype, offset=stream.tell())
    array = array.reshape(shape, order="F" if by_columns else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


# The vocabulary -----------------------------------------------------------------------------------


def _vocabulary(folder, sizes):
    """Return the subwords of source and target in the order of their ids, and what makes them one.

    sizes: the rows of the two tables. The second result is a function that takes the subwords
    without special tokens, and makes a vocabulary.
    """
    paths, contents, pieces = _vocabulary_files(folder), [], []
    for path, size in zip(paths, sizes, strict=True):
        if ".spm" in path.suffixes:  # Marian can read it itself; its ids are the model's
            contents.append(read_decompressed(path))
            with user_errors(path), in_file(path):  # a subword may be no UTF-8
                one = processor(contents[-1])
                pieces.append(one.id_to_piece(list(range(one.get_piece_size()))))
            formats.check_rows(pieces[-1], size, path)
        else:
            if path.suffix == ".json":
                ids = formats.read_json(path)
            else:
                with user_errors(path):
                    ids = _yaml_pairs(path.read_bytes().decode())
            pieces.append(formats.order_by_id(ids, size, path))
    if contents:
        return pieces, lambda rest: PairedSubwords(*contents, rest, opus=False)
    models = formats.sentencepiece_models(folder)
    return pieces, lambda rest: PairedSubwords(*models, rest)


def _vocabulary_files(folder):
    """Return the vocabulary's file of the source, and of the target: often the same one.

    Of two, decoder.yml, which Marian writes beside each model, says which is which, or else their
    names, which begin with src and trg, like those of Firefox's models.
    """
    for path in sorted(folder.glob("*decoder.yml")):
        text = path.read_text("utf-8", errors="replace")
        listed = dict(_SETTING.findall(text)).get("vocabs", "").split("\n")
        named = [folder / Path(line.strip(" -\"'\r")).name for line in listed if line.strip()]
        if len(named) == 2 and all(each.is_file() for each in named):
            return named
    files = [*sorted(folder.glob("*vocab.yml")), *sorted(folder.glob("vocab.json"))]
    files = files or files_of(folder, ".spm")
    if len(files) == 2 and [path.name[:3] for path in files] == ["src", "trg"]:
        return files
    if len(files) != 1:
        raise UserError(
            f"{folder} has {len(files)} vocabularies, not one, nor srcvocab.* and trgvocab.*: copy "
            "the model's, and its decoder.yml"
        )
    return files * 2


def _yaml_pairs(text):
    """Return {subword: id} of the lines `subword: id` and of pairs `? subword`, `: id`.

    PyYAML's safe_load would lose some: of the keys `yes`, `true` and `1` it makes one.
    """
    entries = _ENTRY.finditer(text.replace("\r\n", "\n"))
    return {_scalar(entry[1] or entry[2]): int(entry[3]) for entry in entries}


_ENTRY = re.compile(r"^(?:\? (.*)\n:|(.*):) *([0-9]+)$", re.MULTILINE)
_ESCAPES = {"0": "\0", "a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f"}
_ESCAPES |= {"r": "\r", "e": "\x1b", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029"}
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")


def _scalar(text):
    """Return the text of a YAML scalar: plain, or in single or double quotes."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return _ESCAPE.sub(_unescape, text[1:-1])
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("''", "'")
    return text


def _unescape(match):
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else _ESCAPES.get(match[4], match[4])
