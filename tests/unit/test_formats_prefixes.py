"""Prefixes of launchers, collectors and documents do not change what is imported."""

from pathlib import Path

import pytest

from regatta.core.errors import UserError
from regatta.formats import Options, read_text
from regatta.formats.prefixes import PREFIXES, strip_prefixes

FILES = sorted((Path(__file__).resolve().parents[1] / "golden" / "formats").iterdir())
EXAMPLES = {
    "mpirun --tag-output": "[1,0]<stdout>:",
    "mpirun -l": "[0] ",
    "srun -l": " 0: ",
    "kubectl logs --prefix": "[pod/bench-launcher-x7k2p/main] ",
    "docker compose": "bench-1  | ",
    "timestamp": "2026-11-23T07:20:40.123456789Z ",
    "Markdown quote": "> ",
    "indentation": "    ",
}
OPTIONS = Options(nodes=1, gpus_per_node=4)


def reading(text: str, name: str):
    try:
        return read_text(text, name, OPTIONS)[1]
    except UserError as error:
        return str(error)


def test_each_prefix_has_an_example():
    assert EXAMPLES.keys() == PREFIXES.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_with_any_prefix_reads_as_without_it(path):
    text = path.read_text()
    plain = reading(text, path.name)
    for prefix in [*EXAMPLES.values(), "2026-11-23 07:20:40 +0000 [0] ", "> \x1b[32m", "2026-11-23T07:20:40Z 12: "]:
        marked = "\n".join(prefix + line for line in text.split("\n"))
        assert reading(marked, path.name) == plain, prefix


def test_lines_keep_their_numbers_and_the_launchers_own_lines_stay():
    text = "mpirun: warning\n" + "\n".join(f"[1,{i % 2}]<stdout>:line {i}" for i in range(20)) + "\n\n"
    assert strip_prefixes(text).split("\n")[:3] == ["mpirun: warning", "line 0", "line 1"]
    assert len(strip_prefixes(text).split("\n")) == len(text.split("\n"))


def test_escapes_are_removed_and_brackets_of_a_text_are_not():
    assert strip_prefixes("\x1b[1;31mred\x1b[0m [0]\n\x1b]0;title\x07b") == "red [0]\nb"


def test_an_unknown_prefix_is_named_with_its_line(wording):
    text = (FILES[0].parent / "nccl-13-columns.txt").read_text()
    marked = "\n".join("rank-0 says " + line for line in text.split("\n"))
    line = 1 + next(i for i, line in enumerate(text.split("\n")) if "nThread" in line)
    wording(reading(marked, "a.txt"), line=f"a.txt:{line}:")
