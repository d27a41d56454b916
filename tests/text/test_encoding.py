"""Bytes to text: which encoding they are in, and byte-order marks that come in pieces."""

import pytest

from minitf.text.encoding import as_utf8


@pytest.mark.parametrize(
    ("pieces", "read"),
    [
        ([b"\xff", b"\xfe"], b""),  # nothing but a mark
        ([b"\xff"], b"\xff"),  # nothing but the beginning of one
        ([b"\xff", b"\xfe", b"a", b"\0b\0"], b"ab"),
        ([b"\xff\xfea\0", b"b"], "a\ufffd".encode()),  # half a character
    ],
)
def test_the_mark_of_utf_16_may_come_in_pieces(pieces, read):
    left = iter([*pieces, b""])
    assert b"".join(as_utf8(lambda: next(left), "text")) == read
