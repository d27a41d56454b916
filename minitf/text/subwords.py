"""Text to ids of subwords and back, by byte-pair encoding (section 5.1 of the paper)."""

import io
import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

from minitf.errors import UserError, in_file
from minitf.text.normalise import normalise
from minitf.text.protected import PLACEHOLDERS
from minitf.text.vocabulary import (
    BOS,
    EOS,
    PAD,
    SPACE_SYMBOL,
    SPECIALS,
    UNK,
    Vocabulary,
    Words,
    processor,
    read_bytes,
    valid_unicode,
)

MAX_LINE_BYTES = 100_000  # bytes; SentencePiece learns nothing from longer lines
TRAINING_LINES = 2_000_000  # lines; more cost time and memory, and change no subword
MIN_FOR_THREADS = 200  # lines, which take as long as starting SentencePiece's threads
_ASCII_BYTE = re.compile("^<0x((?!7F)[2-7][0-9A-F])>$")
_LANGUAGE = re.compile(r"\s*(>>[^<>\s]+<<)\s*")
# The last entry looks like a mistake, but the models have learned it.
_REPLACED = str.maketrans(
    dict(zip("，、∶：；？！（）《》「」", ',,::;?!()""""', strict=True))
    | dict(zip("”“’～━〈〉【】％", '""\'~-<>[]%', strict=True))
    | dict(zip("０２３４５６７８９", "023456789", strict=True))
    | {"…": "...", "１": '"'}
)
_STOP = re.compile("[。．] *")
_UNUSUAL = re.compile("[^ -~]")
_SPACES = re.compile("  +")


