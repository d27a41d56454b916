"""Sums by products and by sorted ids, and the cutting of arrays into blocks."""

import numpy as np
import pytest

from minitf.cpu.sums import add_segments, blocks, column_sums, row_dots, row_sums, slice_bounds


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5)])
def test_sums_by_products_are_sums(shape, rng):
    x, y = rng.normal(size=shape), rng.normal(size=shape)
    np.testing.assert_allclose(row_sums(x), x.sum(axis=-1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(column_sums(x), x.reshape(-1, 5).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(row_dots(x, y), (x * y).sum(axis=-1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 7, 12, 100])
@pytest.mark.parametrize("shape", [(7,), (2, 5), (3, 2, 4), (0, 3)])
def test_blocks_hold_every_element_once(shape, size):
    seen = np.zeros(shape, int)
    for block in blocks(shape, size):
        seen[block] += 1
        assert seen[block].size <= size
    assert (seen == 1).all()


@pytest.mark.parametrize(
    "ids", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 2, 2], [4, 0, 4, 1, 0, 3], [1], []], ids=str
)
def test_rows_of_one_id_are_added_up(ids, rng):
    rows = rng.normal(size=(len(ids), 3))
    table = rng.normal(size=(5, 3))
    expected = table.copy()
    for i, row in zip(ids, rows, strict=True):
        expected[i] += row
    add_segments(np.array(ids, dtype=int), rows, table)
    np.testing.assert_allclose(table, expected)


def test_slice_bounds_are_of_one_length_or_one_more():
    for length in (0, 1, 7, 20, 100):
        for count in (1, 2, 3, 8, 30):
            cuts = slice_bounds(length, count)
            assert [start for start, _ in cuts] == [0, *(stop for _, stop in cuts[:-1])] and cuts[
                -1
            ][1] == length
            sizes = [stop - start for start, stop in cuts]
            assert len(cuts) == count and max(sizes) - min(sizes) <= 1
