"""Prefixes of launchers, collectors and documents do not change what is imported."""

import re
from dataclasses import replace
from itertools import chain

import pytest
from formats_files import FILES as FOLDER
from formats_files import NEEDS, text_of

from regatta.core.errors import UserError
from regatta.formats import Options, read_text
from regatta.formats.prefixes import PREFIXES, strip_prefixes

FILES = sorted(FOLDER.iterdir())
EXAMPLES = {
    "mpirun --tag-output": "[1,0]<stdout>:",
    "mpirun -l": "[0] ",
    "torchrun": "[default0]:",
    "srun -l": " 0: ",
    "kubectl logs --prefix": "[pod/bench-launcher-x7k2p/main] ",
    "docker compose": "bench-1  | ",
    "Ray": "(head, rank=0, pid=1726) ",
    "timestamp": "2026-11-23T07:20:40.123456789Z ",
    "syslog": "Nov  3 07:20:40 n1 bench[4711]: ",
    "ts": "Nov 23 07:20:40 ",
    "clush, pdsh": "n1: ",
    "Markdown quote": "> ",
    "indentation": "    ",
}
OTHERS = [
    "2026-11-23 07:20:40 +0000 [0] ",
    "> \x1b[32m",
    "2026-11-23T07:20:40Z 12: ",
    "Mon Nov 23 07:20:40 2026[1,0]<stdout>:",  # mpirun --tag-output --timestamp-output
    "Mon Nov 23 07:20:40 2026<stdout>:",
    "[prterun-n1-4711@1,0][n1:4712]<stdout>: ",  # mpirun --output tag-detailed, of Open MPI 5
    "[rank0]: ",  # PyTorch
    "[trainer0|0]:",  # torchrun with a role and a template
    "n1: [default0]:",
    "nid001 0: ",  # mpiexec -l of PALS
    "10.0.0.1: ",
    "gpu-7.cluster.example.org: ",
    "(RayTrainWorker pid=1726, ip=10.0.0.1) ",
    "(pid=1726) ",
    "bench.1.x7k2p@n1    | ",  # docker service logs
    "[2026-11-23 07:20:40,123] ",
    "2026/11/23 07:20:40 ",
    "07:20:40 ",
]
TABLES = ["osu-allreduce.txt", "nccl-13-columns.txt", "ddp-2x4-gh200.txt", "all-reduce-bench.txt"]
OPTIONS = Options(nodes=1, gpus_per_node=4)


NAMED = re.compile("unknown prefix '(.*?)'; ")
WITH_BEGIN = [path for path in FILES if path.name != "mlperf.log"]  # in which a mark is found behind any prefix


def reading(text: str, name: str, options: Options = OPTIONS):
    try:
        return read_text(text, name, options)[1]
    except UserError as error:
        return str(error)


def marked(text: str, prefix: str, others: int = 0) -> str:
    """Return a text with a prefix on each line. others: number of lines before it that lack the prefix."""
    return "launching\n" * others + "\n".join(prefix + line for line in text.split("\n"))


def test_each_prefix_has_an_example():
    assert EXAMPLES.keys() == PREFIXES.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_with_any_prefix_reads_as_without_it(path):
    text = path.read_text()
    plain = reading(text, path.name)
    for prefix in [*EXAMPLES.values(), *(OTHERS if path.name in TABLES else ())]:
        assert reading(marked(text, prefix), path.name) == plain, prefix


@pytest.mark.parametrize("name", TABLES)
def test_blanks_at_the_end_of_lines_may_be_missing(name):
    text = text_of(name)
    plain = reading(text, name)
    for prefix in EXAMPLES.values():
        trimmed = "\n".join(line.rstrip() for line in marked(text, prefix).split("\n"))
        assert reading(trimmed, name) == plain, prefix


@pytest.mark.parametrize("name", TABLES)
def test_a_known_prefix_is_stripped_although_most_lines_are_from_others(name):
    text = text_of(name)
    others = text.count("\n")
    plain = reading(text, name, NEEDS.get(name, Options()))
    for prefix in EXAMPLES.values():
        found = reading(marked(text, prefix, others), name, NEEDS.get(name, Options()))
        assert [replace(each, line=each.line - others) for each in found.readings] == [*plain.readings], prefix


@pytest.mark.parametrize("path", WITH_BEGIN, ids=lambda path: path.name)
@pytest.mark.parametrize("prefix", ["rank-0 says ", "[x] ", "<0> ", "worker0/main "])
def test_an_unknown_prefix_is_named_in_every_format(path, prefix):
    text = path.read_text(encoding="utf-8")
    assert NAMED.search(reading(marked(text, prefix), path.name))[1] == prefix.strip()


