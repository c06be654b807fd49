"""Write what foreign files say into a store of its own: launch files and a frozen campaign, both marked as imported.

Every file is read before anything is written, so that a file that is refused leaves nothing behind. A launch file is
named by the content of the file it came from: the same file again changes nothing.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from regatta.campaign.matrix import content_hash
from regatta.errors import UserError
from regatta.formats.imported_campaign import frozen_campaign, launches_by_cell
from regatta.formats.imported_lines import AGAIN, cell_id, header_line, record_line, spec_of
from regatta.formats.reading import LEAST_SECONDS, MOST_RANKS, MOST_SECONDS, Options, Reading, Source, refusal
from regatta.formats.recognise import read_file
from regatta.store.launch_files import LaunchFile, read_store, utc_now, write_json, write_text
from regatta.store.records import problem_of, violation

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
STACK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True)
class Import:
    """A file to import. digest: SHA-256 of its bytes."""

    path: Path
    digest: str
    source: Source


@dataclass
class Outcome:
    """What an import did. written and already_there: (file, format, number of cells)."""

    folder: Path
    written: list[tuple[str, str, int]] = field(default_factory=list)
    already_there: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_files(
    paths: list[Path], folder: Path, stack: str, options: Options, now: Callable[[], str] = utc_now
) -> Outcome:
    """Import files into a results folder. Raises UserError before anything is written."""
    _check_names(folder, stack)
    imports = {}
    for path in paths:
        content, source = read_file(path, options)
        item = Import(path, hashlib.sha256(content).hexdigest(), source)
        imports.setdefault(item.digest, item)
    store = _imported_store(folder)
    outcome, launches, time_utc = Outcome(folder), {}, now()
    repeats = launches_by_cell(store)
    known = {launch.header["imported"]["sha256"]: launch.header["imported"]["stack"] for launch in store}
    for item in imports.values():
        if item.digest in known:
            outcome.already_there.append(f"{item.path} (stack {known[item.digest]})")
            continue
        new = _launch_files(item, folder.name, stack, repeats, time_utc)
        launches |= new
        outcome.written.append((str(item.path), item.source.format, len(item.source.readings)))
        outcome.notes += item.source.notes
    _check_device(store, launches)
    _write(folder, launches)
    return outcome


def _check_names(folder: Path, stack: str) -> None:
    if not NAME.fullmatch(folder.name):
        raise UserError(
            f"--campaign {folder.name}: a name has letters, digits, dot, dash and underscore, at most 64, the first a"
            " letter or digit. Choose another."
        )
    if not STACK.fullmatch(stack) or stack.endswith(AGAIN):
        raise UserError(
            f"--stack {stack}: a name has letters, digits and underscore, at most 64, the first a letter or digit, and"
            f" does not end in {AGAIN}. Choose another."
        )


def _imported_store(folder: Path) -> list[LaunchFile]:
    """Return the launch files of a folder, all of which were imported. A campaign that was measured is left alone."""
    frozen = sorted(folder.glob("campaign.*.json"))
    store = read_store(folder / "launches")
    measured = [launch.path for launch in store if not (launch.header or {}).get("imported")]
    for path in frozen:
        try:
            is_imported = "imported" in json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            is_imported = False
        if not is_imported:
            measured.append(path)
    if measured:
        raise UserError(
            f"{measured[0]} belongs to a campaign that was measured. Imported numbers stay apart: choose another"
            " --campaign. Nothing was imported."
        )
    return store


def _launch_files(item: Import, campaign: str, stack: str, repeats: Counter, time_utc: str) -> dict[str, list[dict]]:
    """Return the lines of each launch file of one imported file: one for each shape, stack and repeat."""
    groups: dict[tuple, list[tuple[str, dict, Reading]]] = {}
    seen: Counter = Counter()
    for reading in item.source.readings:
        _check_reading(item, reading)
        name = stack
        spec = spec_of(reading, item.source, stack, stack)
        cell = cell_id(spec)
        seen[cell] += 1
        if seen[cell] > 1:
            name = _name_of_second(item, reading, seen[cell], stack)
            spec = spec_of(reading, item.source, name, stack)
            cell = cell_id(spec)
        repeat = repeats[cell]
        repeats[cell] += 1
        groups.setdefault((reading.nodes, reading.gpus_per_node, name, repeat), []).append((cell, spec, reading))
    files, numbers = {}, Counter()
    for (nodes, gpus, name, repeat), cells in groups.items():
        batch = f"n{nodes:02d}g{gpus:02d}-import-{item.digest[:12]}"
        launch = f"{batch}-l{numbers[batch]:03d}-i00"
        numbers[batch] += 1
        place = {"campaign": campaign, "batch": batch, "launch": launch, "repeat": repeat, "stack": name}
        place |= {"nodes": nodes, "gpus_per_node": gpus, "order": [cell for cell, _, _ in cells]}
        lines = [header_line(item.source, item.path, item.digest, place, time_utc)]
        for cell, spec, reading in cells:
            lines += [
                {"kind": "start", "cell": cell, "time_utc": time_utc},
                record_line(cell, spec, repeat, reading, time_utc),
            ]
        files[launch] = [*lines, {"kind": "complete", "time_utc": time_utc, "elapsed_ns": None}]
    _check_lines(item, files)
    return files


def _name_of_second(item: Import, reading: Reading, number: int, stack: str) -> str:
    """Return the stack's name of a cell that stands in the file for the second time, where the format has such rows."""
    if item.source.twice == "launch":
        return stack
    if item.source.twice == "again" and number == 2:
        return stack + AGAIN
    place = item.path if reading.line is None else f"{item.path}:{reading.line}"
    what = reading.parameters.get("model") or reading.parameters.get("operation")
    raise UserError(
        f"{place}: {what} on {reading.nodes} x {reading.gpus_per_node} stands here for the {number}. time; expected it once."
        " Give each run a file of its own. Nothing was imported."
    )


