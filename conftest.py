"""Keep doctest collection from importing modules that start MPI in pytest's own process."""

collect_ignore_glob = [
    "tests/mpi_programs/*",
    "executors/mpi/bench_timing.py",
    "executors/mpi/binding.py",
    "executors/mpi/buffers.py",
    "executors/mpi/calibration.py",
    "executors/mpi/compiled/engine.py",
    "executors/mpi/compiled/messages.py",
    "executors/mpi/cores.py",
    "executors/mpi/datatypes.py",
    "executors/mpi/engine.py",
    "executors/mpi/engines.py",
    "executors/mpi/guideline.py",
    "executors/mpi/local_timing.py",
    "executors/mpi/measure.py",
    "executors/mpi/native.py",
    "executors/mpi/pair_timing.py",
    "executors/mpi/patterns.py",
    "executors/mpi/placement.py",
    "executors/mpi/recording.py",
    "executors/mpi/task_times.py",
]
