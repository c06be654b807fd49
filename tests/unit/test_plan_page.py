"""The plan as a page: one file with the whole plan, and the same bytes for the same plan."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from campaign_files import SLURM, collectives, plan, small, write
from synthetic_plan import campaign, partly_finished
from test_report import Page

from regatta.campaign.load import load_campaign
from regatta.model.frozen import names_by_id
from regatta.plan import plan_page as page_module
from regatta.plan.batches import Launch
from regatta.plan.plan import CellPlan, make_plan
from regatta.plan.plan_page import (
    STATES,
    reason_groups,
    render,
    shape_bars,
    state_matrix,
    table,
    turns,
)
from regatta.plan.prices import BatchPrice
from regatta.report.matrix import MOST_ROWS_OPEN

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
HOSTILE = "<script>alert(1)</script> <img src=//evil.example/x onerror=alert(2)> &amp; {{ 7 * 7 }} \"' </pre></style>"


class PlanPage(Page):
    """The elements of a plan, its items, and its text by section."""

    def __init__(self, text: str) -> None:
        self.items, self.text, self.section = [], {"head": ""}, "head"
        super().__init__(text)

    def handle_starttag(self, tag, attributes):
        super().handle_starttag(tag, attributes)
        if tag == "section":
            self.section = dict(attributes)["id"]
            self.text[self.section] = ""
        if tag in ("td", "th", "br"):
            self.text[self.section] += " "
        if tag == "li":
            self.items.append("")

    def handle_data(self, data):
        if "style" not in self.open:
            self.text[self.section] += data
        if "li" in self.open:
            self.items[-1] += data

    def words(self, section: str) -> str:
        return " ".join(self.text[section].split())


@pytest.fixture
def partial(tmp_path):
    return partly_finished(tmp_path)


def test_the_page_is_one_file_that_asks_for_nothing(partial, wording):
    page = PlanPage(render(partial))
    tags = Counter(tag for tag, _ in page.elements)
    assert not {"script", "img", "iframe", "object", "base", "form"} & set(tags)
    assert (tags["h1"], tags["main"], tags["title"]) == (1, 1, 1)
    assert ("html", {"lang": "en"}) in page.elements
    policy = next(a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a)
    wording(policy)
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    assert not [a for _, a in page.elements if "src" in a]
    links = {a["href"] for _, a in page.elements if "href" in a}
    assert links == {"data:,", "plan.json", "plan.txt"} | {link for link in links if link[1:] in ids}
    style = render(partial).partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_many_rows_are_folded_by_subject_with_their_states(tmp_path):
    data = small()
    data["benchmarks"][0]["parameters"] |= {"batch_size": list(range(1, MOST_ROWS_OPEN + 1))}
    made = plan(tmp_path, data)
    cells = made.cells + made.skipped
    matrix = state_matrix(cells, names_by_id(planned.cell for planned in cells), "cpu")
    rows = next(iter(matrix.open_and_folded[1].values()))
    # Of each batch size: none on 1 rank and skipped on 2, ddp with two buckets on both.
    assert matrix.summary_of(rows).startswith(f"○ {5 * MOST_ROWS_OPEN} to do, – {MOST_ROWS_OPEN} skipped, ")


def groups_of(cells):
    return reason_groups(cells, names_by_id(planned.cell for planned in cells))


def test_a_group_lists_a_limited_number_of_cells(partial, monkeypatch):
    monkeypatch.setattr(page_module, "MAX_LISTED_CELLS", 3)
    groups = {(state, g["kind"]): g for state, own in groups_of(partial.cells + partial.skipped) for g in own}
    new, done = groups["todo", "new"], groups["done", "3 ok"]
    assert (new["num"], new["unlisted"], [(num, len(ids)) for _, num, ids in new["parts"]]) == (10, 7, [(10, 3)])
    assert (done["num"], done["unlisted"], [(num, len(ids)) for _, num, ids in done["parts"]]) == (4, 1, [(4, 3)])


def test_a_long_table_takes_time_in_proportion_to_its_rows():
    begin = time.process_time()
    assert table(["cell"], [["a"]] * 30_000).count("\n") == 30_000
    assert time.process_time() - begin < 5  # comparing each row with all others takes a minute


def test_reasons_that_differ_in_a_number_are_one_group(tmp_path, wording):
    made = plan(tmp_path, campaign(["resnet18"], ["4KiB"]) | {"shapes": [{"nodes": [1], "gpus_per_node": [1, 2, 12]}]})
    [none, alone] = dict(groups_of(made.cells + made.skipped))["skipped"]
    wording((none["kind"], none["num"]))
    wording([(text, num) for text, num, _ in none["parts"]])
    wording((alone["kind"], alone["num"]))


def test_many_numbers_of_one_group_are_shown_as_a_range(tmp_path, wording):
    shapes = [{"nodes": [1], "gpus_per_node": [1, 2, 4, 6, 8, 10, 12, 100]}]
    made = plan(tmp_path, campaign(["resnet18"], ["4KiB"]) | {"shapes": shapes})
    [none, _] = dict(groups_of(made.cells + made.skipped))["skipped"]
    wording(none["kind"])


def test_a_number_of_ten_thousand_digits_in_a_reason_is_text(tmp_path):
    reasons = [f"excluded: {'9' * 10_000}", "excluded: 7"]
    cells = [cell for cell, _ in plan(tmp_path, campaign(["resnet18"], ["4KiB"])).matrix.skipped][:2]
    planned = [CellPlan(cell, "skipped", reason) for cell, reason in zip(cells, reasons, strict=True)]
    [(_, [group])] = groups_of(planned)
    assert group["kind"] == f"excluded: 7 or {'9' * 10_000}"


def test_hostile_text_is_shown_and_not_run(tmp_path):
    rule = {"when": {"bucket_cap_mb": 1}, "reason": HOSTILE}
    data = collectives(4, description=HOSTILE, exclude=[rule], stacks={"host": {"kind": "host", "env": {"A": HOSTILE}}})
    data["benchmarks"] = campaign(["resnet18"], ["4KiB"])["benchmarks"]
    made = plan(tmp_path, data)
    made.history.problems.append(HOSTILE)
    text = render(made)
    page = PlanPage(text)
    assert not {"script", "img"} & {tag for tag, _ in page.elements}
    assert "<img" not in text
    assert HOSTILE in page.text["head"]
    assert HOSTILE in page.text["notes"]
    assert f"excluded: {HOSTILE}" in page.text["reasons"]
    assert made.campaign.file.text in page.text["file"]


def test_repeats_with_the_same_turn_are_told_together_and_many_launches_are_counted(wording):
    def launch(repeat: int, stack: str, num_cells: int) -> Launch:
        return Launch(repeat, stack, (None,) * num_cells)

    launches = [launch(r, s, 2) for r in range(3) for s in ("ab" if r % 2 == 0 else "ba")]
    wording(turns(launches))
    wording(turns([launch(0, "ab"[i % 2], 1) for i in range(9)]))
    assert turns([launch(4, "a", 1)]) == [("5", "a (1 cell)")]


def test_bars_are_in_percent_of_the_longest_of_their_column():
    def batch(gpus: int, minutes: float) -> BatchPrice:
        cluster, frame = {"scheduler": "none", "exclusive": True, "gpus_per_node": 8}, {"device": "cuda"}
        made = SimpleNamespace(shape=(1, gpus), launches=[None, None], cluster=cluster, frame=frame)
        return BatchPrice(made, 60 * minutes, 2 * minutes, "limits")

    # 1x1: 30 + 30 minutes on 1 GPU are 1 GPU hour; 1x4: 30 minutes on 4 are 2.
    [one, four] = shape_bars([batch(4, 30), batch(1, 30), batch(1, 30)])
    assert one == {
        "shape": (1, 1),
        "batches": 2,
        "launches": 4,
        "minutes": 60,
        "gpu_hours": 1.0,
        "minutes_percent": "100.0",
        "gpu_hours_percent": "50.0",
    }
    assert (four["minutes_percent"], four["gpu_hours_percent"]) == ("50.0", "100.0")
    assert shape_bars([]) == []


def test_a_plan_with_nothing_left_says_so(tmp_path, wording):
    data = collectives(4, shapes=[{"nodes": [1], "gpus_per_node": [1]}])
    page = PlanPage(render(plan(tmp_path, data)))
    wording(page.words("run"))
    wording(page.words("start"))
    assert page.words("batches") == "Batches None."


def test_on_slurm_the_page_says_what_jobs_ask_for_and_that_a_preflight_comes_first(folder, monkeypatch, wording):
    monkeypatch.setattr(
        "regatta.plan.plan.load_campaign", lambda path, **options: load_campaign(path, folder / "clusters", **options)
    )
    data = collectives(4, stacks={"image": {"kind": "contained", "image": "a.sif"}})
    data["shapes"] = [{"nodes": [1, 2], "gpus_per_node": [4]}]
    page = PlanPage(render(make_plan(write(folder, data, SLURM), folder / "results")))
    wording(page.words("run"))
    wording(page.words("start"))


def test_the_script_writes_the_same_bytes_regardless_of_the_hash_seed(tmp_path):
    path = write(tmp_path, campaign(["resnet18"], ["4KiB"]) | {"cluster": "local"})
    found = []
    line = [sys.executable, SCRIPTS / "plan.py", "--campaign", path, "--results", tmp_path / "results"]
    for seed in ("1", "2"):
        seeded = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(line, env=seeded, capture_output=True, text=True, check=True)
        assert f"page: {tmp_path}/results/small/plan.html" in done.stdout.splitlines()
        found.append((tmp_path / "results" / "small" / "plan.html").read_bytes())
    assert found[0] == found[1]
    assert found[0].startswith(b"<!DOCTYPE html>")


def test_a_cell_more_costs_few_bytes(tmp_path):
    # 10,000 cells must stay below 3 MB: 300 bytes each.
    few, many = (len(render(plan(tmp_path, collectives(*[4 * i for i in range(1, n)])))) for n in (101, 601))
    assert (many - few) / 500 < 250


def test_each_state_has_a_mark_and_a_word_of_its_own():
    assert len(set(STATES.values())) == len({mark for mark, _ in STATES.values()}) == 4
