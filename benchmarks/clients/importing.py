"""Measures one import: ``importing.py STATEMENT``, in a process that has imported nothing else."""

import sys
import time

before = time.process_time(), time.perf_counter()
exec(sys.argv[1])  # from peers.py
after = time.process_time(), time.perf_counter()

import json  # noqa: E402 - after the measurement
import os  # noqa: E402

with open("/proc/self/statm") as statm:
    memory = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
print(json.dumps({"cpu": after[0] - before[0], "wall": after[1] - before[1], "memory": memory}))
