"""What a model writes is text, whatever its logits are: valid UTF-8, no loop, no lost subword."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_translator import TEXT, make_model, make_subwords

from minitf.backend import to_device, to_numpy, using
from minitf.decode import Scorer, write_texts
from minitf.text import BOS, EOS, PAD, Words
from minitf.text.vocabulary import SPECIALS
from minitf.translation import Search, Translator
from minitf.translation.wellformed import REPEATS, Wellformed

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = [*"▁abcdefghiB01,①②", "▁a", "▁b"]
NAMES = [*SPECIALS, *BYTES, *PIECES]
ID = {name: i for i, name in enumerate(NAMES)}
RULE = Wellformed(SimpleNamespace(names=NAMES))


def ids(text):
    """Return ids of pieces that are separated by spaces."""
    return [ID[piece] for piece in text.split()]


def following(text, source="", left=9):
    """Return the names of the pieces that may follow a text."""
    allowed = RULE.allowed(np.array([[*ids(source), EOS, PAD, PAD, PAD, PAD, PAD]]))
    (found,) = allowed(np.array([[BOS, *ids(text)]]), np.array([0]), np.array([left]))
    return {NAMES[i] for i in np.flatnonzero(found)}


def spelled(encoded):
    return " ".join(BYTES[byte] for byte in encoded)


@pytest.mark.parametrize("left", [1, 2, 3, 4, 9])
@pytest.mark.parametrize(
    "begun", ["", "c3", "e2", "e282", "ed", "ef", "efbf", "f0", "f48f", "f09f99"]
)
def test_bytes_go_on_to_a_character_that_ends_in_time(begun, left):
    begun = bytes.fromhex(begun)
    if left < 2 and len(begun) == 1:  # not begun
        return

    def completed(encoded):
        """Return whether some character but U+FFFD begins with these bytes, and ends in time."""
        for size in range(min(left, 4)):
            for end in itertools.product([0x80, 0x90, 0x9F, 0xA0, 0xBE, 0xBF], repeat=size):
                try:
                    character = (encoded + bytes(end)).decode()
                except UnicodeDecodeError:
                    continue
                if len(character) == 1 and character != "\ufffd":
                    return True
        return False

    found = following("▁a a " + spelled(begun), left=left)
    others = {name for name in NAMES if name not in BYTES and name != "B"}
    assert found - set(BYTES) == (set() if begun else others)
    right = {BYTES[byte] for byte in range(256) if completed(begun + bytes([byte]))}
    right -= set() if begun else {BYTES[byte] for byte in range(0x41, 0x5B)}  # after a small letter
    assert found & set(BYTES) == right


SEVEN = "a b c d e f g"


@pytest.mark.parametrize(
    ("source", "text", "token", "may_follow"),
    [
        ("", "a a", "a", True),
        ("", "a a a", "a", False),
        ("", "a a a", "b", True),
        ("", "a a a b", "a", True),
        ("", "a b a b a", "b", True),
        ("", "a b a b a b", "a", False),
        ("", "c a b a b a b", "a", False),
        ("", f"{SEVEN} h {SEVEN} h {SEVEN} h", "a", False),
        ("", f"{SEVEN} h i {SEVEN} h i {SEVEN} h i", "a", True),  # nine tokens
        ("a a a a", "b b b", "b", True),
        ("a a a a", "b b b b", "b", False),
        ("▁a , ▁a , ▁a , ▁a", "b , b , b ,", "b", True),
        ("▁a , ▁a , ▁a , ▁a", "b , b , b , b", ",", False),
        ("1 0 , 0 0 0", "1 0 0 0", "0", True),  # 10,000
        ("1 0 , 0 0 0", "1 0 0 0 0", "0", False),
        ("1 0 0 , 0 0 0", "1 0 0 , 0 0 0", "0", False),
        ("1 0 , 0 0 0", "a a a", "a", False),
        ("1 , 0 0 0", "1 0 0 0", "0", False),
        ("▁a a", "1 0 0 0 0 0", "0", True),  # a million
        ("▁a a", "1 0 0 0 0 0 0", "0", False),
        ("<0x35>", "1 0 0 0", "0", False),  # a digit that has no subword of its own
        ("", "<0x35> <0x35> <0x35>", "<0x35>", True),
        ("", spelled("ééé".encode()), "<0xC3>", False),
        ("", spelled("éĩéé".encode()), "<0xC3>", True),
        ("", "① ①", "①", True),
        ("", "① ② ① ②", "①", True),
    ],
)
def test_nothing_is_repeated_more_often_than_thrice_or_in_the_source(
    source, text, token, may_follow
):
    assert (token in following(text, source)) is may_follow


@pytest.mark.parametrize(
    ("source", "text", "token", "may_follow"),
    [
        ("", "▁a", "B", False),
        ("", "▁a", "<0x4D>", False),
        ("", "▁a", "a", True),
        ("", "▁", "B", True),
        ("", "▁a B", "B", True),
        ("", "▁a ,", "B", True),
        ("", "▁a 1", "B", True),
        ("", "▁a ①", "B", True),
        ("", "▁a a a a", "B", False),  # also where something else is forbidden
        ("▁b B", "▁a", "B", True),
        ("▁b <0x4D>", "▁a", "B", True),
        ("▁b , B", "▁a", "B", False),
    ],
)
def test_no_capital_follows_a_small_letter_unless_in_the_source(source, text, token, may_follow):
    assert (token in following(text, source)) is may_follow


def test_a_list_of_words_has_no_capitals_inside_a_word():
    words = Words(["klein", "Haus"])
    allowed = Wellformed(words).allowed(np.array([[EOS]]))
    assert allowed(np.array([[BOS, 4]]), np.array([0]), np.array([9])).all()


def no_text(subwords, found):
    """Return whether a text has a lost character, or a token more often than thrice in a row."""
    (text,) = subwords.decode([found])
    runs = (len(list(run)) for _, run in itertools.groupby(found))
    return "\ufffd" in text or max(runs, default=0) > REPEATS


@pytest.mark.parametrize("likely", ["anything", "bytes", "few bytes"])
def test_any_logits_become_text(rng, library, likely):
    subwords, n = make_subwords(), 60
    first = subwords.names.index("<0x00>")
    bias = np.zeros(len(subwords))
    bias[first + 128 : first + 256] += 0 if likely == "anything" else 3
    bias[[first + 0xE2, first + 0x82, EOS]] += 0 if likely != "few bytes" else 3

    class Random(Scorer):
        def __call__(self, texts):
            logits = rng.normal(size=(len(texts), len(subwords))) + bias
            logits[:, [PAD, BOS]] = -np.inf
            return to_device(logits)

    rule = Wellformed(subwords).allowed(np.full((n, 1), EOS))
    best = lambda logits, rows: to_numpy(logits.argmax(axis=-1))  # noqa: E731
    limits = rng.integers(1, 30, size=n)

    def broken(allowed):
        found = write_texts(
            np.full((n, 1), BOS), Random(), best, limits, end_id=EOS, allowed=allowed
        )
        return [no_text(subwords, hypothesis.ids) for hypothesis in found]

    assert not any(broken(rule))
    assert any(broken(None))


@pytest.mark.parametrize("beam", [*(pytest.param(n, marks=pytest.mark.slow) for n in (0, 1)), 4])
def test_the_translator_writes_text_unless_it_is_asked_not_to(beam):
    """beam: of 0, for drawn translations."""
    subwords = make_subwords()
    translator = Translator(make_model(subwords), subwords)
    lines = [" ".join(words) for words in itertools.permutations(TEXT[0].split(), 3)]

    def broken(**wellformed):
        if beam:
            found = translator.translate(lines, Search(beam, **wellformed))
        else:
            found = translator.sample(lines, Search(**wellformed), temperature=0.3)
        return ["\ufffd" in best.text for (best,) in found]

    assert not any(broken())
    assert any(broken(wellformed=False))


def test_the_mask_is_the_same_on_every_backend(library):
    texts = np.array([[BOS, *ids(text)] for text in ("a a a", "B B <0xC3>", "b ▁ ▁a", "▁ a b")])
    source, rows = np.array([ids("▁b B"), ids("▁b b")]), np.array([0, 0, 1, 1])
    run = lambda: to_numpy(RULE.allowed(source)(texts, rows, np.array([9, 9, 9, 2])))  # noqa: E731
    found = run()
    with using("numpy"):
        assert np.array_equal(found, run())
