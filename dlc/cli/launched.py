"""Whether this process is one of several that a launcher of MPI started: launchers say so in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SAID: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # mpiexec of Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # mpiexec of MPICH and Intel MPI; srun --mpi=pmi2 with the next
    ("PMI_RANK", "SLURM_NTASKS"),
    ("PMIX_RANK", "SLURM_NTASKS"),  # srun --mpi=pmix
)


def launched(environment: Mapping[str, str]) -> tuple[int, int]:
    """(rank, number of ranks) as a launcher says; (0, 0) without one."""
    for rank, count in _SAID:
        found = environment.get(rank, ""), environment.get(count, "")
        if all(text.isascii() and text.isdecimal() for text in found):
            return int(found[0]), int(found[1])
    return 0, 0
