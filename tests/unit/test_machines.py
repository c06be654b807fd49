"""Warnings on machines that no measurement's status shows."""

from dataclasses import replace

import pytest
from synthetic import CLUSTER, analyse, collective_cell, make_campaign, make_header, report_data, write_results
from synthetic_stacks import write_stacks

from regatta.kit.kinds import LOW, NOTE
from regatta.report.cell_launches import other_results
from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.tables.times import hosts_by_launch
from regatta.topics.machines import TOPIC, findings
from regatta.topics.timeline import overlaps
from regatta.topics.warnings_section import warnings


def headers_of(data, gpus, device="cuda"):
    cells = [collective_cell(4096, 1, 2, device=device)]
    campaign = data.campaign.to_json()
    return [make_header(campaign, f"b-l{i:03d}-a00", i, cells, "2026-11-21T03:00:00Z", gpus=g) for i, g in enumerate(gpus)]  # fmt: skip


@pytest.mark.parametrize(
    ("gpus", "device", "num"),
    [
        ([[{"name": "H200"}, {"name": "H200"}]], "cuda", None),
        ([[{"name": "H200"}], [{"name": None}], [{}], []], "cuda", 3),
        ([[{"name": "H200"}, {"name": ""}]], "cuda", 1),
        ([[], []], "cpu", None),
    ],
)
def test_a_launch_on_gpus_without_a_name_is_a_warning(tmp_path, gpus, device, num):
    campaign = make_campaign([collective_cell(4096, 1, 2, device=device)], device=device, repeats=1)
    data = analyse(write_results(tmp_path / "r", campaign, CLUSTER))
    data.headers[:] = headers_of(data, gpus, device)
    found = [finding.values["num"].get("GPU model") for finding in findings(data) if finding.kind == "unknown_versions"]
    assert found == ([num] if device == "cuda" else [])  # versions are unknown, too


def test_unknown_versions_of_launches_on_gpus_are_a_warning(tmp_path):
    campaign = make_campaign([collective_cell(4096, 1, 2, device="cuda")], device="cuda", repeats=1)
    data = analyse(write_results(tmp_path / "r", campaign, CLUSTER))
    data.headers[:] = headers_of(data, [[{"name": "H200"}]] * 3)
    known = {"cuda": "13.0", "nccl": "2.27.5", "driver": "580.65"}
    for header, versions in zip(data.headers, (known, known | {"nccl": None}, known | {"nccl": None}), strict=True):
        header["environment"] |= versions
    unknown = [finding.values for finding in findings(data) if finding.kind == "unknown_versions"]
    assert unknown == [{"num": {"NCCL": 2}, "num_launches": 3}]
    imported = report_data(campaign | {"imported": [{}]}, data.measurements, data.headers)
    assert not [finding for finding in findings(imported) if finding.kind == "unknown_versions"]


def change(header, **environment):
    header["environment"] |= environment


@pytest.mark.parametrize(
    ("edit", "kind", "rank"),
    [
        (lambda header: change(header, torch="2.4.0"), "mixed_versions", LOW),
        (lambda header: change(header, settings={"allow_tf32_matmul": True}), "mixed_machines", LOW),
        (lambda header: change(header, variables={"OMP_NUM_THREADS": "1", "NCCL_NET": "IB"}), "mixed_machines", LOW),
        (lambda header: header["environment"]["hosts"][0].update(host="other"), "mixed_nodes", NOTE),
        (lambda header: header["git"].update(commit="0123456789abcdef"), "mixed_nodes", NOTE),
        (lambda header: header["git"].update(is_dirty=True), "uncommitted", NOTE),
    ],
)
def test_versions_and_machines_invalidate_a_comparison_and_nodes_and_commits_do_not(tmp_path, edit, kind, rank):
    cells = [collective_cell(4096, 1, 2), collective_cell(4096, 1, 4)]
    data = analyse(write_results(tmp_path / "r", make_campaign(cells, repeats=3), CLUSTER))
    before = {finding.kind for finding in findings(data)}
    changed = next(header for header in data.headers if header["gpus_per_node"] == 4)
    edit(changed)
    data = replace(data)  # without what was computed of it
    [found] = [finding for finding in findings(data) if finding.kind not in before]
    assert (found.kind, TOPIC.stated(found).rank) == (kind, rank)
    assert kind != "mixed_machines" or found.cells == (cells[1]["id"],)  # the launches of one shape


def test_machines_are_compared_by_benchmark(tmp_path):
    """The header of a program has its hosts alone."""
    data = analyse(write_results(tmp_path / "r", make_campaign([collective_cell(4096, 1, 2)], repeats=4), CLUSTER))
    programs = [header for header in data.headers if header["repeat"] % 2]
    for header in programs:
        hosts = [{"host": host["host"], "num_cores": 1, "ranks": []} for host in header["environment"]["hosts"]]
        header["environment"] = {"hosts": hosts}
    is_program = data.measurements["launch"].isin([header["launch"] for header in programs])
    kinds = []
    for other in ("program", "collective"):
        benchmark = is_program.map({True: other, False: "collective"})
        data.tables["measurements"] = data.measurements.assign(benchmark=benchmark)
        kinds.append("mixed_machines" in {finding.kind for finding in findings(replace(data))})
    assert kinds == [False, True]


GH200, HOST = {"name": "GH200"}, {"host": "n1", "ranks": [0]}


