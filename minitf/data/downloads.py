"""The downloads behind the named corpora, and how the files of a corpus are made from them.

A folder gets the files that a person would put there by hand: one sentence a line, `train.en`
beside `train.de`, the texts of a corpus one after the other. The downloads are kept in the folder
`downloads` beside it.
"""

import contextlib
import gzip
import hashlib
import posixpath
import re
import shutil
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import unescape

from minitf.atomic import atomic_folder
from minitf.cli import amount
from minitf.data import read_table
from minitf.data.fetch import NoConnection, Remote, fetch
from minitf.errors import UserError

_TEXTS = {  # the training texts of a language inside its archives, in their order
    "de": (
        "training/europarl-v7.de-en.{}",
        "commoncrawl.de-en.{}",
        "training/news-commentary-v9.de-en.{}",
    ),
    "fr": (
        "training/europarl-v7.fr-en.{}",
        "commoncrawl.fr-en.{}",
        "un/undoc.2000.fr-en.{}",
        "training/news-commentary-v9.fr-en.{}",
        "giga-fren.release2.fixed.{}.gz",
    ),
}
# The hashes of the validation and test sentences of each corpus of Tatoeba: so everyone who
# downloads a newer collection trains on none of them, and tests on the same.
_HELD_OUT = Path(__file__).parent / "held_out"
_AGAIN = "delete it, and it will be downloaded again; if it is your own, copy it again"
_MAX_NAMED = 10  # files; of more, messages name the first and the last
# What Python's readers raise for damage: ValueError for a name in a tar, for example.
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)
_DAMAGE += (ValueError, RuntimeError)


class Download(NamedTuple):
    """How a folder is filled.

    remotes: the files to download (downloads.txt). build: called with the paths of these archives,
    the empty folder to fill, and `say`.
    """

    remotes: list[Remote]
    build: Callable


def make(folders, data, say=print):
    """Download all archives of these folders, then fill the folders; existing files are kept.

    If a server cannot be reached, raises UserError with all missing files and their folder.
    """
    folders = list(dict.fromkeys(folders))
    remotes = [remote for folder in folders for remote in DOWNLOADS[folder].remotes]
    archives = {remote: data / "downloads" / remote.name for remote in remotes}
    missing = [remote for remote, path in archives.items() if not path.exists()]
    if len(missing) > _MAX_NAMED:
        say(f"fetch    {_urls(missing)}, {sum(each.size for each in missing) / 1e6:,.1f} MB")
    try:
        for remote, path in archives.items():
            fetch(remote, path, (lambda line: None) if len(missing) > _MAX_NAMED else say)
    except NoConnection as error:
        missing = [remote for remote, path in archives.items() if not path.exists()]
        raise UserError(
            f"{error}, and {data / folders[0]} is not on this machine: go online and try again, "
            f"set MINITF_DATA to the folder that contains {folders[0]}, or put {_urls(missing)} "
            f"into {data / 'downloads'}"
        ) from None
    for folder in folders:
        with atomic_folder(data / folder) as temporary:
            download = DOWNLOADS[folder]
            download.build([archives[remote] for remote in download.remotes], temporary, say)
        say(f"made     {data / folder}")
    size = sum(path.stat().st_size for path in archives.values()) / 1e9
    say(
        f"notice   {size:.2f} GB in {data / 'downloads'} can be deleted, unless another corpus "
        "needs it"
    )


def _urls(remotes):
    if len(remotes) <= _MAX_NAMED:
        return " ".join(remote.url for remote in remotes)
    return f"{len(remotes)} files, {remotes[0].url} to {remotes[-1].url}"


# How each folder is filled ------------------------------------------------------------------------


def _write_training(language, archives, folder, say):
    """Write the training texts one after the other."""
    for pattern, archive in zip(_TEXTS[language], archives, strict=True):
        names = {pattern.format(side): side for side in ("en", language)}
        with members(archive, names) as files:
            for name, lines in files:
                with open(folder / f"train.{names[name]}", "ab") as file:
                    count = _append(lines, file)
        say(f"read     {archive.name}: {amount(count, 'pair')}")


def _append(source, target):
    """Copy a text, end its last line, and return the number of lines."""
    count, line = 0, b"\n"
    for line in source:
        target.write(line)
        count += 1
    if not line.endswith(b"\n"):
        target.write(b"\n")
    return count


def _newstest2013(archives, folder, say):
    names = {f"dev/newstest2013.{language}": language for language in ("en", "de", "fr")}
    with members(archives[0], names) as files:
        for name, file in files:
            (folder / f"test.{names[name]}").write_bytes(file.read())


def _newstest2014(language, archives, folder, say):
    stem = f"test-full/newstest2014-{language}en"
    names = {f"{stem}-src.en.sgm": "en", f"{stem}-ref.{language}.sgm": language}
    with members(archives[0], names) as files:
        for name, file in files:
            lines = segments(file.read().decode(errors="replace"))
            _write_lines(folder / f"test.{names[name]}", lines)


def segments(sgm):
    """Return the sentences of a WMT test set in SGML, with single spaces, as in sacreBLEU.

    >>> text = '<p>\\n<seg id="1">R&amp;D  is\\nhere.</seg>\\n<seg id="2"> Yes. </seg>\\n</p>'
    >>> segments(f'<doc id="1">{text}</doc>')
    ['R&D is here.', 'Yes.']
    """
    sentences = re.findall(r"<seg\b[^>]*>(.*?)</seg>", sgm, flags=re.DOTALL | re.IGNORECASE)
    return [unescape(" ".join(text.split()), {"&quot;": '"', "&apos;": "'"}) for text in sentences]


