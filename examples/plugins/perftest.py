"""Tables of perftest's latency tests (ib_write_lat, ib_read_lat, ib_send_lat) between two hosts. Read only.

perftest prints half of the round trip for writes and sends, the whole one for reads. A ruled line ends the table, so a
truncated file is rejected. Source: github.com/linux-rdma/perftest, src/perftest_parameters.h.
"""

from regatta.formats.text_tables import ITERATIONS, SIZE, ColumnLayout, TableLayout, table_format

PERFTEST = table_format(
    TableLayout(
        "perftest-text",
        "a latency table of perftest",
        title=r"(?:RDMA_)?(?P<verb>Write|Read|Send) Latency Test",
        head=r"#bytes\s+#iterations\s.*",
        columns={
            "bytes": SIZE,
            "iterations": ITERATIONS,
            "t_min[usec]": ColumnLayout("min_s", "us"),
            "t_max[usec]": ColumnLayout("max_s", "us"),
            "t_typical[usec]": ColumnLayout("p50_s", "us"),
            "t_avg[usec]": ColumnLayout("mean_s", "us"),
            "99% percentile[usec]": ColumnLayout("p99_s", "us"),
            **dict.fromkeys(("t_stdev[usec]", "99.9% percentile[usec]"), ColumnLayout()),
        },
        end="-{20,}",
        needs_end=True,
        doubles=False,
        operation="ib_{verb}_lat",
        statistic="percentiles over iterations; for writes and sends half of the round trip, for reads the whole one",
        backend="verbs",
        device="cpu",
        num_ranks=2,
    )
)

FORMATS = (PERFTEST,)
