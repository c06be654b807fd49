"""Tables of all_reduce_bench.py of the book Machine Learning Engineering (stas00/ml-engineering). Read only.

A row is a payload with the mean bandwidth of the trials, of which the finer of the two columns gives the time. The
program runs torch.distributed on fp32 tensors. Sizes double from row to row, so a missing row is detected; a table that
was truncated between two rows is not.
"""

import re

from regatta.formats.base import (
    Format,
    Options,
    Reading,
    Source,
    collective_parameters,
    lines_of,
    quoted,
    refusal,
    shape_of,
)
from regatta.formats.runs import join_runs, parts_of
from regatta.topics.bandwidth import BUS_FACTOR

TITLE = re.compile(
    r"The average bandwidth of all_reduce over (?P<ranks>\d{1,7}) ranks"
    r" \((?P<warmup>\d{1,9}) warmups / (?P<trials>\d{1,9}) trials(?P<more>, [^)]*)?\):\s*"
)
HEAD = ("payload", "busbw", "algbw")
UNITS = {unit: 2 ** (10 * power) for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1)}
PAYLOAD = re.compile(rf"(\d{{1,7}})({'|'.join(UNITS)})")
RATE = re.compile(r"(\d{1,9}\.\d\d)GBps")
VERSIONS = re.compile(r"- software: torch=(\S+), cuda=(\S+), nccl=\((\d+), (\d+), (\d+)\)")
GPU = re.compile(r"- hardware: \w+\(name='([^']+)'")
QUEUED = re.compile(r"up to \d+ queued calls per trial")
ALONE = ("1 call per trial", "host overhead included")
SYMMETRIC = "symmetric memory"
MEANING = "message bytes / mean bandwidth of the trials, averaged over ranks; no range"
STATISTICS = {"mean_s": f"single calls timed by device events: {MEANING}", "window_step_s": f"queued calls: {MEANING}"}


def _read(text: str, name: str, options: Options) -> Source:
    lines = lines_of(text)
    starts = [index for index, line in enumerate(lines) if TITLE.fullmatch(line.strip())]
    if not starts:
        line = next(n for n, line in enumerate(lines, start=1) if "bandwidth of all_reduce" in line)
        want = "'The average bandwidth of all_reduce over <n> ranks (<w> warmups / <t> trials):' and a row per payload"
        raise refusal(name, line, f"found {quoted(lines[line - 1])}", want)
    # The environment is printed above each table, and a legend below it.
    legends = [index for index, line in enumerate(lines) if line.startswith("Elapsed time:")]
    bounds = [max((i + 1 for i in legends if i < start), default=start) for start in starts]
    return join_runs([_read_run(part, name, options) for part in parts_of(lines, bounds)], name)


def _read_run(lines: list[str], name: str, options: Options) -> Source:
    start, title = next((n, m) for n, line in enumerate(lines, start=1) if (m := TITLE.fullmatch(line.strip())))
    num_ranks = int(title["ranks"])
    if options.gpus_per_node is None and num_ranks > 1:
        raise refusal(name, start, f"{num_ranks} ranks on an unknown number of nodes", "--gpus-per-node")
    shape = shape_of(num_ranks, options.gpus_per_node or 1)
    if num_ranks < 2 or shape is None:
        raise refusal(name, start, f"{num_ranks} ranks on nodes of {options.gpus_per_node or 1} GPUs", "whole nodes")
    settings = (title["more"] or "").removeprefix(", ").split(", ")
    unknown = [word for word in settings if word not in ("", *ALONE, SYMMETRIC) and not QUEUED.fullmatch(word)]
    if unknown:
        raise refusal(name, start, f"unknown setting {quoted(', '.join(unknown))}", "a title of all_reduce_bench.py")
    time = "window_step_s" if any(QUEUED.fullmatch(word) for word in settings) else "mean_s"
    operation = "all_reduce_symmetric_memory" if SYMMETRIC in settings else "all_reduce"
    parameters = {"algorithm": "torch"}
    readings: list[Reading] = []
    for number, fields in _rows(lines, start, name):
        size, busbw, algbw = _values(fields, name, number)
        before = readings[-1].parameters["message_bytes"] if readings else size / 2
        if size != 2 * before and not (options.is_incomplete and size > before):
            raise refusal(name, number, f"{size} bytes after {before}", f"{2 * before}, as payloads double")
        factor = BUS_FACTOR["all_reduce"](num_ranks)
        if abs(busbw - factor * algbw) > 0.0051 * (1 + factor):
            found = f"busbw {busbw:g} and algbw {algbw:g} GB/s with {num_ranks} ranks"
            raise refusal(name, number, found, f"busbw {factor * algbw:.2f}")
        times = {time: size * factor / (busbw * 1e9)} if busbw else {}
        reading = Reading(
            number,
            "collective",
            collective_parameters(operation, size, "fp32") | parameters,
            *shape,
            times,
            {"busbw_gb_per_s": busbw, "algbw_gb_per_s": algbw},
            num_iterations=int(title["trials"]) if time == "mean_s" else None,  # otherwise each trial is several calls
            num_warmup=int(title["warmup"]),
            failure=None if times else "the printed bandwidth is 0.00",
        )
        readings.append(reading)
    if not readings:
        raise refusal(name, len(lines), "no rows", f"rows of {', '.join(HEAD)}")
    return Source(STATISTICS[time], "nccl", "cuda", tuple(readings), (), _environment(lines))


def _rows(lines: list[str], start: int, name: str) -> list[tuple[int, list[str]]]:
    """Return line and fields of each row below the line of column names."""
    rows, has_head = [], False
    for number, line in enumerate(lines[start:], start=start + 1):
        if not line.lstrip().startswith("|"):
            if rows:
                break  # the legend
            continue
        fields = [field.strip() for field in line.strip().strip("|").split("|")]
        if not has_head:
            if tuple(fields) != HEAD:
                raise refusal(name, number, f"columns {quoted(', '.join(fields))}", ", ".join(HEAD))
            has_head = True
        elif not all(re.fullmatch(r"-+:?", field) for field in fields):
            if not line.rstrip().endswith("|"):
                raise refusal(name, number, f"incomplete row {quoted(line)}", f"a complete row of {', '.join(HEAD)}")
            rows.append((number, fields))
    return rows


def _values(fields: list[str], name: str, line: int) -> tuple[int, float, float]:
    payload = PAYLOAD.fullmatch(fields[0])
    rates = [RATE.fullmatch(field) for field in fields[1:]]
    if payload is None or len(rates) != 2 or None in rates:
        want = "'| <n>KiB | <busbw>GBps | <algbw>GBps |'"
        raise refusal(name, line, f"found {quoted(' | '.join(fields))}", want)
    return int(payload[1]) * UNITS[payload[2]], float(rates[0][1]), float(rates[1][1])


def _environment(lines: list[str]) -> dict:
    versions = next((m for line in lines if (m := VERSIONS.match(line.strip()))), None)
    gpu = next((m[1] for line in lines if (m := GPU.match(line.strip()))), None)
    found = {"gpus": [{"name": gpu}]} if gpu else {}
    if versions:
        found |= {"torch": versions[1], "cuda": versions[2], "nccl": ".".join(versions.groups()[2:])}
    return found


ALL_REDUCE_BENCH = Format(
    "all-reduce-bench",
    "a table of all_reduce_bench.py",
    lambda text: "bandwidth of all_reduce" in text,
    _read,
)
