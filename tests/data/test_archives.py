"""Archives: members are read by name, and damage is told in one line."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest

from minitf.data.recipes import members
from minitf.errors import UserError

WANTED = {"dir/a.en": b"one\ntwo\n", "dir/a.de": b"eins\nzwei\n"}


def write(path, entries, kind="tgz"):
    """entries: (name, content)."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries:
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w" if kind == "tar" else "w:gz") as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def read(path, names=WANTED):
    with members(path, names) as found:
        return {name: file.read() for name, file in found}


@pytest.mark.parametrize("kind", ["tgz", "tar", "zip"])
def test_members_are_read_and_nothing_is_written(tmp_path, kind):
    beside = [("../evil", b"evil"), ("/etc/evil", b"evil"), ("dir/other", b"x" * 10_000)]
    entries = [*beside, ("./dir/a.en", WANTED["dir/a.en"]), ("dir/a.de", WANTED["dir/a.de"])]
    (tmp_path / "deep").mkdir()
    path = write(tmp_path / "deep" / f"archive.{kind}", entries, kind)
    assert read(path) == WANTED
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]
    words = rf"archive.{kind} does not contain nowhere: delete it, and it"
    with pytest.raises(UserError, match=words):
        read(path, ["dir/a.en", "nowhere"])


def test_a_link_in_place_of_a_file_is_no_member(tmp_path):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        link = tarfile.TarInfo("dir/a.en")
        link.type, link.linkname = tarfile.SYMTYPE, "../secret"
        archive.addfile(link)
    with pytest.raises(UserError, match=r"does not contain dir/a\.en"):
        read(tmp_path / "a.tgz", ["dir/a.en"])


def test_files_packed_by_gzip(tmp_path):
    packed = {f"{name}.gz": gzip.compress(text) for name, text in WANTED.items()}
    inside = write(tmp_path / "giga.tar", packed.items(), "tar")
    assert read(inside, packed) == {f"{name}.gz": text for name, text in WANTED.items()}


@pytest.mark.parametrize(
    "content", [b"", b"<html>Please log in</html>\n" * 90, b"\x1f\x8b", b"PK\3\4" + bytes(90)]
)
@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_files_that_are_not_archives(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"is not a complete archive|does not contain"):
        read(tmp_path / name)


@pytest.mark.parametrize("kind", ["tgz", "zip", "tar"])
def test_damage_is_one_line(tmp_path, kind):
    """Archives cut short or with a byte changed are refused, or their content is right."""
    rng = np.random.default_rng(0)
    entries = {name: rng.bytes(2000) for name in WANTED}
    whole = write(tmp_path / f"whole.{kind}", entries.items(), kind).read_bytes()
    path, refused = tmp_path / f"archive.{kind}", 0
    for i in range(100):
        damaged = bytearray(whole)
        if i % 2:
            del damaged[rng.integers(len(whole)) :]
        else:
            damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            found = read(path)
        except UserError:
            refused += 1
        else:
            assert found == entries or kind == "tar"  # which has a checksum of its headers only
    assert refused > 25
