"""The Translator: no line is lost or swapped, and no cut goes through a word or a character."""

import itertools
import json

import numpy as np
import pytest
from paths import ROOT
from tiny_translator import LONGEST, TEXT, make_model, make_subwords, save

from minitf import decode, forms
from minitf.common.decoder import FusedDecoder
from minitf.cpu import processes
from minitf.errors import UserError
from minitf.files.models import save_model
from minitf.text import EOS, Subwords, Words
from minitf.translation import Search, Translation, Translator
from minitf.translation.reading import Line, Part, truecase
from minitf.translation.writing import (
    CUT_SENTENCE,
    as_one_sentence,
    join_parts,
    restore,
    without_added_stop,
)

ADDED = [
    ("Save", "Sparen.", "Sparen"),
    ('The "house"', 'Das "Haus"!', 'Das "Haus"'),
    ("do you sing", "Singst du?", "Singst du?"),
    ("and so on", "usw.", "usw."),
    ("wait", "Moment ...", "Moment ..."),
    ("Dear Tom,", "Lieber Tom.", "Lieber Tom."),
    ("He sings.", "Er singt.", "Er singt."),
    ("he sings and we sing " * 2, "Er singt.", "Er singt."),
]
EMPTY = [Translation("", 0.0, 0.0)]
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
LINES = [
    "the dog",
    "a bird saw you in the old house",
    "",
    "sing",
    "the dog",
    "\x00\u2028\x1b",
    "Vogel, Hund",
    "東京",
]


@pytest.fixture(scope="module")
def subwords():
    return make_subwords()


@pytest.fixture(scope="module")
def folder(subwords, tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "tiny", subwords, {"max_subwords": LONGEST})


@pytest.fixture(scope="module")
def translator(folder):
    return Translator.load(folder)


def message(function, *arguments, **named):
    """Return the text of the UserError that the call ends in: one line."""
    with pytest.raises(UserError) as caught:
        function(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Every line, in order -----------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [1, 3])
def test_each_line_is_translated_as_if_it_were_alone(translator, beam):
    lines = LINES + [f"{line} {n}" for n in range(2) for line in TEXT] + [" ".join(TEXT)]
    together = translator.translate(lines, beam=beam, max_extra=5, batch_tokens=60)
    alone = [translator.translate([line], beam=beam, max_extra=5)[0] for line in lines]
    assert [best[0].text for best in together] == [best[0].text for best in alone]
    for mine, other in zip(together, alone, strict=True):
        assert mine[0].score == pytest.approx(other[0].score, rel=1e-4)
    assert len({best[0].text for best in together}) > len(lines) / 2  # or a swap would not be seen
    assert together[2] == together[5] == EMPTY


def test_a_text_that_is_scored_is_read_line_by_line(folder):
    """A scored text is not cut into sentences, as a user's is.

    A line too long for the model is not cut either, up to a limit.
    """
    line = " ".join(TEXT + [part.capitalize() for part in TEXT])
    count = len(Translator.load(folder, max_unsplit=1000).parts(line)[0])
    assert len(Translator.load(folder).parts(line)) > 3 and count > LONGEST
    assert len(Translator.load(folder, max_unsplit=count).parts(line)) == 1
    assert len(Translator.load(folder, max_unsplit=count - 1).parts(line)) > 1


@pytest.mark.parametrize("beam", [1, 3])
def test_the_number_of_cores_changes_nothing(translator, monkeypatch, beam):
    """Bit for bit: the slices of a batch do not depend on the number of cores."""
    lines, results, pieces = [f"{line} {n}" for n in range(27) for line in TEXT], [], []
    shared = processes.over_cores
    monkeypatch.setattr(
        "minitf.translation.translator.over_cores",
        lambda *args: pieces.append(len(args[1])) or shared(*args),
    )
    for count in (1, 3):
        monkeypatch.setattr(processes, "cores", lambda count=count: count)
        results.append(translator.translate(lines, beam=beam, max_extra=5))
    assert results[0] == results[1]
    assert pieces[0] == pieces[1] > 1


