"""Python programs that hang in one way each, whose name is the argument."""

import sys
import time

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
last = size - 1
other = world.Dup()
values, sums = np.ones(4096), np.empty(4096)


def compute() -> None:
    """Compute for ever."""
    while True:
        pass


def missing_rank() -> None:
    if rank != last:
        world.Barrier()
    else:
        world.Recv(values, source=0, tag=7)


def endless_computation() -> None:
    if rank == last:
        compute()
    world.Allreduce(values[:1], sums[:1])


def sleeping_rank() -> None:
    if rank == last:
        time.sleep(1000)
    world.bcast({"steps": 3}, root=last)


def wrong_root() -> None:
    world.Bcast(values, 0 if rank == last else last)


def wrong_kind() -> None:
    if rank == 0:
        world.Barrier()
    else:
        world.Allreduce(values, sums)
    world.Barrier()


def wrong_count() -> None:
    count = 4 if rank == 0 else 8
    world.Bcast(values[:count], 1)
    compute()


def order_of_two() -> None:
    first, second = (other, world) if rank == 0 else (world, other)
    first.Barrier()
    second.Barrier()


def half_of_a_group() -> None:
    half = world.Split(rank < 2, rank)
    if rank == 0:
        compute()
    half.barrier()
    world.Barrier()


def early_end() -> None:
    if rank != last:
        world.allgather(rank)


def late_rank() -> None:
    if rank == last:
        time.sleep(6)
    world.Allreduce(values[:1], sums[:1])
    print("ended", flush=True)


world.Allreduce(values[:1], sums[:1])
other.Bcast(values, 0)
globals()[sys.argv[1]]() if len(sys.argv) > 1 else None
