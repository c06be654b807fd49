"""Golden files of other programs, and helpers to read and import them."""

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock

from typed import collect, make_tables

from regatta import formats
from regatta.formats import FORMATS
from regatta.formats.base import ImportedFile, Options
from regatta.formats.importer import Outcome, import_files
from regatta.store.collect import write_collected
from regatta.store.frozen_files import read_frozen
from regatta.topics.catalog import write_tables

FILES = Path(__file__).resolve().parents[1] / "golden" / "formats"
SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
TIME = "2026-11-21T03:04:05Z"

# What the files do not say themselves. The rest needs nothing.
NEEDS = {
    "ddp-2x4.json": Options(gpus_per_node=4),
    "suite-4gpu.json": Options(gpus_per_node=4),
    "osu-latency.txt": Options(nodes=2),
    "osu-bw.txt": Options(nodes=2),
    "osu-allreduce.txt": Options(nodes=2, gpus_per_node=4),
    "osu-barrier.txt": Options(nodes=2, gpus_per_node=4),
    "osu-put-bw.txt": Options(nodes=2),
    "osu-mbw-mr.txt": Options(nodes=2),
    "osu-iallreduce.txt": Options(nodes=2, gpus_per_node=4),
    "osu-several.txt": Options(nodes=2, gpus_per_node=4),
    "all-reduce-bench.txt": Options(gpus_per_node=4),
    "superbench.jsonl": Options(gpus_per_node=8),
    "mlperf.log": Options(nodes=2, gpus_per_node=4),
}
# Their last line says that they are whole; of the others a table that ends between two rows is a shorter table.
SEEN_WHOLE = [
    "ddp-2x4.json", "nccl-12-columns.txt", "nccl-13-columns.txt", "nccl-21-columns.txt", "nccl-per-iteration.json",
    "nccl-one-gpu.txt",
    "nccl-sendrecv-unchecked.txt", "nccl-summary.json", "nccl-one-process.json", "nccl-threads.json", "nccl-threads.txt",
    "suite-4gpu.json", "exported-suite.json", "exported-ddp.json", "rccl-mpi.json",
]  # fmt: skip
ALL = sorted(path.name for path in FILES.iterdir())


def text_of(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


FORMAT = {kind.name: kind for kind in FORMATS}


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def written(folder: Path, value: object, name: str = "exported") -> Path:
    """Write a text as it is or a value as JSON, and return the file."""
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def read_text(text: str, name: str, options: Options) -> ImportedFile:
    return formats.read_text(text, name, options)[1]


def read(name: str, text: str | None = None) -> ImportedFile:
    return read_text(text_of(name) if text is None else text, name, NEEDS.get(name, Options()))


def run_import(folder: Path, *files: str | Path, stack: str | None = None, options: Options | None = None) -> Outcome:
    """Import golden files, by name, or other files, by path."""
    paths = [FILES / file if isinstance(file, str) else file for file in files]
    options = options or NEEDS.get(paths[0].name, Options())
    return import_files(paths, folder, stack, options, now=lambda: TIME)


def collected(folder: Path) -> tuple[dict, dict, dict]:
    """Return (frozen campaign, what was collected by name, problems) of a results folder."""
    campaign = read_frozen(next(folder.glob("campaign.*.json")))
    return campaign, *collect(campaign, folder / "launches")


def analysed(folder: Path) -> tuple[dict, dict, dict]:
    """Return (frozen campaign, tables by name with measurements, problems) of a results folder."""
    campaign, tables, problems = collected(folder)
    return campaign, make_tables(campaign, tables) | tables, problems


def write_analysed(folder: Path) -> Path:
    """Write measurements.csv and the tables of a results folder, as `rebuild_report.py` does, without the report."""
    _, tables, _ = analysed(folder)
    write_collected(tables, folder / "measurements.csv")
    write_tables(tables, folder / "tables")
    return folder


def run_script(name: str, *arguments: object, cwd: Path) -> CompletedProcess:
    """Run a script as its command line would, in this process: to start Python and pandas takes longer than the work."""
    path, out, err, status = SCRIPTS / name, io.StringIO(), io.StringIO(), 0
    argv = mock.patch.object(sys, "argv", [str(path), *map(str, arguments)])
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), argv:
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            status = end.code or 0
    return CompletedProcess(sys.argv, status, out.getvalue(), err.getvalue())
