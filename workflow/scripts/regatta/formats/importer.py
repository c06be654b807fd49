"""Write what foreign files say into a store of its own: launch files and a frozen campaign, both marked as imported.

Every file is read before anything is written, so that a file that is refused leaves nothing behind. A launch file is
named by the content of the file it came from: the same file again changes nothing.
"""

import codecs
import hashlib
import json
import re
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from regatta.campaign.matrix import cell_id, content_hash
from regatta.core.errors import UserError
from regatta.core.files import hold
from regatta.formats import CSV, FORMATS
from regatta.formats.base import (
    STACK,
    STACK_FORM,
    Format,
    Options,
    Reading,
    Source,
    check_json,
    check_source,
    lines_of,
    parse_json,
    quoted,
    refusal,
)
from regatta.formats.imported_files import (
    AGAIN,
    frozen_campaign,
    header_line,
    launches_by_cell,
    record_line,
    spec_of,
)
from regatta.store.launch_files import LaunchFile, read_file, read_store, utc_now, write_json, write_text
from regatta.store.records import problem_of, violation

KNOWN = f"{', '.join(kind.contents for kind in FORMATS[:-1])}, or {FORMATS[-1].contents} (docs/formats.md)"


@dataclass(frozen=True)
class Import:
    """A file to import. digest: see content_digest."""

    path: Path
    digest: str
    kind: Format
    source: Source


def read_import(path: Path, options: Options) -> Import:
    """Return what a file says. Raises UserError for a file that is foreign, damaged or cut off."""
    try:
        mode = stat.S_IFMT(path.stat().st_mode)
        content = path.read_bytes() if mode in (stat.S_IFREG, stat.S_IFDIR) else None  # to read a folder is an error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). Nothing was imported.") from None
    if content is None:
        raise UserError(
            f"{path}: is a pipe or device; expected a file. Write it to a file first. Nothing was imported."
        )
    # Logs hold bytes of any kind between their rows. What stands for a broken one matches no figure.
    kind, source = read_text(content.decode("utf-8", "replace"), str(path), options)
    check_source(str(path), source)
    return Import(path, content_digest(content, kind), kind, source)


def content_digest(content: bytes, kind: Format) -> str:
    """Return the SHA-256 by which a file is known again: of its bytes without what editors and spreadsheets change.

    That is the mark in front of the text, the kind of line ends, spaces and line ends behind the text, and in a CSV, of
    which only rows count, lines of nothing but commas. Of most files it is the SHA-256 of the file.
    """
    lines = content.removeprefix(codecs.BOM_UTF8).rstrip().replace(b"\r\n", b"\n").split(b"\n")
    if kind is CSV:
        lines = [line.rstrip() for line in lines if line.strip(b", \t\r")]
    return hashlib.sha256(b"\n".join(lines) + b"\n").hexdigest()


def read_text(text: str, name: str, options: Options) -> tuple[Format, Source]:
    """Return the format of a text, by what stands in it and never by its name, and what it says. name: for messages."""
    text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    start = text.lstrip()[:1]
    kind = None if start == "{" else _recognised(text, is_json=False)
    if kind is not None:
        return kind, kind.read(text, name, options)
    if start not in ("{", "["):  # many logs begin with "[" too, so that a text is tried first
        line, found = next(((n, line) for n, line in enumerate(lines_of(text), start=1) if line.strip()), (1, None))
        what = "the file is empty" if found is None else f"found {quoted(found)}, and no known format in the file"
        raise refusal(name, line, what, KNOWN)
    value = parse_json(text, name)
    kind = _recognised(value, is_json=True)
    if kind is None:
        keys = ", ".join(map(str, value)) if isinstance(value, dict) else type(value).__name__
        raise refusal(name, 1, f"found JSON of {quoted(keys)}", KNOWN)
    check_json(value, name, kind.name)
    return kind, kind.read(value, name, options)


