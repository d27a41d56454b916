"""Several machines or GPUs: each process computes a slice of every update; gradients are summed.

    mpirun -n 2 python lessons/09_train_wmt.py ...

starts the program twice. The processes, rank 0 and rank 1, run the same program on the same
weights; each computes the gradient of its slice of an update (minitf/training/update.py), and all
change their weights by the sum, which up to rounding is the gradient that one process would have
found. Rank 0 also does what must be done only once: it reads the text and sends it to the others,
validates, and writes the log and the files.
"""

import hashlib
import os
import platform
import sys
import time

import numpy as np

from minitf.backend import to_device, to_numpy, xp
from minitf.cli import amount, drop_unwritten, report_error
from minitf.cpu.machine import cpu_cores, own_cores
from minitf.cpu.sums import slice_bounds
from minitf.cpu.threads import libraries
from minitf.errors import UserError
from minitf.gpu import launch

# Environment variables with a process's rank and the number of ranks: of Open MPI, of MPICH and
# its relatives, and of Slurm.
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)
_BLOCK = 1 << 20  # numbers summed at a time, so that the sums stay in the cache
_RANK0_HEADSTART = 3  # seconds; most errors occur on all ranks, and rank 0 reports them alone
_FLUSH_TIME = 0.3  # seconds in which mpirun forwards our output before we abort


def rank_and_size():
    """Return (rank, size) as set by mpirun or srun, (0, 1) if neither started this process."""
    for names in _LAUNCHERS:
        if all(os.environ.get(name, "").isdecimal() for name in names):
            rank, size = (int(os.environ[name]) for name in names)
            return rank, size
    return 0, 1


