"""Under mpirun: sums over ranks equal NumPy's sums in the order of the ranks, bit for bit."""

import numpy as np

from minitf.errors import UserError
from minitf.training import distributed
from minitf.training.distributed import Ranks, rank_and_size


def main():
    one = Ranks(*rank_and_size())
    one.join()
    distributed._BLOCK = 1000
    for dtype in ("float32", "float64"):
        for length in (1, 2, 5, 999, 1000, 1001, 5003):
            drawn = [
                np.random.default_rng([r, length]).normal(size=length).astype(dtype)
                for r in range(one.size)
            ]
            mine = drawn[one.rank].copy()
            one.all_reduce(mine)
            assert mine.dtype == dtype and np.array_equal(mine, sum(drawn[1:], drawn[0])), (
                dtype,
                length,
            )
    assert one.sum_numbers(one.rank, 0.1) == (sum(range(one.size)), sum([0.1] * one.size))
    assert one.broadcast(f"said by {one.rank}") == "said by 0"
    assert one.all_gather(one.rank) == list(range(one.size))
    one.check_same(mine, "sums")
    mine[0] += one.rank == one.size - 1
    try:
        one.check_same(mine, "sums")
    except UserError as error:
        assert str(error).startswith(f"sums of rank {one.size - 1} (on ")
        assert "differ from those of rank 0" in str(error)
    else:
        raise AssertionError("a difference went unnoticed")
    one.broadcast_array(mine)
    one.check_same(mine, "copies")
    if one.rank == 0:
        print(f"{one.size} ranks agree")


if __name__ == "__main__":
    main()
