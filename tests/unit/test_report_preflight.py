import html
import json
import re

import pytest
from synthetic import CLUSTER, cluster_campaign, make_campaign, make_report, report_data, train_cell, write_results
from synthetic_preflight import looked_at, make_preflight, make_seen, make_stack, three_stacks, write_preflight
from test_report import SCRIPTS, Page, visible

import warm_start
from regatta.kit.kinds import LOW, NOTE
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.preflight_section import TOPIC, findings, preflight_table


def report_with(tmp_path, preflight):
    cells = [train_cell("resnet50", 2, 4, device="cuda", backend="nccl")]
    folder = write_results(tmp_path / "r", make_campaign(cells, device="cuda"), CLUSTER)
    write_preflight(folder, preflight)
    return make_report(folder).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report_with(tmp_path_factory.mktemp("preflight"), make_preflight())


def section_of(text):
    return re.search(r'<section id="preflight".*?</section>', text, re.DOTALL)[0]


def cells_of(section, name):
    """Return the texts of one row of the table."""
    row = re.search(rf'<tr><th scope="row">{name}</th>(.*?)</tr>', section)[1]
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]


def test_a_report_without_a_preflight_has_no_section(tmp_path):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet50", 1, 2)]), CLUSTER)
    assert "reflight" not in make_report(folder).read_text(encoding="utf-8")


def test_the_section_stands_after_the_failures_and_is_linked(page):
    Page(page)
    titles = re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    assert titles.index("Preflight") == titles.index("Timeline") + 1 == titles.index("Failures") + 2
    assert page.count('<a href="#preflight">Preflight</a>') == 1


def test_problems_come_first_with_what_to_do_and_the_log(page):
    section = section_of(page)
    head = html.unescape(section[: section.index("<table")])
    assert all(problem in head for stack in make_preflight()["stacks"] for problem in stack["verdict"]["problems"])
    assert '<a href="preflight/preflight-0a1b2c3d4e5f/host-00.log">' in head
    assert '<a href="preflight/preflight-0a1b2c3d4e5f/bind-00.log">' not in head


def test_stacks_stand_side_by_side(page):
    section = section_of(page)
    assert cells_of(section, "result") == ["✓ ok", "✗ failed", "✗ failed"]
    assert cells_of(section, "kind") == ["bind-mounted", "contained", "host"]
    assert cells_of(section, "image") == ["/images/torch.sif, 3f2a1c0d-0000", "/images/torch.sif", "none"]
    assert [re.findall(r"\d+", cell) for cell in cells_of(section, "ranks")] == [*[["8", "2"]] * 2, []]
    assert cells_of(section, "hosts") == ["n1, n2", "n1, n2", "n/a"]
    assert [cell.split(" × ") for cell in cells_of(section, "GPUs")] == [["8", "NVIDIA H200"]] * 2 + [["n/a"]]
    assert cells_of(section, "backends") == ["nccl ok", "nccl ok", "n/a"]
    assert cells_of(section, "torch") == ["2.12.1+cu130", "2.12.1+cu130", "n/a"]
    assert cells_of(section, "driver") == ["570.86.15", "570.86.15", "n/a"]
    assert cells_of(section, "NCCL") == ["2.29.2+cuda12.8", "2.20.5+cuda12.4", "n/a"]
    assert cells_of(section, "network") == ["Libfabric, provider efa", "Socket", "n/a"]
    assert cells_of(section, "transports") == ["NET/Libfabric", "n/a", "n/a"]


def test_each_library_has_its_origin(page):
    section = section_of(page)
    assert cells_of(section, "libnccl") == ["image: /usr/lib/libnccl.so.2"] * 2 + ["n/a"]
    assert cells_of(section, "libnccl-net") == ["image: /opt/plugin/lib/libnccl-net.so", "not loaded", "n/a"]
    assert cells_of(section, "libfabric") == [
        "host: /host/lib/libfabric.so.1.22.0", "image: /usr/lib/libfabric.so.1", "n/a",
    ]  # fmt: skip
    assert '<th scope="row">libibverbs</th>' not in section  # no rank loaded it


def test_notes_are_shown_and_fail_nothing(tmp_path):
    stack = looked_at(make_stack(), make_seen(), "n1 NCCL INFO Using network Socket\n")
    [note] = stack["verdict"]["notes"]
    section = section_of(report_with(tmp_path, make_preflight(stack)))
    assert note in html.unescape(section)
    assert "failed" not in section


def measured(*rows):
    """Return measurements of cells on a stack, with a status."""
    return make_table([dict(zip(("cell", "stack", "status"), row, strict=True)) for row in rows], MEASUREMENTS)