def _recognised(content: object, is_json: bool) -> Format | None:
    return next((kind for kind in FORMATS if kind.is_json == is_json and kind.recognise(content)), None)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
DEFAULT_STACK = "imported"


@dataclass
class Outcome:
    """What an import did. written and already_there: (file, format, number of cells)."""

    folder: Path
    written: list[tuple[str, str, int]] = field(default_factory=list)
    already_there: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def campaign_folder(results: Path, name: str) -> Path:
    """Return the folder of a campaign in that of all results. Raises UserError for a name that would lead elsewhere."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"--campaign {quoted(name)}: a name has letters, digits, dot, dash and underscore, at most 64, the first a"
            " letter or digit. Choose another."
        )
    return results / name


def import_files(
    paths: list[Path], folder: Path, stack: str | None, options: Options, now: Callable[[], str] = utc_now
) -> Outcome:
    """Import files into a results folder. Raises UserError before anything is written.

    stack: what the software is called; None where the files say it, or are to have the default name. The lock lies
    beside the folder, so that a file that is refused makes no folder.
    """
    campaign_folder(folder.parent, folder.name)
    if stack is not None and (not re.fullmatch(STACK, stack) or stack.endswith(AGAIN)):
        raise UserError(f"--stack {stack}: a name has {STACK_FORM}, and does not end in {AGAIN}. Choose another.")
    imports = {}
    for path in paths:
        item = read_import(path, options)
        _check_one_stack(path, item.source, stack)
        imports.setdefault(item.digest, item)
    taken = f"{folder}: another import into this campaign runs. Wait until it has ended, then run the same line again."
    with hold(folder.with_name(f".{folder.name}.import.lock"), taken):
        return _import(imports, folder, stack, now())


def _check_one_stack(path: Path, source: Source, stack: str | None) -> None:
    """Refuse to give one name to what a file names differently."""
    named = sorted({reading.stack for reading in source.readings} - {None})
    if stack is not None and len(named) > 1:
        raise UserError(
            f"--stack {stack}: {path} holds the stacks {', '.join(named)}, which would become one. Leave the option"
            " out. Nothing was imported."
        )


def _import(imports: dict[str, Import], folder: Path, stack: str | None, time_utc: str) -> Outcome:
    store = _imported_store(folder)
    whole = _whole_imports(store)
    kept = [launch for launch in store if launch.header["imported"]["sha256"] in whole]
    cut_off = [launch for launch in store if launch.header["imported"]["sha256"] not in whole]
    for launch in cut_off:
        if launch.header["imported"]["sha256"] not in imports:
            raise UserError(
                f"{folder}: the import of {launch.header['imported']['file']} was cut off ({launch.path.name} is one of"
                " its launch files, and others are missing or damaged). Import it again first. Nothing was imported."
            )
    outcome, launches, repeats = Outcome(folder), {}, launches_by_cell(kept)
    for item in imports.values():
        if item.digest in whole:
            outcome.already_there.append(f"{item.path} (stack {whole[item.digest]})")
            continue
        launches |= _launch_files(item, folder.name, stack, repeats, time_utc)
        outcome.written.append((str(item.path), item.kind.name, len(item.source.readings)))
        outcome.notes += item.source.notes
    _check_device(kept, launches)
    _write(folder, launches, [launch.path for launch in cut_off])
    return outcome


def _imported_store(folder: Path) -> list[LaunchFile]:
    """Return the launch files of a folder, all of which were imported. A campaign that was measured is left alone."""
    store = read_store(folder / "launches")
    measured = [launch.path for launch in store if launch.header and not launch.header.get("imported")]
    again = "Delete it, and import the files of this campaign again. Nothing was imported."
    for path in sorted(folder.glob("campaign.*.json")):
        try:
            campaign = json.loads(read_file(path))
        except (ValueError, RecursionError):
            campaign = None
        if isinstance(campaign, dict) and "imported" not in campaign:
            measured.append(path)
        elif not isinstance(campaign, dict) and not measured:
            raise UserError(f"{path}: is damaged. {again}")
    if measured:
        raise UserError(
            f"{measured[0]} belongs to a campaign that was measured. Imported numbers stay apart: choose another"
            " --campaign. Nothing was imported."
        )
    for launch in store:
        if launch.header is None:
            raise UserError(f"{launch.path}: has no launch line. {again}")
        if problem := violation(launch.header):
            raise UserError(f"{launch.path}: its first line is damaged ({problem}). {again}")
    return store


def _whole_imports(store: list[LaunchFile]) -> dict[str, str]:
    """Return digest -> stack of the files of which every launch is there and complete: an import may be killed."""
    by_digest: dict[str, list[LaunchFile]] = {}
    for launch in store:
        by_digest.setdefault(launch.header["imported"]["sha256"], []).append(launch)
    whole = {}
    for digest, own in by_digest.items():
        nums = {launch.header["imported"]["num_launches"] for launch in own}
        if nums == {len(own)} and all(map(_is_whole, own)):
            whole[digest] = own[0].header["imported"]["stack"]
    return whole


def _is_whole(launch: LaunchFile) -> bool:
    if launch.problems or not launch.is_complete():
        return False
    return not any(problem_of(line) if line["kind"] == "record" else violation(line) for _, line in launch.lines)


def _launch_files(
    item: Import, campaign: str, stack: str | None, repeats: Counter, time_utc: str
) -> dict[str, list[dict]]:
    """Return the lines of each launch file of one imported file: one for each shape, stack and repeat."""
    groups: dict[tuple, list[tuple[str, dict, Reading]]] = {}
    seen: Counter = Counter()
    for reading in item.source.readings:
        name = stack or reading.stack or DEFAULT_STACK
        software = name.removesuffix(AGAIN)
        spec = spec_of(reading, item.source, name, software)
        cell = cell_id(spec)
        seen[cell] += 1
        if seen[cell] > 1:
            name = _name_of_second(item, reading, seen[cell], name)
            spec = spec_of(reading, item.source, name, software)
            cell = cell_id(spec)
        repeat = repeats[cell]
        repeats[cell] += 1
        groups.setdefault((reading.nodes, reading.gpus_per_node, name, repeat), []).append((cell, spec, reading))
    files, numbers = {}, Counter()
    for (nodes, gpus, name, repeat), cells in groups.items():
        batch = f"n{nodes:02d}g{gpus:02d}-import-{item.digest[:12]}"
        if not stack and any(reading.stack for _, _, reading in cells):
            batch += f"-{name}"  # which launches of two stacks shared an allocation, is not in the file
        launch = f"{batch}-l{numbers[batch]:03d}-i00"
        numbers[batch] += 1
        place = {"campaign": campaign, "batch": batch, "launch": launch, "repeat": repeat, "stack": name}
        place |= {"nodes": nodes, "gpus_per_node": gpus, "order": [cell for cell, _, _ in cells]}
        lines = [header_line(item.kind.name, item.source, item.path, item.digest, len(groups), place, time_utc)]
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
        f"{place}: {what} on {reading.nodes} x {reading.gpus_per_node} appears for the {number}. time; expected once."
        " Give each run a file of its own. Nothing was imported."
    )


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


def _write(folder: Path, launches: dict[str, list[dict]], cut_off: list[Path]) -> None:
    """Write launch files, all or none, then the campaign of all that the folder then holds.

    cut_off: launch files of an import that was killed, which these replace. An old campaign goes last: two of them are
    mended by the next import, and none would take the campaign from its launches.
    """
    written = []
    try:
        for launch, lines in launches.items():
            path = folder / "launches" / f"{launch}.jsonl"
            written.append(path)
            write_text(path, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        for path in cut_off:
            if path not in written:
                path.unlink()
        campaign = frozen_campaign(folder.name, read_store(folder / "launches"))
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
