"""Start, watch and end the ranks of a launch: with start_ranks.py on this machine, or with srun in a Slurm job."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regatta.core.errors import UserError
from regatta.launchers import slurm_queue as queue
from regatta.launchers.launch_lines import launch_environment
from regatta.run import processes


@dataclass(frozen=True)
class Launcher:
    """How launches are started here. `job` is the Slurm job whose nodes they get; None means this machine."""

    job: str | None = None

    def start(self, argv: list[str], stack: dict, log: Path, extra: dict[str, str] | None = None) -> subprocess.Popen:
        """Start a launch, output to `log`. Raises OSError if its first word cannot be run."""
        extra = {**(queue.meeting_point() if self.job else {}), **(extra or {})}
        return processes.start(argv, launch_environment(stack, extra, uses_slurm=self.job is not None), log)

    def dump_stacks(self, process: subprocess.Popen) -> None:
        """Have every rank write its Python stacks to the log."""
        if self.job:
            queue.signal_steps(self.job, "USR1")
        else:
            processes.dump_stacks(process)

    def stop(self, process: subprocess.Popen) -> None:
        """End a launch, and return when its processes are gone, on all nodes."""
        processes.stop(process)
        if self.job and process.returncode != 0:
            queue.end_steps(self.job)

    def hosts(self) -> list[str]:
        """Return the nodes of the Slurm job, or nothing on one machine."""
        return queue.hosts_of_job(self.job) if self.job else []

    def step_hosts(self, num_nodes: int, avoid: Sequence[str] = ()) -> list[str]:
        """Return the nodes that a step of `num_nodes` is pinned to, those in `avoid` only where the job has no others.

        Nothing where a step gets all nodes of the job.
        """
        hosts = self.hosts()
        if len(hosts) <= num_nodes:
            return []
        chosen = sorted(hosts, key=lambda host: host in avoid)[:num_nodes]
        return [host for host in hosts if host in chosen]

    def state(self) -> str | None:
        """Return the Slurm job's state, None on one machine and where Slurm does not say."""
        return queue.job_state(self.job) if self.job else None

    def state_of(self, job: str | None) -> str | None:
        """Return the state of an earlier Slurm job, None where there was none or Slurm does not say (any more)."""
        return queue.job_state(job) if self.job and job and job != self.job else None


def find_launcher(cluster: dict) -> Launcher:
    """Return the launcher of a cluster. Raises UserError outside of a job where ranks need one."""
    if cluster["scheduler"] == "none":
        return Launcher()
    job = queue.job_id()
    if job is None:
        raise UserError(
            f"cluster '{cluster['name']}' has scheduler slurm, but this is no Slurm job. Use --profile profiles/slurm,"
            " or call Snakemake with profiles/local inside an allocation (salloc) that the batch's shape fits."
        )
    return Launcher(job)
