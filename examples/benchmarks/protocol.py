"""The protocol between the benchmark and its worker processes: one JSON line each way.

One library per process, because the thread pools of two slow each other down up to ten times. The
parent asks one process after the other, so that all of them see the same machine in the same
minutes. As a program, this file is the worker that runs a command: it imports as little as
possible, because the memory of a parent counts in its children's peak.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import resource
except ImportError:  # on Windows
    resource = None

HERE = Path(__file__).resolve().parent
SETTLE = 0.05  # seconds until the threads of the previous process are asleep
_MAXRSS = 1 if sys.platform == "darwin" else 1024  # bytes; the unit of ru_maxrss
ON_GPU = "BENCHMARK_ON_GPU"  # in the environment of a worker that uses a GPU
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Missing(Exception):
    """A contender cannot take part; the text is one line with the reason."""


# In the process that works ------------------------------------------------------------------------


def cores():
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def serve(jobs, wait=lambda: None, memory=None):
    """Answer the parent until it closes the pipe.

    jobs: {name: function(task)}. "prepare" names one of these jobs in the task's "job"; each "run"
    then calls the function that the job returned. "call" runs a job once and answers with its
    result. wait: waits for a GPU. memory: replaces `peak_memory`. The returned function may have
    `memory` instead, or `forks`, the number of copies of the process that work at the same time.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the output of a library must not mix with the answers
    work = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if question["do"] == "prepare":
                work = jobs[question["task"]["job"]](question["task"])
                work()  # the first call allocates and compiles
                answer = _timed(work, 1, wait)
            elif question["do"] == "run":
                for _ in range(question["warm"]):
                    work()
                answer = _timed(work, question["times"], wait)
                peak = functools.partial(peak_memory, getattr(work, "forks", 0))
                answer["memory"] = (memory or getattr(work, "memory", peak))()
            else:
                answer = {"result": jobs[question["task"]["job"]](question["task"])}
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).strip() or 'no reason given'}"
            answer = {"missing": said.splitlines()[0]}
        print(json.dumps(answer), file=answers, flush=True)


def refuse(reason):
    """Answer the first question with the reason why this contender is missing, and exit."""
    print(json.dumps({"missing": reason}), flush=True)
    raise SystemExit(0)


def _timed(work, times, wait):
    """Return the seconds of one run."""
    wait()
    start = time.perf_counter()
    for _ in range(times):
        work()
    wait()
    return {"seconds": (time.perf_counter() - start) / times}


def peak_memory(forks=0):
    """Return the peak memory of this process in bytes, None if the system does not report it.

    forks: the number of forked copies that work at the same time; memory they share with it is
    counted again. Linux passes the peak of a parent to its children in getrusage, so /proc is read
    first.
    """
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                peak = int(line.split()[1]) * 1024
    return peak + forks * _peak_of_children()


def _peak_of_children():
    """Return the peak memory of the largest ended child in bytes, None on Windows."""
    return resource and resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _MAXRSS


class Command:
    """Runs Python with the arguments of a task, in the checkout that the task names."""

    def __init__(self, task):
        self.command, self.root = [sys.executable, *task["arguments"]], Path(task["root"])
        folders = [str(self.root), str(self.root / "examples")]
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders)}
        # A user's Python compiles each module once and keeps that; so does the run before the first
        # that is timed. Where this variable is set, each start would compile all modules again.
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def __call__(self):
        done = subprocess.run(
            self.command,
            cwd=self.root,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()  # none if it was killed
            raise RuntimeError(lines[-1] if lines else f"it ended with code {done.returncode}")

    memory = staticmethod(_peak_of_children)


# In the parent ------------------------------------------------------------------------------------


class Worker:
    """A process that works on request. `with Worker(...) as worker:` ends it.

    root: the checkout whose code it runs.
    """

    def __init__(
        self, module, python=sys.executable, threads=None, environment=(), root=HERE.parent.parent
    ):
        env = os.environ | dict(environment)
        examples = Path(root) / "examples"
        folders = str(examples), str(root), env.get("PYTHONPATH")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
        if threads:
            env |= dict.fromkeys(THREADS, str(threads))
        self.complaints = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, "-m", f"benchmarks.{module}"],
            cwd=examples,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            encoding="utf-8",
        )

    def ask(self, do, **more):
        """Ask one question and wait for the answer.

        Raises Missing with one line if there is no answer.
        """
        # It has ended: its last words, if any, are still in the pipe.
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"do": do, **more}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise Missing(self._last_complaint())
        answer = json.loads(line)
        if "missing" in answer:
            raise Missing(answer["missing"])
        return answer

    def call(self, **task):
        """Run a job once and return its result."""
        return self.ask("call", task=task)["result"]

    def run(self, times=1, warm=0):
        """Run the work of `ask("prepare", task=...)` so many times, after `warm` untimed ones.

        Returns {"seconds": of one run, "memory": the peak so far in bytes, None if unknown}.
        """
        time.sleep(SETTLE)
        return self.ask("run", times=times, warm=warm)

    def _last_complaint(self):
        code = self.process.wait()
        self.complaints.seek(0)
        lines = self.complaints.read().strip().splitlines()
        return lines[-1] if lines else f"the process ended with exit code {code}"

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.communicate()
        self.complaints.close()


if __name__ == "__main__":
    serve({"about": lambda task: {}, "command": Command})
