"""The Parser: sentences in, a tree over exactly their words out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Self

from minitf.errors import UserError
from minitf.parsing.brackets import Brackets
from minitf.text import EOS, Subwords
from minitf.text.trees import ROOT, WITH_WORDS, WORD, Tree, delinearise, escape_bracket, is_bracket
from minitf.text.vocabulary import printable, valid_unicode
from minitf.transformer import Transformer
from minitf.translation import Search, Translator
from minitf.translation.loading import load_model

BEAM, ALPHA, MAX_EXTRA = 21, 0.3, 300  # section 6.3
# Words of a part. On 132 long sentences that the bundled model has not learned from, F1 was 61.2 in
# parts of at most 60 words, and 37.6 in one piece (examples/models/parse-en/README.md).
_MOST_WORDS = 60
# Punctuation after which a sentence is split, the best first. Without colon and comma: 58.4.
_SPLIT_AFTER = {".", "?", "!", ";"}, {":"}, {","}
_MAX_CHARACTERS = 60  # of a word that the model reads


class Parser:
    """A model that writes trees, and its subwords.

    with_words: the model writes the words themselves into its trees, and not XX (`linearise`).
    Raises UserError for the subwords of another model, and for learned positions.
    """

    def __init__(self, model: Transformer, subwords: Subwords, with_words: bool = False):
        if model.config.positions == "learned":  # it would translate the beginning of a long line
            raise UserError("a parser needs positions of any length: train it with sinusoids")
        self._translator = Translator(
            model, subwords, max_subwords=10**9, max_unsplit=10**9, as_text=False
        )
        self.with_words = with_words
        self._allowed([])  # refuses another model

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a model's folder. Raises UserError with one line that says what to do."""
        model, subwords, notes = load_model(folder)
        return cls(model, subwords, notes.get("target_language") == WITH_WORDS)

    def parse(
        self,
        sentences: Iterable[list[str]],
        beam: int = BEAM,
        alpha: float = ALPHA,
        max_extra: int = MAX_EXTRA,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[Tree]:
        """Return the tree of each sentence, a list of words; of no words, the empty list.

        The tree is the one with the best score, ln P over the length penalty, that the beam finds
        among all trees over these words. A sentence of more than 60 words is parsed in parts,
        which are joined by the label ROOT.
        max_extra: at least 3, for two brackets and the end mark. progress: called with the number
        of parts done and of all parts.
        Raises ValueError for a word that is empty or contains a space, TypeError for a text in
        place of a list of words.
        """
        sentences = list(sentences)
        if any(isinstance(words, str) for words in sentences):
            raise TypeError(
                "parse() takes a list of sentences, each a list of words: "
                "minitf.parsing.words.tokenise makes one of a text"
            )
        for word in chain.from_iterable(sentences):
            if word.split() != [word]:
                raise ValueError(f"a word needs characters, and no spaces: {word!r}")
        parts = [_parts(words) for words in sentences]
        lines = [" ".join(map(self._readable, part)) for sentence in parts for part in sentence]
        translations = self._translator.translate(
            lines,
            Search(beam, alpha, max_extra, wellformed=False),
            progress=progress,
            allowed=self._allowed,
        )
        hypotheses = iter(translations)
        trees = [[_tree(next(hypotheses)[0].text, part) for part in these] for these in parts]
        return list(map(_under_one_root, trees))

    def _allowed(self, lines):
        """Return what may be written for these lines: the pieces of their words, or of XX."""
        subwords = self._translator.subwords
        sentences = [line.split() for line in lines]
        if not self.with_words:
            sentences = [[WORD] * len(words) for words in sentences]
        return Brackets(subwords, list(map(subwords.encode, sentences)), EOS)

    def _readable(self, word):
        """Return the characters of a word that the model reads: at least one, at most 60."""
        word = "".join(printable(valid_unicode(word[:_MAX_CHARACTERS])).split()) or "?"
        if not self.with_words:
            return word
        subwords = self._translator.subwords
        (normalised,) = subwords.decode(subwords.encode([word]))  # which may contain a space
        return escape_bracket("".join(normalised.split()) or "?")


def _parts(words):
    """Split a long sentence, each part after the best punctuation in its second half, if any."""
    parts = []
    while len(words) > _MOST_WORDS:
        half = range(_MOST_WORDS // 2, _MOST_WORDS)
        ends = (max((i for i in half if words[i] in signs), default=None) for signs in _SPLIT_AFTER)
        split = next((end + 1 for end in ends if end is not None), _MOST_WORDS)
        parts.append(words[:split])
        words = words[split:]
    return [*parts, words] if words else parts


def _tree(text, words):
    tokens = text.split()
    return delinearise([token if is_bracket(token) else WORD for token in tokens], words)


def _under_one_root(trees):
    if len(trees) < 2:
        return trees[0] if trees else []
    return [f"({ROOT}", *(item for tree in trees for item in tree), f"){ROOT}"]
