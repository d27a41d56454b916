"""A simulator of blocks of GPU threads: it runs the kernels of minitf on NumPy arrays, and sees
their mistakes.

Each thread is a Python generator. Where the kernel has a barrier or hands values through its warp,
the thread yields, so the simulator runs every thread up to there before any goes on. What a GPU
would let pass in silence is an error:

- `Race`: two threads touch one number, at least one of them writes, and no barrier stands between
  them. Every access is kept by address, so it does not matter in which order the threads really
  ran, nor whether two arrays share memory.
- `OutOfBounds`: an index below 0 or beyond the end.
- `Stray`: threads that wait at different barriers, or for a thread that has ended.
- NaN: shared memory that nobody wrote. TypeError: a number turned into float64.

Between blocks there is no barrier: what one block writes another may read only if the writing
thread has passed a fence, its block has counted itself after that with an atomic addition, and the
reading block has counted itself as well.
"""

import ast
import functools
import inspect
import itertools
import textwrap
import types

import numpy as np

WARP = 32


class Race(Exception):
    """Two threads use one number without a barrier between them."""


class OutOfBounds(Exception):
    """An index that does not fit."""


class Stray(Exception):
    """Threads that should meet at one place do not."""


def launch(kernel, grid, block, *arguments):
    """Run the kernel once for every thread of every block. grid and block: one, two or
    three lengths.
    """
    memory = _Memory()
    arguments = [_Array(a, memory) if isinstance(a, np.ndarray) else a for a in arguments]
    cuda = _Cuda(memory)
    body = _as_generator(kernel, cuda)
    cuda.gridDim, cuda.blockDim = _xyz(*grid), _xyz(*block)
    with np.errstate(all="ignore"):
        for place in _places(cuda.gridDim):
            cuda.blockIdx, cuda.shared = place, {}
            memory.begin_block()
            _run_block(body, arguments, cuda)


def _xyz(x, y=1, z=1):
    return types.SimpleNamespace(x=int(x), y=int(y), z=int(z))


def _places(size):
    return [
        _xyz(x, y, z) for z, y, x in itertools.product(range(size.z), range(size.y), range(size.x))
    ]


def _run_block(body, arguments, cuda):
    """Let the threads run, warp after warp, each up to the next place where it has to
    wait for others.
    """
    places = _places(cuda.blockDim)
    threads = [body(*arguments) for _ in places]
    warps = [
        range(first, min(first + WARP, len(threads))) for first in range(0, len(threads), WARP)
    ]
    answers, running = [None] * len(threads), set(range(len(warps)))
    while running:
        waiting = {}
        for number in sorted(running):
            where = _run_warp(threads, warps[number], places, answers, cuda)
            if where is None:
                running.discard(number)
            else:
                waiting[number] = where
        if waiting and (len(waiting) < len(warps) or len(set(waiting.values())) > 1):
            raise Stray(
                f"a part of the block waits at {sorted(set(waiting.values()))}, the rest elsewhere"
            )
        cuda.memory.epoch += 1


def _run_warp(threads, members, places, answers, cuda):
    """Run one warp until it ends (None) or all its threads stand at one barrier (the place of
    which is given).
    """
    while True:
        requests = []
        for i in members:
            cuda.threadIdx, cuda.memory.thread = places[i], i
            try:
                requests.append(threads[i].send(answers[i]))
            except StopIteration:
                requests.append(None)
            answers[i] = None
        meeting = {request and request[:2] for request in requests}
        if len(meeting) > 1:
            raise Stray(f"threads of one warp are at different places: {meeting}")
        if requests[0] is None:
            return None
        kind, where, *_ = requests[0]
        if kind == "syncthreads":
            return where
        if len(members) < WARP:
            raise Stray(f"{kind} of all 32 threads in a warp of {len(members)}")
        for lane, i in enumerate(members):
            _, _, _, distance = requests[lane]
            source = {"shfl_xor_sync": lane ^ distance, "shfl_sync": distance % WARP}[kind]
            answers[i] = requests[source][2]


# Memory -------------------------------------------------------------------------------------------

_NOBODY, _SEVERAL = -1, -2


