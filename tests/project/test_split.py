"""examples/split.py: no pair is lost or torn apart, and none is both trained on and tested on."""

import doctest
import sys

import pytest
from paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

import split


def write(folder, pairs, names=("all.en", "all.de"), end="\n", mark=b""):
    for name, lines in zip(names, zip(*pairs, strict=True), strict=True):
        (folder / name).write_bytes(mark + end.join(lines).encode())  # no end of the last line


def read(folder, part, endings=("en", "de")):
    sides = [(folder / f"{part}.{end}").read_bytes().decode() for end in endings]
    return list(zip(*(side.splitlines() for side in sides), strict=True))


def run(folder, monkeypatch, *arguments):
    monkeypatch.chdir(folder)
    return split.main([*arguments] or ["all.en", "all.de"])


def test_the_example():
    assert doctest.testmod(split).failed == 0


@pytest.mark.parametrize(("count", "kept_out"), [(1700, 170), (5000, 500), (7000, 500)])
def test_the_parts_are_the_text(count, kept_out, tmp_path, monkeypatch, capsys):
    pairs = [(f"line {i}", f"Zeile {i}") for i in range(count)]
    write(tmp_path, pairs, end="\r\n", mark=b"\xef\xbb\xbf")
    assert run(tmp_path, monkeypatch) == 0
    found = {part: read(tmp_path, part) for part in ("my", "valid", "test")}
    assert sorted([*found["my"], *found["valid"], *found["test"]]) == sorted(pairs)
    assert len(found["valid"]) == len(found["test"]) == kept_out
    assert found["valid"] != pairs[:kept_out], "not shuffled"
    assert f"my.en and my.de: {count - 2 * kept_out:,} pairs\n" in capsys.readouterr().out


def test_what_is_tested_is_not_trained_on(tmp_path, monkeypatch, capsys):
    # Three pairs share each source, and three each target; each pair occurs twice.
    pairs = [("", "leer")] + [(f"line {i // 3}", f"Zeile {i % 20}") for i in range(60)] * 2
    write(tmp_path, pairs)
    assert run(tmp_path, monkeypatch) == 0
    mine, kept_out = read(tmp_path, "my"), read(tmp_path, "valid") + read(tmp_path, "test")
    assert len(kept_out) == 12 == len(set(kept_out)) and mine
    for side in (0, 1):
        assert not {pair[side] for pair in mine} & {pair[side] for pair in kept_out}
    said = capsys.readouterr().out
    assert "left out, with an empty side: 1 pair\nleft out, repeated: 60 pairs\n" in said
    left = 60 - len(kept_out) - len(mine)
    assert f"left out, that share a side with valid or test: {left} pairs\n" in said
    for folder, seed in (("again", "0"), ("two", "1")):
        assert run(tmp_path, monkeypatch, "all.en", "all.de", "--out", folder, "--seed", seed) == 0
    assert read(tmp_path / "again", "my") == mine != read(tmp_path / "two", "my")


def test_spaces_make_no_other_sentence():
    pairs = [(f"{i // 2}", f"Zeile {i}") for i in range(80)]
    pairs += [(f" {source}", target.replace(" ", "  ")) for source, target in pairs[:40]]
    parts, left_out = split.split(pairs)
    seen = set()
    for part in parts.values():
        sides = {(side, " ".join(pair[side].split())) for pair in part for side in (0, 1)}
        assert sides and not sides & seen
        seen |= sides
    assert left_out["repeated"] == 40


@pytest.mark.parametrize(
    ("count", "arguments", "reason"),
    [
        (100, ("all.en", "missing.de"), "missing.de cannot be read"),
        (100, ("all.en", "all.en"), "end them with two languages, such as all.en and all.de"),
        (100, ("all.en", "short.de"), "all.en has 100 lines but short.de has 1"),
        (100, ("all.en", "all.de", "--out", "all.en/x"), "its folder is a file"),
        (100, ("all.en", "all.de", "--out", "x" * 300), "choose a shorter name"),
        (9, ("all.en", "all.de"), "all.en has too few different pairs to split"),
    ],
)
def test_what_cannot_be_split(count, arguments, reason, tmp_path, monkeypatch, capsys):
    write(tmp_path, [(f"line {i}", f"Zeile {i}") for i in range(count)])
    (tmp_path / "short.de").write_text("Zeile\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    assert run(tmp_path, monkeypatch, *arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("split.py: ") and reason in err and err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_no_file_is_replaced(tmp_path, monkeypatch, capsys):
    write(tmp_path, [(f"line {i}", f"Zeile {i}") for i in range(100)])
    (tmp_path / "test.de").write_text("mine\n", encoding="utf-8")
    assert run(tmp_path, monkeypatch) == 2
    assert "test.de exists already: move it, or choose another folder" in capsys.readouterr().err
    assert (tmp_path / "test.de").read_text(encoding="utf-8") == "mine\n"
    assert not (tmp_path / "my.en").exists()
