"""Corpora, built-in or fetched: read, cleaned, split into subwords and grouped into batches."""

from pathlib import Path


def read_table(folder: Path, name: str, separator: str | None = None) -> list[list[str]]:
    """Return the rows of a text file, split into columns; # begins a remark."""
    lines = (folder / name).read_text(encoding="utf-8").splitlines()
    return [line.split(separator) for line in lines if line[0] != "#"]
