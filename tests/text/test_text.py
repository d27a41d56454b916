"""Subwords, words and batches: what goes in comes out, for any text, any ids, any lengths."""

import io
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitf.errors import UserError
from minitf.text import BOS, EOS, PAD, UNK, Subwords, Words, load_subwords, make_batch, plan_batches
from minitf.text.batches import id_type, pad_rows
from minitf.text.normalise import normalise
from minitf.text.vocabulary import printable

SMALL = settings(max_examples=60, deadline=None)
WHO, DOES, WHAT = (
    ("the cat", "ein Hündchen", "my aunt"),
    ("likes", "mag", "draws"),
    ("the garden", "Äpfel", "a house"),
)
LINES = [
    f"{who} {does} {what} {n}." for n in (7, 1990) for who in WHO for does in DOES for what in WHAT
]


def silent(notice):
    raise AssertionError(f"an unexpected notice: {notice}")


@pytest.fixture(scope="module")
def subwords():
    return Subwords.train(LINES, 330, log=silent)


def test_marks_in_a_text_are_text_and_nothing_stays_nothing(subwords):
    assert subwords.decode(subwords.encode(["<s> </s> <0xE2>"])) == ["<s> </s> <0xE2>"]
    assert subwords.encode([""]) == [[]] and subwords.encode([]) == [] and subwords.decode([]) == []


@SMALL
@given(text=st.text(st.characters(), max_size=30))
def test_subwords_give_back_any_text(subwords, text):
    """Lone surrogates and control characters included: no crash, and nothing else is changed."""
    (ids,) = subwords.encode([text])
    assert min(ids, default=4) > EOS  # no special id, and nothing unknown
    assert subwords.decode([ids]) == [normalise(text).replace("\u2581", " ")]


def test_control_characters():
    assert printable("a\tb\nc\u2028d\u0085e\x0bf") == "a b c d e f"
    assert printable("a\x00\x1b[1m\x7f\x9bb\u00ad") == "a[1mb\u00ad"
    every = printable("".join(map(chr, range(0xD800))))
    assert not {unicodedata.category(c) for c in every} & {"Cc", "Zl", "Zp"} and len(every) > 55_000


@SMALL
@given(ids=st.lists(st.integers(0, 329), max_size=40))
def test_any_ids_decode_to_clean_text(subwords, ids):
    (text,) = subwords.decode([ids])
    text.encode("utf-8")  # no lone surrogate
    assert text == printable(text)
    # Special ids say nothing.
    assert subwords.decode([np.array(ids + [EOS, PAD], np.int32)]) == [text]
    assert all(piece.isprintable() for piece in subwords.pieces(ids))


@pytest.mark.parametrize("wrong", [-1, 0, 330, 10**12])
def test_ids_out_of_range_are_named(wrong):
    """Also padding inside a line."""
    with pytest.raises(ValueError, match=f"id {wrong} is not in a vocabulary of 330"):
        make_batch([[5], [7, wrong, 7]], [[5], [5]], 330)


def test_pieces_are_readable(subwords):
    ids = subwords.encode(["the cat #1990"])[0]
    pieces = subwords.pieces(ids)
    assert "".join(pieces).replace("\u2581", " ") == " the cat #1990"
    assert pieces[-4:] == ["1", "9", "9", "0"]  # digits stand alone
    assert subwords.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_subwords_are_the_same_each_time(subwords):
    assert Subwords.train(iter(LINES), 330).model == subwords.model
    assert len(subwords) == 330


