import copy
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from comparison_results import cell_of, write_folder
from synthetic import analyse_files, write_laptop
from synthetic_preflight import looked_at, make_preflight, make_seen, make_stack, write_preflight

from regatta.compare.campaigns import check_common_cells, compare_campaigns, distinct_names, read_campaign
from regatta.compare.comparison_output import comparison_text
from regatta.core.errors import UserError
from regatta.tables.pairs import judged_rows
from regatta.topics.comparison.comparison_findings import compared_findings
from regatta.topics.comparison.texts import with_labels

ROOT = Path(__file__).resolve().parents[2]
SIX = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05]
SIZES = (4096, 16384, 65536, 262144)


def upgraded(cell, **stack):
    """Return the same cell after an upgrade: its image is another, and its id with it."""
    new = copy.deepcopy(cell)
    new["spec"]["stack"] |= {"image_id": "bbb"} | stack
    new["id"] = new["id"][:-4] + "ffff"
    return new


def compared(folder, before, after, margin=0.05, **fields):
    base = write_folder(folder / "before", before, day="01", **fields)
    test = write_folder(folder / "after", after, day="21", environment={"torch": "2.13.0"}, **fields)
    found = compare_campaigns(read_campaign(base), read_campaign(test), margin)
    check_common_cells(found)
    return found


