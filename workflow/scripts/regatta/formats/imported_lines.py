"""The lines of imported launch files, and the frozen campaign beside them that report, comparison and gate read."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from regatta.campaign.expansion import cell_id
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import UserError
from regatta.core.text import natural, one_line, quoted
from regatta.formats.base import Format, ImportedFile, Reading
from regatta.model.frozen import FrozenCampaign, FrozenCell
from regatta.model.launches import Cause, unmeasured_record
from regatta.store.launch_files import LaunchFile
from regatta.store.records import INCOMPLETE

CLUSTER = "imported"
DEFAULT_STACK = "imported"
HOST = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
AGAIN = "_again"  # suffix of the stack's name for the second of two equal rows
BASELINE = {"strategy": "none", "nodes": 1, "gpus_per_node": 1}


@dataclass(frozen=True)
class Import:
    """A file to import. digest: see content_digest."""

    path: Path
    digest: str
    kind: Format
    source: ImportedFile
    is_incomplete: bool = False


def hosts_of(reading: Reading, source: ImportedFile) -> tuple[str, ...]:
    """Return the hosts of a reading, empty if the file does not list them."""
    environment = source.environment if reading.environment is None else reading.environment
    return tuple(sorted({_encodable(host["host"]) for host in environment.get("hosts", [])}, key=natural))


def spec_of(reading: Reading, source: ImportedFile, stack: str, hosts: tuple[str, ...] = ()) -> dict:
    """Return the cell of a reading. Two stacks share `software` only if the same processes measured a cell twice.

    hosts: if they are part of the cell.
    """
    software = stack.removesuffix(AGAIN)
    return {
        **({"hosts": list(hosts)} if hosts else {}),
        "benchmark": reading.benchmark,
        "version": reading.version or load_benchmark(reading.benchmark).version,
        "cluster": CLUSTER,
        "device": source.device,
        "backend": reading.backend or source.backend,
        "nodes": reading.nodes,
        "gpus_per_node": reading.gpus_per_node,
        "stack": {"name": stack, "kind": "imported", "env": {}, "python": None, "software": software},
        "parameters": reading.parameters,
        "sampling": None,
    }


@dataclass
class CellHosts:
    """The sets of hosts of each cell: one import with several sets of a cell measures hosts, as a sweep does.

    Keys are ids without hosts. earlier: of cells in the store that have no hosts in their ids.
    """

    sets: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)
    earlier: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def of_import(cls, items: Iterable[Import], stack: str | None, store: list[LaunchFile]) -> "CellHosts":
        """Return those of new files (items) and of the launch files of the folder (store)."""
        found = cls()
        for launch in store:
            hosts = tuple(sorted({host["host"] for host in launch.header.environment.get("hosts") or ()}, key=natural))
            for line in launch.lines_of("record"):
                known = found.sets if "hosts" in line["spec"] else found.earlier
                known.setdefault(_without_hosts(line["spec"]), set()).add(hosts)
        for cells in found.sets.values():
            cells.add(())  # distinguished before, so also now
        for item in items:
            for reading in item.source.readings:
                if hosts := hosts_of(reading, item.source):
                    spec = spec_of(reading, item.source, stack or reading.stack or DEFAULT_STACK)
                    found.sets.setdefault(cell_id(spec), set()).add(hosts)
        return found

    def spec_of(self, reading: Reading, source: ImportedFile, stack: str) -> dict:
        """Return the cell of a reading, with its hosts if they distinguish it from others."""
        spec = spec_of(reading, source, stack)
        if not self.sets or len(self.sets.get(cell_id(spec), ())) < 2:
            return spec
        hosts = hosts_of(reading, source)
        if unusable := [host for host in hosts if not re.fullmatch(HOST, host)]:
            raise UserError(
                f"host {quoted(unusable[0])}: a host name in a cell must have at most 253 letters, digits, dots, dashes"
                " and underscores. Import each set of hosts into a separate campaign. Nothing was imported."
            )
        return spec_of(reading, source, stack, hosts)

    def note(self, item: Import, stack: str | None) -> list[str]:
        """Return a note on a file with hosts other than those of an earlier import, if its cells have none."""
        for reading in item.source.readings if self.earlier else ():
            if not (hosts := hosts_of(reading, item.source)):
                continue
            spec = self.spec_of(reading, item.source, stack or reading.stack or DEFAULT_STACK)
            earlier = self.earlier.get(_without_hosts(spec), set())
            if earlier and hosts not in earlier:
                text = f"{item.path}: on {', '.join(hosts)}, unlike an earlier import of the same cells"
                return [f"{text}. To compare hosts, import all files into a new campaign in one call"]
        return []


def _without_hosts(spec: dict) -> str:
    return cell_id({name: value for name, value in spec.items() if name != "hosts"})


def header_line(item: Import, num_launches: int, place: dict, reading: Reading, time_utc: str) -> dict:
    """Return the first line of a launch file. num_launches: of the whole file, to detect a missing one.

    reading: any of the launch. It has environment and statistic of its run, if the file has several.
    """
    source = item.source
    environment = {"hosts": [], "python": None, "torch": None, "libraries": [], "variables": {}, "settings": {}}
    environment |= {name: _encodable(value) for name, value in (reading.environment or source.environment).items()}
    return {
        "kind": "launch",
        "schema": 1,
        **place,
        "device": source.device,
        "time_utc": time_utc,
        "argv": [one_line(word) for word in source.argv],
        "git": None,
        "environment": environment,
        "imported": {
            "format": item.kind.name,
            "file": one_line(item.path.name),
            "sha256": item.digest,
            "num_launches": num_launches,
            "stack": place["stack"].removesuffix(AGAIN),
            "statistic": reading.statistic or source.statistic,
            "measured_at": _encodable(source.measured_at),
            "notes": [one_line(note) for note in source.notes],
        },
    }


def _encodable(value: object) -> object:
    return one_line(value) if isinstance(value, str) else value


def imported_record(cell: str, spec: dict, reading: Reading, repeat: int, time_utc: str, is_incomplete: bool) -> dict:
    samples, iterations, warmup = reading.samples_ns, reading.num_iterations, reading.num_warmup
    untimed, mark = {"elapsed_ns": None, "stop": None}, INCOMPLETE if is_incomplete else ""
    cause = Cause("failed", "check", reading.failure + mark) if reading.failure else reading.crash
    cause = cause or Cause("ok", None, None)
    windows = {"steps_per_window": reading.steps_per_window, "elapsed_ns": samples}
    flag = {"is_incomplete": True} if is_incomplete else {}
    what = {"cell": cell, "spec": spec, "repeat": repeat, "command": None, "writer": "import"}
    return unmeasured_record(what, cause, time_utc, None) | {
        "warmup": None if warmup is None else {"num_iterations": warmup, "first_iteration_ns": None} | untimed,
        "sampling": None if iterations is None else {"num_iterations": iterations, "half_width_ratio": None} | untimed,
        "samples_ns": samples,
        "slowest_rank_samples_ns": reading.slowest_ns,
        "windows": None if None in (samples, reading.steps_per_window) else windows,
        "imported": {"line": reading.line, "times_s": reading.times_s, "printed": reading.printed} | flag,
    }


def launches_by_cell(store: list[LaunchFile]) -> Counter:
    return Counter(line["cell"] for launch in store for line in launch.lines_of("record"))


def frozen_campaign(name: str, store: list[LaunchFile]) -> FrozenCampaign:
    """Return the frozen campaign of everything that was imported. A cell has as many repeats as it has launches."""
    cells = {line["cell"]: line["spec"] for launch in store for line in launch.lines_of("record")}
    repeats = launches_by_cell(store)
    files = {launch.header.imported["sha256"]: launch.header.imported for launch in store}
    sources = sorted(files.values(), key=lambda entry: (entry["stack"], entry["file"], entry["sha256"]))
    most = max(repeats.values(), default=1)
    used = {spec["benchmark"] for spec in cells.values()}
    return FrozenCampaign(
        schema=1,
        name=name,
        description=_description(sources),
        source="imported files",
        text="".join(
            f"{entry['file']}  {entry['format']}  stack {entry['stack']}  sha256 {entry['sha256']}\n"
            + "".join(f"  {note}\n" for note in entry["notes"])
            for entry in sources
        ),
        cluster={"schema": 1, "name": CLUSTER, "scheduler": "none"},
        device=store[0].header.device if store else "cuda",
        repeats=most,
        seed=0,
        isolation="launch",
        baseline=BASELINE,
        versus={"axis": "stack", "reference": None, "margin": None},
        sweep=_sweep(cells.values()),
        cells=tuple(
            FrozenCell(cell, cells[cell], repeats=None if repeats[cell] == most else repeats[cell])
            for cell in sorted(cells, key=natural)
        ),
        skipped=(),
        imported=sources,
        benchmarks={name: of for name in sorted(used) if (of := load_benchmark(name).declaration)} or None,
    )


def _sweep(specs: Iterable[dict]) -> str | None:
    """Return what the cells are a sweep of: each has one host, or two; None if they are none."""
    return {(1,): "nodes", (2,): "pairs"}.get(tuple({len(spec.get("hosts", ())) for spec in specs}))


def _description(files: list[dict]) -> str:
    """Return the description in the head of the report: the numbers were not measured here, and what each time is."""
    by_format: dict[tuple[str, str], list[str]] = {}
    for entry in files:
        by_format.setdefault((entry["format"], entry["statistic"]), []).append(entry["file"])
    parts = [f"{', '.join(names)} ({kind}): {statistic}" for (kind, statistic), names in by_format.items()]
    return f"Imported, not measured by Regatta. Times: {'; '.join(parts)}."
