"""Read rccl-tests JSON (-Z json -x <file>); import only.

It is a list with an object for each size and placement. Runs with MPI also have nodes, ranks, ranksPerNode and
gpusPerRank. The file names neither the library's version nor the GPUs.
"""

from collections import defaultdict

from regatta.formats.base import Format, ImportedFile, Options, Reading, refusal, without_empty
from regatta.formats.nccl import PIPELINED, PLACEMENTS, PROGRAMS, NcclRun, PlacementResult, reading_of, shape_of_devices

NAMES = {program.replace("_", ""): operation for program, operation in PROGRAMS.items()}  # AllReduce, in lower case
SHAPE = ("nodes", "ranks", "ranksPerNode", "gpusPerRank")
UNCHECKED = ("N/A", "n/a", -1)


def _read(rows: list[dict], name: str, options: Options) -> ImportedFile:
    shape = _shape(rows, name, options)
    results: dict[tuple, dict[int, int]] = defaultdict(dict)  # of a size -> placement -> index
    for index, row in enumerate(rows):
        of_size = results[tuple(row[key] for key in ("name", "size", "type", "redop"))]
        if row["inPlace"] in of_size:
            found = f"size {row['size']} again (numCycle {row.get('numCycle')})"
            raise refusal(f"{name}: [{index}]", None, found, "one cycle (-N 1), because cycles share their processes")
        of_size[row["inPlace"]] = index
    kept, empty = without_empty((_reading(indices, rows, name, shape) for indices in results.values()), name, None)
    notes = ["number of iterations and RCCL version not in the file", *empty]
    if any(row["wrong"] in UNCHECKED for row in rows):
        notes.append("some results were not checked (N/A)")
    return ImportedFile(PIPELINED, "nccl", "cuda", kept, tuple(notes))


def _shape(rows: list[dict], name: str, options: Options) -> tuple[int, int]:
    """Return (nodes, GPUs per node), from the file if it was written by a run with MPI."""
    stated = {tuple(row.get(key) for key in SHAPE) for row in rows}
    if stated == {(None,) * len(SHAPE)}:
        return shape_of_devices([], name, options, None)
    if len(stated) > 1:
        raise refusal(name, None, f"several values of {', '.join(SHAPE)}", "one shape per file")
    [(nodes, ranks, per_node, gpus)] = stated
    if None in (nodes, ranks, per_node, gpus) or nodes * per_node != ranks:
        found = ", ".join(f"{key} {value}" for key, value in zip(SHAPE, (nodes, ranks, per_node, gpus), strict=True))
        raise refusal(name, None, found, "all four, with nodes x ranksPerNode = ranks")
    return nodes, per_node * gpus


def _reading(indices: dict[int, int], rows: list[dict], name: str, shape: tuple[int, int]) -> Reading:
    """Return the result of one size. indices: placement -> index of its row."""
    first = rows[min(indices.values())]
    operation, is_in_place = NAMES[first["name"].lower()]
    run = NcclRun(f"{name}: [{min(indices.values())}]", operation, is_in_place, *shape, False, None, None)
    sides = {}
    for placement, index in sorted(indices.items()):
        row = rows[index]
        num_wrong = None if row["wrong"] in UNCHECKED else float(row["wrong"])
        sides[PLACEMENTS[placement]] = PlacementResult(row["time"], row["algBw"], row["busBw"], num_wrong)
    return reading_of(run, None, int(first["size"]), first["type"], first["redop"], sides)


def _is_rccl(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and {"inPlace", "busBw"} <= first.keys()


RCCL_JSON = Format(
    "rccl-tests-json",
    "JSON of rccl-tests",
    _is_rccl,
    _read,
    is_json=True,
)
