"""Acceptance sweeps on four nodes: launches at the same time, and nodes that fail among them."""

import csv
import json
import signal
from collections import Counter

from drills import SAMPLING, campaign, fake_campaign
from slurm import send_signal, wait_until
from stacks import launches

NUM_NODES = 4
ALL = ["n1", "n2", "n3", "n4"]
COLLECTIVE = {"operation": ["all_reduce"], "message_bytes": [1024, 4096]}
CELLS = [{"benchmark": "collective", "parameters": COLLECTIVE}]


def sweep(site, over, env=None, **changes):
    shape = {"nodes": [{"nodes": 1, "pairs": 2}[over]], "gpus_per_node": [2]}
    return fake_campaign(site, env, sweep=over, shapes=[shape], benchmarks=CELLS, **changes)


def hosts_of_ok(site) -> dict[str, int]:
    return Counter(record["spec"]["hosts"][0] for record in site.records() if record["status"] == "ok")


def requests(site) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted(site.results.glob("batches/*/launches/*.json"))]


def test_every_node_is_measured_at_the_same_time_in_one_job_and_a_broken_one_is_a_result(site):
    (site.host_folder / "broken").write_text("n3\n")
    site.write(sweep(site, "nodes", {"FAKE_BROKEN_NODES": f"{site.folder}/broken"}), num_nodes=NUM_NODES)
    site.snakemake(check=False)
    [batch] = site.results.glob("batches/n04g02-*")
    assert (batch / "manifest.json").exists()
    by_host = {}
    for record in site.records():
        by_host.setdefault(record["spec"]["hosts"][0], []).append(record)
    assert sorted(by_host) == ALL
    assert {host: {r["status"] for r in records} for host, records in by_host.items()} == {
        host: {"failed", "skipped"} if host == "n3" else {"ok"} for host in ALL
    }  # skipped: the second repeat, because the first did not start
    assert {len(records) for records in by_host.values()} == {4}  # 2 cells, 2 repeats
    [cause] = {record["cause"] for record in by_host["n3"] if record["status"] == "failed"}
    assert "libfake.so" in cause
    for request in requests(site):
        hosts = {tuple(cell["spec"]["hosts"]) for cell in request["cells"]}
        assert [f"--nodelist={','.join(host)}" in request["argv"] for host in hosts] == [True]

    # Once it is repaired, a retry measures that node alone.
    (site.host_folder / "broken").unlink()
    site.snakemake("--forcerun", "measure")
    assert hosts_of_ok(site) == dict.fromkeys(ALL, 4)


def test_pairs_meet_in_rounds_of_disjoint_ones(site):
    site.write(sweep(site, "pairs", repeats=1), num_nodes=NUM_NODES)
    site.snakemake()
    [batch] = site.results.glob("batches/n04g02-*/batch.json")
    launches = json.loads(batch.read_text())["launches"]
    by_round = {}
    for launch in launches:
        by_round.setdefault(launch["together"], []).extend(launch["hosts"])
    assert [sorted(hosts) for hosts in by_round.values()] == [ALL] * 3
    assert site.statuses() == {"ok": 12}  # 6 pairs, 2 cells


def test_a_sweep_that_is_interrupted_ends_all_its_launches_and_resumes(site):
    site.write(held(site), num_nodes=NUM_NODES)
    process = site.popen("--retries", "0")
    wait_until(lambda: len(site.records()) >= 8, 240, "two records of each node")
    send_signal(process, signal.SIGINT)
    process.wait(120)
    wait_until(lambda: not site.cluster.squeue(), 120, "an empty queue")
    assert len(site.stops()) == NUM_NODES
    assert site.statuses() == {"ok": 8}
    site.release()
    site.snakemake()
    assert site.statuses() == {"ok": NUM_NODES * 4 * 2}
    assert len(set(site.slots())) == NUM_NODES * 4 * 2


def held(site) -> dict:
    limits = {"cell_seconds": 400, "launch_start_seconds": 240}
    return fake_campaign(site, site.hold(), sweep="nodes", shapes=[{"nodes": [1], "gpus_per_node": [2]}], limits=limits)


def test_a_node_that_dies_in_a_sweep_is_recorded_and_the_others_go_on(site):
    site.write(held(site), num_nodes=NUM_NODES)
    process = site.popen("--retries", "0")
    wait_until(lambda: len(site.records()) >= 8, 240, "two records of each node")
    site.cluster.kill_node("n3")
    wait_until(lambda: any(r["status"] == "node_failure" for r in site.records()), 240, "the failure of n3")
    site.release()
    process.wait(300)
    assert hosts_of_ok(site) == {"n1": 8, "n2": 8, "n3": 2, "n4": 8}
    site.cluster.start_node("n3")


def test_a_killed_supervisor_of_a_sweep_loses_nothing_and_measures_nothing_twice(site):
    site.write(held(site), num_nodes=NUM_NODES)
    process = site.popen("--retries", "1")
    wait_until(lambda: len(site.records()) >= 8, 240, "two records of each node")
    kept = site.slots()
    [batch] = site.results.glob("batches/n*")
    site.release()
    site.cluster.run(["pkill", "-KILL", "-f", f"measure.py .*{batch.name}"], node="n1", as_root=True)
    assert process.wait(300) == 0
    assert set(kept) <= set(site.slots())
    assert len(site.slots()) == len(set(site.slots())) == NUM_NODES * 4 * 2
    assert hosts_of_ok(site) == dict.fromkeys(ALL, 8)


def test_a_sweep_with_torch_reaches_its_report(site):
    """Pairs of nodes with real ranks: their names in the store agree with the plan, and the report ranks them."""
    host = {"host": {"kind": "host", "python": site.cluster.python}}
    shape, limits = {"nodes": [2], "gpus_per_node": [1]}, {"launch_start_seconds": 200}
    sampling = SAMPLING | {"min_samples": 3}
    data = campaign(host, sweep="pairs", shapes=[shape], repeats=2, benchmarks=CELLS, sampling=sampling, limits=limits)
    site.write(data, num_nodes=NUM_NODES, env={"OMP_NUM_THREADS": 1})
    site.snakemake()
    assert site.statuses() == {"ok": 24}  # 6 pairs, 2 cells, 2 repeats
    for launch in launches(site):
        [hosts] = {tuple(r["spec"]["hosts"]) for r in site.records() if r["file"] == launch["file"]}
        assert sorted(host["host"] for host in launch["environment"]["hosts"]) == sorted(hosts)
    tables = site.results / "tables"
    pairs, nodes = (list(csv.DictReader((tables / f"sweep_{name}.csv").open())) for name in ("pairs", "nodes"))
    assert (len(pairs), len(nodes)) == (12, 8)
    assert {row["num_launches"] for row in (*pairs, *nodes)} == {"2"}
    assert {row["hosts"] for row in nodes} == set(ALL)
    assert 'id="sweep"' in site.report()
    lines = {line["id"]: line for line in json.loads((site.results / "answer.json").read_text())["lines"]}
    assert lines["nodes"]["values"]["num_nodes"] == NUM_NODES
