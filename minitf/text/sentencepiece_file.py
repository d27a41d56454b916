"""SentencePiece, loaded when it is needed, and its files."""

from minitf.errors import UserError


def sentencepiece():
    """Return the module; `import minitf` need not wait for it."""
    import sentencepiece

    sentencepiece.set_min_log_level(3)  # its errors reach the user as one line of ours
    return sentencepiece


def processor(model: bytes):
    """Return the SentencePieceProcessor of a file's content. Raises UserError if it is damaged."""
    try:
        loaded = sentencepiece().SentencePieceProcessor(model_proto=model)
        if not loaded.get_piece_size():  # nothing is loaded from no bytes
            raise RuntimeError
        return loaded
    except (RuntimeError, UnicodeDecodeError):  # the latter: its message quotes the damaged bytes
        raise UserError("not a SentencePiece model: copy the file again") from None