def test_a_fused_decoder_that_is_not_used_is_named_once(translator, monkeypatch, capfd):
    """Not by each worker, nor by each of the Translators that a training makes to validate."""

    def broken(self, texts):
        return np.zeros((len(texts), self.decoding.model.config.vocabulary_size), np.float32)

    monkeypatch.setattr(FusedDecoder, "__call__", broken)
    monkeypatch.setattr(processes, "cores", lambda: 3)
    forms.say_once.cache_clear()
    for _ in range(2):
        again = Translator(translator.model, translator.subwords)
        again.translate(LINES, max_extra=5, batch_tokens=20)
    assert capfd.readouterr().err.count("fast_decoding computes other numbers") == 1


def test_no_lines_and_lines_that_come_one_by_one(translator):
    assert translator.translate([]) == []
    assert translator.translate(iter(["", " ", "\u3000\t"])) == [EMPTY] * 3
    assert len(translator.translate(iter(TEXT), beam=1, max_extra=0)) == len(TEXT)
    with pytest.raises(TypeError, match="list of lines"):
        translator.translate("one line")


def test_best_translations_come_first(translator):
    found = translator.translate([*TEXT, " ".join(TEXT)], beam=4, n_best=3, max_extra=3)
    for translations in found:
        scores = [translation.score for translation in translations]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)
        assert len({translation.text for translation in translations}) > 1
    for beam, n_best in ((1, 2), (4, 5), (0, 0), (4, 0)):
        assert "beam" in message(translator.translate, TEXT, beam=beam, n_best=n_best)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_options_reach_the_search(translator, beam):
    """The text is that of decoding the same ids with the same limits."""
    line = "the dog"
    source = np.array([[*translator.parts(line)[0], EOS]])
    for alpha, max_extra in ((0.6, 0), (0.6, 4), (2.0, 4)):
        if beam == 1:
            (best,) = decode.greedy(translator.model, source, max_extra, alpha=alpha)
        else:
            ((best,),) = decode.beam_search(translator.model, source, beam, alpha, max_extra)
        (found,) = translator.translate([line], beam=beam, alpha=alpha, max_extra=max_extra)[0]
        assert found.text == translator.subwords.decode([best.ids])[0].strip()
        assert (found.log_probability, found.score) == pytest.approx(
            (best.log_probability, best.score), rel=1e-4
        )


def test_the_figures_of_a_line_are_the_sums_over_its_parts(translator, monkeypatch):
    line = " ".join(TEXT)
    parts = translator.subwords.decode(translator.parts(line))
    (found,) = translator.translate([line], beam=2, max_extra=3)[0]
    monkeypatch.setattr(
        translator, "max_unsplit", translator.max_subwords
    )  # each part is read at once
    alone = [translator.translate([part], beam=2, max_extra=3)[0][0] for part in parts]
    expected = " ".join(each.text for each in alone if each.text)
    assert len(parts) > 1 and found.text.replace(",", "") == expected.replace(",", "")
    assert found.log_probability == pytest.approx(
        sum(each.log_probability for each in alone), rel=1e-4
    )
    assert found.score == pytest.approx(sum(each.score for each in alone), rel=1e-4)


class Pieces:
    """Subwords that have read some words."""

    def __init__(self, *words):
        self.words = words

    def encode(self, lines, side):
        return [[0] if line in self.words else [0, 0] for line in lines]


def part_of(spans=(), around=("",)):
    return Part((0, 0), tuple(around), tuple(spans))


def as_one(texts, parts, subwords):
    """The translations of some parts of a sentence, read as one sentence."""
    found = as_one_sentence(
        Line(tuple(parts)), [[Translation(text, -1.0, -1.0)] for text in texts], subwords
    )
    return [best for (best,) in found]


@pytest.mark.parametrize(
    ("parts", "sources", "expected"),
    [
        ("Er ging.|Aber er kam.", "He went,|but he came.", "Er ging,|aber er kam."),
        ("Sie fuhren.|Flughafen.", "they went to the|airport.", "Sie fuhren|Flughafen."),
        ("He saw.|I went...|NATO.", "Er sah|ich ging|NATO.", "He saw|I went...|NATO."),
        ("Er kam.|Aber sie ging.", 'He "came."|But she went.', "Er kam.|Aber sie ging."),
        ("Nun?|Aber nein!", "well,|but no!", "Nun?|aber nein!"),
        ("HE WENT.|A DOG CAME.", "ER GING,|EIN HUND KAM.", "HE WENT,|A DOG CAME."),
        (".|", "a,|b", "|"),
        ("„Nein“.|Und", "no,|and", "„Nein“,|und"),
    ],
)
def test_the_parts_of_a_sentence_read_as_one(parts, sources, expected):
    read = [part_of(around=[source]) for source in sources.split("|")]
    found = as_one(parts.split("|"), read, Pieces("Aber", "aber", "Flughafen"))
    assert "|".join(best.text for best in found) == expected
    cut = [best.problems == (CUT_SENTENCE,) for best in found]
    assert cut == [*(not s.endswith((".", '."')) for s in sources.split("|")[:-1]), False]


