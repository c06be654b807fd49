"""Tables of all_reduce_bench.py of the book Machine Learning Engineering (stas00/ml-engineering). Read only.

A row is a payload with the mean bandwidth of the trials, of which the finer of the two columns gives the time. The
program runs torch.distributed on fp32 tensors. Sizes double from row to row, so a missing row is detected; a table that
was truncated between two rows is not.
"""

import re
from functools import partial

from regatta.core.text import quoted
from regatta.formats.base import refusal, shape_of_ranks
from regatta.formats.rounding import common, printed_interval, scaled
from regatta.formats.text_tables import ColumnLayout, Measured, TableLayout, TableRun, table_format
from regatta.tables.bandwidth import BUS_FACTOR

QUEUED = re.compile(r"up to \d+ queued calls per trial")
ALONE = ("1 call per trial", "host overhead included")
SYMMETRIC = "symmetric memory"
MEANING = "message bytes / mean bandwidth of the trials, averaged over ranks; no range"
STATISTICS = {"mean_s": f"single calls timed by device events: {MEANING}", "window_step_s": f"queued calls: {MEANING}"}
RATE = r"\d{1,9}\.\d\dGBps"


def _measured(run: TableRun) -> Measured:
    title, num_ranks = run.title, int(run.title["ranks"])
    if num_ranks < 2:
        raise refusal(run.name, run.line, f"{num_ranks} ranks", "at least 2")
    shape = shape_of_ranks(num_ranks, run.options, run.name, run.line)
    settings = (title["more"] or "").removeprefix(", ").split(", ")
    if unknown := [word for word in settings if word not in ("", *ALONE, SYMMETRIC) and not QUEUED.fullmatch(word)]:
        found = f"unknown setting {quoted(', '.join(unknown))}"
        raise refusal(run.name, run.line, found, "a title of all_reduce_bench.py")
    time = "window_step_s" if any(QUEUED.fullmatch(word) for word in settings) else "mean_s"
    gpu, versions = run.facts["gpu"], run.facts["versions"]
    environment = {"gpus": [{"name": gpu[1]}]} if gpu else {}
    if versions:
        environment |= {"torch": versions[1], "cuda": versions[2], "nccl": ".".join(versions.groups()[2:])}
    return Measured(
        "all_reduce_symmetric_memory" if SYMMETRIC in settings else "all_reduce",
        shape,
        STATISTICS[time],
        "nccl",
        "cuda",
        "fp32",
        rate_factor=BUS_FACTOR["all_reduce"](num_ranks),
        rate_time=time,
        num_iterations=int(title["trials"]) if time == "mean_s" else None,  # otherwise each trial is several calls
        num_warmup=int(title["warmup"]),
        parameters={"algorithm": "torch"},
        environment=environment,
        check=partial(_check, run, num_ranks),
    )


def _check(run: TableRun, num_ranks: int, numbers: dict[str, float], line: int) -> None:
    """Refuse a row with contradictory bandwidths: a lost digit, or another number of ranks."""
    busbw, algbw, factor = numbers["busbw"] / 1e9, numbers["algbw"] / 1e9, BUS_FACTOR["all_reduce"](num_ranks)
    of_both = (printed_interval(f"{rate:.2f}") for rate in (busbw, algbw))
    if not common(next(of_both), scaled(next(of_both), factor)):
        found = f"busbw {busbw:g} and algbw {algbw:g} GB/s with {num_ranks} ranks"
        raise refusal(run.name, line, found, f"busbw {factor * algbw:.2f}")


ALL_REDUCE_BENCH = table_format(
    TableLayout(
        "all-reduce-bench",
        "a table of all_reduce_bench.py",
        title=r"The average bandwidth of all_reduce over (?P<ranks>\d{1,7}) ranks"
        r" \((?P<warmup>\d{1,9}) warmups / (?P<trials>\d{1,9}) trials(?P<more>, [^)]*)?\):",
        recognized="bandwidth of all_reduce",
        example="'The average bandwidth of all_reduce over <n> ranks (<w> warmups / <t> trials):'",
        head=r"\|.*",
        columns={
            "payload": ColumnLayout("size", form=r"\d{1,7}[KMGT]iB"),
            "busbw": ColumnLayout("rate", form=RATE, printed="busbw_gb_per_s"),
            "algbw": ColumnLayout(form=RATE, printed="algbw_gb_per_s"),
        },
        row=r"\s*\|\s*(?!\s|-+:?)",
        edge=r"\s*\|\s*",
        between=r"\s*\|\s*",
        end="Elapsed time:.*",
        facts={
            "versions": r"- software: torch=(\S+), cuda=(\S+), nccl=\((\d+), (\d+), (\d+)\).*",
            "gpu": r"- hardware: \w+\(name='([^']+)'.*",
        },
        measured=_measured,
    )
)
