"""Absolute references of a gate: bounds on metrics, as planned, as gate.py decides them, and in its files."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
import yaml
from campaign_files import HOSTILE, plan, small
from comparison_results import write_folder
from synthetic import collective_cell, train_cell
from test_gate_text import JUNIT

import warm_start
from regatta.core.errors import UserError
from regatta.core.files import ROOT
from regatta.core.schemas import load_schema, violations
from regatta.plan.plan import freeze_campaign, write_frozen
from regatta.store.frozen_files import read_frozen_campaign

GB = 10**9
A, B = (collective_cell(size, 1, 2) for size in (1 << 20, 1 << 26))  # of two ranks: bus factor 1
TRAIN = train_cell("resnet18", 1, 2)
WHEN = {"benchmark": "collective"}


def times(cell, rate, scatter=0.0, num=5):
    """Return launches of a cell: the logarithms of their bus bandwidths lie evenly around that of `rate`, in GB/s."""
    middle = cell["spec"]["parameters"]["message_bytes"] / (rate * GB)
    return cell, [middle * math.exp(scatter * (2 * i / max(num - 1, 1) - 1)) for i in range(num)]


CLUSTER = {"schema": 1, "scheduler": "none", "name": "m"}


def frozen_with(folder, cells, *references):
    return write_folder(folder / "now", cells, cluster=CLUSTER, **({"references": references} if references else {}))


def refused(folder, cells, *references):
    """Return the error of gate.py on references that are not as planned."""
    results = frozen_with(folder, cells, *references)
    words = ["--campaign", next(results.glob("campaign.*.json")), "--measurements", results / "measurements.csv"]
    done = warm_start.script("gate.py", *words, *(f"--out-{name}={results}/gate.{name}" for name in ("text", "junit")))
    assert done.returncode == 2, done.stdout + done.stderr
    return done.stderr


def run(folder, cells, *references, options=(), before=()):
    """Run gate.py on a campaign with these launches and references; return its status, text and testcases."""
    results = frozen_with(folder, cells, *references)
    words = ["--campaign", next(results.glob("campaign.*.json")), "--measurements", results / "measurements.csv"]
    words += [f"--out-{name}={results}/gate.{name}" for name in ("text", "junit", "html")]
    if before:
        old = write_folder(folder / "before", before, cluster=CLUSTER)
        words += ["--baseline", old]
    done = warm_start.script("gate.py", *words, *options)
    assert "Traceback" not in done.stderr, done.stderr
    root = ET.parse(results / "gate.junit").getroot()
    for element in root.iter():
        assert set(element.attrib) <= JUNIT[element.tag][0]
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert int(root.get("tests")) == len(list(root.iter("testcase"))) == len(cases)
    return done.returncode, done.stdout, cases


def bound(when=WHEN, metric="busbw_gb_per_s", **values):
    return {"when": when, "metric": metric, **values}


NAME_A = "collective-all_reduce-1048576-n01g02-host"


@pytest.mark.parametrize(
    ("rate", "scatter", "policy", "status", "failure"),
    [
        (400, 0.002, "fail", 0, None),
        (360, 0.002, "pass", 0, None),  # below 370, but within the tolerance
        (340, 0.002, "pass", 1, "reference"),
        (349, 0.02, "likely", 5, "undecided"),  # the estimate is below 351.5
        (349, 0.02, "pass", 0, None),
        (354, 0.02, "likely", 0, None),
        (354, 0.02, "fail", 5, "undecided"),
    ],
)
def test_a_cell_fails_if_its_whole_interval_is_beyond_and_is_undecided_if_it_straddles(
    tmp_path, rate, scatter, policy, status, failure
):
    reference = bound(least=370, tolerance=0.05)
    code, text, cases = run(tmp_path, [times(A, rate, scatter)], reference, options=[f"--undecided={policy}"])
    found = cases[f"{NAME_A}: busbw_gb_per_s at least 351.5 (370 − 5 %)"]
    assert (code, text.split()[1].rstrip(":")) == (status, {0: "passed", 1: "failed", 5: "undecided"}[status])
    assert (None if found.find("failure") is None else found.find("failure").get("type")) == failure
    assert found.get("classname") == "now.collective"
    assert (found.find("system-out") is None) is (failure is not None)


def test_most_is_a_bound_from_above_in_the_unit_of_the_file(tmp_path):
    """At 1 GB/s, 2^20 B take 1.0486 ms; the report shows microseconds."""
    cells = [times(A, 1)]
    assert run(tmp_path / "a", cells, bound(metric="time_s", most=0.00105))[0] == 0
    assert run(tmp_path / "b", cells, bound(metric="time_s", most=0.001))[0] == 1
    assert run(tmp_path / "c", cells, bound(metric="time_s", most=0.001, tolerance=0.05))[0] == 0


def test_the_text_counts_references_and_names_the_worst_first(tmp_path, wording):
    cells = [times(A, 340, 0.002), times(B, 300, 0.002), (TRAIN, [0.1] * 5)]
    of_steps = bound({"benchmark": "train_step"}, "step_s", most=0.2)
    code, text, cases = run(tmp_path, cells, bound(least=370, tolerance=0.05), of_steps)
    assert code == 1
    assert len(cases) == 3 + 3
    wording(text.splitlines()[:3])


def test_references_and_a_baseline_are_judged_together(tmp_path):
    same = [times(A, 400, 0.002), times(B, 300, 0.002)]
    passed = run(tmp_path / "a", same, bound(least=250), before=same)
    failed = run(tmp_path / "b", same, bound(least=350), before=same)
    assert (passed[0], failed[0]) == (0, 1)
    ratios = [
        [case.findtext("system-out") for name, case in of[2].items() if ": " not in name] for of in (passed, failed)
    ]
    assert ratios[0] == ratios[1]  # a reference changes no verdict on a pair
    assert len(ratios[0]) == 2


def test_a_value_that_is_unknown_is_undecided_and_says_so(tmp_path):
    """The peak FLOP/s of this machine are unknown, and so is the MFU; the cell of the other has no ok launch."""
    cells = [(TRAIN, [0.1] * 3), (A, ["failed"] * 3)]
    code, text, cases = run(tmp_path, cells, bound({"benchmark": "train_step"}, "mfu_ratio", least=0.4), bound(least=1))
    assert code == 1  # the failed cell
    [failed, alone] = [case for name, case in cases.items() if ": " in name]
    assert "unknown (3 ok" in failed.find("failure").get("message")
    assert "unknown (0 ok" in alone.find("failure").get("message")
    code, text, _ = run(tmp_path / "b", cells[:1], bound({"nodes": 1}, "mfu_ratio", least=0.4))
    assert (code, "1 undecided" in text.splitlines()[0]) == (5, True)


@pytest.mark.parametrize("limit", [{"least": 0}, {"most": 1}])
@pytest.mark.parametrize("times", [[math.inf] * 3, [0.1, 0.1, math.inf], [0.1, math.inf]])
def test_a_value_that_is_not_finite_is_unknown(tmp_path, times, limit):
    code, _, cases = run(tmp_path, [(TRAIN, times)], bound({"nodes": 1}, "step_s", **limit))
    [case] = [case for name, case in cases.items() if ": " in name]
    assert (code, case.find("failure").get("type"), "unknown" in case.find("failure").text) == (5, "undecided", True)


@pytest.mark.parametrize(("num", "rate", "status"), [(1, 400, 0), (1, 300, 1), (2, 400, 0), (2, 300, 1), (2, 350, 5)])
def test_with_few_launches_their_range_decides_and_a_note_says_so(tmp_path, num, rate, status):
    code, text, _ = run(tmp_path, [times(A, rate, 0.02, num)], bound(least=351))
    assert code == status
    assert "without an interval" in text
    assert "without an interval" not in run(tmp_path / "more", [times(A, rate, 0.02, 3)], bound(least=351))[1]


def test_a_bound_may_be_zero_or_negative_and_its_tolerance_is_relative_to_its_size(tmp_path):
    cells = [(TRAIN, [0.1] * 3)]
    for values, status in (
        ({"least": 0}, 0),
        ({"most": -1, "tolerance": 0.5}, 1),
        ({"least": -1, "tolerance": 0.9}, 0),
    ):
        name = "-".join(map(str, values.values()))
        assert run(tmp_path / name, cells, bound({"nodes": 1}, "step_s", **values))[0] == status


def test_when_selects_as_in_exclude(tmp_path):
    """A list, a size in bytes, the number of ranks; a program's parameters are texts."""
    cells = [times(A, 400), times(B, 300)]
    for when, num in (
        ({"message_bytes": [1 << 20, 1 << 26]}, 2),
        ({"message_bytes": 1 << 20, "world_size": 2}, 1),
    ):
        cases = run(tmp_path / str(num), cells, bound(when, least=1))[2]
        assert sum(": " in name for name in cases) == num