@pytest.mark.parametrize(
    ("one", "other", "mixed"),
    [
        ({"gpus": [GH200] * 4, "settings": {"network": "ofi"}}, {}, []),
        ({"gpus": [GH200] * 4}, {"gpus": [GH200]}, []),
        ({"gpus": [GH200] * 4}, {"gpus": [{"name": None}]}, []),
        ({"hosts": [HOST | {"num_cores": 72}]}, {"hosts": [HOST]}, []),
        ({"gpus": [GH200] * 4}, {"gpus": [{"name": "H100"}]}, ["GH200 in 1 of 2, H100 in 1 of 2"]),
        ({"gpus": [GH200] * 2}, {"gpus": [GH200, {"name": "H100"}]}, ["GH200, H100 in 1 of 2"]),
        ({"gpus": [GH200, GH200, {"name": "H100"}]}, {"gpus": [GH200]}, ["GH200, H100 in 1 of 2"]),
    ],
)
def test_what_an_imported_file_does_not_state_differs_from_nothing(tmp_path, one, other, mixed):
    data = analyse(write_results(tmp_path / "r", make_campaign([collective_cell(4096, 1, 2)], repeats=2), CLUSTER))
    data = report_data(data.campaign.to_json() | {"imported": [{}]}, data.measurements, data.headers)
    for header, facts in zip(data.headers, (one, other), strict=True):
        header["environment"] = {"hosts": [], "variables": {}, "settings": {}} | facts
    texts = [text for found in findings(data) if found.kind.startswith("mixed") for text in found.words["mixed"]]
    assert [text.partition(": ")[2] for text in texts] == mixed


NUM_LAUNCHES = 214


def planted(tmp_path, drivers):
    """Return the report's data on launches on GPUs, of which each has the driver of its number, else 570.86."""
    cells = [collective_cell(4096, 1, 2, device="cuda")]
    campaign = make_campaign(cells, device="cuda", repeats=NUM_LAUNCHES)
    names = [f"b-l{repeat:03d}-a00" for repeat in range(NUM_LAUNCHES)]
    rows = [
        {"cell": cells[0]["id"], "benchmark": "collective", "repeat": repeat, "launch": name, "status": "ok"}
        for repeat, name in enumerate(names)
    ]
    headers = [
        make_header(campaign, name, repeat, cells, "2026-11-21T03:00:00Z", driver=drivers.get(repeat, "570.86"))
        for repeat, name in enumerate(names)
    ]
    return report_data(campaign, make_table(rows, MEASUREMENTS), headers)


@pytest.mark.parametrize(
    ("drivers", "mixed"),
    [
        ({}, []),
        ({77: "550.54"}, ["driver of stack host: 570.86 in 213 of 214, 550.54 in 1 of 214"]),
        ({77: "550.54", 5: "550.54", 6: None}, ["driver of stack host: 570.86 in 211 of 214, 550.54 in 2 of 214, not recorded in 1 of 214"]),
        ({77: None}, []),
        (dict.fromkeys(range(1, NUM_LAUNCHES)), []),
    ],
)  # fmt: skip
def test_one_launch_of_214_with_another_driver_is_found_and_an_unknown_driver_is_no_other_one(tmp_path, drivers, mixed):
    found = {one.kind: one for one in findings(planted(tmp_path, drivers))}
    assert (found["mixed_versions"].words["mixed"] if "mixed_versions" in found else []) == mixed
    num_unknown = sum(driver is None for driver in drivers.values())
    assert found["unknown_versions"].values["num"].get("driver", 0) == num_unknown


def test_damaged_files_are_named_first_with_the_command_that_repairs(tmp_path):
    problems = {"corrupt": ["l.jsonl: line 3"], "invalid": [], "after_now": [{"time_utc": "2031", "launch": "l"}]}
    data = report_data(make_campaign([]), make_table([], MEASUREMENTS), problems=problems)
    damaged, ahead = findings(data)
    assert (damaged.kind, damaged.values) == ("damaged_store", {"num_torn": 1, "num_invalid": 0})
    assert (ahead.kind, ahead.values) == ("after_now", {"num": 1})
    assert [TOPIC.stated(finding).rank for finding in (damaged, ahead)] == [LOW, NOTE]
    assert warnings(data)[0].values == damaged.values


def test_a_line_that_a_killed_job_left_is_a_note(tmp_path):
    folder = write_results(tmp_path / "r", make_campaign([collective_cell(4096, 1, 2)], repeats=3), CLUSTER)
    path = sorted((folder / "launches").glob("*.jsonl"))[0]
    path.write_bytes(path.read_bytes()[:-20])
    [truncated] = [finding for finding in findings(analyse(folder)) if TOPIC.stated(finding).rank in (LOW, NOTE)]
    assert (truncated.kind, truncated.values) == ("truncated_files", {"num": 1})


def test_the_campaign_of_two_stacks_is_consistent(tmp_path):
    """Causes name hosts of their launches, launches follow each other, and commands are those of a Slurm cluster."""
    data = analyse(write_stacks(tmp_path / "r"))
    assert overlaps(data.tables["timeline"]) == []
    found = other_results(data.measurements, hosts_by_launch(data.tables["launches"]))
    assert not any(others.stranger for others in found.values())
    for row in data.tables["failures"].itertuples():
        assert f"srun --nodes={row.cell.split('-n')[-1][:2].lstrip('0')} " in row.command
    starts = data.tables["allocations"]["start_s"].tolist()
    assert starts == sorted(starts)
