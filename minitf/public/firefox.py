"""Firefox's translators by name: Mozilla's index of them, and the files of one.

The index is {"baseUrl": ADDRESS, "models": {"en-fr": [MODEL, ...], ...}}. A MODEL has an
"architecture", a "releaseStatus", and "files": {KIND: {"path": ...}}. A file lies at ADDRESS/path,
packed by gzip; of the model itself, size and sha256 are given as they are unpacked. Source:
github.com/mozilla/translations, db/updater.py at 4732dc9. No real index has been read yet.
"""

import contextlib
import difflib
import hashlib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from minitf.data.corpora import data_folder
from minitf.data.fetch import NoConnection, NotAllowed, NotFound, Remote, fetch
from minitf.errors import UserError
from minitf.files.arrays import user_errors
from minitf.public.binary import read_decompressed

BUCKET = "https://storage.googleapis.com/moz-fx-translations-data--303e-prod-translations-data"
MIRROR = "MINITF_FIREFOX"  # the environment variable that names a mirror of the bucket
INDEX = "db/models.json"
LICENCE = "MPL-2.0 (https://www.mozilla.org/MPL/2.0/)"
CREDIT = "Mozilla, Firefox Translations (https://github.com/mozilla/translations)"
MODEL = "model.bin.gz"
_NAMES = {  # what the index calls a file, and its name here
    "model": MODEL,
    "vocab": "vocab.spm.gz",
    "srcVocab": "srcvocab.spm.gz",
    "trgVocab": "trgvocab.spm.gz",
    "lexicalShortlist": "lex.bin.gz",
}
_MAX_BYTES = 1 << 30  # bytes of a model; real ones have 17 to 60 million


class FirefoxModel(NamedTuple):
    """A model of the index.

    rank: 3 if Firefox uses it on computers, 2 if only elsewhere, 1 if it is tried out, 0 otherwise.
    size, sha256: of the model, unpacked. files: {name here: address}.
    """

    name: str
    source_language: str
    target_language: str
    rank: int
    size: int
    sha256: str
    files: dict[str, str]


def site(variable: str, default: str) -> str:
    """Return the address that a variable of the environment has, or else a default.

    Raises UserError for what is no address.
    """
    base = (os.environ.get(variable) or default).rstrip("/")
    if not base.startswith(("https://", "http://")):
        raise UserError(f"{variable} is {base!r}: begin the address of a mirror with https://")
    return base


def firefox_models(say: Callable[[str], object] = print) -> dict[str, FirefoxModel]:
    """Return {name: model} of Mozilla's index, which is downloaded.

    A model's own name ends in its architecture, such as firefox-en-fr-tiny. The best of a pair is
    also there as firefox-en-fr: the one of the highest rank; of several, the largest.
    Raises UserError for a damaged index, NoConnection if it cannot be reached.
    """
    mirror = site(MIRROR, BUCKET)
    address = f"{mirror}/{INDEX}"
    # In a pipe between two languages, two processes read the index at once.
    path = data_folder() / "downloads" / "public" / f"models-{os.getpid()}.json"
    try:
        fetch(Remote(address), path, say)
        with user_errors(address):
            index = json.loads(read_decompressed(path))
            base = index["baseUrl"].rstrip("/") if mirror == BUCKET else mirror
            if mirror == BUCKET and not base.startswith("https://"):
                raise ValueError("its files are not at https://")
            pairs = index["models"].items()
    except (NotFound, NotAllowed):
        raise UserError(
            f"Mozilla's list of models is no longer at {address}: download a model's files "
            "yourself, and convert them: python -m minitf public FOLDER OUT"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
    by_name = {}
    for pair, entries in pairs:
        models = []
        for entry in entries if isinstance(entries, list) else ():
            # Skip an entry that lacks something: the others can be used.
            with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                models.append(_model(pair, entry, base))
        models.sort(key=lambda model: (model.rank, model.size), reverse=True)
        by_name |= {f"firefox-{pair}": model for model in models[:1]}
        by_name |= {model.name: model for model in models}
    if not by_name:
        raise UserError(f"{address}: it has no model that can be used: try again later")
    return by_name


def _model(pair, entry, base):
    """Return the FirefoxModel of an entry. Raises an error if something is missing or absurd."""
    name = f"firefox-{pair}-{entry['architecture']}"
    files = {kind: file for kind, file in entry["files"].items() if kind in _NAMES}
    size, sha256 = files["model"]["uncompressedSize"], files["model"]["uncompressedHash"].lower()
    complete = "vocab" in files or {"srcVocab", "trgVocab"} <= files.keys()
    named = re.fullmatch(r"[\w-]+", name, re.ASCII) and re.fullmatch("[0-9a-f]{64}", sha256)
    if not (complete and named and isinstance(size, int) and 0 < size <= _MAX_BYTES):
        raise ValueError(name)
    addresses = {
        _NAMES[kind]: quote(f"{base}/{file['path']}", safe="/:%") for kind, file in files.items()
    }
    status = str(entry.get("releaseStatus") or "")
    on_computers = status in ("Release", "Release Desktop")
    rank = 3 if on_computers else 2 if status.startswith("Release") else int(bool(status))
    return FirefoxModel(name, *pair.split("-", 1), rank, size, sha256, addresses)


def download_firefox(name: str, say: Callable[[str], object] = print) -> tuple[Path, dict]:
    """Return the folder with a model's files, and notes for its card; download what is missing.

    Licence and size are said first; a damaged file is deleted. Raises UserError for all failures.
    """
    try:
        models = firefox_models(say)
        if name not in models:
            near = ", ".join(difflib.get_close_matches(name, models, 3))
            raise UserError(
                f"Mozilla's list has no {name}{near and f'; it has {near}'}: translate.py "
                "--list-models lists all"
            )
        model = models[name]
        say(f"model    {model.name}: {model.size / 1e6:,.0f} MB, unpacked; licence: {LICENCE}")
        if model.rank < 2:
            say("notice   Firefox has not released this model")
        folder = data_folder() / "downloads" / "public" / f"{model.name}-{model.sha256[:8]}"
        for file, address in model.files.items():
            fetch(Remote(address), folder / file, say)
            _check_file(folder / file, address, model.sha256 if file == MODEL else "")
    except NoConnection as error:
        raise UserError(
            f"{error}, and {name} is not complete on this machine: go online; or set {MIRROR} to "
            "the address of a mirror; or convert its files: python -m minitf public FOLDER OUT"
        ) from None
    notes = {side: getattr(model, side) for side in ("source_language", "target_language")}
    return folder, notes | {"source": model.files[MODEL], "licence": LICENCE, "credit": CREDIT}


def _check_file(path, address, sha256):
    """Delete a file that cannot be unpacked, or has another digest. Raises UserError."""
    try:
        digest = hashlib.sha256(read_decompressed(path)).hexdigest()
        reason = f"sha256 {digest}, not {sha256}" if sha256 not in ("", digest) else ""
    except UserError as error:
        reason = error.__cause__ or error
    if reason:
        path.unlink(missing_ok=True)
        raise UserError(
            f"{address} is not the published file ({reason}): it was deleted here; try again later"
        )