BARRIER = collective_cell(None, 1, 2, "barrier")
ALONE, SHARDED = train_cell("resnet18", 1, 1, strategy="none"), train_cell("resnet18", 1, 2, strategy="fsdp")
WITH_TOKENS = train_cell("gpt2", 1, 2)
WITH_TOKENS["spec"]["parameters"]["context_length"] = 128


@pytest.mark.parametrize(
    ("metric", "cells", "num"),
    [
        ("busbw_gb_per_s", [A, BARRIER, collective_cell(1 << 20, 1, 1)], 1),  # of one rank there is none
        ("algbw_gb_per_s", [A, BARRIER, collective_cell(1 << 20, 1, 1)], 2),
        ("max_rel_error", [A, collective_cell(1 << 20, 1, 2, "broadcast")], 1),
        ("time_s", [A, BARRIER], 2),
        ("exposed_s", [TRAIN, ALONE, SHARDED], 1),
        ("ddp_ratio", [TRAIN, ALONE], 1),
        ("inter_node_ratio", [TRAIN, train_cell("resnet18", 2, 2)], 1),
        ("throughput_tokens_per_s", [TRAIN, WITH_TOKENS], 1),
        ("efficiency_ratio", [TRAIN, ALONE], 2),  # that of the baseline is 1
    ],
)
def test_cells_for_which_the_metric_is_not_defined_are_not_selected(tmp_path, metric, cells, num):
    when = {"benchmark": cells[0]["spec"]["benchmark"]}
    cases = run(tmp_path, [(cell, [0.1] * 3) for cell in cells], bound(when, metric, most=1e9))[2]
    assert sum(": " in name for name in cases) == num


