"""The tags of a word: counted for known words, guessed from suffix and shape for others."""

from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np

from minitf.text.trees import Leaf

__all__ = ["Lexicon", "signatures"]

_SUFFIX = 4  # characters
_RARE = 2  # words that occur at most as often tell about words that do not occur
_TRUST = 5.0  # occurrences: the weight of the more general estimate


class Lexicon:
    """The probabilities of tags for each word.

        P(t | w) = (count(t, w) + 5 P(t | signature of w)) / (count(w) + 5)

    P(t | signature) is smoothed in the same way from one signature to the more general one, and at
    last by P(t): see `signatures`. It is counted on words that occur at most twice.
    Source: Klein and Manning 2003, section 4, for the first line; suffixes as in Brants 2000, with
    a simpler smoothing.
    """

    def __init__(self, leaves: Iterable[Leaf]):
        pairs = Counter(leaves)
        words, tags = Counter(), Counter()
        for (tag, word), count in pairs.items():
            words[word] += count
            tags[tag] += count
        self.tags = sorted(tags)
        columns = {tag: i for i, tag in enumerate(self.tags)}
        self._share = np.array([tags[tag] for tag in self.tags]) / tags.total()
        self._tag_counts = defaultdict(lambda: np.zeros(len(columns)))
        self._signature_counts = defaultdict(lambda: np.zeros(len(columns)))
        for (tag, word), count in pairs.items():
            self._tag_counts[word][columns[tag]] += count
            if words[word] <= _RARE:
                for signature in signatures(word):
                    self._signature_counts[signature][columns[tag]] += count
        # From here on, an unknown word adds nothing.
        self._tag_counts.default_factory = self._signature_counts.default_factory = None

    def log_probabilities(self, word: str) -> np.ndarray:
        """Return ln P(word | tag) for each of `tags`, but for a number that all tags share.

        ln P(w | t) = ln P(t | w) - ln P(t) + ln P(w), by Bayes' rule.
        """
        share = self._share
        for signature in signatures(word):
            share = _smoothed(self._signature_counts.get(signature), share)
        share = _smoothed(self._tag_counts.get(word), share)
        return np.log(share) - np.log(self._share)


def _smoothed(counts, general):
    return general if counts is None else (counts + _TRUST * general) / (counts.sum() + _TRUST)


def signatures(word: str) -> list[str]:
    """Return the signatures of a word, from the most general to the most special.

    First its shape: whether it begins with a capital (A), has another capital (B), a small letter
    (a), a digit (0) or a hyphen (_), or has neither letters nor digits (.). Then its shape with its
    last character, its last two, and so on up to four, if it is longer.

    >>> signatures("Genes")
    ['Aa', 'Aa-s', 'Aa-es', 'Aa-nes', 'Aa-enes']
    """
    shape = "".join(
        sign
        for sign, has in (
            ("A", word[:1].isupper()),
            ("B", any(c.isupper() for c in word[1:])),
            ("a", any(c.islower() for c in word)),
            ("0", any(c.isdigit() for c in word)),
            ("_", "-" in word),
            (".", not any(c.isalnum() for c in word)),
        )
        if has
    )
    longest = min(_SUFFIX, len(word) - 1)
    return [shape, *(f"{shape}-{word[-n:].lower()}" for n in range(1, longest + 1))]