def test_spans_at_the_edges_of_a_part_stay_as_they_are(subwords):
    cases = [
        ("Er mag A.", ["A."], ["", " he likes"]),
        ("Tom_1 auch.", ["Tom_1"], ["", " too,"]),
        ("Ab sofort.", ["Ab"], ["", " now."]),
    ]
    texts = [text for text, *_ in cases]
    found = as_one(texts, [part_of(*case) for _, *case in cases], subwords)
    assert [best.text for best in found] == ["Er mag A.", "Tom_1 auch,", "Ab sofort."]
    plain = [part_of([], ["".join([*spans, after])]) for _, spans, (_, after) in cases]
    changed = as_one(texts, plain, subwords)
    assert [best.text for best in changed] == ["Er mag A", "tom_1 auch,", "ab sofort."]


def test_progress_counts_the_parts(translator):
    seen = []
    translator.translate(
        [*TEXT, " ".join(TEXT)],
        beam=1,
        max_extra=0,
        batch_tokens=30,
        progress=lambda *n: seen.append(n),
    )
    counts = [done for done, _ in seen]
    assert len(counts) > 2 and counts == sorted(counts)
    assert {total for _, total in seen} == {counts[-1]}


# Long lines ---------------------------------------------------------------------------------------


def cut(longest, subwords, line, max_unsplit=None):
    """Return the text of each part, after a check that no part is longer than the model reads."""
    translator = Translator(make_model(subwords), subwords, longest, max_unsplit)
    parts = translator.parts(line)
    assert all(1 <= len(ids) <= longest for ids in parts)
    return subwords.decode(parts)


@pytest.mark.parametrize(
    "line, parts",
    [
        ("the dog saw, the old bird", ["the dog saw,", "the old bird"]),
        ("the dog saw Vogel", ["the dog", "saw Vogel"]),
        ("a bird, Vogel, in the old house", ["a bird, Vogel,", "in the old house"]),
        ("東京、東京、", ["東京、", "東京、"]),
    ],
)
def test_long_sentences_are_cut_at_the_best_place(subwords, line, parts):
    longest = max(len(ids) for ids in subwords.encode(parts))
    assert cut(longest, subwords, line) == parts
    assert cut(100, subwords, line, max_unsplit=1) == [line]


@pytest.mark.parametrize(
    "parts",
    [
        ["The dog saw.", '"We sing!"', "(Do not?)", "In the house... seven birds."],
        ["Mr. J. S. Bach and Prof. Vogel, e.g. in the house vs. the bird, saw 3.5 dogs.", "Oder?"],
        ["東京。", "東京！」", "東京。"],
        ["No end"],
    ],
)
def test_long_lines_are_translated_sentence_by_sentence(subwords, parts):
    line = ("" if "東" in parts[0] else " ").join(parts)
    assert cut(200, subwords, line, max_unsplit=1) == parts
    assert cut(200, subwords, line, max_unsplit=200) == [line]
    assert Translator(make_model(subwords), subwords, 200).max_unsplit == 33
    # No more than it reads at once.
    assert Translator(make_model(subwords), subwords, 20, max_unsplit=50).max_unsplit == 20


@pytest.mark.parametrize(("source", "written", "expected"), ADDED)
def test_a_fragment_gains_no_full_stop(source, written, expected):
    part = Part((0, 0), (source,))
    (found,) = restore(part, [Translation(written, -1.0, -1.0)], [])
    assert found.text == expected


