"""From a public model's files to an ordinary folder of minitf."""

import functools
import re
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from minitf.atomic import check_empty, save_text
from minitf.errors import UserError
from minitf.files.arrays import exists, user_errors
from minitf.files.models import CONFIG, read_shortlist, save_model, to_stored, with_scales
from minitf.public.binary import files_of, is_binary
from minitf.public.formats import PublicModel, languages_of_name, read_json, take_rows
from minitf.public.hugging_face import read_hugging_face
from minitf.public.marian import read_marian
from minitf.text import PairedSubwords
from minitf.transformer import Transformer
from minitf.translation import Translator
from minitf.translation.languages import some_of
from minitf.translation.loading import load_model, probe
from minitf.translation.placeholders import copied_placeholders

# Subwords: a longer line is rare in the text that the models were trained on. A shorter one stays
# as it is, because the ends of sentences are known in few languages. Web pages have capitals, too.
LINES = {"max_subwords": 200, "max_unsplit": 200, "reads_capitals": True}
_NEEDED = re.compile(r"[^/\\]+\.(npz|yml|spm)|LICENSE|README\.md")  # in a release's zip
_CARD = """\
# {source}

A translation model, converted to minitf's format.

    python examples/translate.py --model FOLDER "..."

- source: {source}
- licence: {licence}
- credit: {credit}
- changes: the rows of the table are in another order; the numbers are stored as {dtype}
- computed like: {computed_like}
"""
CREDIT = (
    "Tiedemann and Thottingal, OPUS-MT: Building open translation services for the World, EAMT "
    "2020; Tiedemann et al., Democratizing neural machine translation with OPUS-MT, 2023"
)
_OPUS = re.compile("opus|helsinki-nlp|tatoeba", re.IGNORECASE)
UNKNOWN = "unknown: see where the model comes from"


def import_model(
    source: str | Path,
    out: str | Path,
    dtype: str = "float16",
    like: str = "marian",
    notes: dict | None = None,
    say: Callable[[str], object] = print,
) -> None:
    """Write a public model as a folder that `translate.py --model` and `--start-from` read.

    source: a folder of Hugging Face, a .npz or .bin of Marian or its folder, an OPUS release as
    .zip, or a folder of minitf, of which only the type of the numbers changes.
    dtype: see `to_stored`. like: whose arithmetic to follow, see `read_hugging_face`. notes: for
    config.json, such as source and licence.
    Raises UserError for a damaged file, for another architecture, and if `out` is not empty.
    """
    source, out = Path(source), Path(out)
    check_empty(out)
    if not exists(source):
        raise UserError(f"{source}: no such file or folder, and not the name of a public model")
    is_part = source.name == CONFIG or source.suffix in (".safetensors", ".bin")
    if is_part and source.is_file() and exists(source.parent / CONFIG):
        source = source.parent  # the file stands for its folder
    if exists(source / CONFIG) and "sha256" in read_json(source / CONFIG):  # of minitf
        ours, subwords, known = load_model(source)
        more = {"probe": functools.partial(probe, ours), "shortlist": read_shortlist(source)}
        save_model(out, ours.state(), ours.config.to_dict(), subwords, dtype, known, **more)
        return
    model = read_public(source, like)
    known = {"licence": model.notes["licence"]} if "licence" in model.notes else {}
    notes = {"source": source.resolve().name} | model.notes | (notes or {}) | known
    notes = languages_of_name(str(notes["source"])) | notes
    if "max_subwords" not in notes:  # a model of minitf that comes back has its own
        notes |= LINES
    if _OPUS.search(str(notes["source"])):
        notes.setdefault("credit", CREDIT)
    notes["computed_like"] = like
    arrays = _weights_to_store(model, dtype)
    network = Transformer(model.config, initialise=False).load_state(with_scales(arrays))
    numbers = probe(network)
    if numbers is None:
        raise UserError("the model's logits are NaN or infinite: copy its weights again")
    limits = {name: notes.get(name) for name in LINES}
    translator = Translator(network, model.subwords, **limits, placeholders=[])
    notes["placeholders"] = copied_placeholders(translator, str(notes.get("source_language", "")))
    config, more = model.config.to_dict(), {"notes": notes, "shortlist": model.shortlist}
    save_model(out, arrays, config, model.subwords, dtype=None, probe=lambda _: numbers, **more)
    notices = list(model.notices)
    if isinstance(model.subwords, PairedSubwords) and (tokens := model.subwords.languages()):
        tokens = some_of(tokens)
        notices.append(
            f"begin each line with the token of the language to translate into: {tokens}"
        )
    said = {"licence": UNKNOWN, "credit": UNKNOWN} | notes
    card = _CARD.format(dtype=dtype, **said)
    save_text(out / "README.md", card + "".join(f"- notice: {line}\n" for line in notices))
    say(f"weights  {model.config.count_parameters():,} parameters as {dtype}")
    say(f"licence  {said['licence']}; credit: {said['credit']}")
    if model.shortlist:
        say("shortlist of likely subwords: translate.py --shortlist is faster with it")
    for line in notices:
        say(f"notice   {line}")


def read_public(source: Path, like: str) -> PublicModel:
    """Return the model in a folder or file. Raises UserError if it is of no known format.

    A new format is one more reader, in a file of its own, and a line here. The reader refuses what
    minitf cannot run, makes a Config with `formats.config_of`, takes each array out of the file by
    its name with `names.arrays_of_model`, and returns a PublicModel; everything else is common.
    """
    if exists(source / CONFIG):
        return read_hugging_face(source, like)
    if source.is_dir():
        return read_marian(_weights_of_marian(source), like)
    if source.suffix == ".npz" or is_binary(source):
        return read_marian(source, like)
    if source.suffix == ".zip":
        return _read_release(source, like)
    raise UserError(
        f"{source}: not a public model: give a folder with {CONFIG}, a .npz or .bin of Marian, or "
        "a release's .zip"
    )


def _read_release(path, like):
    """Read an OPUS release: Marian's files in a zip."""
    with tempfile.TemporaryDirectory() as folder:
        with user_errors(path), zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if _NEEDED.fullmatch(name)]
            archive.extractall(folder, names)
        try:
            return read_marian(_weights_of_marian(Path(folder)), like)
        except UserError as error:  # the folder is gone when the message is read
            raise UserError(str(error).replace(folder, str(path))) from None


def _weights_of_marian(folder):
    """Return the only .npz of a folder, or else its only .bin that is no lexical shortlist.

    Marian's trainer leaves the averages of its optimizer beside the model.
    """
    files = [x for x in sorted(folder.glob("*.npz")) if not x.name.endswith(".optimizer.npz")]
    files = files or [x for x in files_of(folder, ".bin") if not x.name.startswith("lex")]
    if len(files) != 1:
        raise UserError(
            f"{folder} has no {CONFIG}, and {len(files)} .npz or .bin files: name the one file"
        )
    return files[0]


def _weights_to_store(model, dtype):
    """Return the arrays as they are stored, the table's rows in the order of minitf's ids.

    Each array of the file is released as soon as it is copied, which halves the memory.
    """
    arrays = {}
    for name in list(model.arrays):
        array = model.arrays.pop(name)
        if name in ("embedding.weight", "output_bias"):
            array = take_rows(array, model.rows)
        arrays |= to_stored(dtype, name, np.ascontiguousarray(array))
    return arrays
