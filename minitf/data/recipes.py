"""The downloads behind the named corpora, and how the files of a corpus are made from them.

A folder gets the files that a person would put there by hand: one sentence a line, `train.en`
beside `train.de`, the texts of a corpus one after the other. The downloads are kept in the folder
`downloads` beside it.
"""

import contextlib
import gzip
import hashlib
import re
import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import unescape

from minitf.atomic import filling, writing
from minitf.cli import counted
from minitf.data.archives import members
from minitf.data.fetch import NoConnection, Remote, fetch
from minitf.errors import UserError

__all__ = ["RECIPES", "make", "segments"]

_STATMT = "http://www.statmt.org/"
EUROPARL = Remote(
    _STATMT + "wmt13/training-parallel-europarl-v7.tgz",
    657632379,
    "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
COMMON_CRAWL = Remote(
    _STATMT + "wmt13/training-parallel-commoncrawl.tgz",
    918311367,
    "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
NEWS_COMMENTARY = Remote(
    _STATMT + "wmt14/training-parallel-nc-v9.tgz",
    80418416,
    "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
UNITED_NATIONS = Remote("https://www.statmt.org/wmt13/training-parallel-un.tgz")
GIGA = Remote("https://www.statmt.org/wmt10/training-giga-fren.tar", 2595102720)
DEV = Remote(
    "http://data.statmt.org/wmt19/translation-task/dev.tgz",
    38654961,
    "sha256:7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7",
)
# The digest is the one in sacreBLEU.
TEST_2014 = Remote(_STATMT + "wmt14/test-full.tgz", 0, "md5:a8cd784e006feb32ac6f3d9ec7eb389a")

TATOEBA = {  # made again from time to time, so no checksum is published
    "de": (Remote("https://www.manythings.org/anki/deu-eng.zip"), "deu.txt"),
    "fr": (Remote("https://www.manythings.org/anki/fra-eng.zip"), "fra.txt"),
}
TEXTS = {  # the training texts of a language, and their names inside the archive
    "de": (
        (EUROPARL, "training/europarl-v7.de-en.{}"),
        (COMMON_CRAWL, "commoncrawl.de-en.{}"),
        (NEWS_COMMENTARY, "training/news-commentary-v9.de-en.{}"),
    ),
    "fr": (
        (EUROPARL, "training/europarl-v7.fr-en.{}"),
        (COMMON_CRAWL, "commoncrawl.fr-en.{}"),
        (UNITED_NATIONS, "un/undoc.2000.fr-en.{}"),
        (NEWS_COMMENTARY, "training/news-commentary-v9.fr-en.{}"),
        (GIGA, "giga-fren.release2.fixed.{}.gz"),
    ),
}
# For each corpus of Tatoeba, the sentences of its validation and test text, as hashes. So everyone
# who downloads a newer collection trains on none of them, and tests on the same.
_HELD_OUT = Path(__file__).parent / "held_out"
# Folders of many files: a line "# FOLDER URL", and a line for each file: name, bytes, sha256.
# Of CRAFT, release 5 has 30 articles more, which release 4 added; the parser and its scores are of
# those that were there before.
_FILES = Path(__file__).with_name("downloads.txt")
_MANY = 10  # files; of more, messages name the first and the last


class Recipe(NamedTuple):
    """How a folder is filled.

    remotes: the files to download. build: called with the paths of these archives, the empty folder
    to fill, and `say`. reproducible: the files are identical for everyone, so a missing one can be
    added.
    """

    remotes: tuple
    build: object
    reproducible: bool = True


def make(folders, data, say=print):
    """Download all archives of these folders, then fill the folders; existing files are kept.

    If a server cannot be reached, raises UserError with all missing files and their folder.
    """
    folders = list(dict.fromkeys(folders))
    remotes = [remote for folder in folders for remote in RECIPES[folder].remotes]
    archives = {remote: data / "downloads" / remote.name for remote in remotes}
    missing = [remote for remote, path in archives.items() if not path.exists()]
    if len(missing) > _MANY:
        say(f"fetch    {_listed(missing)}, {sum(each.size for each in missing) / 1e6:,.1f} MB")
    try:
        for remote, path in archives.items():
            fetch(remote, path, (lambda line: None) if len(missing) > _MANY else say)
    except NoConnection as error:
        missing = [remote for remote, path in archives.items() if not path.exists()]
        raise UserError(
            f"{error}, and {data / folders[0]} is not on this machine: go online and try again, "
            f"set MINITF_DATA to the folder that contains {folders[0]}, or put {_listed(missing)} "
            f"into {data / 'downloads'}"
        ) from None
    for folder in folders:
        with writing(data / folder), filling(data / folder) as temporary:
            recipe = RECIPES[folder]
            recipe.build([archives[remote] for remote in recipe.remotes], temporary, say)
        say(f"made     {data / folder}")
    size = sum(path.stat().st_size for path in archives.values()) / 1e9
    say(
        f"notice   {size:.2f} GB in {data / 'downloads'} can be deleted, unless another corpus "
        "needs it"
    )


def _listed(remotes):
    if len(remotes) <= _MANY:
        return " ".join(remote.url for remote in remotes)
    return f"{len(remotes)} files, {remotes[0].url} to {remotes[-1].url}"


# How each folder is filled ------------------------------------------------------------------------


def _training(texts, languages, archives, folder, say):
    """Write the training texts one after the other."""
    with contextlib.ExitStack() as stack:
        files = {
            each: stack.enter_context(open(folder / f"train.{each}", "wb")) for each in languages
        }
        for (_, pattern), archive in zip(texts, archives, strict=True):
            names = {pattern.format(language): language for language in languages}
            with members(archive, names) as found:
                counts = {names[name]: _append(file, files[names[name]]) for name, file in found}
            if len(set(counts.values())) > 1:
                lines = " but ".join(
                    f"{counted(n, 'line')} of {side}" for side, n in counts.items()
                )
                raise UserError(
                    f"{archive} has {lines}: line i of one must translate line i of the other"
                )
            say(f"read     {archive.name}: {counted(counts[languages[0]], 'pair')}")


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
    with members(archives[0], names) as found:
        for name, file in found:
            (folder / f"test.{names[name]}").write_bytes(file.read())


def _newstest2014(language, archives, folder, say):
    stem = f"test-full/newstest2014-{language}en"
    names = {f"{stem}-src.en.sgm": "en", f"{stem}-ref.{language}.sgm": language}
    with members(archives[0], names) as found:
        for name, file in found:
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


def _tatoeba(language, archives, folder, say):
    """Write the sentences of the held-out lists to val and test, and all others to train.

    Other translations of a held-out sentence are left out, on either side: the corpus may be read
    in both directions.
    """
    listed = _held_out(f"tatoeba-en-{language}")
    translations = {translation for _, _, translation in listed.values()}
    splits, n_train, sides = {split: {} for split, *_ in listed.values()}, 0, ("en", language)
    with contextlib.ExitStack() as stack:
        train = [stack.enter_context(open(folder / f"train.{side}", "wb")) for side in sides]
        _, file = next(stack.enter_context(members(archives[0], [TATOEBA[language][1]])))
        for line in file:
            pair = [field.strip() for field in line.decode(errors="replace").split("\t")[:2]]
            if len(pair) < 2 or not all(pair):
                continue
            sentence, translated = map(hashed, pair)
            if sentence in listed:
                split, number, translation = listed[sentence]
                if translated == translation:
                    splits[split].setdefault(number, pair)
            elif translated not in translations:
                n_train += 1
                for stream, text in zip(train, pair, strict=True):
                    stream.write(text.encode() + b"\n")
    sizes = [f"{n_train:,} train"]
    for split, pairs in splits.items():
        for i, side in enumerate(sides):
            _write_lines(folder / f"{split}.{side}", [pairs[n][i] for n in sorted(pairs)])
        n = sum(name == split for name, *_ in listed.values())
        if not pairs:
            raise UserError(
                f"{archives[0].name} has none of the {n:,} sentences of {folder.name}/{split}"
            )
        sizes.append(f"{len(pairs):,} {split}" + (f" of {n:,}" if len(pairs) < n else ""))
    say(f"split    {', '.join(sizes)}: the sentences of val and test are the same for everyone")


def _craft(archives, folder, say):
    for archive in archives:
        shutil.copyfile(archive, folder / archive.name)


def _remotes():
    """Return {folder: its remote files}, of the folders of many files."""
    remotes = {}
    for line in _FILES.read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            _, folder, url = line.split()
        else:
            name, size, sha256 = line.split()
            remote = Remote(url + name, int(size), f"sha256:{sha256}")
            remotes.setdefault(folder, []).append(remote)
    return remotes


def _held_out(corpus):
    """Return {hash of the English sentence: (split, number, hash of its translation)}."""
    sentences, split = {}, ""
    for line in (_HELD_OUT / f"{corpus}.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            split = line[1:].strip()
        else:
            sentence, translation = line.split()
            sentences[sentence] = split, len(sentences), translation
    return sentences


def hashed(sentence):
    """Return ten digits that stand for a sentence; capitals and punctuation make no difference.

    >>> hashed("Where is the station?") == hashed("where is the station")
    True
    """
    letters = "".join(filter(str.isalnum, sentence.casefold()))
    return hashlib.sha256(letters.encode()).hexdigest()[:10]


def _write_lines(path, lines):
    Path(path).write_bytes("".join(line + "\n" for line in lines).encode())


def _training_recipe(language):
    remotes = tuple(remote for remote, _ in TEXTS[language])
    return Recipe(remotes, partial(_training, TEXTS[language], ("en", language)))


RECIPES = {
    "wmt14-en-de": _training_recipe("de"),
    "wmt14-en-fr": _training_recipe("fr"),
    "newstest2013": Recipe((DEV,), _newstest2013),
    "newstest2014/en-de": Recipe((TEST_2014,), partial(_newstest2014, "de")),
    "newstest2014/en-fr": Recipe((TEST_2014,), partial(_newstest2014, "fr")),
    "tatoeba-en-de": Recipe((TATOEBA["de"][0],), partial(_tatoeba, "de"), reproducible=False),
    "tatoeba-en-fr": Recipe((TATOEBA["fr"][0],), partial(_tatoeba, "fr"), reproducible=False),
    **{
        folder: Recipe(tuple(remotes), _craft if folder.startswith("craft") else _multi30k)
        for folder, remotes in _remotes().items()
    },
}
