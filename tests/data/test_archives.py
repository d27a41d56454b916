"""Archives are not trusted: links, bombs and damage are refused in one line."""

import gzip
import io
import tarfile
import zipfile

import numpy as np
import pytest

from minitf.data.archives import members
from minitf.errors import UserError

WANTED = {"dir/a.en": b"one\ntwo\n", "dir/a.de": b"eins\nzwei\n"}


def write(path, entries, kind="tgz"):
    """entries: (name, content), or ready-made TarInfos."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries:
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w" if kind == "tar" else "w:gz") as archive:
        for entry in entries:
            info, content = entry if isinstance(entry, tuple) else (entry, b"")
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def read(path, names=WANTED):
    return {name: file.read() for name, file in members(path, names)}


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", ["tgz", "tar", "zip"])
def test_members_are_read_and_nothing_is_written(tmp_path, kind):
    more = [
        ("dir/other", b"x" * 10_000),
        ("./dir/a.en", WANTED["dir/a.en"]),
        ("dir/a.de", WANTED["dir/a.de"]),
    ]
    path = write(
        tmp_path / f"archive.{kind}", [*more, ("dir/a.de", b"the second one of this name")], kind
    )
    assert read(path) == WANTED
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(
        UserError, match=rf"archive.{kind} does not contain nowhere: delete it, and it"
    ):
        read(path, ["dir/a.en", "nowhere"])


def test_files_packed_by_gzip(tmp_path):
    path = tmp_path / "train.en.gz"
    path.write_bytes(gzip.compress(b"a\nb\n"))
    assert read(path, ["train.en"]) == {"train.en": b"a\nb\n"}
    with pytest.raises(UserError, match=r"does not contain train\.de"):
        read(path, ["train.de"])
    inside = write(
        tmp_path / "giga.tar",
        [(f"{name}.gz", gzip.compress(text)) for name, text in WANTED.items()],
        "tar",
    )
    assert read(inside, [f"{name}.gz" for name in WANTED]) == {
        f"{name}.gz": text for name, text in WANTED.items()
    }


@pytest.mark.parametrize("kind", ["tgz", "zip"])
@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "dir/../../evil", "..\\evil", "C:\\evil", "c:evil", ".."]
)
def test_a_path_outside_the_archive_writes_nothing(tmp_path, kind, name):
    folder = tmp_path / "deep" / "folder"
    folder.mkdir(parents=True)
    path = write(folder / f"archive.{kind}", [(name, b"evil"), *WANTED.items()], kind)
    assert read(path) == WANTED
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]


def test_a_link_or_device_in_place_of_a_file_is_refused(tmp_path):
    (tmp_path / "secret").write_text("secret")
    for kind, target in (
        (tarfile.SYMTYPE, "../secret"),
        (tarfile.SYMTYPE, "a.de"),
        (tarfile.LNKTYPE, "dir/a.de"),
        (tarfile.CHRTYPE, ""),
        (tarfile.FIFOTYPE, ""),
        (tarfile.DIRTYPE, ""),
    ):
        path = write(
            tmp_path / "archive.tgz", [special("dir/a.en", kind, target), ("dir/a.de", b"x")]
        )
        with pytest.raises(UserError, match=r"dir/a\.en in it is not a plain file"):
            read(path)
    link = zipfile.ZipInfo("dir/a.en")
    link.external_attr = 0o120777 << 16
    with pytest.raises(UserError, match=r"dir/a\.en in it is not a plain file"):
        read(write(tmp_path / "archive.zip", [(link, b"../secret")], "zip"))
    with pytest.raises(UserError, match=r"dir/a\.en in it is not a plain file"):
        read(write(tmp_path / "archive.zip", [("dir/a.en/", b"")], "zip"))
    beside = write(
        tmp_path / "archive.tgz", [special("dir/latest", tarfile.SYMTYPE, "a.en"), *WANTED.items()]
    )
    assert read(beside) == WANTED  # a link that nobody asked for is passed over


def test_a_bomb_is_refused(tmp_path):
    zeros = b"\0" * 6_000_000
    bombs = [
        write(tmp_path / "wanted.tgz", [("dir/a.en", zeros), ("dir/a.de", b"")]),
        write(tmp_path / "beside.tgz", [("other", zeros), *WANTED.items()]),
        write(tmp_path / "inside.tar", [("dir/a.en", b"")], "tar"),
        write(tmp_path / "wanted.zip", [("dir/a.en", zeros), ("dir/a.de", b"")], "zip"),
    ]
    header = special("pax", tarfile.XHDTYPE)  # read completely, to find a name in it
    header.size = len(zeros)
    bombs.append(write(tmp_path / "header.tgz", [(header, zeros), *WANTED.items()]))
    packed = tmp_path / "dir-a.en.gz"
    packed.write_bytes(gzip.compress(zeros))
    inner = gzip.compress(zeros)
    for path, names in [(path, WANTED) for path in bombs if path.name != "inside.tar"] + [
        (packed, ["dir-a.en"]),
        (write(tmp_path / "inside.tar", [("a.en.gz", inner)], "tar"), ["a.en.gz"]),
    ]:
        with pytest.raises(
            UserError, match=r"looks wrong or unsafe \(it unpacks to more than [\d,]+ bytes"
        ):
            for _, file in members(path, names):
                while file.read(1 << 16):
                    pass


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_of_another_compression_is_not_trusted(tmp_path, compression):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", compression) as archive:
        archive.writestr("a.en", "text")
    with pytest.raises(UserError, match="unusual compression"):
        list(members(tmp_path / "a.zip", ["a.en"]))


def test_text_that_compresses_very_well_is_accepted(tmp_path):
    text = b"".join(b"%d bottles of beer on the wall\n" % i for i in range(30_000))
    assert read(write(tmp_path / "a.tgz", [("text", text)]), ["text"]) == {"text": text}


def test_an_encrypted_zip(tmp_path):
    path = write(tmp_path / "a.zip", WANTED.items(), "zip")
    content = bytearray(path.read_bytes())
    for i, flags in ((content.find(b"PK\3\4"), 6), (content.find(b"PK\1\2"), 8)):
        content[i + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"is not a complete archive .*password"):
        read(path)


@pytest.mark.parametrize(
    "content", [b"", b"<html>Please log in</html>\n" * 90, b"\x1f\x8b", b"PK\3\4" + bytes(90)]
)
@pytest.mark.parametrize("name", ["a.tgz", "a.zip", "a.gz"])
def test_files_that_are_not_archives(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"is not a complete archive|does not contain"):
        read(tmp_path / name)
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "nowhere")


def test_damage_for_which_python_raises_odd_exceptions(tmp_path):
    """A zip whose names are not UTF-8, and a tar whose sizes are not numbers."""
    path = write(tmp_path / "a.zip", [("\u00e9.en", b"text")], "zip")
    path.write_bytes(path.read_bytes().replace("\u00e9".encode(), b"\xff\xfe"))
    with pytest.raises(UserError, match="is not a complete archive"):
        read(path)
    for pax in (
        {"GNU.sparse.size": "x", "GNU.sparse.map": "a,b"},
        {"GNU.sparse.major": "1", "GNU.sparse.realsize": "q"},
    ):
        with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
            entry = tarfile.TarInfo("dir/a.en")
            entry.pax_headers, entry.size = pax | {"GNU.sparse.minor": "0"}, 3
            archive.addfile(entry, io.BytesIO(b"abc"))
        with pytest.raises(UserError, match="is not a complete archive"):
            read(tmp_path / "a.tar")


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
