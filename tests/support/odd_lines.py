"""Lines of text that are hard to translate one for one."""

ODD = {
    "empty": b"",
    "space": b" \t ",
    "carriage returns": b"a\rb\r\r",
    "controls": bytes(range(10)) + bytes(range(11, 32)) + b"\x7f",
    "C1 controls": "".join(map(chr, range(0x80, 0xA0))).encode(),
    "separators": "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg".encode(),
    "not UTF-8": b"\xff\xfe\x80 the \xc3\x28 dog \xf0\x9f",
    "surrogates": b"\xed\xa0\x80 \xed\xbf\xbf",
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea ❤️".encode(),
    "scripts": "Привет мир 東京 مرحبا हिन्दी ქართული ไทย".encode(),
    "specials": b"<s> </s> <pad> <unk> <0x0A> <0x1B>",
    "byte order mark": b"\xef\xbb\xbfthe dog",
    "marks of subwords": "▁ ▁▁ @@ a@@".encode(),
    "combining": b"a" + "\u0301".encode() * 50,
    "joiners": "a\u200d\u200db e\u200d\u0301 \u2003\u200c\u1f79\u200d \u1ffd \ufb01\u0301".encode(),
    "highest": "\U0010ffff\ufffe\ufdd0".encode(),
    "NUL": b"\0" * 30,
    "long": b"the dog saw a bird, " * 30,
    "endless": b"x" * 300,
    "options": b"--help -1",
}


def random_line(rng):
    """A line of any kind of bytes but a line feed."""
    kind = rng.randrange(6)
    if kind == 0:
        line = rng.randbytes(rng.randrange(30))
    elif kind == 1:
        line = "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randrange(12))).encode(
            errors="surrogatepass"
        )
    elif kind == 2:
        line = b" ".join(rng.choices(list(ODD.values()), k=2))[:60]
    elif kind == 3:
        line = bytes(rng.choices(range(128), k=rng.randrange(40)))
    else:
        line = " ".join(
            rng.choices(
                ["the", "dog", "Vogel", "saw.", "we", "\u2028", "\x85", ""], k=rng.randrange(9)
            )
        ).encode()
    return line.replace(b"\n", b"")
