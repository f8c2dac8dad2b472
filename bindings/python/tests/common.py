# SPDX-License-Identifier: Apache-2.0
"""What several tests use: a context, arrays and tensors of numbers, ranks as threads, and programs."""

import array
import os
import subprocess
import sys
import threading
import unittest

import mixedprec as mp

try:
    import numpy as np
except ImportError:
    np = None

needs_numpy = unittest.skipIf(np is None, "numpy is not installed")
context = mp.Context(1)
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = os.path.join(FOLDER, "examples")


def floats(*numbers):
    return array.array("f", numbers)


def tensor(shape, numbers, dtype="fp32"):
    made = mp.Tensor(context, shape)
    made.write(floats(*numbers))
    return made if dtype == "fp32" else made.cast(dtype)


def words(*numbers):
    return array.array("I", numbers)


def run(count, rank, deadline=20, comms=None):
    """rank(comm) in a thread for each rank; the results, or the first exception."""
    comms = comms or mp.Comm.threads(count, deadline=deadline)
    results = [None] * len(comms)

    def work(i):
        try:
            results[i] = rank(comms[i])
        except BaseException as error:
            results[i] = error
            comms[i].close()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(comms))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def python(*arguments, interpreter=sys.executable, folder=None, **variables):
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    env.update(variables)
    env = {name: text for name, text in env.items() if text is not None}
    done = subprocess.run([interpreter, *arguments], env=env, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(f"{arguments}: {done.stdout}{done.stderr}")
    return done.stdout
