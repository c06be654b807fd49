"""Import files of other programs into a separate store: launch files and a frozen campaign, marked as imported.

Every file is read before anything is written, so that a rejected file leaves nothing behind. A launch file is named by
the content of the file it came from: importing the same file again changes nothing.
"""

import codecs
import hashlib
import os
import re
import shutil
from collections import ChainMap, Counter
from collections.abc import Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from regatta.campaign.expansion import cell_id, content_hash
from regatta.core.errors import UserError
from regatta.core.files import hold
from regatta.core.schemas import load_schema
from regatta.core.text import quoted
from regatta.formats import CSV, read_checked, read_content
from regatta.formats.base import STACK, STACK_FORM, Format, Options, Reading, place_of
from regatta.formats.imported_lines import (
    AGAIN,
    DEFAULT_STACK,
    CellHosts,
    Import,
    frozen_campaign,
    header_line,
    imported_record,
    launches_by_cell,
)
from regatta.formats.refused import NOTHING, nothing_imported
from regatta.formats.tidy_csv import MOST_RESULTS
from regatta.formats.tidy_csv import STATISTIC as CSV_STATISTIC
from regatta.model.frozen import FrozenCampaign
from regatta.model.launches import utc_now
from regatta.store.checksums import sealed_file
from regatta.store.frozen_files import read_frozen_campaign
from regatta.store.launch_files import LaunchFile, read_store, write_json, write_text
from regatta.store.records import problem_of

REMEDY_OF_INCOMPLETE = "To import what it contains, with every row marked, add --incomplete."
NOTE_ON_INCOMPLETE = "incomplete (--incomplete): rows may be missing; those imported are marked"
Meanings = MutableMapping[str, tuple[str, str]]  # by cell: the statistic of its times, and where the first was read


@dataclass
class Outcome:
    """The result of an import. written: (file, format, number of cells) of each new file. refused: why, by file."""

    folder: Path
    written: list[tuple[str, str, int]] = field(default_factory=list)
    already_there: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def read_import(path: Path, options: Options) -> Import:
    """Return the content of a file. Raises UserError for a file that is foreign, damaged or truncated."""
    content = read_content(path)
    try:
        kind, source = read_checked(content, str(path), options)
    except UserError as error:
        if options.is_incomplete:
            raise
        problem = str(error)
    else:
        if options.is_incomplete:
            source = replace(source, notes=(*source.notes, NOTE_ON_INCOMPLETE))
        return Import(path, content_digest(content, kind), kind, source, options.is_incomplete)
    try:  # not while the error is handled, which keeps what was read
        read_checked(content, str(path), replace(options, is_incomplete=True))
    except UserError:
        raise UserError(problem) from None
    raise UserError(f"{problem} {REMEDY_OF_INCOMPLETE}")


def content_digest(content: bytes, kind: Format) -> str:
    """Return the SHA-256 of a file without what editors and spreadsheets change: byte order mark, line ends, trailing
    blanks, and in a CSV lines of nothing but commas."""
    lines = content.removeprefix(codecs.BOM_UTF8).rstrip().replace(b"\r\n", b"\n").split(b"\n")
    if kind is CSV:
        lines = [line.rstrip() for line in lines if line.strip(b", \t\r")]
    return hashlib.sha256(b"\n".join(lines) + b"\n").hexdigest()


def campaign_folder(results: Path, name: str) -> Path:
    """Return a campaign's folder within the results folder. Raises UserError for a name that would lead elsewhere."""
    if not re.fullmatch(load_schema("campaign")["properties"]["name"]["pattern"], name) or name.endswith("\n"):
        raise UserError(
            f"--campaign {quoted(name)}: a name must be at most 64 letters, digits, dots, dashes and underscores,"
            " beginning with a letter or digit. index.html, compare and README.md are reserved."
        )
    return results / name


