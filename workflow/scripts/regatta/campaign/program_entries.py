"""Any program as a benchmark: the entries of a campaign with `benchmark: program`.

A cell's id covers the command and the files as written, the parameters, and how the output is read.
"""

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from regatta.campaign import script_entries as scripts
from regatta.campaign.script_entries import MAX_POINTS, PARAMETERS, TEMPLATE, render, setting_text, texts_of_points
from regatta.campaign.variables import command_problem, has_reader, unescaped
from regatta.campaign.yaml_file import FileError, YamlFile, schema_errors
from regatta.core.benchmarks import parse_bytes
from regatta.core.errors import UserError, nearest
from regatta.core.readers import Quantity, parse_reader
from regatta.core.recorded_times import kind_of
from regatta.core.schemas import place, show
from regatta.core.units import find_unit
from regatta.launchers import BY_HAND
from regatta.launchers.base import Geometry
from regatta.runtimes.base import whole_path

BENCHMARK = "program"
KEYS = ("name", "command", "ranks", "files", "depends", "read", "sizes", "check")
AXES = ("program", "settings", "reported_quantity")
OF_SCRIPTS = ("files",)  # keys that a script has as well
BUILT_IN = ("nodes", "gpus_per_node", "world_size", "output")  # known when a launch starts
OF_LAUNCH = ("first_host", "port")  # other in each launch: in command and env, not in files; no reserved names
STARTER = 2  # version of how a program is started that starts its ranks itself, or several on a node
MOST_CHARACTERS = 20_000  # of a file: its text is in each record
OUTPUT = "output"  # file in the folder of a launch, if the command or a file names it
READING = "measure"  # phase of a record whose program has exited with 0, if its output gives no number
# Parameters of the cells that a launch measures together: `sizes` of an import format, several quantities of `read`.
SIZE, QUANTITY = "size", "quantity"


def entry_errors(file: YamlFile) -> list[FileError]:
    """Return the errors of all entries in their keys for scripts and programs, except those that the schema finds."""
    entries, found = file.data.get("benchmarks"), scripts.script_errors(file)
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        if not isinstance(entry, dict) or "benchmark" not in entry:
            continue
        where, benchmark = ("benchmarks", index), entry["benchmark"]
        if benchmark == BENCHMARK:
            found += _entry_errors(file, where, entry)
            continue
        for key in KEYS:
            if key in entry and key not in OF_SCRIPTS:
                text = f"{place((*where, key))} has no effect with benchmark: {benchmark}. Remove it."
                found.append(file.error((*where, key), text))
    return found


def _entry_errors(file: YamlFile, where: tuple, entry: dict) -> list[FileError]:
    parameters, command = entry.get("parameters", {}), entry.get("command")
    files = entry.get("files", {})
    found = schema_errors(file, parameters, PARAMETERS, (*where, "parameters"))
    found += schema_errors(file, files, {"type": "object"}, (*where, "files"))
    if found or not isinstance(parameters, dict) or not isinstance(command, list):
        return found
    found += _size_errors(file, where, entry)
    for name in {*BUILT_IN, SIZE if isinstance(entry.get("read"), str) else QUANTITY} & set(parameters):
        text = f"{place(where)}.parameters.{name}: the name is reserved. Choose another."
        found.append(file.error((*where, "parameters", name), text))
    num_points = math.prod(map(len, parameters.values())) * len(_cells_of_launch(entry))
    if num_points > MAX_POINTS:
        of_launch = "parameters and sizes" if isinstance(entry.get("read"), str) else "parameters and quantities"
        text = f"{place(where)} has {num_points:,} combinations of {of_launch}; the limit is {MAX_POINTS:,}."
        return [*found, file.error((*where, "parameters"), f"{text} Remove values.")]
    found += _command_errors(file, where, parameters, command)
    found += _template_errors(file, (*where, "depends"), range(len(entry.get("depends", []))), (*parameters,))
    for name, path in files.items():
        found += _file_errors(file, (*where, "files", name), name, path)
    found += _reader_errors(file, where, entry)
    return found or list(_unused_parameters(file, where, entry))


def _size_errors(file: YamlFile, where: tuple, entry: dict) -> Iterator[FileError]:
    if "sizes" in entry and isinstance(entry.get("read"), dict):
        text = f"{place(where)}.sizes has no effect with patterns. Use parameters, or name a format in read."
        yield file.error((*where, "sizes"), text)
    with contextlib.suppress(AttributeError, KeyError, TypeError):  # errors of the schema
        numbers = [parse_bytes(size) for size in _sizes(entry)]
        if len({*numbers}) < len({*_sizes(entry)}):
            text = f"{place(where)}.sizes lists the same size twice in different notation. Remove one."
            yield file.error((*where, "sizes"), text)


