"""Times that mean different things are never launches of one cell: refused with both places, and nothing written."""

import re

import pytest
from formats_files import analysed, run_import, text_of

from regatta.core.errors import UserError
from regatta.tables.cells import rows_of

TABLE = "nccl-13-columns.txt"


def changed(**header) -> str:
    """Return a file of nccl-tests with other numbers in its header."""
    text = text_of(TABLE)
    for key, value in header.items():
        text, num = re.subn(rf"\b{key.replace('_', ' ')}: \d+", f"{key.replace('_', ' ')}: {value}", text)
        assert num == 1
    return text


def blocking() -> str:
    return text_of(TABLE).replace(
        "#\n", "# Blocking Enabled: wait for completion and barrier after each collective\n", 1
    )


def num_launches(folder) -> set[int]:
    _, tables, _ = analysed(folder)
    return set(rows_of(tables["cells"], "collective")["num_launches"])


OTHERS = {"blocking": blocking, "graph": lambda: changed(graph=10), "aggregated": lambda: changed(agg_iters=4)}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("other", OTHERS)
def test_times_with_another_meaning_are_refused_with_both_places(tmp_path, other, is_first, wording):
    files = {"plain.txt": text_of(TABLE), "other.txt": OTHERS[other]()}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    first, second = sorted(files, reverse=is_first)
    run_import(tmp_path / "c", tmp_path / first)
    before = {path.name: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=rf"{second}:\d+: .*{first}:\d+ "):
        run_import(tmp_path / "c", tmp_path / second)
    assert [*run_import(tmp_path / "c", tmp_path / first, tmp_path / second).refused] == [str(tmp_path / second)]
    assert {path.name: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()} == before
    both = run_import(tmp_path / "both", tmp_path / first, tmp_path / second)
    wording(both.refused[str(tmp_path / second)])
    assert num_launches(tmp_path / "both") == {1}
    run_import(tmp_path / "d", tmp_path / second)  # another campaign takes it
    assert num_launches(tmp_path / "d") == {1}


def test_runs_of_one_file_may_not_mix_them_either(tmp_path):
    (tmp_path / "several.txt").write_text(text_of(TABLE) + changed(graph=10), encoding="utf-8")
    with pytest.raises(UserError, match=r"several.txt:\d+: .*several.txt:\d+ is: "):
        run_import(tmp_path / "c", tmp_path / "several.txt")
    assert not (tmp_path / "c").exists()


def test_the_same_meaning_is_another_launch_and_its_number_of_replays_does_not_count(tmp_path):
    for name, text in {"a.txt": changed(graph=10), "b.txt": changed(graph=20)}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        run_import(tmp_path / "c", tmp_path / name)
    assert num_launches(tmp_path / "c") == {2}


def test_a_stack_of_its_own_keeps_times_with_another_meaning_apart(tmp_path):
    (tmp_path / "graph.txt").write_text(changed(graph=10), encoding="utf-8")
    run_import(tmp_path / "c", TABLE)
    run_import(tmp_path / "c", tmp_path / "graph.txt", stack="graph")
    assert num_launches(tmp_path / "c") == {1}