@pytest.mark.parametrize("longest", [5, 50])
def test_no_word_of_a_long_line_is_lost(subwords, longest, rng):
    words = [*" ".join(TEXT).split(), "東京", "\N{CAT FACE}", "a.b", "x" * 70, "–", ".", '"...']
    for length in (1, 30, 300):
        line = " ".join(rng.choice(words, length))
        assert "".join(cut(longest, subwords, line)).replace(" ", "") == line.replace(" ", "")


def test_endless_word_is_cut_between_characters(subwords):
    word = "é" + "\N{CAT FACE}é" * 80
    parts = cut(9, subwords, word)
    assert "".join(parts) == word and len(parts) > 40


def test_words_that_came_cut_are_kept(subwords):
    words = Words.train(["klei@@ nes haus", "ein haus"])
    translator = Translator(make_model(words), words, 2)
    assert translator.parts("ein klei@@ nes haus") == words.encode(["ein klei@@", "nes haus"])


def test_model_with_learned_positions_reads_long_lines(subwords):
    translator = Translator(make_model(subwords, positions="learned", max_length=8), subwords)
    assert translator.max_subwords == 7  # and the end mark
    (best,) = translator.translate([" ".join(TEXT)], beam=2)
    assert best[0].text


def test_a_model_that_reads_capitals_is_not_made_to_write_them(subwords):
    for reads in (True, False):
        translator = Translator(make_model(subwords), subwords, LONGEST, reads_capitals=reads)
        (line,) = translator._read(["THE DOG SAW A BIRD."])
        assert line.parts[0].in_capitals is not reads


def test_the_tokens_of_a_batch_count_end_marks(translator, monkeypatch):
    monkeypatch.setattr(translator, "_ids", lambda parts: [[5, 6, 7] for _ in parts])
    done = []
    translator.translate(
        list("abcdefgh"), Search(2, 0.6, 3), batch_tokens=24, progress=lambda n, _: done.append(n)
    )
    assert done == [3, 6, 8], "2 beams of 3 rows of 4 tokens"


# The folder of a model ----------------------------------------------------------------------------


def test_load_takes_the_longest_sentence_from_the_notes(translator, subwords, tmp_path):
    assert translator.max_subwords == LONGEST
    for notes, longest in (({}, 100), ({"max_subwords": 7}, 7)):
        assert Translator.load(save(tmp_path, subwords, notes)).max_subwords == longest
    folder = save(tmp_path, subwords, {"max_subwords": 80, "max_unsplit": 60})
    for given, found in ((0, (80, 60)), (50, (80, 60)), (70, (80, 70)), (90, (90, 90))):
        loaded = Translator.load(folder, given)
        assert (loaded.max_subwords, loaded.max_unsplit) == found


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"d_model": "16"}, "d_model"),
        ({"d_model": 32}, "embedding.weight has shape (330, 16) in the weights and (330, 32)"),
        ({"n_layers": 10**9}, "are too few for a model of 1000000000 layers"),
        ({"dropout": None}, "damaged"),
        ({"colour": 1}, "colour"),
        (None, "damaged"),
    ],
)
def test_load_explains_a_damaged_config(subwords, tmp_path, changes, reason):
    folder = save(tmp_path / "model", subwords)
    card = json.loads((folder / "config.json").read_text())
    card["model"] = {**card["model"], **changes} if changes else {}
    (folder / "config.json").write_text(json.dumps(card))
    text = message(Translator.load, folder)
    assert reason in text and str(folder) in text


def test_load_refuses_subwords_of_another_model(subwords, tmp_path):
    other = Subwords.train(TEXT, 300, log=print)
    model = make_model(subwords)
    save_model(tmp_path, model.state(), model.config.to_dict(), other)
    assert "copy both files from the same model" in message(Translator.load, tmp_path)


def test_model_that_outputs_nan_is_refused(subwords):
    model = make_model(subwords)
    model.encoder.layers[0].feed_forward.inner.bias.data[:] = np.nan
    assert "outputs NaN" in message(Translator, model, subwords)


# Attention ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["source", "encoder", "decoder"])
def test_attention_has_a_name_for_each_row_and_column(translator, kind):
    pictures = []
    for layer in (1, 2, None):
        weights, rows, columns = translator.attention("the dog saw", kind, layer, max_extra=2)
        assert weights.shape == (2, len(rows), len(columns))
        assert np.allclose(weights.sum(-1), 1, atol=1e-5)
        pictures.append(weights)
    assert np.array_equal(pictures[1], pictures[2]) and not np.allclose(
        pictures[0], pictures[1], atol=1e-3
    )
    read = [*translator.subwords.pieces(translator.parts("the dog saw")[0]), "</s>"]
    assert columns == (["<s>", *rows[:-1]] if kind == "decoder" else read)
    assert rows[-1] == "</s>" and (rows == read) == (kind == "encoder")
    if kind == "decoder":
        assert not np.triu(weights, 1).any()