def _unused_parameters(file: YamlFile, where: tuple, entry: dict) -> Iterator[FileError]:
    """Yield an error for each parameter that neither the command nor a file contains."""
    texts = [file.texts.get((*where, "command", index), "") for index in range(len(entry["command"]))]
    texts += [_content(whole_path(path)) for path in entry.get("files", {}).values() if isinstance(path, str)]
    for name in entry.get("parameters", {}):
        if not any(f"{{{name}}}" in text for text in texts):
            text = f"{place(where)}.parameters.{name} is not used in command or files."
            key = (*where, "parameters", name)
            yield file.error(key, f"{text} Add {{{name}}} to one of them, or remove the parameter.")


def _command_errors(file: YamlFile, where: tuple, parameters: dict, command: list) -> Iterator[FileError]:
    """Yield the errors of the templates in a command, and of its first word."""
    known = tuple(dict.fromkeys((*parameters, *BUILT_IN, *OF_LAUNCH)))
    words = [file.texts.get((*where, "command", index), "") for index in range(len(command))]
    problems = {index: problem for index in range(len(words)) if (problem := command_problem(words, index, known))}
    for index, problem in problems.items():
        key = (*where, "command", index)
        yield file.error(key, f"{place(key)} = {show(words[index])} {problem}")
    others = [index for index in range(len(words)) if index not in problems]
    yield from _template_errors(file, (*where, "command"), others, known)
    first = file.texts.get((*where, "command", 0), "")
    if command and (not first or first.startswith("-")):
        yield file.error((*where, "command", 0), f"{place((*where, 'command', 0))} must name a program.")


def _template_errors(
    file: YamlFile, where: tuple, indices: Iterable[int], known: tuple[str, ...]
) -> Iterator[FileError]:
    """Yield the first error of the templates in each of some texts of a list."""
    for key in [(*where, index) for index in indices]:
        text = file.texts.get(key, "")
        names = [found[1] if found[1] is not None else found[0] for found in TEMPLATE.finditer(text)]
        for name in [name for name in names if name not in ("{{", "}}", *known)][:1]:
            shown = f"{place(key)} = {show(text)} names {show(name)}, which is not a parameter.{nearest(name, known)}"
            known_text = f" Known: {', '.join(known)}." if known else ""
            yield file.error(key, f"{shown}{known_text} A literal brace is written {{{{ or }}}}.")


def _file_errors(file: YamlFile, key: tuple, name: str, path: object) -> Iterator[FileError]:
    """Yield the error of a file that is to be written to the folder of a launch."""
    if not isinstance(path, str):  # an error of the schema
        return
    if name == OUTPUT or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name):
        text = f"{place(key)}: the name may contain only letters, digits, '.', '-' and '_', and must not be {OUTPUT}."
        yield file.error(key, text)
        return
    source = whole_path(path)
    try:
        if not source.is_file():
            raise UserError("no such file, or not a regular file")
        num_characters = len(source.read_bytes().decode())
        if num_characters > MOST_CHARACTERS:
            raise UserError(f"has {num_characters:,} characters; the limit is {MOST_CHARACTERS:,}")
    except (OSError, UnicodeDecodeError, UserError) as error:
        text = f"{place(key)}: {source}: {getattr(error, 'strerror', None) or error}."
        yield file.error(key, f"{text} Name a small text file, or pass the path in command.")


def _reader_errors(file: YamlFile, where: tuple, entry: dict) -> Iterator[FileError]:
    """Yield the first error of `read` and `check`: a pattern or unit is invalid, or a quantity is no time or rate."""
    read, check = entry.get("read"), entry.get("check", {})
    is_sound = isinstance(read, str) or (isinstance(read, dict) and all(isinstance(g, dict) for g in read.values()))
    if not is_sound or not isinstance(check, dict):  # an error of the schema
        return
    try:
        reader = parse_reader(read, check)
        for item in reader.quantities.items():
            check_quantity(item)
    except UserError as error:
        yield file.error((*where, "read"), f"{place(where)}.{str(error).rstrip('.')}.")
    except TypeError:  # an error of the schema
        return


