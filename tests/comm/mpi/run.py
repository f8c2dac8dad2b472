#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a program under mpirun with so many ranks and reads what each rank wrote. The launcher's exit code is not asked:
with recovery it is 0 though ranks died. Exit code 77: there is no launcher; the last line says so.

usage: run.py [--faults] [--lost RANK] [--timeout S] MPIRUN RANKS PROGRAM ARGUMENT...     ({} becomes the folder of results)
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# For Open MPI: as root in a container, more ranks than cores, no networks, ranks that may die. Others ignore them.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "OMP_NUM_THREADS": "1",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("mpirun")
    parser.add_argument("ranks", type=int)
    parser.add_argument("--lost", type=int, help="this rank writes nothing")
    parser.add_argument("--faults", action="store_true", help="ranks may end without MPI_Finalize")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("program", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if not shutil.which(arguments.mpirun):
        print(f"skipped: there is no launcher {arguments.mpirun} (Debian: apt-get install openmpi-bin)")
        return 77

    environment = {**ENVIRONMENT, **os.environ}
    if arguments.faults:
        environment["OMPI_MCA_orte_enable_recovery"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.mpirun, "-n", str(arguments.ranks)]
        command += [folder if word == "{}" else word for word in arguments.program]
        launcher = subprocess.Popen(command, env=environment, start_new_session=True)
        late = False
        try:
            launcher.wait(arguments.timeout)
        except subprocess.TimeoutExpired:
            late = True
        try:
            os.killpg(launcher.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        launcher.wait()
        found = {path.name: path.read_text() for path in Path(folder).iterdir() if path.is_file()}

    expected = {f"rank{rank}" for rank in range(arguments.ranks) if rank != arguments.lost}
    errors = [f"{name} wrote: {text}" for name, text in sorted(found.items()) if text != "ok"]
    errors += [f"{name} wrote nothing" for name in sorted(expected - found.keys())]
    if late:
        errors.append(f"it ran longer than {arguments.timeout} s")
    print("\n".join(errors))
    print(f"{len(found)} of {len(expected)} ranks reported, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
