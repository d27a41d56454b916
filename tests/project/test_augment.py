"""examples/models/augment.py: both sides of a new pair change alike, and nothing else changes."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from paths import EXAMPLES, ROOT

from minitf.text.vocabulary import printable

sys.path.insert(0, str(EXAMPLES / "models"))

import augment

PAIRS = (
    [
        "Tom draws a cat.",
        "We saw Mary's aunt in Boston.",
        "He has 12 dogs and 1 cat.",
        "Good day!",
        "Toms draw 7 cats.",
    ],
    [
        "Tom zeichnet eine Katze.",
        "Wir sahen Marias Tante in Boston.",
        "Er hat 12 Hunde und 1 Katze.",
        "Guten Tag!",
        "Alle zeichnen sieben Katzen.",
    ],
)


def rng(seed=0):
    return np.random.default_rng(seed)


def only(pairs, n, pattern):
    """Pairs made by copy_through whose source matches."""
    made = zip(*augment.copy_through(pairs, n, rng()), strict=True)
    return [(source, target) for source, target in made if re.fullmatch(pattern, source)]


def test_from_german_names_are_copied_as_well():
    english = ["That is Tom's book."] * 20
    german = ["Das ist Toms Buch."] * 20
    sources, targets = augment.added((german, english), 0, from_german=True, copy=60)
    same = augment.added((english, german), 0, copy=60)
    assert (sources, targets) == same[::-1]
    assert sum(source.endswith("s Buch.") for source in sources) > 10
    sources, _ = augment.added((german, english), 0, from_german=True, typed=5)
    assert all(source.lower() == "das ist toms buch" for source in sources)


def test_the_same_seed_gives_the_same_pairs():
    for make in (augment.join, augment.copy_through):
        first = make(PAIRS, 40, rng(5))
        assert first == make(PAIRS, 40, rng(5)) != make(PAIRS, 40, rng(6))
        assert [len(side) for side in first] == [40, 40] and make(PAIRS, 0, rng()) == ([], [])


def test_join_puts_the_same_pairs_together_on_both_sides():
    german = dict(zip(*PAIRS, strict=True))
    counts = set()
    for source, target in zip(*augment.join(PAIRS, 100, rng()), strict=True):
        parts = re.findall(r"\S.*?[.!](?= |$)", source)
        counts.add(len(parts))
        assert " ".join(parts) == source and " ".join(german[part] for part in parts) == target
    assert counts == {2, 3}
    with pytest.raises(ValueError, match="no pairs"):
        augment.join(([], []), 1, rng())


def test_a_name_is_replaced_on_both_sides():
    pairs = [side[:1] for side in PAIRS]
    made = only(pairs, 300, r"(.+) draws a cat\.")
    names = {source.removesuffix(" draws a cat.") for source, _ in made}
    assert all(
        target == source.replace(" draws a cat", " zeichnet eine Katze") for source, target in made
    )
    assert len(names - {"Tom"}) > 50 and any(name in augment.MEN for name in names - {"Tom"})
    assert any(" " in name for name in names) and any(not name.isascii() for name in names)
    assert not names & set(augment.WOMEN)  # Tom has his own pronouns


def test_genitives_and_several_names():
    pairs = [side[1:2] for side in PAIRS]
    places = set()
    for source, target in only(pairs, 300, r"We saw (.+)'s aunt in (.+)\."):
        name, place = re.fullmatch(r"We saw (.+)'s aunt in (.+)\.", source).groups()
        places.add(place)
        if (name, place) != ("Mary", "Boston"):  # these have a row of signs before or after them
            assert target == f"Wir sahen {name}s Tante in {place}."
            assert not name.endswith(("s", "x", "z")) and name != place
    assert len(places) > 30


def test_names_stay_apart():
    pairs = ["Tom met Paul, not Tim."], ["Tom traf ihn und nicht Tim."]
    made = only(pairs, 200, r"\w+ met .*\.")
    assert len(made) > 50
    for source, target in made:
        first, middle, last = re.fullmatch(r"(.+) met (.+), not (.+)\.", source).groups()
        assert (
            middle == "Paul" and first != last and target == f"{first} traf ihn und nicht {last}."
        )
    others = {
        augment._other_name(["Tom", "Ben"], rng(seed), False, ["Tom met him."])
        for seed in range(50)
    }
    assert "Ben" in others and "Tom" not in others


@pytest.mark.parametrize(
    "source, target",
    [
        ("Tom is here.", "Er ist da."),  # on one side only
        ("Tom said that Tom was here.", "Tom sagte, er sei da."),  # not as often
        ("The Toms are here.", "Die Toms sind da."),  # no whole word
        ("Tomatoes are red.", "Tomaten sind rot."),
        ("I am 24 years old.", "Ich bin vierundzwanzig Jahre alt."),
        ("It is 2:30 p.m.", "Es ist 14.30 Uhr."),
        ("He has 1 cat.", "Er hat 1 Katze."),
        ("The 16th day.", "Der 16te Tag."),
    ],
)
def test_what_does_not_match_is_left_alone(source, target):
    made = list(zip(*augment.copy_through(([source], [target]), 60, rng()), strict=True))
    assert len(made) == 60
    for new_source, new_target in made:
        if new_source != new_target:
            assert source in new_source and new_source.replace(source, target) == new_target


def test_numbers_are_replaced_by_numbers_of_any_length():
    pairs = (["I have 12 books and 0 cats."], ["Ich habe 12 Bücher und 0 Katzen."])
    lengths = set()
    for source, target in only(pairs, 200, r"I have .*\."):
        assert re.findall("[0-9]+", source) == re.findall("[0-9]+", target)
        assert source.endswith("and 0 cats.")
        lengths.add(len(re.findall("[0-9]+", source)[0]))
    assert lengths >= {2, 3, 4, 5, 6}


def test_numbers_are_replaced_by_numbers_of_the_same_sort(monkeypatch):
    monkeypatch.setattr(augment, "ANY_LENGTH", 0)
    pairs = (
        ["From 9:30 on 25 May 1984 he had 1,450 of 100000."],
        ["Er hatte ab 9.30 Uhr am 25. Mai 1984 1.450 von 100000."],
    )
    seen = set()
    for source, target in only(pairs, 300, r"From .*\."):
        hour, minute, day, year, one, rest, many = map(int, re.findall("[0-9]+", source))
        assert sorted(re.findall("[0-9]+", source)) == sorted(re.findall("[0-9]+", target))
        assert re.sub("[0-9]+", "0", target) == re.sub("[0-9]+", "0", pairs[1][0])
        assert 2 <= hour <= 9 and 13 <= minute <= 31 and 13 <= day <= 31 and 1700 <= year < 2030
        assert one == 1 and 100 <= rest <= 999 and 100_000 <= many <= 999_999
        seen.add(source)
    assert len(seen) > 20


def test_a_part_of_a_number_keeps_its_length(monkeypatch):
    monkeypatch.setattr(augment, "ANY_LENGTH", 1)
    pairs = ["At 9:30 he had 2,450 of 12."], ["Um 9.30 Uhr hatte er 2.450 von 12."]
    lengths = set()
    for source, target in only(pairs, 200, r"At .*\."):
        hour, minute, thousands, rest, many = re.findall("[0-9]+", source)
        assert re.findall("[0-9]+", target) == [hour, minute, thousands, rest, many]
        assert [len(part) for part in (hour, minute, thousands, rest)] == [1, 2, 1, 3]
        lengths.add(len(many))
    assert len(lengths) > 3


def test_the_examples_in_docstrings():
    assert doctest.testmod(augment) == (0, 14)


def test_rows_of_signs():
    rows = [augment.signs(rng(seed)) for seed in range(400)]
    assert all(row and row == row.strip() == printable(row) and len(row) < 60 for row in rows)
    assert len(set(rows)) > 350
    assert any(row.isascii() for row in rows) and any("@" in row for row in rows)
    assert sum(max(map(ord, row)) > 0x1F000 for row in rows) > 60
    joined = "".join(rows)
    assert all(
        any(low <= ord(c) <= high for c in joined)
        for blocks in augment._SCRIPTS
        for low, high in blocks
    )


def test_signs_stand_alone_or_at_either_end():
    places = set()
    for source, target in zip(
        *augment.copy_through((["Good day!"], ["Guten Tag!"]), 200, rng()), strict=True
    ):
        if source == target:
            places.add("alone")
        else:
            assert source.replace("Good day!", "Guten Tag!") == target
            places.add("after" if source.startswith("Good") else "before")
    assert places == {"alone", "after", "before"}
    alone = augment.copy_through(([], []), 20, rng())
    assert alone[0] == alone[1] and len(alone[0]) == 20


def test_half_empty_pairs_are_not_used():
    """Joined, ("a", "") and ("b", "c") would claim that "a b" means "c"."""
    sources, targets = augment.added((["a", "b"] * 50, ["", "c"] * 50), 0, join=40)
    assert len(sources) == 40 and set(sources) == {"b b", "b b b"}
    assert set(targets) == {"c c", "c c c"}
    assert augment.added((["a", " "], ["", "b"]), 0, join=5, copy=5) == ([], [])


def test_text_typed_shouted_or_already_translated():
    german = dict(zip(*PAIRS, strict=True))
    typed = {
        augment.typed([[s], [t]], 1, rng(i))[0][0] for i in range(9) for s, t in german.items()
    }
    assert {"tom draws a cat", "we saw Mary's aunt in Boston", "good day"} <= typed
    assert {"we saw mary's aunt in boston"} <= typed
    for source, target in zip(*augment.typed(PAIRS, 50, rng()), strict=True):
        (original,) = [each for each in german if each.lower().rstrip(".!") == source.lower()]
        assert german[original] == target, "the target is complete"
    shouted = list(zip(*augment.capitals(PAIRS, 50, rng()), strict=True))
    assert len(shouted) == 50
    for source, target in shouted:
        assert (source, target) in {(s.upper(), t.upper()) for s, t in german.items()}
    sources, targets = augment.same(PAIRS, 50, rng())
    assert sources == targets and set(sources) == set(german.values())


def test_addresses_and_signed_numbers_are_copied():
    made = list(zip(*augment.verbatim(PAIRS, 200, rng()), strict=True))
    addresses = [source.removesuffix(" draws a cat.") for source, _ in made if "draws" in source]
    assert 100 < len(addresses) < 200 and any("@" in each for each in addresses)
    assert {t for s, t in made if "draws" in s} >= {
        f"{each} zeichnet eine Katze." for each in addresses
    }
    assert all(source.count(" aunt in ") == target.count(" Tante in ") for source, target in made)
    assert not any("12" not in source and "dogs" in source for source, _ in made), "two numbers"
    lone = (["I have 3 cats."], ["Ich habe 3 Katzen."])
    numbers = [source[7:-6] for source in augment.verbatim(lone, 60, rng())[0]]
    assert {each[0] for each in numbers} >= {"-", "+", "0", "\N{MINUS SIGN}"}
    assert augment.verbatim((["Tom's cat"], ["Toms Katze"]), 9, rng()) == ([], [])
    assert augment.verbatim((["I have 1 cat."], ["Ich habe 1 Katze."]), 9, rng()) == ([], [])
    assert augment.verbatim((["on May 3 or 4"], ["am 3. oder 4. Mai"]), 9, rng()) == ([], [])


@pytest.mark.parametrize("turned", [False, True])
def test_verbatim_pairs_say_the_same_on_both_sides(turned):
    english, german = ["Tom has 3 cats."] * 9, ["Tom hat 3 Katzen."] * 9
    pairs = (german, english) if turned else (english, german)
    sources, targets = augment.added(pairs, 0, from_german=turned, verbatim=40)
    assert len(sources) == 40
    words = [[line.split() for line in side] for side in (sources, targets)]
    for source, target in zip(*words, strict=True):
        assert (source[0], source[2:-1]) == (target[0], target[2:-1])
        assert (source[0] == "Tom") != (source[2:-1] == ["3"])


@pytest.mark.parametrize("turned", [False, True])
def test_names_that_are_translated(turned):
    lines = ["Tom lives in Boston.", "I saw Tom.", "Lisa sees Tom's cat."]
    german = ["Tom wohnt in Boston.", "Ich sah Tom.", "Lisa sieht Toms Katze."]
    pairs = (german, lines) if turned else (lines, german)
    sides = augment.added(pairs, 0, from_german=turned, names=300)
    made = set(zip(*(sides[::-1] if turned else sides), strict=True))
    assert len(made) > 100
    for english, target in made:
        found = re.fullmatch(r"Tom lives in (.+)\.", english)
        if found:
            assert target == f"Tom wohnt in {augment.PLACES[found[1]]}."
        elif found := re.fullmatch(r"Mr\. (\S+) lives in Boston\.", english):
            assert target == f"Herr {found[1]} wohnt in Boston."
        else:
            found = re.fullmatch(r"Mr?s\. (\S+) sees Tom's cat\.", english)
            assert target == f"Frau {found[1]} sieht Toms Katze.", "never Ich sah Herr Smith"
    assert augment.names((["I saw Tom."], ["Ich sah Tom."]), 9, rng()) == ([], [])
    whole = (["Tom Jackson is here."], ["Tom Jackson ist hier."])
    assert augment.names(whole, 9, rng()) == augment.verbatim(whole, 9, rng()) == ([], [])
    apart = augment.names((["Tom has fun."], ["Tom hat Spaß."]), 9, rng())
    assert len(set(apart[0])) > 3, "a German noun is no family name"


def test_more_kinds_leave_the_pairs_of_the_first_as_they_were():
    first = augment.added(PAIRS, 0, join=9, copy=9)
    more = augment.added(PAIRS, 0, join=9, copy=9, typed=3, same=3)
    assert [side[:18] for side in more] == list(first)


def command(folder, *arguments):
    program = [sys.executable, str(EXAMPLES / "models" / "augment.py"), *arguments]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False)


def test_the_command_writes_two_files(tmp_path):
    for name, lines in zip(("train.en", "train.de"), PAIRS, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = shlex.split("--train train.en train.de --output added.en added.de")
    arguments += shlex.split("--join 20 --copy 10 --typed 4 --capitals 3 --same 2")
    done = command(tmp_path, *arguments)
    assert done.stdout == "39 pairs written to added.en and added.de\n" and not done.stderr
    written = [(tmp_path / f"added.{each}").read_text(encoding="utf-8") for each in ("en", "de")]
    expected = augment.added(PAIRS, 0, join=20, copy=10, typed=4, capitals=3, same=2)
    assert [text.split("\n") for text in written] == [[*side, ""] for side in expected]
    assert command(tmp_path, *arguments, "--seed", "1").returncode == 0
    assert (tmp_path / "added.en").read_text(encoding="utf-8") != written[0]
    before = (tmp_path / "added.en").read_bytes()
    refused = command(tmp_path, *arguments, "--output", "added.en", "nowhere/b")
    assert refused.returncode == 2 and "nowhere" in refused.stderr
    assert (tmp_path / "added.en").read_bytes() == before  # beside an old added.de
    assert len(refused.stderr.splitlines()) == 1
    with pytest.raises(TypeError, match="there is no kind joins: join, copy"):
        augment.added(PAIRS, 0, joins=3)
    (tmp_path / "empty").write_text("")
    (tmp_path / "empty.de").write_text("")
    refused = command(tmp_path, *arguments, "--train", "empty", "empty.de")
    assert refused.returncode == 2 and "empty has no pair to start from" in refused.stderr
    (tmp_path / "train.de").write_text("one line\n")
    for wrong, message in (
        (arguments, "train.en has 5 lines but train.de has 1"),
        ([*arguments, "--train", "nowhere", "train.de"], "nowhere cannot be read"),
        ([*arguments, "--copy", "-1"], "must be at least 0"),
        (arguments[:6], "give at least one of --join"),
        ([*arguments, "--output", "train.en", "train.de"], "must name four different files"),
    ):
        refused = command(tmp_path, *wrong)
        assert refused.returncode == 2 and message in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The pairs as train.en and train.de in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, lines in zip(("train.en", "train.de"), PAIRS, strict=True):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_an_output_that_is_no_file_leaves_the_other_as_it_was(folder, capsys, monkeypatch):
    monkeypatch.setattr(augment, "added", None)  # nothing is made before
    (folder / "a.en").write_text("old")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    for name in ("folder", "pipe"):
        arguments = f"--train train.en train.de --join 3 --output a.en {name}"
        assert augment.main(arguments.split()) == 2
        said = f"augment.py: {name} is a folder, a pipe or a device: name a file\n"
        assert capsys.readouterr().err == said
        assert (folder / "a.en").read_text() == "old"


def test_a_name_that_is_too_long_gets_one_line(folder, capsys):
    for name in (f"{'a' * 300}.en", f"{'a' * 300}/a.en"):
        arguments = f"--train train.en train.de --join 3 --output {name} a.de"
        assert augment.main(arguments.split()) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not (folder / "a.de").exists()


def test_a_link_stays_a_link(folder):
    (folder / "real.en").write_text("old")
    (folder / "link.en").symlink_to("real.en")
    arguments = "--train train.en train.de --join 3 --output link.en a.de"
    assert augment.main(arguments.split()) == 0
    assert (folder / "link.en").is_symlink()
    assert len((folder / "real.en").read_text().splitlines()) == 3


def test_pairs_that_could_not_be_made_and_damaged_lines_are_told(folder, capsys):
    (folder / "a.en").write_text("Good day!\n")
    (folder / "a.de").write_bytes(b"Sch\xc3\xb6nen Tag!\xff\n")
    arguments = "--train a.en a.de --join 3 --verbatim 4 --names 5 --output b.en b.de"
    assert augment.main(arguments.split()) == 0
    out, err = capsys.readouterr()
    damaged, fewer = err.splitlines()
    assert damaged.startswith("augment.py: a.de: 1 line has")
    assert fewer.startswith("augment.py: 9 pairs fewer than asked for: no pair of a.en has")
    assert out == "3 pairs written to b.en and b.de\n"
    assert augment.main(arguments.replace("--join 3", "").split()) == 2
    assert "no pair of a.en has a name or number that" in capsys.readouterr().err


def test_ctrl_c_ends_it_without_a_traceback(folder, capsys, monkeypatch):
    monkeypatch.setattr(augment, "added", mock.Mock(side_effect=KeyboardInterrupt))
    arguments = "--train train.en train.de --join 3 --output a.en a.de"
    assert augment.main(arguments.split()) == 130
    assert capsys.readouterr() == ("", "")


def test_the_card_of_the_model_names_the_options():
    card = (ROOT / "examples" / "models" / "en-de" / "README.md").read_text(encoding="utf-8")
    assert "augment.py --train" in card and "--add" in card


def test_every_name_list_is_sound():
    for kind in (augment.MEN, augment.WOMEN, augment.FAMILIES, augment.TOWNS):
        assert len(set(kind)) == len(kind) > 40 and all(name[0].isupper() for name in kind)
    assert not set(augment.MEN) & set(augment.WOMEN)
    assert len(augment.PLACES) > 60 and not set(augment.PLACES) & set(augment.TOWNS)
    assert augment.invented_name(rng(1)).istitle()
