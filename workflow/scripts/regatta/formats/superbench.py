"""Read SuperBench's results-summary.jsonl: one JSON object per node, with the metrics of all benchmarks; import only.

Collectives are imported: nccl-bw and rccl-bw. Regatta does not measure what the other benchmarks do; a note names
them. Each node is a launch, because it ran separate processes.
"""

import re
from collections import defaultdict

from regatta.formats.base import Format, ImportedFile, Options, Reading, quoted, refusal, without_empty
from regatta.formats.nccl import PIPELINED, NcclRun, PlacementResult, reading_of
from regatta.formats.rccl_json import NAMES
from regatta.formats.text_tables import join_runs

COLLECTIVES = ("nccl-bw", "rccl-bw")
METRIC = re.compile(
    r"(?P<benchmark>[nr]ccl-bw)(?::(?P<variant>[^/]+))?/(?P<operation>[a-z]+)_(?P<size>\d{1,15})"
    r"_(?P<kind>time|algbw|busbw)(?::\d+)?"
)
RETURN_CODE = re.compile(r".*/return_code(?::\d+)?")
ASSUMED = "placement and data type not in the file; assumed: out of place and fp32, SuperBench's defaults"


def _is_summary(value: object) -> bool:
    first = value[0] if isinstance(value, list) and value else value
    return isinstance(first, dict) and "node" in first and any("/" in key for key in first)


def _read(file: dict | list, name: str, options: Options) -> ImportedFile:
    nodes = file if isinstance(file, list) else [file]
    if options.gpus_per_node is None:
        raise refusal(name, None, "no number of GPUs in the summary", "--gpus-per-node (and --nodes if more than one)")
    variants = {m["variant"] for node in nodes for key in node if (m := METRIC.fullmatch(key))}
    runs = [_read_node(node, index, name, options, len(variants) > 1) for index, node in enumerate(nodes)]
    return join_runs(runs, name)


def _read_node(node: dict, index: int, name: str, options: Options, has_variants: bool) -> ImportedFile:
    """Return the collectives of one node. has_variants: the variants of a benchmark are stacks."""
    line, others, results = index + 1, set(), defaultdict(dict)
    for key, value in node.items():
        if key == "node" or (RETURN_CODE.fullmatch(key) and value == 0):
            continue
        if not key.startswith(COLLECTIVES):
            others.add(re.split("[:/]", key)[0])
            continue
        metric = METRIC.fullmatch(key)
        if metric is None or metric["operation"] not in NAMES:
            want = "'nccl-bw:<variant>/<operation>_<bytes>_time', _algbw or _busbw, of " + ", ".join(NAMES)
            raise refusal(name, line, f"metric {quoted(key)} = {quoted(value)}", want)
        result = results[metric["variant"] or "", metric["operation"], int(metric["size"])]
        if metric["kind"] in result:
            raise refusal(name, line, f"metric {quoted(key)} of several ranks", "one rank per benchmark")
        result[metric["kind"]] = value
    unused = ", ".join(sorted(others))
    if not results:
        found = f"node {quoted(node['node'])} has no {' or '.join(COLLECTIVES)}, only {quoted(unused, 300)}"
        raise refusal(name, line, found, "at least one collective; Regatta does not measure the others")
    notes = [ASSUMED] + ([f"excluded, because Regatta does not measure them: {unused}"] if unused else [])
    readings = [_reading(*key, result, line, name, options, has_variants) for key, result in sorted(results.items())]
    kept, empty = without_empty(readings, name, line)
    shape = options.nodes or 1, options.gpus_per_node
    hosts = [{"host": node["node"], "ranks": list(range(shape[1]))}] if shape[0] == 1 else []
    return ImportedFile(PIPELINED, "nccl", "cuda", kept, (*notes, *empty), {"hosts": hosts})


def _reading(
    variant: str, operation: str, size: int, result: dict, line: int, name: str, options: Options, has_variants: bool
) -> Reading:
    run = NcclRun(name, NAMES[operation][0], False, options.nodes or 1, options.gpus_per_node, False, None, None)
    if missing := {"time", "algbw", "busbw"} - result.keys():
        raise refusal(name, line, f"no {operation}_{size}_{min(missing)}", "time, algbw and busbw of each result")
    sides = {"out_of_place": PlacementResult(result["time"], result["algbw"], result["busbw"], None)}
    stack = {"stack": re.sub(r"\W+", "_", variant or "default")} if has_variants else {}
    return reading_of(run, line, size, "float", None, sides, **stack)


SUPERBENCH = Format(
    "superbench-jsonl",
    "a results-summary.jsonl of SuperBench",
    _is_summary,
    _read,
    is_json=True,
)
