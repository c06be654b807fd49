"""Packed shapes on four nodes: one job for all, which ends in the middle and is resumed."""

import json

import pytest
from drills import campaign, submitted
from slurm import wait_until
from stacks import launches

NUM_NODES = 4
COLLECTIVE = {"operation": ["all_reduce"], "message_bytes": [1024, 4096]}
CELLS = [{"benchmark": "collective", "parameters": COLLECTIVE}]


@pytest.mark.parametrize("fault", ["scancel", "node"])
def test_packed_shapes_resume_in_the_middle(site, fault):
    """The job ends while its second shape is measured. The next one measures only what is missing."""
    python = f"{site.folder}/tests/cluster/fake_ranks.py"
    stacks = {"fake": {"kind": "host", "python": python, "env": site.hold()}}
    limits = {"cell_seconds": 400, "launch_start_seconds": 240}
    cells = [{"benchmark": "collective", "parameters": COLLECTIVE | {"message_bytes": [1024, 4096, 16384]}}]
    shapes = [{"nodes": [2, 3], "gpus_per_node": [2]}]
    site.write(campaign(stacks, shapes=shapes, pack=True, benchmarks=cells, limits=limits), num_nodes=NUM_NODES)
    process = site.popen("--retries", "1")
    wait_until(lambda: len(site.records()) == 2, 240, "two records")
    site.release()
    wait_until(lambda: len(site.records()) >= 3, 120, "the first shape")
    site.hold_file.touch()
    wait_until(lambda: len(site.records()) >= 5, 120, "two records of the second shape")
    kept = site.slots()
    if fault == "scancel":
        [job] = [job for job, state in site.cluster.squeue().items() if state == "RUNNING"]
        site.cluster.run(["scancel", job])
    else:
        site.cluster.kill_node("n2")
    wait_until(lambda: site.stops() or site.jobs() or "node_failure" in site.statuses(), 120, "the end of the job")
    site.release()
    assert process.wait(300) == 0
    if fault == "node":
        site.cluster.start_node("n2")
    found = site.slots()
    assert set(kept) <= set(found)
    assert len(found) == len(set(found)) == 2 * 3 * 2  # shapes, cells, repeats
    for launch in launches(site):
        shapes = {
            (r["spec"]["nodes"], r["spec"]["gpus_per_node"]) for r in site.records() if r["file"] == launch["file"]
        }
        assert len(shapes) <= 1


def test_packed_shapes_are_measured_in_one_job(site):
    python = f"{site.folder}/tests/cluster/fake_ranks.py"
    shapes = [{"nodes": [1, 2, 4], "gpus_per_node": [2]}]
    data = campaign({"fake": {"kind": "host", "python": python}}, shapes=shapes, pack=True, benchmarks=CELLS)
    site.write(data, num_nodes=NUM_NODES)
    done = site.snakemake()
    assert submitted(done.stderr) == 1
    sizes = {(r["spec"]["nodes"], r["status"]) for r in site.records()}
    assert sizes == {(1, "ok"), (2, "ok"), (4, "ok")}
    requests = [json.loads(path.read_text()) for path in site.results.glob("batches/*/launches/*.json")]
    assert {(r["nodes"], r["gpus_per_node"]) for r in requests} == {(1, 2), (2, 2), (4, 2)}


def test_allocations_are_jobs_of_their_own(site):
    """Of four launches, two are measured in each of two jobs, and a second run has nothing to do."""
    python = f"{site.folder}/tests/cluster/fake_ranks.py"
    shapes = [{"nodes": [1, 2], "gpus_per_node": [2]}]
    data = campaign({"fake": {"kind": "host", "python": python}}, shapes=shapes, benchmarks=CELLS)
    site.write(data | {"repeats": 4, "allocations": 2}, num_nodes=NUM_NODES)
    assert submitted(site.snakemake().stderr) == 4
    assert len(site.slots()) == len(set(site.slots())) == 2 * 2 * 4  # shapes, cells, repeats
    files = [path.read_text().splitlines() for path in site.results.glob("batches/*/jobs.jsonl")]
    jobs = [{json.loads(line)["job"] for line in lines} for lines in files]
    assert [len(of_batch) for of_batch in jobs] == [1] * 4
    assert len(set.union(*jobs)) == 4
    assert submitted(site.snakemake().stderr) == 0
