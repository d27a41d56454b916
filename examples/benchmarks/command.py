"""A program in a process that starts with each run: its start-up is part of the measurement.

It imports as little as possible, because the memory of a parent counts in its children's peak.
"""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.protocol import peak_memory_of_children, serve


class Command:
    """Runs Python with the arguments of a task, in the checkout that the task names."""

    memory = staticmethod(peak_memory_of_children)

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


if __name__ == "__main__":
    serve({"command": Command})
