"""The downloads behind the named corpora, and how the files of a corpus are made from them.

A folder gets the files that a person would put there by hand: one sentence a line, `train.en`
beside `train.de`, the texts of a corpus one after the other. The downloads are kept in the folder
`downloads` beside it.
"""

import contextlib
import hashlib
import os
import posixpath
import re
import shutil
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import unescape

from minitf.atomic import complete, filling
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

_RAW = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
_MULTI30K_FILES = {  # name without .gz: size in bytes, sha256
    "train.en": (568929, "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f"),
    "train.de": (637044, "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6"),
    "train.fr": (604242, "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c"),
    "val.en": (21650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "val.de": (24681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "val.fr": (23001, "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9"),
    "test_2016_flickr.en": (
        21077,
        "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    ),
    "test_2016_flickr.de": (
        22890,
        "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    ),
    "test_2016_flickr.fr": (
        22310,
        "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    ),
}
MULTI30K = tuple(
    Remote(f"{_RAW}{name}.gz", size, f"sha256:{sha256}")
    for name, (size, sha256) in _MULTI30K_FILES.items()
)
# Release 5 has 30 articles more, which release 4 added; the parser and its scores are of those that
# were there before.
_CRAFT = (
    "https://raw.githubusercontent.com/UCDenver-ccp/CRAFT/v5.0.2/structural-annotation/treebank/"
    "penn/"
)
_CRAFT_FILES = Path(__file__).with_name("craft.txt")
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
_CHUNK = 1 << 20  # bytes
_MANY = 10  # files; of more in one folder, messages name the folder


class Recipe(NamedTuple):
    """How a folder is filled.

    remotes: the files to download. build: called with the archives {remote: path}, the empty folder
    to fill, the data folder, and `say`. reproducible: the files are identical for everyone, so a
    missing one can be added. requires: (folder, its files) that are needed first.
    """

    remotes: tuple
    build: object
    reproducible: bool = True
    requires: tuple = ()


def make(folders, data, say=print):
    """Download all archives of these folders, then fill the folders; existing files are kept.

    If a server cannot be reached, raises UserError with all missing files and their folder.
    """
    wanted = []
    for folder in folders:
        wanted += [*_missing_requirements(folder, data), folder]
    wanted = list(dict.fromkeys(wanted))  # each once
    archives = {
        remote: data / "downloads" / remote.name
        for folder in wanted
        for remote in RECIPES[folder].remotes
    }
    try:
        for remotes in _grouped_by_folder(archives):
            many = len(remotes) > _MANY and not all(archives[each].exists() for each in remotes)
            if many:
                size = sum(remote.size for remote in remotes) / 1e6
                say(f"fetch    {_listed([each.url for each in remotes])}, {size:,.1f} MB")
            for remote in remotes:
                fetch(remote, archives[remote], _quiet if many else say)
    except NoConnection as error:
        missing = _listed([remote.url for remote, path in archives.items() if not path.exists()])
        raise UserError(
            f"{error}, and {data / folders[0]} is not on this machine: go online and try again, "
            f"set MINITF_DATA to the folder that contains {folders[0]}, or put {missing} into "
            f"{data / 'downloads'}"
        ) from None
    for folder in wanted:
        try:
            _fill(folder, archives, data, say)
        except OSError as error:
            raise UserError(
                f"{data / folder} cannot be written ({error.strerror or error}): free some space, "
                "or set MINITF_DATA to another folder"
            ) from None
    if archives:
        size = sum(path.stat().st_size for path in archives.values()) / 1e9
        say(
            f"notice   {size:.2f} GB in {data / 'downloads'} can be deleted, unless another "
            "corpus needs it"
        )


def _missing_requirements(folder, data):
    return [
        each
        for each, names in RECIPES[folder].requires
        if not all((data / each / name).exists() for name in names)
    ]


def _grouped_by_folder(remotes):
    """Return the remote files as lists, each of neighbours in one folder."""
    return [list(group) for _, group in groupby(remotes, lambda each: posixpath.dirname(each.url))]


def _listed(urls):
    """Join URLs to a text; neighbours in one folder share it, with braces as in a shell."""
    parts = []
    for folder, group in groupby(urls, posixpath.dirname):
        names = [posixpath.basename(url) for url in group]
        if len(names) > _MANY:
            parts.append(f"{len(names)} files of {folder}, {names[0]} to {names[-1]}")
        elif len(names) > 1:
            parts.append(f"{folder}/{{{','.join(names)}}}")
        else:
            parts.append(f"{folder}/{names[0]}")
    return " ".join(parts)


def _quiet(line):
    """Say nothing."""


def _fill(folder, archives, data, say):
    with filling(data / folder) as temporary:
        RECIPES[folder].build(archives, temporary, data, say)
        if not complete(
            temporary, data / folder
        ):  # another process was faster, or a file was missing
            for path in temporary.iterdir():
                if not (data / folder / path.name).exists():
                    os.replace(path, data / folder / path.name)
    say(f"made     {data / folder}")


# How each folder is filled ------------------------------------------------------------------------


def _training(texts, languages, archives, folder, data, say):
    """Write the training texts one after the other."""
    with contextlib.ExitStack() as stack:
        files = {
            each: stack.enter_context(open(folder / f"train.{each}", "wb")) for each in languages
        }
        for remote, pattern in texts:
            names = {pattern.format(language): language for language in languages}
            counts = {
                names[name]: _append(file, files[names[name]])
                for name, file in members(archives[remote], names)
            }
            if len(set(counts.values())) > 1:
                lines = " but ".join(
                    f"{counted(n, 'line')} of {language}" for language, n in counts.items()
                )
                raise UserError(
                    f"{archives[remote]} has {lines}: line i of one must translate line "
                    "i of the other"
                )
            say(f"read     {remote.name}: {counted(counts[languages[0]], 'pair')}")


def _append(source, target):
    """Copy a text, end its last line, and return the number of lines."""
    count, last = 0, b"\n"
    while chunk := source.read(_CHUNK):
        target.write(chunk)
        count, last = count + chunk.count(b"\n"), chunk[-1:]
    if last != b"\n":
        target.write(b"\n")
        count += 1
    return count


def _newstest2013(archives, folder, data, say):
    names = {f"dev/newstest2013.{language}": language for language in ("en", "de", "fr")}
    for name, file in members(archives[DEV], names):
        (folder / f"test.{names[name]}").write_bytes(file.read())


def _newstest2014(language, archives, folder, data, say):
    stem = f"test-full/newstest2014-{language}en"
    names = {f"{stem}-src.en.sgm": "en", f"{stem}-ref.{language}.sgm": language}
    for name, file in members(archives[TEST_2014], names):
        _write_lines(folder / f"test.{names[name]}", segments(file.read().decode(errors="replace")))


def segments(sgm):
    """Return the sentences of a WMT test set in SGML, with single spaces, as in sacreBLEU.

    >>> text = '<p>\\n<seg id="1">R&amp;D  is\\nhere.</seg>\\n<seg id="2"> Yes. </seg>\\n</p>'
    >>> segments(f'<doc id="1">{text}</doc>')
    ['R&D is here.', 'Yes.']
    """
    sentences = re.findall(r"<seg\b[^>]*>(.*?)</seg>", sgm, flags=re.DOTALL | re.IGNORECASE)
    return [unescape(" ".join(text.split()), {"&quot;": '"', "&apos;": "'"}) for text in sentences]


def _multi30k(archives, folder, data, say):
    for remote, name in zip(MULTI30K, _MULTI30K_FILES, strict=True):
        for _, file in members(archives[remote], [name]):
            (folder / name).write_bytes(file.read())


def _multi30k_tokenized(archives, folder, data, say):
    """Tokenise with Moses and lowercase, as in the published tokenised form.

    One or two lines in a thousand differ from it.
    """
    try:
        from sacremoses import MosesPunctNormalizer, MosesTokenizer  # lazily: an extra
    except ImportError:
        raise UserError("multi30k-tok needs sacremoses: pip install sacremoses") from None
    for name in _MULTI30K_FILES:
        normalizer, tokenizer = (
            tool(lang=name[-2:]) for tool in (MosesPunctNormalizer, MosesTokenizer)
        )
        lines = (data / "multi30k" / name).read_bytes().decode().removesuffix("\n").split("\n")
        lines = (tokenizer.tokenize(normalizer.normalize(line), return_str=True) for line in lines)
        _write_lines(folder / name, [line.lower() for line in lines])


def _tatoeba(language, archives, folder, data, say):
    """Write the sentences of the held-out lists to val and test, and all others to train.

    Other translations of a held-out sentence are left out, on either side: the corpus may be read
    in both directions.
    """
    remote, name = TATOEBA[language]
    listed = _held_out(f"tatoeba-en-{language}")
    translations = {translation for _, _, translation in listed.values()}
    splits, n_train, sides = {split: {} for split, *_ in listed.values()}, 0, ("en", language)
    with contextlib.ExitStack() as stack:
        train = [stack.enter_context(open(folder / f"train.{side}", "wb")) for side in sides]
        for _, file in members(archives[remote], [name]):
            for line in file:
                pair = [field.strip() for field in line.decode(errors="replace").split("\t")[:2]]
                if len(pair) < 2 or not all(pair):
                    continue
                sentence, translated = map(hashed, pair)
                if sentence in listed:
                    split, number, translation = listed[sentence]
                    if translated == translation:
                        splits[split].setdefault(number, pair)
                    continue
                if translated in translations:
                    continue
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
                f"{remote.name} has none of the {n:,} sentences of {folder.name}/{split}"
            )
        sizes.append(f"{len(pairs):,} {split}" + (f" of {n:,}" if len(pairs) < n else ""))
    say(f"split    {', '.join(sizes)}: the sentences of val and test are the same for everyone")


def _craft(remotes, archives, folder, data, say):
    for remote in remotes:
        shutil.copyfile(archives[remote], folder / remote.name)


def _craft_recipes():
    """Return a recipe for the articles to train on, and one for those to test on."""
    remotes = {}
    for line in _CRAFT_FILES.read_text(encoding="ascii").splitlines():
        if line.startswith("#"):
            files = remotes.setdefault(line[1:].strip(), [])
        else:
            name, size, sha256 = line.split()
            files.append(Remote(_CRAFT + name, int(size), f"sha256:{sha256}"))
    return {
        f"craft/{split}": Recipe(tuple(files), partial(_craft, files))
        for split, files in remotes.items()
    }


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
    "multi30k": Recipe(MULTI30K, _multi30k),
    "multi30k/tok": Recipe((), _multi30k_tokenized, requires=(("multi30k", _MULTI30K_FILES),)),
    "tatoeba-en-de": Recipe((TATOEBA["de"][0],), partial(_tatoeba, "de"), reproducible=False),
    "tatoeba-en-fr": Recipe((TATOEBA["fr"][0],), partial(_tatoeba, "fr"), reproducible=False),
    **_craft_recipes(),
}
