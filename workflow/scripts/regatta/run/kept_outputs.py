"""Kept outputs of programs that are read again: after an edit of `read`, `sizes` or `check`, or by a later reader.

The records are added to the launch file of the measurement, with its time: nothing is measured. They supersede those
that an earlier reader wrote for the same cell.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from regatta.campaign.executables import ran_same_files
from regatta.campaign.program_entries import OUTPUT, READING, geometry_of, what_runs, writes_output
from regatta.core.files import hold
from regatta.core.readers import READER
from regatta.core.text import plural
from regatta.model.frozen import FrozenCell
from regatta.model.launches import LaunchRequest, RecordSummary, utc_now
from regatta.run.program_launches import folder_of, read_records
from regatta.store.history import refresh_manifest
from regatta.store.launch_files import append_launch_line, read_json, read_launch_file

COMMA_IN_NUMBER = re.compile(rb"\d,\d")
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class KeptLaunch:
    """A launch of which the program exited with 0 on the planned ranks. records: those that were written then."""

    path: Path  # of its request
    request: LaunchRequest
    records: list[dict] = field(compare=False)

    @property
    def output(self) -> Path:
        return _output(self.path, self.request.cells[0].spec)


@dataclass
class KeptOutputs:
    """The kept outputs of a results folder, found when they are first needed."""

    results: Path

    @cached_property
    def _paths(self) -> dict[tuple[str, int], list[Path]]:
        """The requests of all launches of programs, the oldest first, by what they ran and their repeat."""
        found: dict[tuple[str, int], list[tuple[str, str, Path]]] = {}
        for path in self.results.glob("batches/*/launches/*.json"):
            if (request := _request(path)) and "program" in request.cells[0].spec:
                key = (_key(request.cells[0].spec), request.repeat)
                found.setdefault(key, []).append((request.time_utc, path.stem, path))
        return {key: [path for *_, path in sorted(of)] for key, of in found.items()}

    def find(self, spec: Mapping[str, object], repeat: int) -> str | None:
        """Return the latest launch that ran the program of a cell without a record, None if its output is not kept."""
        for path in reversed(self._paths.get((_key(spec), repeat), [])):
            kept = self.launch(path)
            if kept and ran_same_files(spec, kept.request.cells[0].spec, kept.records[0]["time_utc"]):
                return path.stem
        return None

    def is_outdated(self, slot: RecordSummary, spec: Mapping[str, object]) -> bool:
        """Return whether the output of a record is to be read again: an earlier reader read it, and it has what readers
        have read differently, a comma in a number or the lines of several ranks."""
        path = self.path_of(slot.launch)
        if (slot.reader or 0) >= READER or not (slot.status == "ok" or slot.phase == READING):
            return False
        is_affected = geometry_of(spec, {}).num_ranks > 1 or (
            isinstance(spec["program"]["read"], dict) and _has_comma(_output(path, spec))
        )
        return is_affected and self.launch(path) is not None

    def path_of(self, launch: str) -> Path:
        return self.results / "batches" / launch.rpartition("-l")[0] / "launches" / f"{launch}.json"

    def launch(self, path: Path) -> KeptLaunch | None:
        """Return a launch by the path of its request, None if its program failed or its output is not kept."""
        file = read_launch_file(self.results / "launches" / f"{path.stem}.jsonl")
        records = [r for r in file.lines_of("record") if r["status"] == "ok" or r.get("phase") == READING]
        request = _request(path)
        if not request or not records or file.problems or not file.lines_of("complete"):
            return None
        kept = KeptLaunch(path, request, records)
        return kept if kept.output.is_file() else None


def _request(path: Path) -> LaunchRequest | None:
    try:
        return LaunchRequest.from_json(read_json(path))
    except (AttributeError, LookupError, TypeError):
        return None


def _key(spec: Mapping[str, object]) -> str:
    return json.dumps(what_runs(spec), sort_keys=True)


def _output(request: Path, spec: Mapping[str, object]) -> Path:
    """Return the file that is read. request: path of the launch's request."""
    batch, name = request.parent.parent, request.stem
    return folder_of(batch, name) / OUTPUT if writes_output(spec) else batch / "logs" / f"{name}.log"


def _has_comma(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        rest = b""
        while chunk := file.read(CHUNK_BYTES):
            if COMMA_IN_NUMBER.search(rest + chunk):
                return True
            rest = chunk[-2:]
    return False


def read_again_text(num_outputs: int) -> str:
    return f"{plural(num_outputs, 'output')} {'is' if num_outputs == 1 else 'are'} read again"


def read_again(results: Path, cells: Mapping[str, Iterable[FrozenCell]], grown: Iterable[Path] = ()) -> bool:
    """Read kept outputs for cells, by launch, and add their records to the launch files. Return whether there were any.

    grown: manifests that lack such records, because an earlier run was killed.
    """
    outputs, manifests = KeptOutputs(results), dict.fromkeys(grown)
    if cells:
        print(f"{results}: {read_again_text(len(cells))}", file=sys.stderr, flush=True)
    for launch, of_launch in cells.items():
        if not (kept := outputs.launch(outputs.path_of(launch))):
            continue  # it vanished meanwhile: the next plan measures the cells
        batch = kept.path.parent.parent
        with hold(batch / "lock", f"{batch}: a supervisor is measuring this batch. Wait for it, or stop it."):
            first = [record for record in kept.records if not record.get("read_utc")] or kept.records
            elapsed_ns = sum(record["elapsed_ns"] or 0 for record in first)
            when = {"time_utc": first[0]["time_utc"], "read_utc": utc_now()}
            for record in read_records(replace(kept.request, cells=tuple(of_launch)), kept.output, elapsed_ns):
                append_launch_line(results / "launches" / f"{launch}.jsonl", record | when)
        manifests[batch / "manifest.json"] = None
    for manifest in manifests:
        if manifest.exists():  # else the batch was stopped
            refresh_manifest(manifest, results / "launches")
    return bool(cells)
