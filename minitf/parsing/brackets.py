"""The tokens that may come next in a tree over the words of a sentence."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from minitf.errors import UserError
from minitf.text import Subwords
from minitf.text.merges import BLANK
from minitf.text.trees import WORD

__all__ = ["Brackets"]


class _State(NamedTuple):
    """A text as far as it matters for the next token.

    words: how many were written. open: the ids of the brackets that are not closed. begun: whether
    anything was written. empty: whether the last token opened a bracket.
    """

    words: int = 0
    open: tuple[int, ...] = ()
    begun: bool = False
    empty: bool = False


class Brackets:
    """Allows a tree over the words of each sentence, and nothing else: `Allowed` of `decode`.

    - A word may follow while words are left, inside a bracket.
    - A bracket may open while words are left, if the text can then still be completed: each word,
      each closing bracket and the end mark need a token.
    - The bracket that was opened last may close, unless it is empty. The outermost one closes after
      the last word.
    - The end mark follows the outermost bracket.

    So at every step something is allowed, and the text ends in time, if at first at least
    n_words + 3 tokens are left: two brackets, the words and the end mark.

    subwords: those of a model for trees. n_words: the words of each sentence, at least one.
    Raises UserError for the subwords of another model.
    """

    def __init__(self, subwords: Subwords, n_words: Sequence[int], end_id: int):
        pieces = subwords.pieces(range(len(subwords)))
        ids = {piece[1:]: i for i, piece in enumerate(pieces) if piece[0] == BLANK}
        opening = [name for name in ids if name[:1] == "(" and name[1:] and f"){name[1:]}" in ids]
        if WORD not in ids or not opening:
            raise UserError("this model does not write trees: name the folder of a parser")
        self._closing = {ids[name]: ids[f"){name[1:]}"] for name in opening}
        self._opening = np.isin(np.arange(len(pieces)), list(self._closing))
        self._word, self._end, self._n_words = ids[WORD], end_id, n_words
        self._states = {}

    def __call__(self, texts: np.ndarray, rows: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Return whether each token may follow each text, as Allowed says."""
        before, self._states = self._states, {}
        allowed = np.zeros((len(texts), len(self._opening)), bool)
        for i, text in enumerate(texts):
            state = self._after(before, text)
            self._states[text.tobytes()] = state
            if state is not None:
                self._allow(allowed[i], state, self._n_words[rows[i]], left[i])
        return allowed

    def _after(self, before, text):
        """Return the state after a text, or None if it is not the beginning of a tree."""
        if len(text) == 1:
            return _State()
        state, token = before.get(text[:-1].tobytes()), int(text[-1])
        if state is None:
            return None
        if token == self._word and state.open:
            return _State(state.words + 1, state.open, begun=True)
        if token in self._closing and (state.open or not state.begun):
            return _State(state.words, (*state.open, token), begun=True, empty=True)
        if state.open and token == self._closing[state.open[-1]]:
            return _State(state.words, state.open[:-1], begun=True)
        return None

    def _allow(self, allowed, state, n_words, left):
        """Mark what may follow a text in allowed (V,)."""
        inside, waiting = bool(state.open), n_words - state.words
        if waiting and inside:
            allowed[self._word] = True
        needed = waiting + len(state.open) + 1  # tokens that must follow in any case
        if waiting and (needed + 2 <= left or not state.begun):
            allowed |= self._opening
        if inside and not state.empty and not (waiting and len(state.open) == 1):
            allowed[self._closing[state.open[-1]]] = True
        if state.begun and not inside:
            allowed[self._end] = True
