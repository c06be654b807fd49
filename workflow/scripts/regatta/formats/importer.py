"""Import files of other programs into a separate store: launch files and a frozen campaign, marked as imported.

Every file is read before anything is written, so that a rejected file leaves nothing behind. A launch file is named by
the content of the file it came from: importing the same file again changes nothing.
"""

import codecs
import hashlib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from regatta.campaign.matrix import cell_id, content_hash
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import UserError
from regatta.core.files import hold
from regatta.core.text import natural, one_line
from regatta.formats import CSV, check_options, read_text
from regatta.formats.base import STACK, STACK_FORM, Format, Options, Reading, Source, check_source, quoted
from regatta.store.checksums import sealed_file
from regatta.store.frozen_files import read_frozen
from regatta.store.launch_files import LaunchFile, read_file, read_store, records, utc_now, write_json, write_text
from regatta.store.records import problem_of

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
DEFAULT_STACK = CLUSTER = "imported"
AGAIN = "_again"  # suffix of the stack's name for the second of two equal rows
BASELINE = {"strategy": "none", "nodes": 1, "gpus_per_node": 1}
REMEDY = "Delete it, and import the files of this campaign again. Nothing was imported."


@dataclass(frozen=True)
class Import:
    """A file to import. digest: see content_digest."""

    path: Path
    digest: str
    kind: Format
    source: Source


@dataclass
class Outcome:
    """The result of an import. written: (file, format, number of cells) of each new file."""

    folder: Path
    written: list[tuple[str, str, int]] = field(default_factory=list)
    already_there: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_import(path: Path, options: Options) -> Import:
    """Return the content of a file. Raises UserError for a file that is foreign, damaged or cut off."""
    try:
        content = read_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). Nothing was imported.") from None
    # Logs contain arbitrary bytes between their rows. The replacement of an invalid one matches no number.
    kind, source = read_text(content.decode("utf-8", "replace"), str(path), options)
    check_source(str(path), source)
    check_options(str(path), source, options)
    return Import(path, content_digest(content, kind), kind, source)


def content_digest(content: bytes, kind: Format) -> str:
    """Return the SHA-256 of a file without what editors and spreadsheets change: byte order mark, line ends, trailing
    blanks, and in a CSV lines of nothing but commas."""
    lines = content.removeprefix(codecs.BOM_UTF8).rstrip().replace(b"\r\n", b"\n").split(b"\n")
    if kind is CSV:
        lines = [line.rstrip() for line in lines if line.strip(b", \t\r")]
    return hashlib.sha256(b"\n".join(lines) + b"\n").hexdigest()


