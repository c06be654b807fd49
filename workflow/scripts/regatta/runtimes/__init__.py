"""Container runtimes, by the `runtime` of a stack; `host` is that of kind host, which has no container.

A new runtime is a module with a `Runtime`, an import and an entry: docs/extending.md.
"""

from regatta.core.files import check_listed
from regatta.runtimes import apptainer, container_engine, host, pyxis, uenv
from regatta.runtimes.base import Runtime

RUNTIMES = {
    "host": host.RUNTIME,
    "apptainer": apptainer.RUNTIME,
    "singularity": apptainer.RUNTIME,
    "pyxis": pyxis.RUNTIME,
    "uenv": uenv.RUNTIME,
    "ce": container_engine.RUNTIME,
}
check_listed("runtimes", "Runtime", RUNTIMES.values(), "RUNTIMES of runtimes/__init__.py")


def runtime_of(stack: dict) -> Runtime:
    """Return the runtime that starts the Python of a stack."""
    return RUNTIMES["host" if stack["kind"] == "host" else stack["runtime"]]