def test_numbers_of_stacks_that_failed_or_were_not_checked_are_warned_of():
    rows = [("bind", "ok"), ("contained", "ok"), ("contained", "ok"), ("host", "failed"), ("other", "ok")]
    measurements = measured(*((cell, *row) for cell, row in zip("abbcd", rows, strict=True)))
    preflight = make_preflight()
    finding, *problems, failed, unchecked = findings(report_data(make_campaign([]), measurements, preflight=preflight))
    assert [one.words["stack"] for one in problems] == ["contained"] * 3 + ["host"]
    assert (finding.kind, finding.values["stacks"]) == ("preflight_failed", ("contained", "host"))
    assert (finding.values["num_failed"], finding.values["num_stacks"]) == (2, 3)
    assert (failed.kind, failed.values, failed.cells) == ("unreliable_stacks", {"stacks": {"contained": 2}}, ("b",))
    assert (unchecked.kind, unchecked.values) == ("unchecked_stacks", {"stacks": {"other": 1}})
    assert [TOPIC.stated(one).rank for one in (failed, unchecked)] == [LOW, NOTE]
    others = findings(report_data(make_campaign([]), measurements[:1], preflight=preflight))
    assert [one.kind for one in others] == [finding.kind, *(one.kind for one in problems)]
    assert findings(report_data(make_campaign([]), measurements)) == []


def test_a_stack_that_failed_on_one_node_type_failed():
    preflight = make_preflight()
    preflight["stacks"] += [{**stack, "verdict": {**stack["verdict"], "ok": True}} for stack in preflight["stacks"]]
    measurements = measured(("a", "contained", "ok"))
    finding, *_, failed = findings(report_data(make_campaign([]), measurements, preflight=preflight))
    assert (finding.values["num_stacks"], failed.values) == (3, {"stacks": {"contained": 1}})


def test_a_preflight_on_cpus_has_no_gpus():
    seen = make_seen(environment={"gpus": [], "hosts": []})
    for rank in seen["ranks"]:
        rank["driver"] = None
    rows = dict(preflight_table(make_preflight(looked_at(make_stack(), seen))).rows)
    assert rows["GPUs"] == "none"
    assert "driver" not in rows


def test_hostile_words_stay_words(tmp_path):
    evil = '"><img src=x onerror=alert(1)>{{ 7*7 }}'
    seen = make_seen(placement_problems=[evil])
    for rank in seen["ranks"]:
        rank |= {"host": evil, "torch": evil}
        rank["libraries"].append({"name": "libmpi.so", "path": evil, "origin": "host"})
    stack = looked_at(make_stack(evil, image=evil), seen, f"n1 NCCL WARN {evil}\n")
    text = report_with(tmp_path, make_preflight(stack))
    assert "<img src=x" not in visible(text)
    Page(text)


def test_the_same_preflight_gives_the_same_bytes(tmp_path, page):
    assert report_with(tmp_path, make_preflight()) == page


def test_the_command_line_takes_a_preflight_or_none(tmp_path):
    folder = write_results(tmp_path / "r", make_campaign([train_cell("resnet50", 1, 2)]), CLUSTER)
    make_report(folder)
    path = write_preflight(folder, make_preflight(*three_stacks()))
    command = ["report.py", "--campaign", next(folder.glob("campaign.*.json"))]
    command += ["--measurements", folder / "measurements.csv", "--tables", folder / "tables"]
    command += ["--launches", folder / "launches", "--out", folder / "out.html", "--preflight"]
    warm_start.script(*command, check=True)
    assert "reflight" not in (folder / "out.html").read_text(encoding="utf-8")
    warm_start.script(*command, path, check=True)
    assert '<section id="preflight"' in (folder / "out.html").read_text(encoding="utf-8")


def test_the_example_of_the_contract_has_the_keys_of_a_result():
    text = (SCRIPTS.parents[1] / "docs" / "contracts.md").read_text(encoding="utf-8")
    section = text[text.index("## Preflight: ") :]
    example, _ = json.JSONDecoder().raw_decode(section[section.index('{"schema"') :])
    made = make_preflight()
    assert set(example) == set(made)
    assert set(example["stacks"][0]) == set(made["stacks"][0])
    assert set(example["stacks"][0]["verdict"]) == set(made["stacks"][0]["verdict"])


def test_a_large_campaign_keeps_its_report_with_a_preflight(tmp_path):
    folder = write_results(tmp_path / "r", cluster_campaign(repeats=2), CLUSTER)
    write_preflight(folder)
    assert section_of(make_report(folder).read_text(encoding="utf-8"))


def test_a_damaged_preflight_is_named_and_the_report_goes_on(tmp_path):
    text = report_with(tmp_path, {"schema": 1, "stacks": 5})
    assert '<section id="preflight"' not in text
    assert "preflight-0a1b2c3d4e5f.json: is damaged" in text
    assert 'id="scaling"' in text or 'id="matrix"' in text
