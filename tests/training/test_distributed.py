"""How ranks find each other, what they decide together, and errors if they cannot."""

import shlex
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from runs import PACE, SMALL, prepare_folder

from minitf import backend
from minitf.cpu import machine
from minitf.errors import UserError
from minitf.gpu import launch
from minitf.training import commandline, distributed
from minitf.training.distributed import Ranks, rank_and_size
from minitf.training.settings import parse


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """The tests may themselves run in a Slurm job."""
    for name in sum(distributed._LAUNCHERS, ()):
        monkeypatch.delenv(name, raising=False)


def start_as(monkeypatch, rank, size):
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", str(rank))
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", str(size))


# What ranks decide together ----------------------------------------------------------------------


@pytest.fixture
def build(tmp_path, monkeypatch):
    prepare_folder(tmp_path, monkeypatch)
    texts = shlex.split("--train train.en train.de --valid valid.en valid.de --out here")
    settings, given = parse([*texts, *SMALL, *PACE, "--steps", "2"])
    return lambda ranks=None: commandline.build(settings, given, ranks)


def test_ranks_decide_by_their_votes_alone(build, monkeypatch):
    """A signal that one rank receives after the last vote must not let it skip a validation.

    The others would wait for it there.
    """
    trainer, validated = build(), []
    trainer.folder.path.mkdir()

    def vote_before_a_signal(vote):
        if trainer.step == 2:
            trainer.stop.ask("a signal")
        return [vote]

    monkeypatch.setattr(trainer.ranks, "all_gather", vote_before_a_signal)
    monkeypatch.setattr(trainer, "validate", lambda: validated.append(trainer.step))
    assert trainer.run() and validated == [2]


@pytest.mark.parametrize(
    ("votes", "stops", "limit"),
    [
        ([(False, "time"), (False, None)], False, "time"),
        ([(False, None), (False, "time")], False, None),  # by another clock
        ([(False, None), (True, None)], True, None),
    ],
)
def test_any_rank_may_ask_to_stop_and_rank_0_has_the_clock(build, monkeypatch, votes, stops, limit):
    trainer = build()
    monkeypatch.setattr(trainer.ranks, "all_gather", lambda vote: votes)
    assert (trainer._agree(), trainer.stop.agreed) == (limit, stops)


def test_all_ranks_begin_with_the_weights_of_rank_0(build):
    ranks = Ranks()
    ranks.broadcast_array = lambda array: array.fill(0.5)
    assert (build(ranks).optimizer.data == 0.5).all()


# One process alone --------------------------------------------------------------------------------


def test_alone_nothing_is_sent():
    one = Ranks(*rank_and_size())
    one.join()
    one.connect()
    array = np.arange(5.0)
    one.all_reduce(array)
    one.check_same(array, "numbers")
    assert array.tolist() == [0, 1, 2, 3, 4]
    one.broadcast_array(array)
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert (one.size, one.broadcast(7), one.all_gather(7), one.sum_numbers(2, 3.5)) == (
        1,
        7,
        [7],
        (2, 3.5),
    )
    assert one.cores() == machine.cpu_cores()
    assert "mpi4py" not in sys.modules


@pytest.mark.parametrize("names", distributed._LAUNCHERS, ids="-".join)
def test_rank_and_size_come_from_the_environment(monkeypatch, names):
    assert rank_and_size() == (0, 1)
    monkeypatch.setenv(names[0], "3")
    assert rank_and_size() == (0, 1), "as in the script of a Slurm job, which no srun has started"
    monkeypatch.setenv(names[1], "8")
    assert rank_and_size() == (3, 8)


