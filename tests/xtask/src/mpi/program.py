"""Passes messages between two processes that MPI started, and looks at what arrives.

Usage: program.py [LARGEST [--one-sided]]

A ping-pong of several sizes, up to LARGEST bytes, reductions over all processes whose results are known beforehand, and if
asked for, writes to and reads of another process' memory. The first process prints a JSON line for each, and each process one
that names the provider's libraries that it has mapped. The exit status is 1 if something was not right.
"""

import json
import os
import sys
import time
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
largest = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 20


results = []


def say(**told):
    results.append(told.get("right", True))
    print(json.dumps(told), flush=True)


def pattern(length, turn, sender):
    """Bytes that depend on where they are, on the turn and on who sends them."""
    one = bytes((7 * turn + 31 * sender + place) & 0xFF for place in range(251))
    return (one * (length // len(one) + 1))[:length]


def ping_pong(length, turns):
    """Both send what the other can foretell; each looks at every message."""
    right = True
    world.Barrier()
    start = time.perf_counter()
    for turn in range(turns):
        there = bytearray(length)
        mine = pattern(length, turn, rank)
        other = 1 - rank
        if rank == 0:
            world.Send([mine, MPI.BYTE], other, tag=turn)
            world.Recv([there, MPI.BYTE], other, tag=turn)
        else:
            world.Recv([there, MPI.BYTE], other, tag=turn)
            world.Send([mine, MPI.BYTE], other, tag=turn)
        right &= there == pattern(length, turn, other)
    seconds = time.perf_counter() - start
    right = world.allreduce(right, MPI.LAND)
    if rank == 0:
        say(test="ping-pong", bytes=length, turns=turns, right=right, seconds=round(seconds, 3))


def all_reduce(count, turns):
    """The sum of an arithmetic progression over all processes, and the largest value of any."""
    right = True
    world.Barrier()
    start = time.perf_counter()
    for turn in range(turns):
        mine = array("q", (rank * 1_000_003 + place * 7 + turn for place in range(count)))
        total = array("q", bytes(8 * count))
        world.Allreduce([mine, MPI.INT64_T], [total, MPI.INT64_T], op=MPI.SUM)
        of_ranks = 1_000_003 * size * (size - 1) // 2
        right &= all(it == of_ranks + size * (place * 7 + turn) for place, it in enumerate(total))
        most = array("d", bytes(8 * count))
        floats = array("d", ((rank + 1) * 0.5 - place for place in range(count)))
        world.Allreduce([floats, MPI.DOUBLE], [most, MPI.DOUBLE], op=MPI.MAX)
        right &= all(it == size * 0.5 - place for place, it in enumerate(most))
    seconds = time.perf_counter() - start
    right = world.allreduce(right, MPI.LAND)
    if rank == 0:
        say(test="all-reduce", bytes=8 * count, turns=turns, right=right, seconds=round(seconds, 3))


def one_sided(length, turns):
    """Each writes what the other can foretell into its memory, reads it again, and counts there."""
    window = MPI.Win.Allocate(length + 8, 1, comm=world)
    memory = window.tomemory()
    other = 1 - rank
    right = True
    world.Barrier()
    start = time.perf_counter()
    for turn in range(turns):
        window.Fence()
        memory[length:] = bytes(8)
        window.Fence()
        mine = pattern(length, turn, rank)
        window.Put([mine, MPI.BYTE], other, 0)
        window.Fence()
        right &= bytes(memory[:length]) == pattern(length, turn, other)
        read = bytearray(length)
        window.Get([read, MPI.BYTE], other, 0)
        window.Fence(MPI.MODE_NOSUCCEED)
        right &= read == mine
        one, before = array("q", [rank + 3]), array("q", [-1])
        window.Lock(other)
        window.Fetch_and_op([one, MPI.INT64_T], [before, MPI.INT64_T], other, length, op=MPI.SUM)
        window.Unlock(other)
        world.Barrier()
        counted = int.from_bytes(bytes(memory[length:]), sys.byteorder)
        right &= before[0] == 0 and counted == other + 3
        world.Barrier()
    seconds = time.perf_counter() - start
    window.Free()
    right = world.allreduce(bool(right), MPI.LAND)
    if rank == 0:
        say(test="one-sided", bytes=length, turns=turns, right=right, seconds=round(seconds, 3))


def providers():
    with open("/proc/self/maps") as maps:
        files = {os.path.basename(line.split()[-1]) for line in maps}
    return sorted(file for file in files if file.startswith(("libmlx5", "liboxverbs")))


say(rank=rank, size=size, providers=providers())
for length, turns in [(0, 50), (8, 100), (1000, 50), (8192, 30), (65537, 10), (1 << 20, 3)]:
    if length <= largest:
        ping_pong(length, turns)
for count, turns in [(1, 30), (1000, 10), (50_000, 2)]:
    if 8 * count <= largest:
        all_reduce(count, turns)
if "--one-sided" in sys.argv[2:]:
    for length, turns in [(8, 20), (4096, 10), (65536, 3)]:
        if length <= largest:
            one_sided(length, turns)
sys.exit(0 if all(results) else 1)