def import_files(
    paths: list[Path], folder: Path, stack: str | None, options: Options, now: Callable[[], str] = utc_now
) -> Outcome:
    """Import files into a results folder. A file that cannot be imported is named with the reason; the others come in.

    Raises UserError, before anything is written, if none can be imported. stack: name of the software; None for the
    name in the files, or else the default. The lock lies beside the folder, so that a rejected file creates no folder.
    """
    campaign_folder(folder.parent, folder.name)
    if stack is not None and (not re.fullmatch(STACK, stack) or stack.endswith(AGAIN)):
        raise UserError(f"--stack {stack}: a name must be {STACK_FORM}, and must not end in {AGAIN}.")
    outcome, imports = Outcome(folder), {}
    for path in paths:
        try:
            item = read_import(path, options)
            _check_stacks(item, stack)
            _check_number(item, imports)
        except UserError as error:
            outcome.refused[str(path)] = str(error)
        else:
            imports.setdefault(item.digest, item)
    if paths and not imports:
        raise nothing_imported(outcome.refused)
    taken = f"{folder}: another import into this campaign is running. Wait for it, then run the same command again."
    with hold(folder.with_name(f".{folder.name}.import.lock"), taken):
        return _import(imports, outcome, stack, now())


def _check_stacks(item: Import, stack: str | None) -> None:
    named = sorted({reading.stack for reading in item.source.readings} - {None})
    if stack is not None and len(named) > 1:
        raise UserError(
            f"--stack {stack}: {item.path} contains several stacks ({', '.join(named)}), which this option would merge."
            f" Remove the option.{NOTHING}"
        )


def _check_number(item: Import, imports: dict[str, Import]) -> None:
    num = len(item.source.readings) + sum(
        len(one.source.readings) for key, one in imports.items() if key != item.digest
    )
    if num > MOST_RESULTS:
        raise UserError(
            f"{item.path}: {num:,} results in one import; the limit is {MOST_RESULTS:,}. Import fewer at a time."
            f"{NOTHING}"
        )


def _import(imports: dict[str, Import], outcome: Outcome, stack: str | None, time_utc: str) -> Outcome:
    folder = outcome.folder
    _recover(folder)
    store = _imported_store(folder)
    stacks = {launch.header.imported["sha256"]: launch.header.imported["stack"] for launch in store}
    launches, repeats, meanings = {}, launches_by_cell(store), _meanings(store)
    new = [item for item in imports.values() if item.digest not in stacks]
    hosts = CellHosts.of_import(new, stack, store)
    for item in imports.values():
        if item.digest in stacks:
            outcome.already_there.append(f"{item.path} (stack {stacks[item.digest]})")
    devices = [launch.header.device for launch in store] or [item.source.device for item in new]
    [(device, _)] = Counter(devices).most_common(1) or [(None, 0)]
    for item in new:
        try:
            if item.source.device != device:
                raise UserError(
                    f"{item.path}: {item.source.device} results, which cannot share a report with {device} results."
                    f" Import them into another campaign.{NOTHING}"
                )
            files = _launch_files(item, folder.name, stack, hosts, repeats, meanings, time_utc)
        except UserError as error:
            outcome.refused[str(item.path)] = str(error)
            continue
        launches |= files
        outcome.written.append((str(item.path), item.kind.name, len(item.source.readings)))
        outcome.notes += [*item.source.notes, *hosts.note(item, stack)]
    if new and not outcome.written and not outcome.already_there:
        raise nothing_imported(outcome.refused)
    if launches or not any(folder.glob("campaign.*.json")):
        new = [LaunchFile(Path(f"{name}.jsonl"), [*enumerate(lines, 1)]) for name, lines in launches.items()]
        both = sorted([*store, *new], key=lambda launch: launch.path.name)
        _write(folder, frozen_campaign(folder.name, both), launches, store)
    return outcome


def _imported_store(folder: Path) -> list[LaunchFile]:
    """Return the launch files of a folder. Raises UserError unless all of them were imported, and are undamaged."""
    store = read_store(folder / "launches")
    measured = [launch.path for launch in store if launch.header and not launch.header.imported]
    measured += [path for path in sorted(folder.glob("campaign.*.json")) if read_frozen_campaign(path).imported is None]
    if measured:
        raise UserError(
            f"{measured[0]} belongs to a measured campaign. Imported and measured results cannot share a campaign."
            " Choose a different --campaign. Nothing was imported."
        )
    if damage := _damage(store):
        raise UserError(f"{damage}. Delete {folder}, and import its files again. Nothing was imported.")
    return store


