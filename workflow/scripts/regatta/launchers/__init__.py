"""Launchers: how ranks are started and jobs requested, by the `scheduler` of a cluster file.

A new scheduler is a module with a `Launcher` and a line here.
"""

from regatta.core.files import check_listed
from regatta.launchers import local, slurm
from regatta.launchers.base import Launcher

LAUNCHERS: dict[str, Launcher] = {
    "none": local.LAUNCHER,
    "slurm": slurm.LAUNCHER,
}
check_listed("launchers", "Launcher", LAUNCHERS.values(), "LAUNCHERS of launchers/__init__.py")


def launcher_of(cluster: dict) -> Launcher:
    """Return the launcher of a cluster."""
    return LAUNCHERS[cluster["scheduler"]]
