"""Which host a failure names: one that fails more often than others with the same cells, not the one that reports it."""

import pytest
from planted import Said, plant
from synthetic import analyse, collective_cell, make_campaign, train_cell
from synthetic_sweep import sweep_campaign, write_sweep

from regatta.run.progress import outcome_text
from regatta.topics.failures import groups_of

GPU = {"device": "cuda", "backend": "nccl", "cluster": "gh200"}
SLURM = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 12.50 GiB."
ECC = "RuntimeError: CUDA error: uncorrectable ECC error"


def said(folder, shapes, fault, nodes=None, allocations=4, repeats=8) -> Said:
    """Return what is said on three models and two collectives of each shape. fault: of spec, repeat and nodes."""
    cells = [
        cell
        for num in shapes
        for cell in (
            *(train_cell(model, num, 4, **GPU) for model in ("resnet18", "resnet50", "resnet101")),
            *(collective_cell(2**size, num, 4, **GPU) for size in (20, 24)),
        )
    ]
    campaign = make_campaign(cells, cluster=SLURM, device="cuda", repeats=repeats, allocations=allocations)
    options = {"nodes": nodes} if nodes else {}
    return Said(analyse(plant(folder / "r", campaign, lambda *_: 0.01, fault, **options)), False)


def apart(num: int, allocation: int) -> list[str]:
    """Return other nodes for each allocation."""
    return [f"n{num * allocation + place + 1:02d}" for place in range(num)]


def is_large(spec) -> bool:
    return spec["parameters"].get("model") == "resnet101"


def named(found: Said) -> tuple:
    """Return the host of the line on failures, those of groups, and whether the next step excludes any."""
    hosts = [host for group in groups_of(found.data) for host, _ in group["hosts"]]
    return found.lines["failed"]["host"], hosts, "exclude_nodes" in str(found.answer["lines"])


def report_first(spec, repeat, hosts):
    return ("out_of_memory", "setup", f"rank 0 on {hosts[0]}: {OOM}") if is_large(spec) else None


def report_last(spec, repeat, hosts):
    return ("out_of_memory", "setup", f"rank {4 * len(hosts) - 1} on {hosts[-1]}: {OOM}") if is_large(spec) else None


def report_middle(spec, repeat, hosts):
    return (
        ("out_of_memory", "setup", f"rank {4 * (len(hosts) // 2)} on {hosts[len(hosts) // 2]}: {OOM}")
        if is_large(spec)
        else None
    )


def sometimes(spec, repeat, hosts):
    return ("failed", "measure", f"rank 0 on {hosts[0]}: Connection reset") if repeat == 1 and is_large(spec) else None


def killed(spec, repeat, hosts):
    return ("failed", "measure", f"rank 0 on {hosts[0]} was killed by SIGKILL") if is_large(spec) else None


def broken(spec, repeat, hosts):
    return ("failed", "measure", f"rank 0 on {hosts[0]}: {ECC}") if "n03" in hosts else None


def broken_but_rank_0_reports(spec, repeat, hosts):
    """One shape on the nodes n01 to n04 in turn, each with a good partner, which reports."""
    return ("failed", "measure", f"rank 0 on {hosts[0]}: {ECC}") if "n06" in hosts else None


def reported_by_its_rank(spec, repeat, hosts):
    """Half of the launches fail on the third of four nodes, which all launches share."""
    is_bad = len(hosts) == 4 and repeat % 2
    return ("failed", "measure", f"rank 9 on {hosts[2]}: {ECC}") if is_bad else None


@pytest.mark.parametrize(
    ("shapes", "fault", "nodes", "host", "hosts"),
    [
        ((1, 4), report_first, None, None, []),  # one set of nodes
        ((1, 4), report_first, apart, None, []),  # other nodes in each allocation: it fits on none
        ((1, 4), report_last, None, None, []),
        ((1, 4), report_middle, None, None, []),
        ((4,), sometimes, None, None, []),
        ((4,), killed, None, None, []),
        ((1,), report_first, None, None, []),  # one host, no other
        ((1,), broken, apart, "n03", ["n03"]),
        ((2,), broken_but_rank_0_reports, apart, None, ["n05", "n06"]),  # they were never apart
        ((4,), reported_by_its_rank, None, "n03", ["n03"]),
    ],
)
def test_a_host_is_named_only_if_it_fails_more_often_than_others(tmp_path, shapes, fault, nodes, host, hosts):
    found = said(tmp_path, shapes, fault, nodes)
    assert named(found) == (host, hosts, bool(hosts))
    failed = found.lines["failed"]
    assert failed["num_failed"] == failed["num_of_cause"] > 0
    names = {name for of in found.data.ok["hosts"].dropna() for name in of.split(", ")} - set(hosts)
    lines = str([line for line in found.answer["lines"] if line["id"] in ("failed", "next")])
    assert not {name for name in names if name in lines}
    assert failed["cause"] is not None
    assert " on n" not in failed["cause"] or host


def test_the_terminal_quotes_a_cause_without_the_host_that_reports_it(tmp_path):
    found = said(tmp_path, (4,), killed)
    found.data.measurements.to_csv(tmp_path / "r" / "measurements.csv", index=False)
    [line] = [line for line in outcome_text(tmp_path / "r").splitlines() if " of 8 failures: " in line]
    assert (line.split()[-1], "n01" in line) == ("SIGKILL", False)


NAMES = [f"n{number}" for number in range(1, 17)]


@pytest.mark.parametrize(
    ("mode", "bad", "rates", "hosts"),
    [
        ("nodes", NAMES, 6, []),  # it fails everywhere
        ("nodes", ["n9"], 6, ["n9"]),
        ("nodes", ["n9", "n4"], 6, ["n4", "n9"]),
        ("pairs", NAMES, 6, []),
        ("pairs", ["n9"], 6, ["n9"]),
    ],
)
def test_a_sweep_names_failing_nodes_unless_all_fail(tmp_path, mode, bad, rates, hosts):
    names = NAMES if mode == "nodes" else [*NAMES[:8], "n9"]
    faults = {
        (name, repeat): ("failed", "measure", f"rank 0 on {name}: {ECC}")
        for name in bad
        for repeat in range(rates)
    }  # fmt: skip
    campaign = sweep_campaign(names, mode)
    found = Said(analyse(write_sweep(tmp_path / "r", campaign, {}, faults)), False)
    named_hosts = [host for host, _ in groups_of(found.data)[0]["hosts"]]
    assert sorted(named_hosts, key=lambda name: int(name[1:])) == hosts
    assert sorted(found.lines["nodes"]["nodes"]["failed"], key=lambda name: int(name[1:])) == hosts
    assert ("exclude_nodes" in str(found.answer["lines"])) == bool(hosts)