class Subwords(Vocabulary):
    """One vocabulary of subwords for all languages, by SentencePiece's byte-pair encoding.

    Text is normalised before anything is learned or encoded, so that a pasted line has the ids of a
    typed one: `decode(encode(lines))` are the normalised lines (see `normalise`), with a space for
    U+2581, SentencePiece's symbol for one. Unknown characters are spelled in bytes.
    Source: Sennrich et al. 2016; Kudo and Richardson 2018.

    >>> subwords = Subwords.train(["the cat sat", "the hat"], 280, log=lambda notice: None)
    >>> subwords.decode(subwords.encode(["\u200bthe\u00a0cat \N{CAT FACE}", ""]))
    ['the cat \N{CAT FACE}', '']
    """

    file_name = "subwords.model"

    def __init__(self, model: bytes):
        """Read the content of a SentencePiece file.

        Raises UserError for a file that minitf did not write.
        """
        self.model = model
        try:
            self._processor = processor(model)
            names = self._processor.id_to_piece(list(range(self._processor.get_piece_size())))
        except (UserError, IndexError, UnicodeDecodeError):  # the last: a piece is no UTF-8
            names = []
        if names[: len(SPECIALS)] != list(SPECIALS) or "<0x00>" not in names:
            raise UserError(
                "not a SentencePiece model with <pad> <unk> <s> </s> as ids 0 to 3 and bytes for "
                "unknown characters: copy the file again"
            )
        super().__init__(names[len(SPECIALS) :])

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        vocabulary_size: int,
        log: Callable[[str], object] = print,
        symbols: Iterable[str] = (),
    ) -> "Subwords":
        """Learn subwords from lines of all languages; the same lines give the same subwords.

        symbols: words that each become one subword, after a space or at the start of a line.
        If the text contains a placeholder, all `PLACEHOLDERS` become subwords as well.

        From two million lines on every second line is used, from four million every third, and so
        on: 37,000 subwords from two million lines of 220 characters need 1.9 GB of memory. Input
        that has a length and can be iterated repeatedly is not copied into memory. If the text is
        too small for the size, a smaller size is used, and logged.
        Raises UserError if there is no text, or if the size is too small for its characters.
        """
        lines = lines if hasattr(lines, "__len__") else list(lines)
        # SentencePiece's own sampling may differ between runs.
        stride = len(lines) // TRAINING_LINES + 1

        def sample():  # called for each reading: SentencePiece makes a copy
            return map(normalise, islice(lines, 0, None, stride))

        if not any(line.strip() for line in sample()):
            raise UserError(
                "no text to learn subwords from: the training lines are empty: give one sentence "
                "per line"
            )
        symbols = [SPACE_SYMBOL + symbol for symbol in symbols]
        if any(each in line for line in sample() for each in PLACEHOLDERS):
            symbols += [before + each for each in PLACEHOLDERS for before in ("", SPACE_SYMBOL)]
        try:
            return cls(_train_bpe(sample(), vocabulary_size, symbols))
        except RuntimeError as error:
            smaller = re.search(r"value <= (\d+)", str(error))
            larger = re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error))
        if smaller:
            log(
                f"notice   this text yields only {smaller[1]} subwords, not {vocabulary_size}; "
                f"{smaller[1]} are used"
            )
            return cls(_train_bpe(sample(), int(smaller[1]), symbols))
        if larger:
            raise UserError(
                f"a vocabulary of {vocabulary_size} is too small for this text: choose a "
                f"--vocabulary-size of at least {larger[1]}"
            )
        raise UserError(
            f"cannot learn a vocabulary of {vocabulary_size} from this text: try another "
            "--vocabulary-size"
        )

    @classmethod
    def load(cls, path: str | Path) -> "Subwords":
        """Return the subwords in a file. Raises UserError for a missing or damaged file."""
        with in_file(path):
            return cls(read_bytes(path))

    def contents(self) -> dict[str, bytes]:
        """Return the content of the vocabulary's only file, by its name."""
        return {self.file_name: self.model}

    def encode(self, lines: Iterable[str], side: str = "source") -> list[list[int]]:
        """Return the ids of each line, without special ids; every string can be encoded.

        side: not used, as both languages have the same subwords.
        """
        return _encode(self._processor, [normalise(line) for line in lines])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Return the subword of each id, as `Vocabulary.pieces`; a byte as its ASCII character."""
        names = super().pieces(ids)
        return [_ASCII_BYTE.sub(lambda byte: chr(int(byte[1], 16)), name) for name in names]

    def _text(self, ids, side):
        return self._processor.decode(ids)


class PairedSubwords(Vocabulary):
    """Subwords of a source language and of a target language, in one list that gives the ids.

    Public models have them: `source.spm` or `target.spm` splits the text, and a subword's id is its
    place in the list. A subword that is not in the list is UNK.

    source, target: the content of both SentencePiece files. pieces: the subwords with the ids
    4, 5, ... opus: whether lines are normalised as in `normalise_opus` first.
    Raises UserError for a damaged file, and if a subword repeats.
    """

    file_name = "vocabulary.json"
    source_name = "source.spm"
    target_name = "target.spm"

    def __init__(self, source: bytes, target: bytes, pieces: Iterable[str], opus: bool = True):
        self._models = {"source": source, "target": target}
        self._processors = {}
        for side, model in self._models.items():
            with in_file(self.source_name if side == "source" else self.target_name):
                self._processors[side] = processor(model)
        self.opus = opus
        super().__init__(pieces)
        self._ids = {piece: i for i, piece in enumerate(self.names) if i >= len(SPECIALS)}
        if len(self._ids) != len(self.names) - len(SPECIALS):
            raise UserError("a subword of the list repeats: copy the file again")

    @classmethod
    def load(cls, path: str | Path) -> "PairedSubwords":
        """Return the subwords of a list and of the two files next to it. Raises UserError."""
        path, contents = Path(path), {}
        for name in (cls.file_name, cls.source_name, cls.target_name):
            with in_file(path.with_name(name)):
                contents[name] = read_bytes(path.with_name(name))
        with in_file(path):
            try:
                settings = json.loads(contents[cls.file_name])
                pieces, kind = settings["pieces"], settings["normalise"]
                if kind not in ("opus", "none") or not all(type(piece) is str for piece in pieces):
                    raise ValueError
            except (ValueError, KeyError, TypeError, RecursionError):
                raise UserError("not a list of subwords: copy the file again") from None
            models = contents[cls.source_name], contents[cls.target_name]
            return cls(*models, pieces, kind == "opus")

    def contents(self) -> dict[str, bytes]:
        """Return the content of each file, by name."""
        head = {"normalise": "opus" if self.opus else "none"}
        text = json.dumps(
            head | {"pieces": self.names[len(SPECIALS) :]}, ensure_ascii=False, indent=0
        )
        return {
            self.file_name: (text + "\n").encode(errors="replace"),
            self.source_name: self._models["source"],
            self.target_name: self._models["target"],
        }

    def languages(self) -> list[str]:
        """Return the tokens, such as `>>deu<<`, that tell the model its target language."""
        return [piece for piece in self._ids if _LANGUAGE.fullmatch(piece)]

    def encode(self, lines: Iterable[str], side: str = "source") -> list[list[int]]:
        """Return the ids of each line, without special ids; every string can be encoded.

        A `>>deu<<` at the beginning of a source line is one token. side: the language of the lines,
        source or target.
        """
        tokens, rests = [], []
        for line in map(valid_unicode, lines):
            ids, rest = self.split_language(line) if side == "source" else ([], line)
            tokens.append(ids)
            rests.append(normalise_opus(rest) if self.opus else rest)
        split = _encode(self._processors[side], rests, out_type=str)
        return [
            ids + [self._ids.get(piece, UNK) for piece in pieces]
            for ids, pieces in zip(tokens, split, strict=True)
        ]

    def language_of(self, line: str) -> str:
        """Return the `>>deu<<` that begins a line, known or not; "" if there is none."""
        match = _LANGUAGE.match(line)
        return match[1] if match else ""

    def split_language(self, line: str) -> tuple[list[int], str]:
        """Return the ids of the `>>deu<<` that begins a line, and the rest of the line."""
        match = _LANGUAGE.match(line)
        if not match or match[1] not in self._ids:
            return [], line
        return [self._ids[match[1]]], line[match.end() :]

    def _text(self, ids, side):
        # A subword that only the other side's model knows comes back as it is, with its U+2581.
        text = self._processors[side].decode([self.names[i] for i in ids])
        return text.replace("\u2581", " ").strip(" ")


def _encode(one, lines, **options):
    """Encode lines by SentencePiece; a few of them without starting its threads."""
    if len(lines) < MIN_FOR_THREADS:
        return [one.encode(line, **options) for line in lines]
    return one.encode(lines, num_threads=-1, **options)


def normalise_opus(line: str) -> str:
    """Return a line as OPUS-MT's models were trained: punctuation as ASCII, and single spaces.

    Control characters and invisible ones become spaces.
    Source: OPUS-MT-train, scripts/preprocess-spm.sh.

    >>> normalise_opus("“Good…”　he  said。Then，")
    '"Good..."　he said. Then,'
    """
    line = _STOP.sub(". ", line).translate(_REPLACED)
    return _SPACES.sub(" ", _UNUSUAL.sub(_space_if_invisible, line)).strip(" ")


def _space_if_invisible(match):
    return " " if unicodedata.category(match[0]) in ("Cc", "Cf", "Co", "Cs") else match[0]


def load_subwords(folder: str | Path) -> Vocabulary:
    """Return the vocabulary in a model's folder. Raises UserError if there is none."""
    for kind in (Subwords, Words, PairedSubwords):
        path = Path(folder) / kind.file_name
        if path.exists():
            return kind.load(path)
    raise UserError(f"{folder} has no vocabulary: name the folder of a trained model")


def _train_bpe(lines, vocabulary_size, symbols):
    import sentencepiece  # here: `import minitf` need not wait for it

    sentencepiece.set_min_log_level(3)  # its errors reach the user as one line of ours
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines,
        model_writer=model,
        model_type="bpe",
        vocab_size=vocabulary_size,
        # SentencePiece's own 0.9995 spells in bytes what is rare in a text: its digits, or Ä, Ö, Ü.
        character_coverage=0.99999,
        byte_fallback=True,
        max_sentence_length=MAX_LINE_BYTES,
        split_digits=True,
        user_defined_symbols=symbols,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
    )
    return model.getvalue()