def campaign_folder(results: Path, name: str) -> Path:
    """Return a campaign's folder within the results folder. Raises UserError for a name that would lead elsewhere."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"--campaign {quoted(name)}: a name must be at most 64 letters, digits, dots, dashes and underscores,"
            " beginning with a letter or digit."
        )
    return results / name


def import_files(
    paths: list[Path], folder: Path, stack: str | None, options: Options, now: Callable[[], str] = utc_now
) -> Outcome:
    """Import files into a results folder. Raises UserError before anything is written.

    stack: name of the software; None for the name in the files, or else the default. The lock lies beside the folder,
    so that a rejected file creates no folder.
    """
    campaign_folder(folder.parent, folder.name)
    if stack is not None and (not re.fullmatch(STACK, stack) or stack.endswith(AGAIN)):
        raise UserError(f"--stack {stack}: a name must be {STACK_FORM}, and must not end in {AGAIN}.")
    imports = {}
    for path in paths:
        item = read_import(path, options)
        named = sorted({reading.stack for reading in item.source.readings} - {None})
        if stack is not None and len(named) > 1:
            raise UserError(
                f"--stack {stack}: {path} contains several stacks ({', '.join(named)}), which this option would merge."
                " Remove the option. Nothing was imported."
            )
        imports.setdefault(item.digest, item)
    taken = f"{folder}: another import into this campaign is running. Wait for it, then run the same command again."
    with hold(folder.with_name(f".{folder.name}.import.lock"), taken):
        return _import(imports, folder, stack, now())


def _import(imports: dict[str, Import], folder: Path, stack: str | None, time_utc: str) -> Outcome:
    store = _imported_store(folder)
    whole = _whole_imports(store)
    kept, cut_off = [], []
    for launch in store:
        digest = launch.header["imported"]["sha256"]
        (kept if digest in whole else cut_off).append(launch)
        if digest not in whole and digest not in imports:
            raise UserError(
                f"{folder}: import of {launch.header['imported']['file']} was interrupted ({launch.path.name} exists,"
                " others are missing or damaged). Import that file again first. Nothing was imported."
            )
    outcome, launches, repeats = Outcome(folder), {}, _launches_by_cell(kept)
    for item in imports.values():
        if item.digest in whole:
            outcome.already_there.append(f"{item.path} (stack {whole[item.digest]})")
            continue
        launches |= _launch_files(item, folder.name, stack, repeats, time_utc)
        outcome.written.append((str(item.path), item.kind.name, len(item.source.readings)))
        outcome.notes += item.source.notes
    devices = {launch.header["device"] for launch in kept} | {lines[0]["device"] for lines in launches.values()}
    if len(devices) > 1:
        raise UserError(
            "the files mix GPU and CPU results, which cannot share a report. Import them into two campaigns. Nothing"
            " was imported."
        )
    _write(folder, launches, [launch.path for launch in cut_off])
    return outcome


def _imported_store(folder: Path) -> list[LaunchFile]:
    """Return the launch files of a folder. Raises UserError unless all of them were imported."""
    store = read_store(folder / "launches")
    measured = [launch.path for launch in store if launch.header and not launch.header.get("imported")]
    measured += [path for path in sorted(folder.glob("campaign.*.json")) if "imported" not in read_frozen(path)]
    if measured:
        raise UserError(
            f"{measured[0]} belongs to a measured campaign. Imported and measured results cannot share a campaign."
            " Choose a different --campaign. Nothing was imported."
        )
    for launch in store:
        if launch.header is None:
            raise UserError(f"{launch.path}: has no launch line. {REMEDY}")
        if problem := problem_of(launch.header):
            raise UserError(f"{launch.path}: the first line is damaged ({problem}). {REMEDY}")
    return store


def _whole_imports(store: list[LaunchFile]) -> dict[str, str]:
    """Return digest -> stack of the files whose launches are all present and complete: an import may be killed."""
    num_whole = Counter(
        launch.header["imported"]["sha256"]
        for launch in store
        if launch.is_complete() and not launch.problems and not any(problem_of(line) for _, line in launch.lines)
    )
    sources = [launch.header["imported"] for launch in store]
    damaged = {entry["sha256"] for entry in sources if entry["num_launches"] != num_whole[entry["sha256"]]}
    return {entry["sha256"]: entry["stack"] for entry in sources if entry["sha256"] not in damaged}


def _launch_files(
    item: Import, campaign: str, stack: str | None, repeats: Counter, time_utc: str
) -> dict[str, list[dict]]:
    """Return the lines of each launch file of one imported file: one for each run, shape, stack and repeat."""
    groups: dict[tuple, list[tuple[str, dict, Reading]]] = {}
    times_found: Counter = Counter()
    for reading in item.source.readings:
        name = stack or reading.stack or DEFAULT_STACK
        spec = _spec(reading, item.source, name)
        cell = cell_id(spec)
        times_found[reading.run, cell] += 1
        if times_found[reading.run, cell] > 1:
            name = _name_of_second(item, reading, times_found[reading.run, cell], name)
            spec = _spec(reading, item.source, name)
            cell = cell_id(spec)
        repeat = repeats[cell]
        repeats[cell] += 1
        group = reading.nodes, reading.gpus_per_node, name, repeat, reading.run
        groups.setdefault(group, []).append((cell, spec, reading))
    files, numbers = {}, Counter()
    for (nodes, gpus, name, repeat, _), cells in groups.items():
        batch = f"n{nodes:02d}g{gpus:02d}-import-{item.digest[:12]}"
        if not stack and any(reading.stack for _, _, reading in cells):
            batch += f"-{name}"  # the file does not say which launches of two stacks shared an allocation
        launch = f"{batch}-l{numbers[batch]:03d}-i00"
        numbers[batch] += 1
        place = {"campaign": campaign, "batch": batch, "launch": launch, "repeat": repeat, "stack": name}
        place |= {"nodes": nodes, "gpus_per_node": gpus, "order": [cell for cell, _, _ in cells]}
        lines = [_header_line(item, len(groups), place, cells[0][2].environment, time_utc)]
        for cell, spec, reading in cells:
            lines.append({"kind": "start", "cell": cell, "time_utc": time_utc})
            lines.append(_record_line(cell, spec, repeat, reading, time_utc))
        lines.append({"kind": "complete", "time_utc": time_utc, "elapsed_ns": None})
        for line in lines:
            if problem := problem_of(line):  # such as a count beyond 64 bits
                where = _where(item, (line.get("imported") or {}).get("line"))
                raise UserError(f"{where}: invalid values ({problem}). Nothing was imported.")
        files[launch] = lines
    return files


def _where(item: Import, line: int | None) -> str:
    return str(item.path) if line is None else f"{item.path}:{line}"


def _name_of_second(item: Import, reading: Reading, number: int, stack: str) -> str:
    """Return the stack name of a cell that the file repeats, for a format that has such rows."""
    if item.source.twice == "launch":
        return stack
    if item.source.twice == "again" and number == 2:
        return stack + AGAIN
    what = reading.parameters.get("model") or reading.parameters.get("operation")
    raise UserError(
        f"{_where(item, reading.line)}: duplicate result for {what} on {reading.nodes} x {reading.gpus_per_node}"
        f" (number {number}). Put each run in a separate file. Nothing was imported."
    )


def _write(folder: Path, launches: dict[str, list[dict]], cut_off: list[Path]) -> None:
    """Write launch files, all or none, then the campaign of everything in the folder.

    cut_off: launch files of an import that was killed, which these replace. An old campaign goes last: the next import
    cleans up two campaigns, but launches without a campaign would be lost.
    """
    written = []
    try:
        for launch, lines in launches.items():
            path = folder / "launches" / f"{launch}.jsonl"
            written.append(path)
            write_text(path, sealed_file(lines, launch).decode())
        for path in cut_off:
            if path not in written:
                path.unlink()
        campaign = _frozen_campaign(folder.name, read_store(folder / "launches"))
        frozen = folder / f"campaign.{content_hash(campaign)}.json"
        if not frozen.exists():
            write_json(frozen, campaign)
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    for old in folder.glob("campaign.*.json"):
        if old != frozen:
            old.unlink()


# The lines of launch files, and the frozen campaign that report, comparison and gate read beside them.


def _spec(reading: Reading, source: Source, stack: str) -> dict:
    """Return the cell of a reading. Two stacks share `software` only if the same processes measured a cell twice."""
    software = stack.removesuffix(AGAIN)
    return {
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


def _header_line(item: Import, num_launches: int, place: dict, of_run: dict | None, time_utc: str) -> dict:
    """Return the first line of a launch file. num_launches: of the whole file, to detect a missing one.

    of_run: environment of the run, if the file has several.
    """
    source = item.source
    environment = {"hosts": [], "python": None, "torch": None, "libraries": [], "variables": {}, "settings": {}}
    environment |= {name: _encodable(value) for name, value in (of_run or source.environment).items()}
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
            "statistic": source.statistic,
            "measured_at": _encodable(source.measured_at),
            "notes": [one_line(note) for note in source.notes],
        },
    }


def _encodable(value: object) -> object:
    return one_line(value) if isinstance(value, str) else value


def _record_line(cell: str, spec: dict, repeat: int, reading: Reading, time_utc: str) -> dict:
    samples, steps = reading.samples_ns, reading.steps_per_window
    iterations, warmup = reading.num_iterations, reading.num_warmup
    untimed = {"elapsed_ns": None, "stop": None}
    return {
        "kind": "record",
        "cell": cell,
        "spec": spec,
        "repeat": repeat,
        "command": None,
        "writer": "import",
        "status": "failed" if reading.failure else "ok",
        "phase": "check" if reading.failure else None,
        "cause": reading.failure,
        "time_utc": time_utc,
        **dict.fromkeys(("elapsed_ns", "setup_ns")),
        "warmup": None if warmup is None else {"num_iterations": warmup, "first_iteration_ns": None} | untimed,
        "sampling": None if iterations is None else {"num_iterations": iterations, "half_width_ratio": None} | untimed,
        "samples_ns": samples,
        "slowest_rank_samples_ns": reading.slowest_ns,
        "rank_quantiles_ns": None,
        "windows": None if samples is None or steps is None else {"steps_per_window": steps, "elapsed_ns": samples},
        **dict.fromkeys(("checks", "values", "memory")),
        "imported": {"line": reading.line, "times_s": reading.times_s, "printed": reading.printed},
    }


def _launches_by_cell(store: list[LaunchFile]) -> Counter:
    return Counter(line["cell"] for _, _, line in records(store))


def _frozen_campaign(name: str, store: list[LaunchFile]) -> dict:
    """Return the frozen campaign of everything that was imported. A cell has as many repeats as it has launches."""
    cells, repeats = {line["cell"]: line["spec"] for _, _, line in records(store)}, _launches_by_cell(store)
    files = {launch.header["imported"]["sha256"]: launch.header["imported"] for launch in store}
    sources = sorted(files.values(), key=lambda entry: (entry["stack"], entry["file"], entry["sha256"]))
    most = max(repeats.values(), default=1)
    return {
        "schema": 1,
        "name": name,
        "description": _description(sources),
        "source": "imported files",
        "text": "".join(
            f"{entry['file']}  {entry['format']}  stack {entry['stack']}  sha256 {entry['sha256']}\n"
            + "".join(f"  {note}\n" for note in entry["notes"])
            for entry in sources
        ),
        "cluster": {"schema": 1, "name": CLUSTER, "scheduler": "none"},
        "device": store[0].header["device"] if store else "cuda",
        "repeats": most,
        "seed": 0,
        "isolation": "launch",
        "baseline": BASELINE,
        "versus": {"axis": "stack", "reference": None, "margin": None},
        "cells": [
            {"id": cell, "spec": cells[cell], "command": None}
            | ({} if repeats[cell] == most else {"repeats": repeats[cell]})
            for cell in sorted(cells, key=natural)
        ],
        "skipped": [],
        "imported": sources,
    }


def _description(files: list[dict]) -> str:
    """Return the description in the head of the report: the numbers were not measured here, and what each time is."""
    by_format: dict[tuple[str, str], list[str]] = {}
    for entry in files:
        by_format.setdefault((entry["format"], entry["statistic"]), []).append(entry["file"])
    parts = [f"{', '.join(names)} ({kind}): {statistic}" for (kind, statistic), names in by_format.items()]
    return f"Imported, not measured by Regatta. Times: {'; '.join(parts)}."
