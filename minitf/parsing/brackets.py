"""The tokens that may come next in a tree over the words of a sentence."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from minitf.errors import UserError
from minitf.text import Subwords
from minitf.text.vocabulary import SPACE_SYMBOL

# Brackets that open directly one after the other; at most 8 in the 21,000 trees of CRAFT, and at
# most one more than there are words left.
_MOST_OPENINGS = 10
_MORE_THAN_WORDS = 2


class _State(NamedTuple):
    """A text as far as it matters for the next token.

    written: how many pieces of words. open: the ids of the brackets that are not closed. begun:
    whether anything was written. opened: how many brackets opened after the last other token.
    """

    written: int = 0
    open: tuple[int, ...] = ()
    begun: bool = False
    opened: int = 0


class Brackets:
    """Allows a tree over the words of each sentence, and nothing else: `Allowed` of `decode`.

    - The next word may follow while words are left, inside a bracket; in a word, its next piece.
    - A bracket may open while words are left, if the text can then still be completed: each piece
      of a word, each closing bracket and the end mark need a token. At most ten open directly one
      after the other, and around the last word three: so no phrase consists of one phrase that
      consists of one phrase, and so on.
    - The bracket that was opened last may close, unless it is empty. The outermost one closes after
      the last word.
    - The end mark follows the outermost bracket.

    So something is always allowed, and the text ends in time, if at first there are three
    tokens more than pieces of words: two brackets and the end mark.

    subwords: those of a model for trees. sentences: the ids of each word of each sentence, at least
    one. end_id: of the end mark. Raises UserError for the subwords of another model.
    """

    def __init__(
        self, subwords: Subwords, sentences: Sequence[Sequence[Sequence[int]]], end_id: int
    ):
        pieces = subwords.pieces(range(len(subwords)))
        ids = {piece[1:]: i for i, piece in enumerate(pieces) if piece[0] == SPACE_SYMBOL}
        opening = [name for name in ids if name[:1] == "(" and name[1:] and f"){name[1:]}" in ids]
        if not opening:
            raise UserError("this model does not write trees: name the folder of a parser")
        self._closing = {ids[name]: ids[f"){name[1:]}"] for name in opening}
        self._opening = np.isin(np.arange(len(pieces)), list(self._closing))
        self._pieces = [[piece for word in words for piece in word] for words in sentences]
        # At a number of pieces after which no word is begun: how many words are left.
        self._words_left = [
            dict(
                zip(accumulate(map(len, words), initial=0), range(len(words), -1, -1), strict=True)
            )
            for words in sentences
        ]
        self._end, self._states = end_id, {}

    def __call__(self, texts: np.ndarray, sentences: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Return whether each token may follow each text, as Allowed says."""
        before, self._states = self._states, {}
        allowed = np.zeros((len(texts), len(self._opening)), bool)
        for i, (text, sentence) in enumerate(zip(texts, sentences.tolist(), strict=True)):
            state = self._after(before, text, sentence)
            self._states[sentence, text.tobytes()] = state
            if state is not None:
                self._allow(allowed[i], state, sentence, left[i])
        return allowed

    def _after(self, before, text, sentence):
        """Return the state after a text, or None if it is not the beginning of a tree."""
        if len(text) == 1:
            return _State()
        state, token = before.get((sentence, text[:-1].tobytes())), int(text[-1])
        if state is None:
            return None
        if state.open and self._next(state, sentence) == [token]:
            return _State(state.written + 1, state.open, begun=True)
        if state.written not in self._words_left[sentence]:
            return None
        if token in self._closing and (state.open or not state.begun):
            return _State(state.written, (*state.open, token), True, state.opened + 1)
        if state.open and token == self._closing[state.open[-1]]:
            return _State(state.written, state.open[:-1], begun=True)
        return None

    def _next(self, state, sentence):
        """Return the next piece of the words, as a list; the empty list after the last."""
        return self._pieces[sentence][state.written : state.written + 1]

    def _allow(self, allowed, state, sentence, left):
        """Mark what may follow a text in allowed (V,)."""
        inside, waiting = bool(state.open), len(self._pieces[sentence]) - state.written
        if inside:
            allowed[self._next(state, sentence)] = True
        if state.written not in self._words_left[sentence]:  # in a word
            return
        needed = waiting + len(state.open) + 1  # tokens that must follow in any case
        most = min(_MOST_OPENINGS, self._words_left[sentence][state.written] + _MORE_THAN_WORDS)
        if waiting and state.opened < most and (needed + 2 <= left or not state.begun):
            allowed |= self._opening
        if inside and not state.opened and not (waiting and len(state.open) == 1):
            allowed[self._closing[state.open[-1]]] = True
        if state.begun and not inside:
            allowed[self._end] = True
