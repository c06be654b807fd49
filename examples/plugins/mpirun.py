"""Open MPI's mpirun, which starts the ranks on this machine: scheduler: mpirun in a cluster file with one node.

Everything else is as with scheduler none. Manual: https://docs.open-mpi.org/en/main/man-openmpi/man1/mpirun.1.html
"""

from collections.abc import Mapping
from dataclasses import replace

from regatta.launchers.base import LOOPBACK, Geometry, free_port
from regatta.launchers.local import LAUNCHER, LocalRanks

# Ranks read torchrun's variables.
SCRIPT = (
    "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK"
    ' LOCAL_WORLD_SIZE=$OMPI_COMM_WORLD_LOCAL_SIZE; exec "$@"'
)


class MpirunRanks(LocalRanks):
    variables = ("OMPI_", "PMIX_", "PRTE_")  # of an outer mpirun, which ranks do not inherit
    log_lines = r"-{20,}|mpirun|prterun"

    def argv(
        self, geometry: Geometry, stack: dict, python: list[str], program: list[str], limit_seconds: float | None = None
    ) -> list[str]:
        line = ["mpirun", "-np", str(geometry.num_local_ranks), "--bind-to", "none", "sh", "-c", SCRIPT, "sh"]
        return [*line, *python, *program]

    def by_hand(self, geometry, stack, prefix, program):
        return [], self.argv(geometry, stack, [*prefix, stack["python"] or "python3"], program)

    def meeting_point(self, meeting: Mapping[str, str] | None = None) -> dict[str, str]:
        return {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": meeting["port"] if meeting else str(free_port())}


LAUNCHERS = {"mpirun": replace(LAUNCHER, name="mpirun", title="mpirun", ranks=MpirunRanks())}
