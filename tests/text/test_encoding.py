"""Bytes to text: which encoding they are in, and marks of UTF-16 that come in pieces."""

import pytest

from minitf.text.encoding import as_utf8, likely_encoding


@pytest.mark.parametrize(
    ("text", "written", "found"),
    [
        ("Привет, как дела? Мы живём там.", "utf-16-le", "utf-16le"),  # few letters of ASCII
        ("Привет, как дела? Мы живём там.", "utf-16-be", "utf-16be"),
        ("Grüße\rGrüße\r", "mac-roman", "macintosh"),
        ("Größe\rGröße\r", "latin1", "latin1"),  # \r alone does not make it a Macintosh's
    ],
)
def test_the_encoding_is_told_by_the_bytes(text, written, found):
    assert likely_encoding(text.encode(written)) == found


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
