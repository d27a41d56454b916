"""Damaged and hostile weights: one line, at little memory, and nothing in a file is run."""

import pickle
import struct
import tracemalloc
import warnings
import zipfile
from io import BytesIO

import numpy as np
import pytest
import torch_pickles
from saved_files import message

from minitf.errors import UserError
from minitf.public.marian import read_npz
from minitf.public.torch_file import read_torch

# An .npz -----------------------------------------------------------------------------------------


def write_npz(path, entries, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a double name
        for name, content in entries:
            archive.writestr(name, content)


def npy_bytes(array, **header):
    """Return the bytes of an .npy file, with some entries of its header replaced."""
    stream = BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array) | header
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + (b"" if array.dtype.hasobject else array.tobytes())


META = "meta.npy", npy_bytes(np.frombuffer(b"{}", np.uint8))


def refused_at_little_memory(read, path):
    tracemalloc.start()
    text = message(read, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
    return text


@pytest.mark.parametrize(
    "header",
    [
        {"shape": (10**12,)},
        {"shape": (0, 2**62, 2**62)},
        {"shape": (-1, -4)},
        {"descr": "<c8"},
        {"descr": "|O"},
        {"descr": "nonsense"},
    ],
    ids=str,
)
def test_a_lying_header_takes_no_memory(tmp_path, header):
    content = npy_bytes(np.zeros(4, np.float32), **header)
    write_npz(tmp_path / "a.npz", [META, ("w.npy", content)])
    text = refused_at_little_memory(read_npz, tmp_path / "a.npz")
    assert "'w'" in text and "damaged" in text


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_lying_table_of_contents_takes_no_memory(tmp_path, compression):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("w.npy", npy_bytes(np.zeros(4, np.float32), shape=(10**9,)))
        archive.getinfo("w.npy").file_size += 4 * 10**9 - 16
    text = refused_at_little_memory(read_npz, path)
    assert "'w'" in text and "damaged" in text


@pytest.mark.parametrize(
    ("entries", "compression", "said"),
    [
        ([META, ("w.npy", b"hello")], zipfile.ZIP_STORED, "array 'w'"),
        ([META, ("w.npy", npy_bytes(np.zeros(4)) + b"x")], zipfile.ZIP_STORED, "array 'w'"),
        # Python unpacks a block of bzip2 completely to read a byte: a bomb of 2 KB takes 4 GB.
        ([META], zipfile.ZIP_BZIP2, "unknown compression"),
        ([META], zipfile.ZIP_LZMA, "unknown compression"),
        ([META, META], zipfile.ZIP_STORED, "is not an array"),
        ([META, ("w.txt", META[1])], zipfile.ZIP_STORED, "is not an array"),
    ],
)
def test_other_entries_are_refused(tmp_path, entries, compression, said):
    write_npz(tmp_path / "a.npz", entries, compression)
    assert said in message(read_npz, tmp_path / "a.npz")


def test_entries_that_share_their_bytes_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("w.npy", npy_bytes(np.zeros(1000)))
        for i in range(100):
            twin = zipfile.ZipInfo(f"w{i}.npy")
            for field in ("CRC", "compress_size", "file_size", "header_offset"):
                setattr(twin, field, getattr(archive.getinfo("w.npy"), field))
            archive.filelist.append(twin)
    assert "larger than the file" in message(read_npz, path)


# Pickles ------------------------------------------------------------------------------------------


class Runs:
    """An object whose pickle calls a function when it is loaded by Python."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


TRAP = Runs(open, "sprung", "w")


def test_pickled_arrays_are_refused_unopened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("a.npz", trap=np.array([TRAP, None], dtype=object), meta=np.zeros(2))
    text = message(read_npz, tmp_path / "a.npz")
    assert "'trap'" in text and "object" in text and not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("content", [{"w": TRAP}, TRAP, {TRAP: 1}, {"w": Runs(eval, "1")}])
def test_a_pickle_that_runs_something_is_refused(content, protocol, legacy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pytorch_model.bin"
    torch_pickles.write(path, pickle.dumps(content, protocol), {}, legacy)
    with pytest.raises(UserError, match="which is not a tensor: nothing was run"):
        read_torch(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    {
        b"cos\nsystem\n(S'touch sprung'\ntR.": "os.system, which is not a tensor",
        b"\x80\x04\x8c\x0bcollections\x8c\x14OrderedDict.fromkeys\x93.": "OrderedDict.fromkeys",
        b"(S'touch sprung'\nios\nsystem\n.": "os.system",
        b"\x80\x04\x82\x01.": "damaged",  # an extension that nobody has registered
        # What takes the memory that it claims, or as much as an index is high.
        b"\x80\x05\x96\x00\x00\x00\x00\x10\x00\x00\x00.": "damaged",
        b"\x80\x02Nr\xff\xff\xff\x7f.": "does more than describe tensors",
        b"\x80\x02Np4000000000\n.": "does more than describe tensors",
        # The function of a tensor is new each time, so that nobody can change the next one.
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}(X\x01\x00\x00\x00aK\x01ub.": "more than",
    }.items(),
)
def test_operations_by_hand(content, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pytorch_model.bin"
    torch_pickles.write(path, content, {}, legacy=False)
    assert said in refused_at_little_memory(read_torch, path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        ({"offset": 5}, "larger than its storage"),
        ({"shape": (3, 5)}, "larger than its storage"),
        ({"strides": (1, 3)}, "not contiguous"),
        ({"strides": (0, 1)}, "not contiguous"),
        ({"offset": -1}, "impossible shape"),
        ({"shape": (-3, -4)}, "impossible shape"),
        ({"shape": (1 << 40, 1 << 40)}, "larger than its storage"),
        ({"shape": (12,)}, "more than tensors"),
        ({"kind": "ByteStorage"}, "torch.ByteStorage"),
    ],
)
def test_tensors_outside_their_storage_are_refused(tensor, said, legacy, tmp_path):
    path = tmp_path / "pytorch_model.bin"
    content = torch_pickles.state(w=torch_pickles.tensor(**tensor))
    torch_pickles.write(path, content, {"0": np.arange(12, dtype="f4")}, legacy)
    assert said in message(read_torch, path)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", ["FloatStorage", "BFloat16Storage"])
def test_a_tensor_may_begin_anywhere_in_its_storage(kind, protocol, legacy, tmp_path):
    path, numbers = tmp_path / "pytorch_model.bin", np.arange(12, dtype="<f4")
    tensor = torch_pickles.tensor(kind, offset=3, shape=(1, 2, 4), strides=(7, 4, 1))
    stored = numbers if kind == "FloatStorage" else numbers.view("<u2")[1::2]
    content = torch_pickles.state(protocol, w=tensor)
    torch_pickles.write(path, content, {"0": stored}, legacy, protocol)
    assert np.array_equal(read_torch(path)["w"], np.arange(3, 11, dtype="f4").reshape(1, 2, 4))


def test_a_storage_that_claims_more_than_the_file(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    content = torch_pickles.state(w=torch_pickles.tensor())
    torch_pickles.write(path, content, {"0": np.arange(12, dtype="f4")}, True)
    data = path.read_bytes()
    path.write_bytes(data[:-56] + struct.pack("<q", 1 << 60) + data[-48:])
    assert "it ends early" in message(read_torch, path)


def test_compressed_members_are_refused(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", torch_pickles.state(w=torch_pickles.tensor()))
        archive.writestr("archive/data/0", bytes(1 << 20))
    assert "larger than the file" in message(read_torch, path)
