# SPDX-License-Identifier: Apache-2.0
# bindings/python/README.md: two ranks as threads.
# snippet needs: python:numpy
import threading

import mixedprec as mp
import numpy as np

context = mp.Context(threads=1)
# snippet: ranks
for thread in ranks:
    thread.start()
for thread in ranks:
    thread.join()
