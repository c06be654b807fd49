"""Stacks of each kind, for tests with the torch image."""

import shutil
import subprocess
from pathlib import Path

from drills import CHECKOUT, Site

QUOTED = 'it\'s "quoted"'
WRAPPER = """#!/bin/bash
set -euo pipefail
[ "$(cat "$QUOTED_FOLDER/proof")" = "seen from the image" ]
export LD_PRELOAD=/host/lib/libfabric.so.1 FI_LOG_PREFIX="it's \\"quoted\\""
exec "$@"
"""
COMPILED = {
    "PYTHONPYCACHEPREFIX": "/tmp/pycache"
}  # the image has no compiled files: each rank would take a second longer


def make_stacks(site: Site, cpu_image: str) -> dict[str, dict]:
    """Return a stack of each kind. The last has folders of the host with a blank and with quotes in their names, and in
    one of them a library that the wrapper has all ranks load as libfabric: a copy of one that the image itself brings."""
    libraries, quoted = site.host_folder / "host libs", site.host_folder / QUOTED
    libraries.mkdir()
    quoted.mkdir()
    (quoted / "proof").write_text("seen from the image\n")
    make_wrapper(site, WRAPPER)
    copy = f'cp --dereference /lib/*-linux-gnu/libuuid.so.1 "{site.folder}/host libs/libfabric.so.1"'
    site.cluster.run(["apptainer", "exec", "--bind", "/shared", cpu_image, "sh", "-euc", copy])
    return {
        "host": {"kind": "host", "python": site.cluster.python},
        "contained": {"kind": "contained", "image": cpu_image, "env": COMPILED},
        "bind_mounted": {
            "kind": "bind-mounted",
            "image": cpu_image,
            "binds": [f"{site.folder}/host libs:/host/lib:ro", f"{site.folder}/{QUOTED}"],
            "wrapper": f"{site.folder}/wrap it.sh",
            "env": {"QUOTED_FOLDER": f"{site.folder}/{QUOTED}"} | COMPILED,
            "required_host_libraries": ["libfabric"],
        },
    }


def make_wrapper(site: Site, text: str) -> Path:
    wrapper = site.host_folder / "wrap it.sh"
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    site.own()
    return wrapper


def fake_in_image(site: Site) -> str:
    """Return the path of fake ranks that run with an image's Python: with the first line that make_site changes."""
    name = "tests/cluster/fake_in_image.py"
    shutil.copy(CHECKOUT / "tests/cluster/fake_ranks.py", site.host_folder / name)
    site.own()
    return f"{site.folder}/{name}"


def submitted(done: subprocess.CompletedProcess) -> int:
    return done.stderr.count(": Slurm job ")


def launches(site: Site) -> list[dict]:
    return [line for line in site.lines() if line["kind"] == "launch"]
