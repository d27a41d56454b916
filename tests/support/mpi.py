"""Start a program on several ranks of this machine, for the tests."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paths import SUPPORT

FOLDERS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
MPIRUN = shutil.which("mpirun", path=FOLDERS)
ENVIRONMENT = {
    "PYTHONPATH": str(SUPPORT.parent),
    "OPENBLAS_NUM_THREADS": "1",
    # Open MPI 5 and 4: allow root, as in a container, and more ranks than cores; bind no rank to
    # a core.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
}

needs_mpi = pytest.mark.skipif(
    not (importlib.util.find_spec("mpi4py") and MPIRUN),
    reason="needs mpi4py and mpirun: pip install -e '.[mpi]'",
)


def start(ranks, program, *arguments):
    """Start one of the programs in this folder on so many ranks; one rank needs no mpirun."""
    command = [sys.executable, SUPPORT / program, *arguments]
    if ranks > 1:
        command = [MPIRUN, "-n", str(ranks), *command]
    streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, text=True, **streams)


def finish(process, timeout=300):
    """Wait for the end of a process; return (exit code, output, messages).

    A process that hangs is killed, and fails the test.
    """
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, out, err