def test_references_with_almost_equal_bounds_are_judged_separately(tmp_path):
    """The first is violated: the bandwidth is between both bounds."""
    code, _, cases = run(tmp_path, [times(A, 10.0)], bound(least=10.0000004), bound(least=9.9999996))
    assert (code, sum(": " in name for name in cases)) == (1, 2)


# As planned.


def test_a_list_of_sizes_may_have_other_values_too(tmp_path):
    exclude = [{"when": {"message_bytes": ["4KiB", None, 7]}, "reason": "too small"}]
    assert plan(tmp_path, small(exclude=exclude)).campaign.data["exclude"][0]["when"] == {
        "message_bytes": [4096, None, 7]
    }


def test_the_example_of_the_documentation_is_valid():
    text = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
    gate = yaml.safe_load(re.search(r"```yaml\n(gate:\n  references:.*?)```", text, re.S)[1])["gate"]
    assert len(gate["references"]) == 3
    assert violations(gate, load_schema("campaign")["properties"]["gate"]) == []


def planned(folder, *references, **changes):
    return plan(folder, small(gate={"references": list(references)}, **changes))


def test_sizes_of_when_may_have_units_and_references_change_no_cell(tmp_path):
    made = planned(tmp_path / "b", bound({"message_bytes": "4KiB"}, least=1))
    assert made.campaign.data["gate"]["references"][0]["when"] == {"message_bytes": 4096}
    same_cluster = [cell.id for cell in plan(tmp_path / "c", small()).matrix.cells]
    assert [cell.id for cell in made.matrix.cells] == same_cluster