@pytest.mark.parametrize("name", ["osu-allreduce.txt", "superbench.jsonl", "nccl-12-columns.txt"])
def test_an_unknown_prefix_that_differs_by_line_is_named(name):
    text = "\n".join(f"rank-{number % 3} says {line}" for number, line in enumerate(text_of(name).split("\n")))
    assert NAMED.search(reading(text, name))[1] in ("rank-0 says", "rank-1 says", "rank-2 says")


def labelled(texts: dict[str, str], is_interleaved: bool = False) -> str:
    """Return texts with a prefix for each."""
    lines = [marked(text, prefix).split("\n") for prefix, text in texts.items()]
    return "\n".join(chain(*zip(*lines, strict=True)) if is_interleaved else chain(*lines)) + "\n"


# A number of a result, as printed by another rank.
CHANGES = {
    "osu-allreduce.txt": ("                   6.81", "                   6.82"),
    "nccl-12-columns.txt": ("   25.35 ", "   25.36 "),
    "ddp-2x4-gh200.txt": ("1233/s", "1234/s"),
    "all-reduce-bench.txt": ("34.50GBps |  23.00GBps", "34.52GBps |  23.01GBps"),
    "times.csv": ("0.0260", "0.0261"),
    "superbench.jsonl": ('_time:0": 40.0,', '_time:0": 40.01,'),
    "nccl-summary.json": ('"start_time"', '"start_time"'),
    "mlperf.log": ("1745926702510", "1745926702511"),
}


@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_results_of_several_ranks_are_not_merged(name, is_interleaved, wording):
    text, options = text_of(name), NEEDS.get(name, Options())
    plain = reading(text, name, options)
    for prefixes in (("0: ", "1: "), ("[1,0]<stdout>:", "[1,1]<stdout>:"), ("n1: ", "n2: ")):
        alike = labelled(dict.fromkeys(prefixes, text), is_interleaved)
        found = reading(alike, name, options)
        assert [replace(each, line=None) for each in found.readings] == [replace(r, line=None) for r in plain.readings]
        assert found.notes[-1].startswith("2 ranks ")
        old, new = CHANGES[name]
        assert old in text
        if old != new:
            other = labelled({prefixes[0]: text, prefixes[1]: text.replace(old, new)}, is_interleaved)
            labels = [prefix.replace("<stdout>", "").strip(" :") for prefix in prefixes]
            message = reading(other, name, options)
            assert re.findall("'(.*?)'", message) == labels
    if name == "osu-allreduce.txt":
        wording(message)


def test_results_of_hosts_that_measured_different_cells_are_read_together():
    small, large = (text_of(name) for name in ("osu-allreduce.txt", "osu-barrier.txt"))
    found = reading(labelled({"n1: ": small, "n2: ": large}), "f", NEEDS["osu-allreduce.txt"])
    assert {each.parameters["operation"] for each in found.readings} == {"all_reduce", "barrier"}


def test_lines_of_other_ranks_do_not_hide_the_table_of_one():
    text = text_of("nccl-13-columns.txt")
    info = "\n".join(f"[1,{rank}]<stdout>:n1:4711:4712 [{rank}] NCCL INFO ready" for rank in range(1, 8))
    found = reading(marked(text, "[1,0]<stdout>:") + "\n" + info + "\n", "f", Options())
    assert found.readings == reading(text, "f", Options()).readings


def test_lines_keep_their_numbers_and_the_launchers_own_lines_stay():
    text = "mpirun: warning\n" + "\n".join(f"[1,{i % 2}]<stdout>:line {i}" for i in range(20)) + "\n\n"
    found = strip_prefixes(text)
    assert (found.lines[:3], found.labels[:3]) == (["mpirun: warning", "line 0", "line 1"], ["", "[1,0]", "[1,1]"])
    assert len(found.lines) == len(found.labels) == len(text.split("\n"))


def test_escapes_are_removed_and_brackets_of_a_text_are_not():
    assert strip_prefixes("\x1b[1;31mred\x1b[0m [0]\n\x1b]0;title\x07b").text == "red [0]\nb"


def test_an_unknown_prefix_is_named_with_its_line(wording):
    text = (FILES[0].parent / "nccl-13-columns.txt").read_text()
    marked = "\n".join("rank-0 says " + line for line in text.split("\n"))
    line = 1 + next(i for i, line in enumerate(text.split("\n")) if "nThread" in line)
    wording(reading(marked, "a.txt"), line=f"a.txt:{line}:")