def test_ranks_on_the_same_cores_share_them(monkeypatch):
    monkeypatch.setattr(distributed.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(distributed, "cpu_cores", lambda: 4)
    monkeypatch.setattr(distributed, "own_cores", lambda: {0, 1, 2, 3})

    def beside(*others):
        one = Ranks(len(others), len(others) + 1)
        one._world, one._machine = Talk(1, 2, [True]), Talk(len(others), len(others) + 1, others)
        one._find_cores()
        return one

    bound, unbound = beside({4, 5, 6, 7}), beside({0, 1, 2, 3})
    assert (bound.cores(), unbound.cores()) == (4, 2)
    assert bound.description == "2 on 1 machine"
    assert unbound.description.startswith(
        "2 on 1 machine; unused cores of this machine: 4; with mpirun --bind-to none"
    )
    assert beside(*[{0, 1, 2, 3}] * 6).cores() == 1


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_without_mpi4py(monkeypatch, capsys, rank):
    start_as(monkeypatch, rank, 2)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setattr(distributed, "_RANK0_HEADSTART", 0)
    assert commandline.main(["--quick"], "program") == 2
    error = capsys.readouterr().err
    assert "program: several ranks need mpi4py and an MPI library: pip install -e" in error
    assert error.count("\n") == 1 and ("(rank 1 on" in error) == (rank == 1)


def test_an_mpirun_of_another_mpi(monkeypatch, capsys):
    """Each process would believe it is alone, and all would write into one folder."""
    start_as(monkeypatch, 0, 4)
    package = SimpleNamespace(MPI=SimpleNamespace(COMM_WORLD=SimpleNamespace(size=1)))
    for name in ("mpi4py", "mpi4py.MPI", "mpi4py.util", "mpi4py.util.pkl5"):
        monkeypatch.setitem(sys.modules, name, package)
    package.pkl5 = None
    assert commandline.main(["--quick"], "program") == 2
    error = capsys.readouterr().err
    assert (
        "program: 4 processes were started, but mpi4py sees only 1" in error
        and error.count("\n") == 1
    )


# GPUs, on a stand-in ------------------------------------------------------------------------------


class Talk:
    """A communicator in which the other ranks have already sent their values."""

    def __init__(self, rank, size, words=()):
        self.rank, self.size, self.words = rank, size, list(words)

    def allgather(self, word):
        return [*self.words, word]

    def bcast(self, word):
        return word or b"the key of rank 0"


def library_with(monkeypatch, devices):
    """Give the array library these GPUs and an NCCL; return the list of calls to them."""
    calls = []

    class Communicator:
        def __init__(self, *arguments):
            calls.append(arguments)

        def allReduce(self, *arguments):
            calls.append(arguments)

    runtime = SimpleNamespace(
        getDeviceCount=lambda: len(devices), deviceGetPCIBusId=lambda i: devices[i]
    )
    cuda = SimpleNamespace(
        runtime=runtime,
        Device=lambda i: SimpleNamespace(use=lambda: calls.append(i)),
        get_current_stream=lambda: SimpleNamespace(ptr=77),
    )
    library = SimpleNamespace(
        NcclCommunicator=Communicator,
        get_unique_id=lambda: b"key",
        NCCL_FLOAT32=7,
        NCCL_FLOAT64=8,
        NCCL_SUM=0,
    )
    monkeypatch.setitem(backend.xp.__dict__, "cuda", cuda)
    monkeypatch.setattr(launch, "nccl", lambda: library)
    return calls


def connected(world, machine):
    found = Ranks(world.rank, world.size)
    found._world, found._machine = world, machine
    found.connect()
    return found


def test_each_rank_uses_its_own_gpu(monkeypatch):
    calls = library_with(monkeypatch, ["0:1", "0:2"])
    third = connected(Talk(3, 4), Talk(1, 2, ["0:1"]))  # on a second machine
    array = SimpleNamespace(data=SimpleNamespace(ptr=4096), size=10, dtype=np.dtype("float32"))
    third.all_reduce(array)
    assert calls == [1, (4, b"the key of rank 0", 3), (4096, 4096, 10, 7, 0, 77)]
    assert connected(Talk(0, 2), Talk(0, 2, ["0:9"])) and calls[-1] == (2, b"key", 0)


def test_more_ranks_than_gpus(monkeypatch):
    library_with(monkeypatch, ["0:1", "0:2"])
    with pytest.raises(
        UserError, match=r"3 ranks on .*, which has only 2 GPUs: start one rank per GPU, or"
    ):
        connected(Talk(2, 3), Talk(2, 3, ["0:1", "0:2"]))
    library_with(monkeypatch, ["0:5"])  # a batch system may show each rank only its own GPU
    assert connected(Talk(2, 3), Talk(2, 3, ["0:3", "0:4"]))


def test_without_nccl(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    cuda = SimpleNamespace(nccl=SimpleNamespace(available=False))
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    with pytest.raises(UserError, match="several GPUs need NCCL: pip install nvidia-nccl"):
        launch.nccl()