REFUSED = {
    "no cell": bound({"benchmark": "collective", "nodes": 4}, least=1),
    "unknown metric": bound(metric="busbw_gb_per", least=1),
    "metric of another benchmark": bound({"nodes": 1}, "busbw_gb_per_s", least=1),
    "time of another benchmark": bound({"benchmark": "train_step"}, "time_s", least=1),
    "two bounds": bound(least=1, most=2),
    "no bound": bound(),
    "unknown field": bound({"benchmrk": "collective"}, least=1),
    "empty when": bound({}, least=1),
    "text as bound": bound(least="370"),
    "negative tolerance": bound(least=1, tolerance=-0.1),
    "tolerance in percent": bound(least=1, tolerance=5),
    "value of a list that no cell has": bound({"message_bytes": ["4KiB", "2GiB"]}, least=1),
    "no cell with the metric": bound({"strategy": "none"}, "ddp_ratio", least=0.9),
    "value of a list without the metric": bound({"strategy": ["none", "ddp"]}, "ddp_ratio", least=0.9),
    "limit that is not finite": bound(least=-1e308, tolerance=0.9),
    "no when": {"metric": "step_s", "least": 1},
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_reference_without_effect_is_refused_when_planning_with_line_and_remedy(tmp_path, case, wording):
    with wording.raises(UserError):
        planned(tmp_path, REFUSED[case])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_values_select_nothing_and_reach_no_shell_unquoted(tmp_path, text):
    with pytest.raises(UserError, match=r"references\[0\]\.when"):
        planned(tmp_path, bound({"stack": text}, least=1))
    with pytest.raises(UserError, match=r"references\[0\]\.metric"):
        planned(tmp_path, bound(metric=text, least=1))
    shown = refused(tmp_path, [times(A, 400)], bound({"stack": ["host", text]}, least=1))
    assert (len(shown.splitlines()), "\x1b" in shown) == (1, False)


# As frozen: gate.py reads them there.


def test_the_plan_freezes_references_with_sizes_in_bytes(tmp_path):
    made = planned(tmp_path, bound({"message_bytes": "4KiB"}, least=1))
    write_frozen(made)
    assert read_frozen_campaign(made.frozen_campaign).references == [bound({"message_bytes": 4096}, least=1)]
    assert freeze_campaign(plan(tmp_path / "none", small())).references is None


def test_references_may_be_longer_than_one_argument_of_a_command(tmp_path):
    """An argument of execve has at most 128 KiB on Linux; these have over 200 KiB as JSON."""
    cells = [times(collective_cell(1024 * (1000 + size), 1, 2), 400) for size in range(50)]
    sizes = [cell["spec"]["parameters"]["message_bytes"] for cell, _ in cells]
    bounds = [bound({"message_bytes": sizes}, least=1 + number / 2) for number in range(500)]
    code, _, cases = run(tmp_path, cells, *bounds)
    assert (code, len(cases)) == (0, 50 + 50 * 500)


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_plan_refuses_is_refused_in_a_frozen_campaign_too(tmp_path, case):
    error = refused(tmp_path, [times(A, 400), (TRAIN, [0.1] * 3)], REFUSED[case])
    assert len(error.splitlines()) == 1
    assert "campaign.0123456789ab.json: " in error
    assert "references[0]" in error