def test_attention_explains_what_it_cannot_draw(translator):
    assert "decoder" in message(translator.attention, "the dog", kind="self")
    assert "1 to 2" in message(translator.attention, "the dog", layer=3)
    assert "1 to 2" in message(translator.attention, "the dog", layer=0)
    assert "no text" in message(translator.attention, " \x00")


# Explain ------------------------------------------------------------------------------------------


def test_explain_shows_the_translation_that_translate_finds(translator):
    for beam in (1, 3):
        explained = translator.explain("the dog saw", beam=beam, max_extra=3)
        (found,) = translator.translate(["the dog saw"], beam=beam, max_extra=3, wellformed=False)
        shown = explained.translation, explained.log_probability, explained.score
        assert shown == (found[0].text, found[0].log_probability, found[0].score)
        for kind in ("source", "encoder", "decoder"):
            weights, rows, columns = translator.attention(
                "the dog saw", kind, 1, beam=beam, max_extra=3
            )
            assert np.array_equal(explained.weights[kind][0], weights)
            assert explained.tokens(kind) == (rows, columns)
            assert explained.weights[kind].shape == (2, 2, len(rows), len(columns))


def test_the_likely_next_tokens_are_those_of_the_search(translator):
    """Greedy decoding takes the first of them; their P multiply to that of the translation."""
    explained = translator.explain("the dog saw", beam=1, max_extra=3)
    written = explained.target[: len(explained.next_tokens)]
    cut = len(explained.target_ids) - 1 == len(translator.parts("the dog saw")[0]) + 3
    taken = [step[0] for step in explained.next_tokens][: len(written) - cut]
    assert [token for token, _ in taken] == written[: len(taken)]
    total = sum(np.log(p) for _, p in taken)
    assert np.isclose(total, explained.log_probability, atol=1e-5)
    assert all(sorted(step, key=lambda found: -found[1]) == step for step in explained.next_tokens)
    assert explained.beam == []


def test_the_recorded_beam_leads_to_the_translation(translator):
    explained = translator.explain("the dog saw", beam=3, max_extra=3)
    texts = [()]  # those that go on
    found = {}
    for step in explained.beam:
        continued = list(zip(step.parents, step.tokens, step.log_probabilities, strict=True))
        grown = [(*texts[parent], token) for parent, token, _ in continued if parent < len(texts)]
        for rank in step.finished:
            found[grown[rank][:-1]] = continued[rank][2]
        found.update((grown[rank], continued[rank][2]) for rank in step.kept)
        texts = [grown[rank] for rank in step.kept]
    assert found[tuple(explained.target_ids[:-1])] == explained.log_probability


def test_explain_takes_the_first_part_of_a_long_line(translator):
    explained = translator.explain("the dog saw a bird. " * 9, max_extra=2)
    assert explained.parts > 1 and len(explained.source) <= translator.max_subwords + 1


def test_the_n_best_of_a_line_are_those_of_all_its_parts_together(rng):
    """The second best of a line changes one part alone; and texts that are equal count once."""

    def part(name, n):
        scores = sorted(-rng.random(n))[::-1]
        # ln P says nothing about the order.
        return [Translation(f"{name}{i}", -2 * score, score) for i, score in enumerate(scores)]

    for sizes in ((3, 4), (4, 1, 2), (2, 2, 2, 2), (5, 5)):
        parts = [part("abcd"[k], n) for k, n in enumerate(sizes)]
        every = [
            (sum(t.score for t in chosen), " ".join(t.text for t in chosen))
            for chosen in itertools.product(*parts)
        ]
        for n in (1, 2, 4, 5):
            found = join_parts([ranked[:n] for ranked in parts], n)
            expected = sorted(every, reverse=True)[:n]
            assert [t.text for t in found] == [text for _, text in expected]
            assert np.allclose([t.score for t in found], [score for score, _ in expected])
            assert np.allclose([t.log_probability for t in found], [-2 * s for s, _ in expected])
    same = [Translation("x", -1.0, -1.0), Translation("", -2.0, -2.0)]
    found = join_parts([same, same], 4)
    assert [t.text for t in found] == ["x x", "x", ""]