def test_lines_that_can_be_read_again_are_not_held(monkeypatch):
    class Again:
        def __iter__(self):
            return iter(LINES)

        def __len__(self):
            return len(LINES)

    for size in (330, 5000):  # the second is too large, and the text is read once more
        assert (
            Subwords.train(Again(), size, log=str).model
            == Subwords.train(LINES, size, log=str).model
        )
    monkeypatch.setattr("minitf.text.subwords.TRAINING_LINES", 10)
    from_some = Subwords.train(Again(), 300).model
    monkeypatch.undo()
    assert from_some == Subwords.train(LINES[:: len(LINES) // 10 + 1], 300).model


def test_vocabulary_size_is_fitted_to_the_text():
    notices = []
    subwords = Subwords.train(["a few words", "a few more"], 5000, log=notices.append)
    assert notices == [
        f"notice   this text yields only {len(subwords)} subwords, not 5000; "
        f"{len(subwords)} are used"
    ]
    assert subwords.decode(subwords.encode(["more words"])) == ["more words"]
    with pytest.raises(UserError, match=r"100 is too small .* --vocabulary-size of at least 2"):
        Subwords.train(LINES, 100)
    for nothing in ([], ["", "  "]):
        with pytest.raises(UserError, match="no text"):
            Subwords.train(nothing, 300)
        with pytest.raises(UserError, match="no text"):
            Words.train(nothing)


def test_odd_training_text():
    odd = ["\udce9\udcff", "\x00", "a\u2581b", "x" * 200_000]
    subwords = Subwords.train([*LINES, *odd], 300, log=silent)
    assert subwords.decode(subwords.encode(["the cat"])) == ["the cat"]


def test_sentencepiece_is_silent_and_lazy():
    """Its C++ side writes to file descriptor 2, which only another process can watch."""
    program = (
        "import sys, minitf.text as text; from minitf import UserError; assert 'sentencepiece' "
        "not in sys.modules\n"
        "for model in (b'', b'damaged', b'\\n\\x05abc'):\n"
        "    try: text.Subwords(model); print('taken')\n"
        "    except UserError: pass\n"
        "text.Subwords.train(['some words', 'and some more'], 400, log=lambda notice: None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_save_and_load(tmp_path, subwords):
    with pytest.raises(UserError, match="has no vocabulary"):
        load_subwords(tmp_path)
    words = Words.train(["b a\u00e9 b c@@ d"])
    words.save(tmp_path / Words.file_name)
    assert load_subwords(tmp_path).names == words.names
    subwords.save(tmp_path / Subwords.file_name)
    assert load_subwords(tmp_path).model == subwords.model
    assert sorted(path.name for path in tmp_path.iterdir()) == ["subwords.model", "words.txt"]


@pytest.mark.parametrize("kind", [Subwords, Words])
def test_damaged_files_are_refused(tmp_path, subwords, kind):
    path = tmp_path / kind.file_name
    for content in (b"", b"\xff\xfe\n", subwords.model[:-9], b"a\n\nb\n", b"a\na\n", b"a b\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match=kind.file_name):
            kind.load(path)
    for missing in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="cannot be read"):
            kind.load(missing)


def test_words_by_frequency():
    words = Words.train(["b a b", "c a b \udce9"])
    listed = ["<pad>", "<unk>", "<s>", "</s>", "b", "a", "c", "\ufffd"]
    assert words.pieces(range(len(words))) == listed
    assert words.encode(["a  z\tb", "", "<s>"]) == [[5, UNK, 4], [], [UNK]]
    assert [len(Words.train(["b a b"], size)) for size in (5, 6, 9)] == [5, 6, 6]
    assert Words.train(["d b", "c b a d"]).pieces(range(4, 8)) == ["b", "d", "a", "c"], (
        "ties are alphabetical"
    )


def test_words_join_what_was_cut():
    words = Words(["un@@", "der@@", "weg@@", "s", "\x1b"])
    ids = [[4, 5, 6, 7], [7, 4], [4, EOS, 7, UNK, PAD], [8], []]
    assert words.decode(ids) == ["underwegs", "s un", "uns", "", ""]


def plain_plan(source, target, budget, rng):
    """The rule of plan_batches in lists: the resuming of a run depends on each index."""
    size = max(source) + 1
    key = [t * size + (s if t % 2 else size - 1 - s) for s, t in zip(source, target, strict=True)]
    batches, batch, longest = [], [], 0
    for i in sorted(rng.permutation(len(key)).tolist(), key=key.__getitem__):
        longest = max(longest, source[i], target[i])
        if batch and (len(batch) + 1) * longest > budget:
            batches.append(batch)
            batch, longest = [], max(source[i], target[i])
        batch.append(i)
    batches.append(batch)
    return [batches[i] for i in rng.permutation(len(batches))]


@pytest.mark.parametrize("longest", [3, 16, 250, 300, 60_000, 70_000])
@pytest.mark.parametrize("kind", [np.int64, np.uint16, np.int32])
def test_a_plan_is_the_same_for_lengths_of_any_type(longest, kind):
    if longest > np.iinfo(kind).max:
        longest = int(np.iinfo(kind).max)
    lengths = np.random.default_rng(0).integers(1, longest + 1, (2, 500))
    for budget in (2, 3 * longest, 100_000):
        plan = plan_batches(*lengths.astype(kind), budget, np.random.default_rng(1))
        assert [rows.tolist() for rows in plan] == plain_plan(
            *lengths.tolist(), budget, np.random.default_rng(1)
        )


@pytest.mark.parametrize(
    "longest", [(16, 15), (15, 16), (15, 15), (17, 14), (256, 255), (255, 256), (255, 255)]
)
def test_a_plan_at_the_ends_of_the_types_of_its_keys(longest):
    """The product of the longest lengths may just fit a type that the key of the longest
    pair does not.
    """
    lengths = [np.random.default_rng(i).integers(1, n + 1, 2000) for i, n in enumerate(longest)]
    for side, n in zip(lengths, longest, strict=True):
        side[:20] = n
    plan = plan_batches(*lengths, 3000, np.random.default_rng(1))
    expected = plain_plan(*(side.tolist() for side in lengths), 3000, np.random.default_rng(1))
    assert [rows.tolist() for rows in plan] == expected


def test_every_id_of_a_vocabulary_has_room():
    for size in (4, 256, 65_535, 65_536, 65_537, 100_000):
        assert np.iinfo(id_type(size)).max >= size - 1
        assert id_type(size).itemsize == (2 if size <= 65_536 else 4)


def test_batches_are_full_and_shuffled():
    lengths = np.random.default_rng(1).integers(3, 40, 20_000)
    plan = plan_batches(lengths, lengths, 2000, np.random.default_rng(2))
    assert lengths.sum() > 0.97 * sum(len(rows) * lengths[rows].max() for rows in plan)
    first = [lengths[rows].max() for rows in plan]
    assert first != sorted(first)
    other = plan_batches(lengths, lengths, 2000, np.random.default_rng(3))
    alike = {frozenset(rows) for rows in plan} & {frozenset(rows) for rows in other}
    assert len(alike) < 0.1 * len(plan)  # other pairs meet in the next epoch


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="2 rows of source, but 1 of target"):
        make_batch([[5], [6]], [[5]], 10)


ROWS = st.lists(st.lists(st.integers(4, 20), max_size=8), min_size=1, max_size=8)


@SMALL
@given(rows=ROWS, data=st.data())
def test_batch_is_padded_and_shifted(rows, data):
    batch = make_batch(rows, rows[::-1], 21)
    for row, ids in enumerate(rows):
        assert batch.source[row].tolist()[: len(ids) + 1] == [*ids, EOS]
        assert (batch.source[row, len(ids) + 1 :] == PAD).all()
    for row, ids in enumerate(rows[::-1]):
        assert batch.target_in[row].tolist()[: len(ids) + 1] == [BOS, *ids]
        assert batch.target_out[row].tolist()[: len(ids) + 1] == [*ids, EOS]
    width = max(map(len, rows)) + 1
    for array in (batch.source, batch.target_in, batch.target_out):
        assert array.shape == (len(rows), width) and array.dtype == np.int32
    assert batch.n_tokens == sum(len(ids) + 1 for ids in rows)

    start = data.draw(st.integers(0, len(rows) - 1))
    parts = [batch.rows(0, start), batch.rows(start, len(rows))]
    assert [part.first_row for part in parts] == [0, start] and parts[1].rows(
        1, 2
    ).first_row == start + 1
    assert sum(part.n_tokens for part in parts) == batch.n_tokens
    # Equally wide
    assert np.array_equal(np.concatenate([part.target_out for part in parts]), batch.target_out)


def test_rows_are_padded_with_marks_at_their_ends():
    assert pad_rows([np.array([5, 9]), []], 10, first=BOS, last=EOS).tolist() == [
        [2, 5, 9, 3],
        [2, 3, 0, 0],
    ]


def test_a_sentencepiece_model_without_bytes_is_not_one_of_minitf():
    """It could not encode every text, as Subwords promises."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 9), model_writer=model, vocab_size=40, model_type="bpe",
        pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(UserError, match="bytes for unknown characters"):
        Subwords(model.getvalue())


def test_a_rare_character_gets_no_subword():
    """It takes one from the words; and it can be spelled in bytes."""
    lines = ["abcd efgh"] * 20_000
    found = Subwords.train([*lines, "\u03a9"], 275, log=lambda notice: None)
    assert "\u03a9" not in found.names
    assert found.decode(found.encode(["\u03a9"])) == ["\u03a9"]


def test_words_are_read_as_they_were_written(tmp_path):
    assert Words(["a", "\ufffd"]).encode(["\ud800 a"]) == [[5, 4]]  # as they are learned
    (tmp_path / "words.txt").write_text("a\n\n")
    with pytest.raises(UserError, match="not a word list"):
        Words.load(tmp_path / "words.txt")