@pytest.fixture
def script(monkeypatch, capsys):
    """Return a function that runs compare.py with arguments, and returns exit status, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["compare.py", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(ROOT / "workflow" / "scripts" / "compare.py"), run_name="__main__")
        return end.value.code, *capsys.readouterr()

    return run


def test_cells_are_matched_by_what_they_measure_and_never_by_position_or_id(tmp_path):
    cells = [cell_of("bound", size) for size in SIZES]
    before = [(cell, [(i + 1) * t for t in SIX]) for i, cell in enumerate(cells)]
    after = [(upgraded(cell), times) for cell, times in reversed(before)]
    found = compared(tmp_path, before, after)
    assert list(found.comparisons["time_ratio"]) == [1.0] * 4
    assert set(found.comparisons["verdict"]) == {"equivalent"}
    assert found.unmatched == {}
    row = found.comparisons.iloc[0]
    assert row["reference"] != row["cell"]
    assert not row["is_paired"]  # launches of two campaigns never share an allocation


def test_cells_of_stacks_with_different_names_have_no_counterpart(tmp_path):
    both = (cell_of("bound"), SIX)
    found = compared(tmp_path, [both, (cell_of("contained", 16384), SIX)], [both, (cell_of("bound", 16384), SIX)])
    assert len(found.comparisons) == 1
    assert [cell.stack.name for cell in found.unmatched["only in base"]] == ["contained"]
    assert [cell.stack.name for cell in found.unmatched["only in test"]] == ["bound"]


def test_what_another_version_of_the_benchmark_measured_is_not_compared_and_that_is_said(tmp_path, wording):
    newer = upgraded(cell_of("bound"))
    newer["spec"]["version"] = 2
    both = (cell_of("bound", 16384), SIX)
    found = compared(tmp_path, [(cell_of("bound"), SIX), both], [(newer, SIX), both])
    assert len(found.comparisons) == 1
    [reason] = found.unmatched
    wording.lines(comparison_text([found]), reason)


def test_what_is_not_ok_on_one_side_is_listed_with_the_side(tmp_path):
    cells = [cell_of("bound", size) for size in SIZES[:3]]
    before = [(cells[0], SIX), (cells[1], ["failed"] * 6), (cells[2], SIX)]
    after = [(cells[0], SIX), (cells[1], SIX), (cells[2], ["timeout"] * 6)]
    found = compared(tmp_path, before, after)
    found = {
        reason.split()[-1]: [cell.parameters["message_bytes"] for cell in cells]
        for reason, cells in found.unmatched.items()
    }
    assert found == {"base": [16384], "test": [65536]}


def test_the_text_has_the_largest_effect_first_and_folds_and_counts_the_noise(tmp_path, monkeypatch, wording):
    """Five launches from 1.00 to 1.04 s: standard deviation of the logarithms 1.55 %, 95 % half-width 2.2 %."""
    monkeypatch.chdir(tmp_path)
    cells, five = [cell_of("bound", size) for size in SIZES], SIX[:5]
    before = [(cell, five) for cell in cells]
    after = [(upgraded(cell), [f * t for t in five]) for cell, f in zip(cells, (1.5, 1.01, 0.5, 1), strict=True)]
    before.append((cell_of("bound", 4096, operation="all_gather"), five))
    after.append((upgraded(cell_of("bound", 4096, operation="broadcast")), five))
    found = compared(Path(), before, after, 0.1)
    wording(comparison_text([found]))
    assert comparison_text([found], shows_all=True).count("\nall-reduce") == 4


def test_the_statement_has_the_direction_where_all_cells_have_it(tmp_path):
    cells = [cell_of("bound", 4096 * (i + 1)) for i in range(8)]
    found = compared(tmp_path, [(c, SIX) for c in cells], [(c, [2 * t for t in SIX]) for c in cells])
    found = compared_findings(with_labels(judged_rows(found.comparisons)), found.launches)[0]
    assert [part["outcome"] for part in found.values["parts"]] == ["slower"]
    shift = found.values["direction"]
    assert (shift["is_slower"], shift["num"], shift["num_pairs"]) == (True, 8, 8)
    assert (shift["median_ratio"], shift["most_ratio"]) == (pytest.approx(2), pytest.approx(2))


def test_long_lists_are_cut_and_counted(tmp_path):
    both = (cell_of("bound"), SIX)
    many = [(cell_of("bound", 4096 * (i + 2)), SIX) for i in range(12)]
    found = compared(tmp_path, [both, *many], [both])
    assert comparison_text([found]).count("\n  all-reduce") == 10
    assert comparison_text([found], shows_all=True).count("\n  all-reduce") == 12


def test_the_exit_status_is_1_for_a_regression_beyond_the_margin_0_without_and_2_for_an_error(
    tmp_path, script, wording
):
    cell = cell_of("bound")
    base = write_folder(tmp_path / "base", [(cell, SIX)])
    slower = write_folder(tmp_path / "slower", [(cell, [1.5 * t for t in SIX])])
    code, out, errors = script(base, slower)
    assert (code, errors) == (1, "")
    wording.lines(out, "Test is")
    assert script(base, slower, "--margin", "0.6")[0] == 0
    assert script(slower, base)[0] == 0  # faster
    code, _, errors = script(base, tmp_path / "nowhere")
    assert code == 2
    wording(errors)
    assert script(base)[0] == 2
    for margin in ("nan", "-1", "inf", "1e308"):
        assert script(base, base, f"--margin={margin}")[0] == 2
    assert script(base, base, "--gpus-per-node=0")[0] == 2


def test_where_nothing_can_be_compared_the_exit_status_is_no_pass(tmp_path, script, wording):
    base = write_folder(tmp_path / "base", [(cell_of("bound"), SIX)])
    failed = write_folder(tmp_path / "failed", [(cell_of("bound"), SIX)])
    table = pd.read_csv(failed / "measurements.csv", dtype=str)
    table.assign(status="failed", p50_s="").to_csv(failed / "measurements.csv", index=False)
    code, _, errors = script(base, failed)
    assert code == 2
    wording(errors)


@pytest.mark.parametrize("time", ["inf", "-1", "0"])
def test_a_time_that_is_none_is_an_error_of_the_file_and_no_regression(tmp_path, script, time):
    base = write_folder(tmp_path / "base", [(cell_of("bound"), SIX)])
    damaged = write_folder(tmp_path / "damaged", [(cell_of("bound"), SIX)])
    table = pd.read_csv(damaged / "measurements.csv", dtype=str)
    table.loc[0, "p50_s"] = time
    table.to_csv(damaged / "measurements.csv", index=False)
    code, _, errors = script(base, damaged)
    assert code == 2
    assert "positive time" in errors


def test_a_fault_of_the_program_is_no_regression(tmp_path, script, monkeypatch):
    base = write_folder(tmp_path / "base", [(cell_of("bound"), SIX)])
    monkeypatch.setattr("regatta.compare.comparison_output.comparison_text", lambda *_: 1 / 0)
    assert script(base, base)[0] == 2


def test_the_script_writes_a_page_and_a_table(tmp_path, script):
    cell = cell_of("bound")
    base = write_folder(tmp_path / "base", [(cell, SIX)])
    test = write_folder(tmp_path / "test", [(cell, [1.5 * t for t in SIX])])
    script(base, test, "--html", tmp_path / "page.html", "--csv", tmp_path / "rows.csv")
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert list(rows["verdict"]) == ["slower"]
    assert rows["time_ratio"][0] == pytest.approx(1.5)
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>test vs. base</h1>" in page
    script(base, test, "--html", tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


@pytest.mark.parametrize(
    ("base", "test", "title"),
    [
        (("stacks", "a/one", "2026-11-20"), ("bound", "a/one", "2026-11-20"), "bound vs. stacks"),
        (("stacks", "a/one", "2026-11-20"), ("stacks", "a/two", "2026-11-21"), "two vs. one"),
        (("stacks", "a/one", "2026-11-20"), ("stacks", "b/one", "2026-11-21"), "stacks of 2026-11-21 vs. stacks of 2026-11-20"),
        (("stacks", "a/one", None), ("stacks", "b/one", None), "b/one vs. a/one"),
    ],
)  # fmt: skip
def test_campaigns_of_one_name_are_told_apart_in_the_title(base, test, title):
    sides = [
        SimpleNamespace(
            campaign=SimpleNamespace(name=name), folder=Path(folder), first_time_utc=day and f"{day}T03:00Z"
        )
        for name, folder, day in (base, test)
    ]
    assert " vs. ".join(distinct_names(*sides[::-1])) == title


def test_a_table_that_cannot_be_read_or_lacks_cells_is_an_error_that_says_what_to_do(tmp_path, wording):
    folder = write_folder(tmp_path / "base", [(cell_of("bound", size), SIX) for size in SIZES])
    path = folder / "measurements.csv"
    whole = path.read_text(encoding="utf-8")
    path.write_text("\n".join(whole.splitlines()[:8]) + "\n", encoding="utf-8")
    with wording.raises(UserError):
        read_campaign(folder)
    path.write_text(whole.replace("1.02,", "fast,", 1), encoding="utf-8")
    with pytest.raises(UserError, match=r"measurements.csv: .*make report"):
        read_campaign(folder)
    (folder / "campaign.0123456789ab.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="is damaged"):
        read_campaign(folder)


def test_campaigns_without_a_common_cell_are_an_error(tmp_path, wording):
    with wording.raises(UserError):
        compared(tmp_path, [(cell_of("bound"), SIX)], [(cell_of("contained"), SIX)])


def test_without_launch_files_the_environment_is_said_to_be_unknown(tmp_path):
    found = compared(tmp_path, [(cell_of("bound"), SIX)], [(cell_of("bound"), SIX)])
    assert "torch" in comparison_text([found])
    for path in (tmp_path / "before" / "launches").iterdir():
        path.unlink()
    again = compare_campaigns(read_campaign(tmp_path / "before"), read_campaign(tmp_path / "after"), 0.05)
    assert "Environments unknown" in comparison_text([again])
    assert "torch" not in comparison_text([again])


def test_what_the_preflight_found_of_the_network_is_compared(tmp_path):
    found = compared(tmp_path, [(cell_of("bound"), SIX)], [(cell_of("bound"), SIX)])
    for name, network in (("before", "AWS Libfabric"), ("after", "Socket")):
        stack = looked_at(make_stack("bound"), make_seen())
        stack["verdict"] |= {"network": network}
        write_preflight(tmp_path / name, make_preflight(stack))
    again = compare_campaigns(read_campaign(tmp_path / "before"), read_campaign(tmp_path / "after"), 0.05)
    new = [difference for difference in again.environment if difference not in found.environment]
    assert [(d.name, d.reference, d.other) for d in new] == [("NCCL network", "AWS Libfabric", "Socket")]


def test_a_campaign_with_failures_of_every_kind_compared_with_itself_has_no_difference(tmp_path, script):
    write_laptop(tmp_path / "laptop")
    analyse_files(tmp_path / "laptop")
    own = read_campaign(tmp_path / "laptop")
    found = compare_campaigns(own, own, 0.05)
    assert (len(found.comparisons), found.environment) == (17, [])
    assert set(found.comparisons["verdict"]) <= {"equivalent", "inconclusive"}
    assert (found.comparisons["time_ratio"] == 1).all()
    assert script(tmp_path / "laptop", tmp_path / "laptop")[0] == 0


def test_files_of_another_benchmark_are_compared_like_campaigns_and_leave_nothing_behind(
    tmp_path, script, monkeypatch, wording
):
    monkeypatch.chdir(tmp_path)
    source = ROOT / "tests" / "golden" / "formats" / "ddp-2x4-gh200.txt"
    text = source.read_text(encoding="utf-8")
    Path("before.txt").write_text(text, encoding="utf-8")
    Path("after.txt").write_text(text, encoding="utf-8")
    code, out, errors = script("before.txt", "after.txt", "--gpus-per-node", "4", "--all")
    assert (code, errors) == (0, "")
    assert "first record n/a" in out  # the import is from now, the numbers are not
    wording.lines(out, "Test vs.")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["after.txt", "before.txt"]
    Path("torn.txt").write_text(text[:-200], encoding="utf-8")
    code, _, errors = script("before.txt", "torn.txt", "--gpus-per-node", "4")
    assert code == 2
    assert "torn.txt" in errors
    assert "Nothing was imported" in errors