def test_attention_of_a_translation_that_reaches_the_limit(subwords):
    """A model that learned 8 positions has none left for the end mark."""
    model = make_model(subwords, positions="learned", max_length=8)
    translator = Translator(model, subwords)
    explained = translator.explain("the dog", max_extra=50)
    assert len(explained.target) == len(explained.target_ids) <= 8
    for kind, side in (("source", explained.target), ("decoder", explained.target)):
        assert explained.weights[kind][0].shape[-2] == len(side)
    assert explained.translation == translator.translate(["the dog"], wellformed=False)[0][0].text


def test_a_line_in_capitals_is_read_in_small_letters(translator, subwords):
    """And its translation is in capitals; so is a text of several sentences, and the n best."""
    loud = Translator(translator.model, subwords, LONGEST)
    lines = ["THE DOG SAW A BIRD.", "WE SING. YOU DO NOT.", "the dog", "IN THE Old House", "I", ""]
    small = ["The dog saw a bird.", "We sing. You do not.", *lines[2:]]
    for n_best, beam in ((1, 1), (3, 4)):
        found = translator.translate(lines, beam=beam, n_best=n_best)
        plain = loud.translate(small, beam=beam, n_best=n_best)
        for line, here, there in zip(lines, found, plain, strict=True):
            texts = [best.text.upper() if line in lines[:2] else best.text for best in there]
            assert [best.text for best in here] == list(dict.fromkeys(texts))
            assert here[0].score == there[0].score
    (drawn,), (plain,) = translator.sample(lines[:1])[0], loud.sample(small[:1])[0]
    assert drawn.text == plain.text.upper() != plain.text
    assert translator.parts(lines[0]) == loud.parts(small[0]) != loud.parts(lines[0])
    assert translator.explain(lines[0]).line == small[0]


def test_words_in_capitals_are_written_as_the_model_has_read_them():
    """Names and nouns keep their first letter, and abbreviations all; SS may be a German ß."""
    text = "the dog and I love Tom, die Straße war lang, we see my TV in a house of Tom's. "
    subwords = Subwords.train([text, "Straße Tom TV I"] * 9, 360, log=lambda _: None)
    lines = {
        "I LOVE THE USA AND THE BBC.": "I love the USA and the BBC.",
        "DIE STRASSE WAR LANG.": "Die Straße war lang.",
        "TV S": "TV S",  # has no fewer subwords when written small
        '- "WE SEE TOM." TOM AND I SEE MY TV.': '- "We see Tom." Tom and I see my TV.',
    }
    assert all(truecase(line, subwords) == small for line, small in lines.items())


def test_no_letter_of_a_word_in_capitals_is_lost():
    """A word that begins with SS is not written with one letter less, which has fewer subwords."""
    lines = ["THE SS CAME", "AN SSD, SSL", "MASSSTAB UND STRASSE", "ESSEN, ASS. TO KISS A BOSS"]
    text = "the S came an Sd Sl Maßstab und Straße essen ass to kiss a boss"
    subwords = Subwords.train([text] * 9, 370, log=lambda _: None)
    small = [truecase(line, subwords) for line in lines]
    assert [line.upper() for line in small] == lines and "Straße" in small[2]


@pytest.mark.parametrize(("words", "expected"), [(8, "Er kam"), (9, "Er kam.")])
def test_a_fragment_has_eight_words_at_most(words, expected):
    assert without_added_stop("Er kam.", "so " * (words - 1) + "far") == expected


@pytest.mark.parametrize("folder", ["en-de", "de-en"])
def test_a_capital_letter_without_a_subword_is_read_and_not_kept(folder):
    """German has few Ö, Ä and Ü: where no subword has them, Öl is still a word to translate."""
    translator = Translator.load(ROOT / "examples" / "models" / folder)
    words, foreign = translator._read(["Öl, Äpfel und Übung", "Das ist 東京"])
    assert words.parts[0].spans == () and foreign.parts[0].spans == ("東京",)
