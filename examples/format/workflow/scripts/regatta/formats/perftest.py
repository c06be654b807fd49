"""Tables of perftest's latency tests (ib_write_lat, ib_read_lat, ib_send_lat) between two hosts. Read only.

perftest prints half of the round trip for writes and sends, the whole one for reads. A ruled line ends the table, so a
truncated file is rejected. Source: github.com/linux-rdma/perftest, src/perftest_parameters.h.
"""

import re

from regatta.formats.base import Format, Options, Reading, Source, collective_parameters, lines_of, quoted, refusal

TITLE = re.compile(r"\s*(?:RDMA_)?(Write|Read|Send) Latency Test\s*")
# Heading -> name in a record and factor to its unit; None: kept as printed.
COLUMNS = {
    "t_min[usec]": "min_s",
    "t_max[usec]": "max_s",
    "t_typical[usec]": "p50_s",
    "t_avg[usec]": "mean_s",
    "t_stdev[usec]": None,
    "99% percentile[usec]": "p99_s",
    "99.9% percentile[usec]": None,
}
HEAD = re.compile(r"\s*#bytes\s+#iterations\s+" + r"\s+".join(map(re.escape, COLUMNS)) + r"\s*")
RULE = re.compile(r"-{20,}")
ROW = re.compile(r"\s*(\d{1,15})\s+(\d{1,15})\s" + r"\s*(\d{1,15}\.\d\d)" * len(COLUMNS) + r"\s*")
STATISTIC = "percentiles over iterations; for writes and sends half of the round trip, for reads the whole one"


def _is_table(text: str) -> bool:
    return any(TITLE.fullmatch(line) for line in lines_of(text))


def _read(text: str, name: str, options: Options) -> Source:
    lines = lines_of(text)
    titles = [(number, match[1]) for number, line in enumerate(lines, start=1) if (match := TITLE.fullmatch(line))]
    if len(titles) > 1:
        raise refusal(name, titles[1][0], "a second table", "one table in each file")
    head = next((number for number, line in enumerate(lines, start=1) if HEAD.fullmatch(line)), None)
    if head is None:
        raise refusal(name, titles[0][0], "no line of column names", "'#bytes #iterations t_min[usec] ...'")
    operation = f"ib_{titles[0][1].lower()}_lat"
    readings = []
    for number, line in enumerate(lines[head:], start=head + 1):
        if readings and RULE.fullmatch(line.strip()):
            notes = ("two hosts with one process each are assumed",) if options.nodes is None else ()
            return Source(STATISTIC, "verbs", "cpu", tuple(readings), notes)
        if not (row := ROW.fullmatch(line)):
            raise refusal(name, number, f"found {quoted(line)}", "a row of nine numbers, or the ruled line at the end")
        readings.append(_reading(operation, number, row.groups(), options.nodes or 2))
    raise refusal(name, len(lines), "the table ends without a ruled line", "the whole output")


def _reading(operation: str, line: int, row: tuple[str, ...], nodes: int) -> Reading:
    size, iterations, *times = row
    printed = dict(zip(COLUMNS, map(float, times), strict=True))
    times_s = {key: printed[head] / 1e6 for head, key in COLUMNS.items() if key}
    parameters = collective_parameters(operation, int(size), None)
    return Reading(line, "collective", parameters, nodes, 2 // nodes, times_s, printed, num_iterations=int(iterations))


PERFTEST = Format("perftest-text", "a latency table of perftest", _is_table, _read)