def _damage(store: list[LaunchFile]) -> str | None:
    """Return which launch file is damaged or missing, or None. A killed import cannot be the cause."""
    for launch in store:
        problem = next(filter(None, (problem_of(line) for _, line in launch.lines)), None)
        if problem or launch.problems or launch.header is None or not launch.lines_of("complete"):
            return f"{launch.path}: damaged ({problem or 'a line is missing or changed'})"
    sources = [launch.header.imported for launch in store]
    found = Counter(source["sha256"] for source in sources)
    missing = (source["file"] for source in sources if source["num_launches"] != found[source["sha256"]])
    return next((f"{store[0].path.parent}: launches of {file} are missing" for file in missing), None)


def _meanings(store: list[LaunchFile]) -> Meanings:
    """Return what the times of each cell are, and where the first was read."""
    found = {}
    for launch in store:
        imported = launch.header.imported
        for line in launch.lines_of("record"):
            where = place_of(imported["file"], (line.get("imported") or {}).get("line"))
            found.setdefault(line["cell"], (imported["statistic"], where))
    return found


def _check_meaning(item: Import, reading: Reading, cell: str, meanings: Meanings) -> None:
    """Raise UserError if the times of a reading mean something else than those of its cell that came before."""
    meaning = reading.statistic or item.source.statistic
    if cell not in meanings:
        meanings[cell] = meaning, place_of(item.path, reading.line)
    before, first = meanings[cell]
    if before != meaning and CSV_STATISTIC not in (before, meaning):  # which says only that it is a median
        raise UserError(
            f"{place_of(item.path, reading.line)}: this time of {cell} is: {meaning}. That of {first} is: {before}."
            " They cannot be launches of one cell. Import them into two campaigns, or name their stacks with --stack."
            " Nothing was imported."
        )


def _launch_files(
    item: Import,
    campaign: str,
    stack: str | None,
    hosts: CellHosts,
    repeats: Counter,
    meanings: Meanings,
    time_utc: str,
) -> dict[str, list[dict]]:
    """Return the lines of each launch file of one imported file: one for each run, shape, stack and repeat.

    Adds to repeats and meanings unless it raises UserError.
    """
    groups: dict[tuple, list[tuple[str, dict, Reading]]] = {}
    times_found, num_found, meant = Counter(), Counter(), ChainMap({}, meanings)
    known: dict[tuple, tuple[dict, str]] = {}  # a cell may have thousands of launches

    def identified(reading: Reading, name: str) -> tuple[dict, str]:
        what = name, reading.benchmark, reading.version, reading.backend, reading.nodes, reading.gpus_per_node
        key = *what, id(reading.parameters), id(reading.environment)
        if key not in known:
            spec = hosts.spec_of(reading, item.source, name)
            known[key] = spec, cell_id(spec)
        return known[key]

    for reading in item.source.readings:
        name = stack or reading.stack or DEFAULT_STACK
        spec, cell = identified(reading, name)
        times_found[reading.run, cell] += 1
        if times_found[reading.run, cell] > 1:
            name = _name_of_second(item, reading, times_found[reading.run, cell], name)
            spec, cell = identified(reading, name)
        _check_meaning(item, reading, cell, meant)
        repeat = repeats[cell] + num_found[cell]
        num_found[cell] += 1
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
        header = header_line(item, len(groups), place, cells[0][2], time_utc)
        records = [imported_record(*cell, repeat, time_utc, item.is_incomplete) for cell in cells]
        counted = (record for (*_, reading), record in zip(cells, records, strict=True) if not reading.has_only_times)
        for line in (header, *counted):  # times and parameters were checked when they were read
            if problem := problem_of(line):  # such as a count beyond 64 bits
                where = place_of(item.path, (line.get("imported") or {}).get("line"))
                raise UserError(f"{where}: invalid values ({problem}). Nothing was imported.")
        starts = [{"kind": "start", "cell": cell, "time_utc": time_utc} for cell, *_ in cells]
        files[launch] = [header, *(line for pair in zip(starts, records, strict=True) for line in pair)]
        files[launch].append({"kind": "complete", "time_utc": time_utc, "elapsed_ns": None})
    repeats.update(num_found)
    meanings.update(meant.maps[0])
    return files