class _Memory:
    """Who wrote and who read each address last: block, epoch (the stretch between two
    barriers), thread.
    """

    def __init__(self):
        self.writes, self.reads = {}, {}
        self.kept = []  # arrays that must not go, or another would get their addresses
        self.block, self.epoch, self.thread = 0, 0, 0
        self.visible = set()  # addresses that other blocks may read

    def begin_block(self):
        self.block += 1
        self.written, self.fenced, self.counted = {}, [], False  # by this block; written: by thread

    def fence(self):
        self.fenced += self.written.pop(self.thread, [])

    def count(self):
        self.visible.update(self.fenced)
        self.counted = True

    def read(self, address, what):
        block, epoch, thread, _ = self.writes.get(address, (self.block, _NOBODY, 0, False))
        if block != self.block and self.counted and address in self.visible:
            block, epoch = self.block, _NOBODY
        if block != self.block or (epoch == self.epoch and thread != self.thread):
            self._refuse(what, "read", "written", block)
        block, epoch, thread = self.reads.get(address, (self.block, _NOBODY, 0))
        if block != self.block:
            block = _SEVERAL
        thread = _SEVERAL if epoch == self.epoch and thread != self.thread else self.thread
        self.reads[address] = block, self.epoch, thread

    def write(self, address, what, atomic=False):
        block, epoch, thread, was_atomic = self.writes.get(
            address, (self.block, _NOBODY, 0, atomic)
        )
        if not (atomic and was_atomic) and (
            block != self.block or (epoch == self.epoch and thread != self.thread)
        ):
            self._refuse(what, "written", "written", block)
        block, epoch, thread = self.reads.get(address, (self.block, _NOBODY, 0))
        if block != self.block or (epoch == self.epoch and thread != self.thread):
            self._refuse(what, "written", "read", block)
        self.writes[address] = self.block, self.epoch, self.thread, atomic
        self.written.setdefault(self.thread, []).append(address)

    def _refuse(self, what, now, before, block):
        array, index = what
        where = (
            "by another block"
            if block != self.block
            else "by another thread, with no barrier between"
        )
        raise Race(f"{index} of {array.name} is {now} by thread {self.thread} and {before} {where}")


class _Array:
    """An array as a kernel sees it: elements, rows, and its shape."""

    def __init__(self, array, memory, name=None):
        self.array, self.memory, self.name = array, memory, name or f"{array.dtype} {array.shape}"
        self.shape, self.ndim, self.size = array.shape, array.ndim, array.size
        self.start = array.__array_interface__["data"][0]
        self.axes = list(zip(array.shape, array.strides, strict=True))

    def _address(self, index):
        """Give the address of an element; index: a number for every axis."""
        if len(index) != self.ndim:
            raise TypeError(f"an index of {len(index)} numbers into an array of {self.ndim} axes")
        address = self.start
        for i, (length, stride) in zip(index, self.axes, strict=True):
            if not isinstance(i, int | np.integer):
                raise TypeError(f"an index of type {type(i).__name__}")
            if not 0 <= i < length:
                raise OutOfBounds(f"{index} of {self.name}")
            address += int(i) * stride
        return address

    def __getitem__(self, index):
        index = index if isinstance(index, tuple) else (index,)
        self.memory.read(self._address(index), (self, index))
        return self.array[index]

    def __setitem__(self, index, value):
        self.write(index if isinstance(index, tuple) else (index,), value)

    def write(self, index, value, atomic=False):
        if isinstance(value, np.float64) and self.array.dtype != np.float64:
            raise TypeError(f"a float64 is written to {self.name}: somewhere two types were mixed")
        self.memory.write(self._address(index), (self, index), atomic)
        self.array[index] = value