class Ranks:
    """The processes that share a run; this one is number `rank` of `size`.

    A process that is alone sends nothing.
    All ranks must call `broadcast`, `all_gather`, `all_reduce`, `sum_numbers`, `broadcast_array`,
    `check_same` and `connect` in the same order: each call waits for all ranks.
    """

    def __init__(self, rank=0, size=1):
        self.rank, self.size = rank, size
        self._world = self._machine = None  # communicators of all ranks and of this machine's
        self._gpu = None
        self._ranks_on_my_cores = 1  # ranks that run on the cores of this one, itself included
        self.description = ""  # how many ranks on how many machines

    def join(self):
        """Connect to the other ranks.

        Raises UserError if mpi4py is missing, or uses another MPI than mpirun.
        """
        if self.size == 1:
            return
        try:
            from mpi4py import MPI
            from mpi4py.util import pkl5
        except (ImportError, RuntimeError) as error:  # RuntimeError: without an MPI library
            reason = str(error).split("\n")[0]
            raise UserError(
                f'several ranks need mpi4py and an MPI library: pip install -e ".[mpi]" ({reason})'
            ) from None
        if MPI.COMM_WORLD.size != self.size:
            raise UserError(
                f"{self.size} processes were started, but mpi4py sees only {MPI.COMM_WORLD.size}: "
                "mpirun belongs to another MPI library than mpi4py; start with the mpirun of "
                "mpi4py's library, or reinstall mpi4py for the library of this mpirun"
            )
        self._world = pkl5.Intracomm(MPI.COMM_WORLD)  # sends more than 2 GiB, as of a large corpus
        self._machine = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
        sys.excepthook = self._crash
        self._find_cores()

    def _find_cores(self):
        """Find out which ranks share the cores of this one, and which cores have no rank."""
        mine = own_cores()
        everyone = self._machine.allgather(mine)
        self._ranks_on_my_cores = sum(bool(mine & theirs) for theirs in everyone)
        machines = sum(self._world.allgather(self._machine.rank == 0))
        self.description = f"{self.size} on {amount(machines, 'machine')}"
        if idle := (os.cpu_count() or 1) - len(set().union(*everyone)):
            self.description += (
                f"; unused cores of this machine: {idle}; with mpirun --bind-to none every rank "
                "can use all cores"
            )

    def cores(self):
        """Return how many threads this rank may use; ranks on the same cores share them."""
        return max(1, cpu_cores() // self._ranks_on_my_cores)

    def limit_threads(self):
        """Limit BLAS to those threads; on its own it ignores the CPU quota of a container."""
        for library in libraries.select(user_api="blas").lib_controllers:
            library.set_num_threads(min(library.get_num_threads(), self.cores()))

    def connect(self):
        """Choose a GPU for each rank, if they compute on GPUs.

        Raises UserError if there are too few.
        """
        if self.size > 1 and hasattr(xp, "cuda"):
            self._gpu = _Gpu(self._world, self._machine)

    # What the ranks send each other ---------------------------------------------------------------

    def broadcast(self, value):
        """Return the value of rank 0, on every rank."""
        if self.size == 1:
            return value
        self._wait()
        return self._world.bcast(value)

    def all_gather(self, value):
        """Return the values of all ranks as a list, on every rank."""
        if self.size == 1:
            return [value]
        self._wait()
        return self._world.allgather(value)

    def _wait(self):
        """Wait until all ranks are here. Rank 0 may take minutes, so this keeps no core busy."""
        arrived, pause = self._world.Ibarrier(), 1e-6
        while not arrived.Test():
            time.sleep(pause)
            pause = min(2 * pause, 0.01)

    def sum_numbers(self, *numbers):
        """Return the sums of numbers over the ranks, added in the order of the ranks."""
        if self.size == 1:
            return numbers
        return tuple(map(sum, zip(*self._world.allgather(numbers), strict=True)))

    def all_reduce(self, array):
        """Replace a flat array by its sum over the ranks: the same bits on every rank, every time.

        On GPUs, NCCL does. Else each rank sums one slice of each block, in the order of the ranks,
        and sends the result to the others. So a rank sends (size - 1) / size of the array twice,
        the least possible.
        """
        if self.size == 1:
            return
        if self._gpu:
            self._gpu.all_reduce(array)
            return
        for start in range(0, len(array), _BLOCK):
            block = array[start : start + _BLOCK]
            lengths = [stop - start for start, stop in slice_bounds(len(block), self.size)]
            mine = np.empty((self.size, lengths[self.rank]), block.dtype)  # my slice of every rank
            self._world.Alltoallv([block, lengths], [mine, [lengths[self.rank]] * self.size])
            for theirs in mine[1:]:
                mine[0] += theirs
            self._world.Allgatherv(mine[0], [block, lengths])

    def broadcast_array(self, array):
        """Overwrite an array with rank 0's."""
        if self.size > 1:
            array[...] = to_device(self.broadcast(to_numpy(array)))

    def check_same(self, array, name):
        """Raise UserError on all ranks unless an array is the same on all, bit for bit."""
        if self.size == 1:
            return
        digests = self._world.allgather(
            (hashlib.sha256(to_numpy(array)).hexdigest(), platform.node())
        )
        for rank, (digest, node) in enumerate(digests):
            if digest != digests[0][0]:
                raise UserError(
                    f"{name} of rank {rank} (on {node}) differ from those of rank 0: continue from "
                    "the last checkpoint with --resume; if it happens again, leave that machine out"
                )

    # How they end ---------------------------------------------------------------------------------

    def report_error(self, program, message, code=2):
        """Write one line about a mistake, and end all ranks with this exit code.

        A process that is alone returns the code, and exits itself; several ranks are ended by MPI.
        Most errors occur on all ranks. So another rank waits for three seconds, in which rank 0
        reports the error and ends all; if that does not happen, the error is its own, and its
        message ends in its number and the name of its machine.
        """
        if self.rank:
            message = f"{message} (rank {self.rank} on {platform.node()})"
        self._end_all(code, lambda: report_error(program, message))
        return code

    def _crash(self, *error):
        """Replace Python's hook for uncaught errors: the other ranks would wait forever."""
        self._end_all(1, lambda: sys.__excepthook__(*error))

    def _end_all(self, code, report):
        time.sleep(_RANK0_HEADSTART if self.rank else 0)
        report()
        drop_unwritten()
        if self._world is not None:
            time.sleep(_FLUSH_TIME)
            self._world.Abort(code)


class _Gpu:
    """The GPU of this rank, and NCCL, which sums arrays directly between GPUs."""

    def __init__(self, world, machine):
        self._nccl, runtime = launch.nccl(), xp.cuda.runtime
        number = machine.rank % runtime.getDeviceCount()
        xp.cuda.Device(number).use()
        # A batch system may show each rank only its own GPU, as number 0: compare addresses.
        gpus = set(machine.allgather(runtime.deviceGetPCIBusId(number)))
        if len(gpus) < machine.size:
            raise UserError(
                f"{machine.size} ranks on {platform.node()}, which has only "
                f"{amount(len(gpus), 'GPU')}: "
                "start one rank per GPU, or use --backend numpy"
            )
        key = world.bcast(self._nccl.get_unique_id() if world.rank == 0 else None)
        self._world = self._nccl.NcclCommunicator(world.size, key, world.rank)

    def all_reduce(self, array):
        """Replace an array by its sum over the ranks."""
        kind = {"f": self._nccl.NCCL_FLOAT32, "d": self._nccl.NCCL_FLOAT64}[array.dtype.char]
        address, stream = array.data.ptr, xp.cuda.get_current_stream().ptr
        self._world.allReduce(address, address, array.size, kind, self._nccl.NCCL_SUM, stream)
