"""The files that a user's program runs: command[0], and what its entry lists under `depends`.

The content of those that the driver can read is part of a cell's id, as `executables`: SHA-256 by path. Cells of
earlier versions and of entries without `depends` lack some of these files. Their records count if the files are older.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from regatta.campaign import program_entries as programs
from regatta.campaign.script_entries import render
from regatta.campaign.yaml_file import FileError, YamlFile
from regatta.core.schemas import place
from regatta.core.text import utc_text
from regatta.runtimes import runtime_of
from regatta.runtimes.base import hash_if_readable, is_below, whole_path

KEY = "executables"


def depends_errors(file: YamlFile, entries: list[dict], cluster: dict) -> Iterator[tuple[FileError, bool]]:
    """Yield the first error of each path under `depends`, and whether the file is missing here.

    entries: complete ones. Only compute nodes have the files below node_folders.
    """
    for index, entry in enumerate(entries):
        for number, text in enumerate(entry.get("depends", [])):
            key = ("benchmarks", index, "depends", number)
            for path in dict.fromkeys(whole_path(render(text, of["parameters"])) for _, of in entry["points"]):
                if not is_of_nodes(path, cluster) and (problem := _unreadable(path)):
                    words = f"{place(key)}: {path}: {problem}. Correct the path, or remove it."
                    yield file.error(key, words), not os.path.exists(path)
                    break


def _unreadable(path: Path) -> str | None:
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe could wait indefinitely
        return "not a regular file"
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror
    return None


def is_of_nodes(path: Path, cluster: dict) -> bool:
    """Return whether nodes may have another file of this name than this machine."""
    return any(is_below(of, cluster["node_folders"]) for of in (path, Path(os.path.realpath(path))))


def files_of(spec: Mapping[str, object], depends: Iterable[str], stack: dict) -> list[Path]:
    """Return where this machine has the files of a cell: command[0], unless it is a plain name or in an image outside
    binds, then those of `depends`."""
    word, values = programs.command_of(spec)[0], programs.values_of(spec, programs.OUTPUT)
    command = runtime_of(stack).host_python({**stack, "python": word}) if "/" in word else None
    of_entry = [whole_path(render(text, values)) for text in depends]
    return list(dict.fromkeys([*([command] if command else []), *of_entry]))


def executables_of(spec: Mapping[str, object], depends: Iterable[str], stack: dict, cluster: dict) -> dict[str, str]:
    """Return the SHA-256 by path of the files of a cell; empty if the driver can read none."""
    files = [path for path in files_of(spec, depends, stack) if not is_of_nodes(path, cluster)]
    hashes = {str(path): hash_if_readable(path) for path in files}
    return {path: digest for path, digest in sorted(hashes.items()) if digest}


def unreadable(files: Iterable[Path], cluster: dict) -> list[Path]:
    """Return the files of a cell that this machine should have, but cannot read."""
    return [path for path in files if not is_of_nodes(path, cluster) and hash_if_readable(path) is None]


def without(spec: Mapping[str, object], paths: Iterable[str]) -> dict:
    """Return a spec as it was before these of its files were part of ids."""
    left = {path: digest for path, digest in spec[KEY].items() if path not in {*paths}}
    return {key: value for key, value in spec.items() if key != KEY} | ({KEY: left} if left else {})


def earlier_specs(spec: Mapping[str, object]) -> Iterator[tuple[dict, list[str]]]:
    """Yield the specs of a cell before all of its files were part of ids, each with the files that it lacks."""
    command = programs.command_of(spec)[0]
    added = [path for path in spec[KEY] if path != command]
    if added and len(added) < len(spec[KEY]):  # an entry before it had `depends`
        yield without(spec, added), added
    yield without(spec, spec[KEY]), [*spec[KEY]]


def changed_files(paths: Iterable[str], time_utc: str, ran: Iterable[Mapping[str, object]] = ()) -> list[str]:
    """Return the files that may not be those of a record without their hashes: the others are older.

    time_utc: of the record. ran: the files that its launch noted, of which size and time must be the same.
    """
    noted = {of["path"]: (of["size_bytes"], of["time_utc"]) for of in ran}
    return [path for path in paths if not _is_same(Path(path), time_utc, noted.get(path))]


def ran_others(paths: Iterable[str], ran: Iterable[Mapping[str, object]]) -> bool:
    """Return whether a launch noted other files than those at these paths now."""
    noted = [of for of in ran if of["path"] in {*paths}]
    return any(state_of(Path(of["path"])) != (of["size_bytes"], of["time_utc"]) for of in noted)


def _is_same(path: Path, time_utc: str, noted: tuple[int, str] | None) -> bool:
    if noted:
        return state_of(path) == noted
    try:  # a link is as new as the newest of itself and its target
        return utc_text(max(path.stat().st_mtime, path.lstat().st_mtime)) <= time_utc
    except (OSError, OverflowError, ValueError):
        return False


def state_of(path: Path) -> tuple[int, str] | None:
    """Return size and time of a file as a launch notes them, None if it cannot be found."""
    try:
        found = path.stat()
        return (found.st_size, utc_text(found.st_mtime)) if path.is_file() else None
    except (OSError, OverflowError, ValueError):
        return None


def ran_same_files(spec: Mapping[str, object], earlier: Mapping[str, object], time_utc: str) -> bool:
    """Return whether a record of an earlier spec, with this time, is of the files of a cell."""
    files, known = spec.get(KEY, {}), earlier.get(KEY, {})
    is_same = all(known.get(path, digest) == digest for path, digest in files.items())
    return is_same and not changed_files(files.keys() - known.keys(), time_utc)


def edited_file(specs: Iterable[Mapping[str, object]]) -> str | None:
    """Return that a file of cells is not the one that was planned, as text, or None."""
    for path, digest in {item for spec in specs for item in spec.get(KEY, {}).items()}:
        if hash_if_readable(Path(path)) != digest:
            text = (
                f"{path} is not the file that was planned. Run the same command again to plan with the current files."
            )
            return (
                f"{text} If nodes have another file of this name, add its folder to node_folders of the cluster file."
            )
    return None