def _name_of_second(item: Import, reading: Reading, number: int, stack: str) -> str:
    """Return the stack name of a cell that the file repeats, for a format that has such rows."""
    if item.source.twice == "launch":
        return stack
    if item.source.twice == "again" and number == 2:
        return stack + AGAIN
    what = reading.parameters.get("model") or reading.parameters.get("operation")
    raise UserError(
        f"{place_of(item.path, reading.line)}: duplicate result for {what} on {reading.nodes} x {reading.gpus_per_node}"
        f" (number {number}). Put each run in a separate file. Nothing was imported."
    )


# An import writes into a staging folder, which readers ignore. A new results folder appears by one rename. For an
# existing one, the staging folder lies inside; when it is complete, it is renamed and its files are moved one by one. A
# killed import leaves at most this folder; the next import removes it, or moves the rest if it was complete.

STAGING, COMPLETE = ".import.new", ".import"  # in an existing results folder
NUM_WRITERS = 16  # waiting for the disk one file at a time takes a minute for 20,000 launches


def _staging_of_new(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.import")


def _recover(folder: Path) -> None:
    """Remove what a killed import left, or complete it."""
    for staging in (_staging_of_new(folder), folder / STAGING):
        shutil.rmtree(staging, ignore_errors=True)
    if (folder / COMPLETE).is_dir():
        _move_into(folder)


def _write(folder: Path, campaign: FrozenCampaign, launches: dict[str, list[dict]], kept: list[LaunchFile]) -> None:
    """Write launch files and the campaign of everything in the folder: all or none.

    kept: launch files that stay.
    """
    is_new = not folder.exists()
    staging = _staging_of_new(folder) if is_new else folder / STAGING
    try:
        (staging / "launches").mkdir(parents=True)
        for launch in kept:
            _link(launch.path, staging / "launches" / launch.path.name)
        _write_launches(staging / "launches", launches)
        write_json(staging / f"campaign.{content_hash(content := campaign.to_json())}.json", content)
        if is_new:
            staging.rename(folder)
            return
        staging.rename(folder / COMPLETE)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    _move_into(folder)


def _link(path: Path, other: Path) -> None:
    try:
        os.link(path, other)
    except OSError:  # not every file system has links
        shutil.copyfile(path, other)


def _write_launches(folder: Path, launches: dict[str, list[dict]]) -> None:
    paths = (folder / f"{launch}.jsonl" for launch in launches)
    texts = (sealed_file(lines, launch).decode() for launch, lines in launches.items())
    with ThreadPoolExecutor(NUM_WRITERS) as pool:  # which wait for the disk; Python encodes in one thread at a time
        list(pool.map(write_text, paths, texts))


def _move_into(folder: Path) -> None:
    """Move the files of a complete staging folder: launches first, the campaign last, so that one always exists.

    Tables of an earlier report lack the new launches, so they are removed.
    """
    complete = folder / COMPLETE
    for path in (folder / "measurements.csv", folder / "cells.csv", *folder.glob("tables/*.csv")):
        path.unlink(missing_ok=True)
    paths = [path for path in complete.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: (path.name.startswith("campaign."), path.suffix != ".jsonl", path)):
        target = folder / path.relative_to(complete)
        target.parent.mkdir(exist_ok=True)
        if path.parent == complete and path.name.startswith("campaign."):
            for old in folder.glob("campaign.*.json"):
                old.replace(target)
        path.replace(target)
    shutil.rmtree(complete)
