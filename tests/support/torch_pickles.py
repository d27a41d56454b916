"""Files as PyTorch writes them, byte by byte, for tests of what is refused. No PyTorch."""

import io
import pickle
import struct
import sys
import types
import zipfile

import numpy as np


class _Storage:
    def __init__(self, kind):
        self.kind = kind


class _Tensor:
    def __init__(self, kind, offset, shape, strides):
        self.storage, self.numbers = _Storage(kind), (offset, shape, strides)

    def __reduce__(self):
        rebuild = sys.modules["torch._utils"]._rebuild_tensor_v2
        return rebuild, (self.storage, *self.numbers, False, {})


class _Pickler(pickle.Pickler):
    def persistent_id(self, value):
        if isinstance(value, _Storage):
            return "storage", getattr(sys.modules["torch"], value.kind), "0", "cpu", 12
        return None


def tensor(kind="FloatStorage", offset=0, shape=(3, 4), strides=(4, 1)):
    return _Tensor(kind, offset, shape, strides)


def state(protocol=2, **tensors):
    """Return the pickle of a dictionary of tensors."""
    stand_in, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for kind in ("FloatStorage", "BFloat16Storage", "ByteStorage"):
        setattr(stand_in, kind, type(kind, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2():
        pass

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    known = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": stand_in, "torch._utils": utils})
    try:
        content = io.BytesIO()
        _Pickler(content, protocol).dump(tensors)
    finally:
        for name, module in known.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return content.getvalue()


def write(path, content, storages, legacy, protocol=2):
    """Write a pickle and the numbers of its storages {key: array}."""
    if legacy:
        head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
        parts = [pickle.dumps(each, protocol) for each in head]
        parts += [content, pickle.dumps(list(storages), protocol)]
        for array in storages.values():
            parts += [struct.pack("<q", array.size), np.ascontiguousarray(array).tobytes()]
        path.write_bytes(b"".join(parts))
        return
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        for key, array in storages.items():
            archive.writestr(f"archive/data/{key}", array.tobytes())