def check_quantity(item: tuple[str, Quantity]) -> None:
    """Raise UserError if less is better of a rate, or more of a time. Of any other number, either may be better."""
    name, quantity = item
    unit = find_unit(quantity.unit)
    if quantity.better not in ("smaller", "larger"):  # an error of the schema
        return
    if (unit.is_time and quantity.better != "smaller") or (unit.is_rate and quantity.better != "larger"):
        kind, wanted = ("time", "smaller") if unit.is_time else ("rate", "larger")
        raise UserError(f"read.{name}.better: {quantity.better} contradicts {quantity.unit}, a {kind}. Use {wanted}")


def complete_entries(file: YamlFile, entries: list[dict]) -> tuple[list[dict], list[tuple[FileError, bool]]]:
    """Return the entries, those of scripts and programs with axes as `parameters` and the cells as `points`.

    Also returns their errors, such as cells of the same name, and whether it is a file that is missing here.
    """
    entries, found = scripts.complete_entries(file, entries)
    complete, names = [], {}
    for index, entry in enumerate(entries):
        if entry["benchmark"] != BENCHMARK:
            complete.append(entry)
            continue
        entry = {"name": _file_name(file.texts["benchmarks", index, "command", 0])} | entry
        cells = list(_points(file, index, entry))
        axes = {axis: list({parameters[axis]: None for parameters, _ in cells}) for axis in AXES}
        complete.append(entry | {"parameters": axes, "points": cells})
        for parameters, _ in cells:
            first = names.setdefault((parameters["program"], parameters["settings"]), index)
            if first != index:
                text = f"benchmarks[{index}] measures the same program and parameters as benchmarks[{first}]."
                found.append((file.error(("benchmarks", index), f"{text} Give one of them another name."), False))
                break
    return complete, found


def _points(file: YamlFile, index: int, entry: dict) -> Iterator[tuple[dict, dict]]:
    """Yield the parameters of each cell of an entry, and its `program`: what the driver needs to start and read it."""
    where, given, of_cells = ("benchmarks", index), entry.get("parameters", {}), _cells_of_launch(entry)
    words = [file.texts[*where, "command", number] for number in range(len(entry["command"]))]
    if "/" in words[0]:
        words[0] = str(whole_path(words[0]))
    words = words if has_reader(words) else [*map(unescaped, words)]
    contents = {name: _content(whole_path(path)) for name, path in entry.get("files", {}).items()}
    for texts, (of_cell, read) in itertools.product(texts_of_points(file, where, given), of_cells):
        name, quantity = quantity_read(read, has_sizes=SIZE in of_cell)
        texts = texts | of_cell
        settings = ", ".join(name if key == QUANTITY else setting_text(key, value) for key, value in texts.items())
        program = {
            "command": words,
            "ranks": entry.get("ranks", "gpu"),
            "files": contents,
            "parameters": texts,
            "read": read,
            "check": entry.get("check", {}),
        }
        program |= {} if program["ranks"] == "gpu" else {"starter": STARTER}  # absent otherwise: earlier ids stay valid
        reported = f"{name} ({kind_of(quantity)})"
        yield {"program": entry["name"], "settings": settings or None, "reported_quantity": reported}, program


def _cells_of_launch(entry: dict) -> list[tuple[dict, object]]:
    """Return for each cell that a launch measures its size or quantity, as a parameter, and its `read`."""
    read = entry.get("read")
    if sizes := _sizes(entry):
        return [({SIZE: str(size)}, read) for size in sizes]
    if isinstance(read, dict) and len(read) > 1:
        return [({QUANTITY: name}, {name: given}) for name, given in read.items()]
    return [({}, read)]


def _sizes(entry: dict) -> list:
    return entry["sizes"] if isinstance(entry.get("sizes"), list) else []


def _file_name(word: str) -> str:
    """Return the name of a program without one of the user's: its file name."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", word.rpartition("/")[2]).lstrip("_.-")[:64] or BENCHMARK


def own_names(data: dict) -> list[str]:
    """Return the names of the parameters of a campaign's scripts and programs. data: of `complete_entries`."""
    points = [entry["points"][:1] for entry in data.get("benchmarks", []) if "points" in entry]
    return sorted({name for [(_, own)] in points for name in own["parameters"]})


def has_quantities(data: dict) -> bool:
    """Return whether a launch of a program measures a cell for each of several quantities."""
    entries = [entry for entry in data.get("benchmarks", []) if entry["benchmark"] == BENCHMARK]
    return any(QUANTITY in program["parameters"] for entry in entries for _, program in entry["points"][:1])


def _content(path: Path) -> str:
    return path.read_bytes().decode()


