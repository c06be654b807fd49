"""Print the results of a program's output in an import format as JSON, for regatta.core.readers.

python workflow/scripts/read_output.py OUTPUT FORMAT NODES GPUS_PER_NODE PROCESSES_PER_NODE [PLUGIN ...]
"""

import argparse
import io
import json
from pathlib import Path

from regatta.core.errors import UserError, run_script
from regatta.core.matching import BY_SRUN, LABELLED, labelled_lines
from regatta.core.readers import program_of
from regatta.core.text import one_line, size
from regatta.formats import add_formats, all_formats, read_checked, read_content
from regatta.formats.base import NANOSECONDS, Format, Options, Reading
from regatta.store.records import CENTERS
from regatta.tables.bandwidth import BUS_FACTOR

NAMED = ("operation", "message_bytes", "dtype", "model", "batch_size", "strategy")  # in the name of a result


def formats_named(name: str) -> list[Format]:
    """Return the formats of a name in `read:`, which is that of a format, or of the program of several."""
    return [kind for kind in all_formats() if name in (kind.name, program_of(kind.name))]


def read_results(output: Path, name: str, options: Options, processes: Options) -> list[dict]:
    """Return the results of an output, as regatta.core.readers.FormatResult. Raises UserError if it has none.

    processes: their numbers, for formats that know no GPUs.
    """
    kinds = formats_named(name)
    options = processes if any(kind.counts_processes for kind in kinds) else options
    try:
        content, numbers = of_one_rank(read_content(output), output.name, options)
        found, source = read_checked(content, output.name, options)
    except UserError as error:
        text = str(error).replace(" Nothing was imported.", "")
        raise UserError(text.replace("--gpus-per-node", "gpus_per_node").replace("--nodes", "nodes")) from None
    if found not in kinds:
        raise UserError(f"the output is {found.contents}. Set read: {found.name}")
    results = [_result(reading) for reading in source.readings]
    return [result | {"line": result["line"] and numbers.get(result["line"], result["line"])} for result in results]


def of_one_rank(content: bytes, name: str, options: Options) -> tuple[bytes, dict[int, int]]:
    """Return the lines of the rank that printed results, with the numbers that they have in a labelled log.

    All lines if none printed results, as in a log without labels. Raises UserError if several ranks did.
    """
    if not content.startswith(LABELLED):
        return content, {}
    _, _, rest = content.partition(b"\n")
    lines = [*labelled_lines(io.BytesIO(rest), is_divided=content.startswith(BY_SRUN))]
    readable = []
    for rank in sorted({rank for _, rank, line in lines if rank is not None and line.strip()}):
        of_rank = [(number, line) for number, of, line in lines if of == rank]
        found = b"\n".join(line for _, line in of_rank), {place: of[0] for place, of in enumerate(of_rank, 1)}
        try:
            read_checked(found[0], name, options)
            readable.append((rank, found))
        except UserError:  # messages of this rank
            continue
    if len(readable) > 1:
        ranks = ", ".join(str(rank) for rank, _ in readable)
        remedy = "Print them on one rank. If MPI does not connect the ranks, each runs as a separate program"
        raise UserError(f"results are printed on {len(readable)} ranks: {ranks}. {remedy}")
    if readable:
        return readable[0][1]
    all_lines = {number: line for number, _, line in lines}
    return b"\n".join(all_lines.get(number, b"") for number in range(1, max(all_lines, default=0) + 1)), {}


def _result(reading: Reading) -> dict:
    num_bytes, stated = reading.parameters.get("message_bytes"), {key: reading.parameters.get(key) for key in NAMED}
    stated["message_bytes"] = None if num_bytes is None else size(num_bytes)
    num_ranks = reading.nodes * reading.gpus_per_node
    slowest = reading.slowest_ns or [max(times) for times in zip(*reading.samples_ns or (), strict=True)]
    mean = next((reading.times_s[key] for key in CENTERS if key in reading.times_s), None)
    return {
        "name": one_line(", ".join(str(value) for value in stated.values() if value is not None), 200),
        "size": num_bytes,
        "line": reading.line,
        "samples": [time / NANOSECONDS for time in slowest] or [mean],
        "failure": reading.crash.text if reading.crash else reading.failure,
        "bus_factor": factor(num_ranks) if (factor := BUS_FACTOR.get(stated["operation"])) and num_ranks > 1 else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("format")
    for name in ("nodes", "gpus_per_node", "processes_per_node"):
        parser.add_argument(name, type=int)
    parser.add_argument("plugins", type=Path, nargs="*")
    args = parser.parse_args()
    for path in args.plugins:
        add_formats(path)
    of_gpus, of_processes = (Options(args.nodes, num) for num in (args.gpus_per_node, args.processes_per_node))
    print(json.dumps(read_results(args.output, args.format, of_gpus, of_processes)))


if __name__ == "__main__":
    run_script(main)