def _multi30k(archives, folder, say):
    for archive in archives:
        (folder / archive.stem).write_bytes(gzip.decompress(archive.read_bytes()))


def _tatoeba(language, text, archives, folder, say):
    """Write the sentences of the held-out lists to val and test, and all others to train.

    Other translations of a held-out sentence are left out, on either side: the corpus may be read
    in both directions.
    """
    listed = _held_out(f"tatoeba-en-{language}")
    translations = {translation for _, translation in listed.values()}
    train, held_out = [], {}
    with members(archives[0], [text]) as files:
        _, file = next(files)
        for line in file:
            pair = [field.strip() for field in line.decode(errors="replace").split("\t")[:2]]
            if len(pair) < 2 or not all(pair):
                continue
            sentence, translated = map(sentence_hash, pair)
            if sentence in listed:
                if translated == listed[sentence][1]:
                    held_out.setdefault(sentence, pair)
            elif translated not in translations:
                train.append(pair)
    splits, sizes = {"train": train}, [f"{len(train):,} train"]
    for split, n in Counter(split for split, _ in listed.values()).items():
        of_split = [sentence for sentence in listed if listed[sentence][0] == split]
        splits[split] = [held_out[sentence] for sentence in of_split if sentence in held_out]
        size = len(splits[split])
        if not size:
            raise UserError(
                f"{archives[0]} has none of the {n:,} sentences of {folder.name}/{split}: {_AGAIN}"
            )
        sizes.append(f"{size:,} {split}" + (f" of {n:,}" if size < n else ""))
    for split, pairs in splits.items():
        for i, side in enumerate(("en", language)):
            _write_lines(folder / f"{split}.{side}", [pair[i] for pair in pairs])
    say(f"split    {', '.join(sizes)}: the sentences of val and test are the same for everyone")


def _copy_trees(archives, folder, say):
    for archive in archives:
        shutil.copyfile(archive, folder / archive.name)


def _held_out(corpus):
    """Return {hash of an English sentence: (split, hash of its translation)}, in their order."""
    sentences, split = {}, ""
    for line in (_HELD_OUT / f"{corpus}.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            split = line[1:].strip()
        else:
            sentence, translation = line.split()
            sentences[sentence] = split, translation
    return sentences


def sentence_hash(sentence):
    """Return ten digits that stand for a sentence; capitals and punctuation make no difference.

    >>> sentence_hash("Where is the station?") == sentence_hash("where is the station")
    True
    """
    letters = "".join(filter(str.isalnum, sentence.casefold()))
    return hashlib.sha256(letters.encode()).hexdigest()[:10]


def _write_lines(path, lines):
    Path(path).write_bytes("".join(line + "\n" for line in lines).encode())


# Archives -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def members(path, names):
    """Open an archive in a `with` block: an iterator over (name, file) of the named members.

    Nothing is written, so no name in an archive can become a path.
    They come in the archive's order; each file is read before the next one is asked for.
    path: a tar, tar.gz or zip archive. A member whose name ends in .gz is unpacked.

    Raises UserError, at any moment of the block, for an archive that is damaged or lacks a name.
    """
    missing = set(names)

    def files():
        for name, file in _archive_members(Path(path), set(names)):
            missing.discard(name)
            yield name, gzip.GzipFile(fileobj=file) if name.endswith(".gz") else file
        if missing:
            listed = " and ".join(sorted(missing))
            raise UserError(f"{path} does not contain {listed}: {_AGAIN}")

    try:
        yield files()
    except _DAMAGE as error:
        raise UserError(f"{path} is not a complete archive ({error}): {_AGAIN}") from None


def _archive_members(path, wanted):
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                name = posixpath.normpath(member.filename)
                if name in wanted and not member.is_dir():
                    yield name, archive.open(member)
        return
    with open(path, "rb") as file:
        packed = file.peek(2).startswith(b"\x1f\x8b")
        stream = gzip.GzipFile(fileobj=file) if packed else file
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = posixpath.normpath(member.name)
                if name in wanted and member.isreg():
                    yield name, archive.extractfile(member)
        while stream.read(1 << 18):  # up to the checksum at the end
            pass


# The table of downloads ---------------------------------------------------------------------------


def _downloads():
    """Return {folder: Download}."""
    remotes = {}
    for folder, url, size, digest in read_table(Path(__file__).parent, "downloads.txt"):
        remotes.setdefault(folder, []).append(Remote(url, int(size), digest.strip("-")))
    build = {
        "wmt14-en-de": partial(_write_training, "de"),
        "wmt14-en-fr": partial(_write_training, "fr"),
        "newstest2013": _newstest2013,
        "newstest2014/en-de": partial(_newstest2014, "de"),
        "newstest2014/en-fr": partial(_newstest2014, "fr"),
        "tatoeba-en-de": partial(_tatoeba, "de", "deu.txt"),
        "tatoeba-en-fr": partial(_tatoeba, "fr", "fra.txt"),
        "multi30k": _multi30k,
        "craft/train": _copy_trees,
        "craft/dev": _copy_trees,
    }
    return {folder: Download(remotes[folder], build[folder]) for folder in build}


DOWNLOADS = _downloads()
