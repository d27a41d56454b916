"""A program whose terminal was closed while it worked."""

import errno
import io
import os
import sys
import tempfile

import pytest

from minitf import cli


def test_a_terminal_that_is_gone_ends_no_program(monkeypatch):
    """What could not be written is dropped; a disk that fails is still told."""

    class Gone(io.StringIO):
        def flush(self):
            raise OSError(errno.EIO, "Input/output error")

        def fileno(self):
            return self.descriptor

    with open(os.devnull, "w") as device, tempfile.TemporaryFile() as disk:
        stdout = Gone()
        monkeypatch.setattr(sys, "stdout", stdout)
        stdout.descriptor = os.dup(device.fileno())
        assert cli.exit_code("a program", lambda: 7) == 7
        os.close(stdout.descriptor)
        stdout.descriptor = os.dup(disk.fileno())
        with pytest.raises(OSError, match="Input/output"):
            cli.exit_code("a program", lambda: 7)
        os.close(stdout.descriptor)