class _Cuda:
    """The names that a kernel finds under `cuda`."""

    def __init__(self, memory):
        self.memory, self.shared = memory, {}

    def shared_memory(self, dtype, size, site):
        """The same memory for every thread of the block that comes to this line."""
        if site not in self.shared:
            empty = np.full(size, np.nan if np.dtype(dtype).kind == "f" else 99, dtype)
            self.shared[site] = _Array(empty, self.memory, f"shared memory of {site}")
            self.memory.kept.append(empty)
        return self.shared[site]

    def as_float(self, x):
        """An element of an array of float32, or the number whose upper 16 bits it is."""
        return (np.uint32(x) << 16).view(np.float32) if isinstance(x, np.uint16) else np.float32(x)

    def as_element(self, value, array):
        """A number as an element of an array of either kind, rounded to nearest, ties to even."""
        if not isinstance(value, np.float32):
            raise TypeError(f"a {type(value).__name__} where a float32 is needed")
        if array.array.dtype == np.float32:
            return value
        bits = value.view(np.uint32)
        return np.uint16(
            bits >> 16 | 0x40 if np.isnan(value) else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        )

    def range(self, *limits, unroll=None):
        """A loop, and how often its body is written out in the machine's code, which
        changes no number.
        """
        return range(*limits)

    def atomic_add(self, array, index, value):
        index = index if isinstance(index, tuple) else (index,)
        before = array.array[index]
        array.write(index, before + value, atomic=True)
        self.memory.count()
        return before

    def initial(self, x):
        return x

    def threadfence(self):
        self.memory.fence()


# Functions as generators --------------------------------------------------------------------------


class _Waiting(ast.NodeTransformer):
    """Rewrite a function so that it yields where a thread waits, and passes on what the functions
    it calls yield. A literal such as 0.0 becomes a float32, as in CuPy's mode "cuda".
    """

    def __init__(self, function):
        self.function = function

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.body += ast.parse("return\nyield").body  # a generator even if it never waits
        return node

    def visit_Constant(self, node):
        if not isinstance(node.value, float):
            return node
        return ast.copy_location(ast.Call(ast.Name("_float32", ast.Load()), [node], []), node)

    def visit_Call(self, node):
        self.generic_visit(node)
        called, site = ast.unparse(node.func), f"{self.function.__name__}, line {node.lineno}"
        if called == "cuda.syncthreads":
            return ast.parse(f"(yield ('syncthreads', {site!r}))", mode="eval").body
        if called in ("cuda.shfl_xor_sync", "cuda.shfl_sync"):
            _, value, distance = map(ast.unparse, node.args)
            text = f"(yield ({called.removeprefix('cuda.')!r}, {site!r}, {value}, {distance}))"
            return ast.parse(text, mode="eval").body
        if called == "cuda.shared_memory":
            node.args.append(ast.Constant(site))
        if any(
            callee.__name__ == called and _uses_cuda(callee) for callee in _callees(self.function)
        ):
            return ast.YieldFrom(node)
        return node


def _callees(function):
    """The functions of ours that a function calls."""
    found = (function.__globals__.get(name) for name in function.__code__.co_names)
    return [callee for callee in found if inspect.isfunction(callee)]


def _uses_cuda(function):
    """Whether a function may wait for other threads; one that only computes is called as it is."""
    return "cuda" in function.__code__.co_names or any(map(_uses_cuda, _callees(function)))


def _as_generator(function, cuda):
    """Give the function as a generator function in which `cuda` is the simulator's."""
    if not _uses_cuda(function):
        return _remembered(function)
    names = dict(function.__globals__, cuda=cuda, xp=np, _float32=np.float32)
    for callee in _callees(function):
        names[callee.__name__] = _as_generator(callee, cuda)
    exec(_rewritten(function), names)
    return names[function.__name__]


@functools.cache
def _remembered(function):
    """Give a function that only computes, and keep its results: 32 threads ask for the same
    random numbers.
    """
    names = dict(function.__globals__, xp=np) | {
        callee.__name__: _remembered(callee) for callee in _callees(function)
    }
    return functools.lru_cache(maxsize=100_000, typed=True)(
        types.FunctionType(function.__code__, names)
    )


@functools.cache
def _rewritten(function):
    """Compile the rewritten source; errors still point to the lines of the kernel's file."""
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    ast.increment_lineno(tree, first - 1)
    tree = ast.fix_missing_locations(_Waiting(function).visit(tree))
    return compile(tree, function.__code__.co_filename, "exec")