def _check_reading(item: Import, reading: Reading) -> None:
    """Refuse figures that are numbers, and none of any machine."""
    strange = [f"{name} = {value:g}" for name, value in reading.times_s.items()
               if not LEAST_SECONDS <= value <= MOST_SECONDS and not reading.failure]  # fmt: skip
    if reading.nodes * reading.gpus_per_node > MOST_RANKS:
        strange.append(f"{reading.nodes} x {reading.gpus_per_node} ranks")
    if strange:
        raise refusal(str(item.path), reading.line, ", ".join(strange), "figures of a machine")


def _check_lines(item: Import, files: dict[str, list[dict]]) -> None:
    """Refuse a file whose figures a launch file cannot hold, such as a count beyond 64 bits."""
    for lines in files.values():
        for line in lines:
            problem = problem_of(line) if line["kind"] == "record" else violation(line)
            if problem:
                place = (line.get("imported") or {}).get("line")
                where = item.path if place is None else f"{item.path}:{place}"
                raise UserError(f"{where}: its figures make no record ({problem}). Nothing was imported.")


def _check_device(store: list[LaunchFile], new: dict[str, list[dict]]) -> None:
    devices = {launch.header["device"] for launch in store} | {lines[0]["device"] for lines in new.values()}
    if len(devices) > 1:
        raise UserError(
            "some of the files are of GPUs and some of CPUs, which one report cannot show side by side. Give them two"
            " campaigns. Nothing was imported."
        )


def _write(folder: Path, launches: dict[str, list[dict]]) -> None:
    """Write launch files, all or none, then the campaign of all that the folder then holds."""
    written = []
    try:
        for launch, lines in launches.items():
            path = folder / "launches" / f"{launch}.jsonl"
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            write_text(path, text)
            written.append(path)
        campaign = frozen_campaign(folder.name, read_store(folder / "launches"))
        path = folder / f"campaign.{content_hash(campaign)}.json"
        for old in folder.glob("campaign.*.json"):
            if old != path:
                old.unlink()
        if not path.exists():
            write_json(path, campaign)
    except OSError:
        for path in written:
            path.unlink(missing_ok=True)
        raise