def command_of(spec: dict, meeting: Mapping[str, str] = BY_HAND, output: str = OUTPUT) -> list[str]:
    """Return the words of a cell's command, of which none passes through a shell.

    meeting: values of OF_LAUNCH, unless a parameter has the name. output: path of its output file.
    """
    values = {**meeting, **values_of(spec, output)}
    return [render(word, values) for word in spec["program"]["command"]]


def geometry_of(spec: dict, cluster: dict) -> Geometry:
    """Return where the processes of a cell start: one for each rank of the shape, some on each node, or one in all."""
    ranks, gpus = spec["program"]["ranks"], spec["gpus_per_node"]
    nodes, num = 1 if ranks == "one" else spec["nodes"], {"gpu": gpus, "node": 1, "one": 1}.get(ranks, ranks)
    starts = (spec["nodes"], gpus) if starts_ranks(spec) else None
    return Geometry(cluster, nodes, gpus, spec["device"], num, starts=starts)


def starts_ranks(spec: dict) -> bool:
    """Return whether the program starts its ranks itself."""
    return spec["program"]["ranks"] in ("node", "one")


def is_unverified(spec: dict) -> bool:
    """Return whether the number of ranks that the program started is not verified."""
    return starts_ranks(spec) and "ranks" not in spec["program"]["check"]


def num_ranks(spec: dict) -> int:
    """Return the number of ranks that an output has to state."""
    return spec["nodes"] * spec["gpus_per_node"] if starts_ranks(spec) else geometry_of(spec, {}).num_ranks


def values_of(spec: dict, output: str) -> dict[str, str]:
    """Return the values of the templates of a cell."""
    nodes, gpus = spec["nodes"], spec["gpus_per_node"]
    numbers = {"nodes": nodes, "gpus_per_node": gpus, "world_size": nodes * gpus}
    return run_parameters(spec) | {name: str(value) for name, value in numbers.items()} | {"output": output}


def run_parameters(spec: dict) -> dict[str, str]:
    """Return the parameters of a launch, without those that only distinguish its cells."""
    own = SIZE if isinstance(spec["program"]["read"], str) else QUANTITY
    return {key: value for key, value in spec["program"]["parameters"].items() if key != own}


def writes_output(spec: dict) -> bool:
    """Return whether the program gets a path for its output. That file is then read instead of what it prints."""
    texts = (*spec["program"]["command"], *spec["program"]["files"].values())
    return any("{output}" in text for text in texts)


def is_unread(row: Mapping[str, object]) -> bool:
    """Return whether a measurement failed because nothing was read from the output of a program that exited with 0."""
    return (row.get("benchmark"), row["status"], row.get("phase")) == (BENCHMARK, "failed", READING)


def reading_advice(spec: dict, records: Iterable[Mapping[str, object]]) -> str:
    """Return how to read the kept outputs of a cell again; empty if another of its records is not ok."""
    if not all(is_unread({**record, "benchmark": spec["benchmark"]}) for record in records):
        return ""
    program = spec["parameters"]["program"]
    return f"edit read or check (make try BENCHMARK={program} FILE=<log>), and the kept output is read; "


def quantity_of(spec: dict) -> tuple[str, Quantity]:
    """Return the name and the quantity by which a cell is judged."""
    return quantity_read(spec["program"]["read"], has_sizes=size_of(spec) is not None)


def quantity_read(read: dict | str, has_sizes: bool) -> tuple[str, Quantity]:
    """Return the name and the quantity of a campaign's `read`: of an import format, the time of a result."""
    if isinstance(read, str):
        return "time", Quantity(unit="us" if has_sizes else "ms")
    ((name, given),) = read.items()
    return name, Quantity(**given)


def size_of(spec: dict) -> int | None:
    """Return the message size of a cell whose launch has cells of several sizes, in bytes; None if it has one cell."""
    text = spec["program"]["parameters"].get(SIZE) if isinstance(spec["program"]["read"], str) else None
    return text and parse_bytes(int(text) if text.isdecimal() else text)


def what_runs(spec: dict) -> dict:
    """Return the part of a spec that decides what a launch runs, without how its output is read.

    Without its executables too: other stacks may run the same program elsewhere, and earlier cells lack them.
    """
    program = {key: value for key, value in spec["program"].items() if key not in ("read", "check")}
    program["parameters"] = run_parameters(spec)
    spec = {key: value for key, value in spec.items() if key != "executables"}
    return spec | {"program": program, "parameters": spec["parameters"]["program"]}
