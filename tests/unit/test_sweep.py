"""Acceptance sweeps: every cell on every node or pair of nodes, in rounds of disjoint ones; and packed shapes."""

import itertools
from collections import Counter

import pytest
from campaign_files import SLURM, collectives, load
from hypothesis import given
from hypothesis import strategies as st

from regatta.campaign.expansion import expand
from regatta.campaign.sweep import host_sets, rounds
from regatta.core.errors import UserError
from regatta.launchers import slurm_queue, slurm_resources
from regatta.plan.batches import MAX_TOGETHER, Price, _jobs_of_sweep, make_batches

SITE = SLURM | {"num_nodes": 200, "max_walltime_minutes": 600}
NODES = ["n1", "n2", "n10"]


def sweep(over="nodes", hosts=NODES, sizes=(4096, 8192), **changes):
    num = {"nodes": 1, "pairs": 2}[over]
    own = {"sweep": over, "sweep_hosts": list(hosts), "shapes": [{"nodes": [num], "gpus_per_node": [2]}]}
    return collectives(*sizes, repeats=2, **own, **changes)


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch):
    """No Slurm answers unless a test says so."""
    monkeypatch.setattr(slurm_resources, "answer", lambda line, *_: None)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def batches(folder, data, *, seconds=5.0, overhead=10.0, cluster=SITE):
    campaign = load(folder, data, cluster)
    cells = expand(campaign).cells
    todo = itertools.product(cells, range(data["repeats"]))
    price = Price(lambda cell: seconds, overhead)
    return cells, make_batches(campaign, todo, price, folder / "results"), price


def test_a_cell_on_each_node_and_its_nodes_in_id_and_spec(tmp_path):
    cells, [batch], price = batches(tmp_path, sweep(sizes=(4096,)))
    assert [cell.spec["hosts"] for cell in cells] == [["n1"], ["n2"], ["n10"]]
    assert [cell.id.split("-")[-2] for cell in cells] == NODES
    assert len({cell.id for cell in cells}) == 3
    assert batch.id.startswith("n03g02-")
    assert (batch.shape, batch.hosts) == ((3, 2), NODES)
    # Two rounds, one per repeat, of three launches at a time.
    launches = batch.content["launches"]
    assert [(la["repeat"], la["hosts"], la["together"]) for la in launches] == [
        (repeat, [host], repeat) for repeat in (0, 1) for host in NODES
    ]
    assert {(la["nodes"], la["gpus_per_node"]) for la in launches} == {(1, 2)}
    assert price.seconds(batch.launches) == 2 * (10 + 5)
    words = slurm_resources.SlurmJobs().options(batch.geometry, 1)
    assert words[-2:] == ["--nodelist=n1,n2,n10", "--no-kill"]
    assert "--nodelist=n10" in cells[2].command


def test_nodes_that_measure_at_the_same_time_measure_the_same_cell(tmp_path):
    _, [batch], _ = batches(tmp_path, sweep(sizes=(4096, 8192, 16384, 32768)))
    for _, group in itertools.groupby(batch.launches, key=lambda launch: launch.together):
        orders = {tuple(cell.parameters_text for cell in launch.cells) for launch in group}
        assert len(orders) == 1


def test_with_isolation_each_launch_has_one_cell_and_nodes_still_run_together(tmp_path):
    _, [batch], price = batches(tmp_path, sweep(isolation="process"))
    assert {len(launch.cells) for launch in batch.launches} == {1}
    assert price.seconds(batch.launches) == 2 * 2 * (10 + 5)


@given(st.integers(2, 40))
def test_pairs_meet_once_in_as_few_rounds_as_possible(num):
    pairs = list(itertools.combinations([f"n{i}" for i in range(1, num + 1)], 2))
    found = rounds(pairs)
    assert sorted(pair for of_round in found for pair in of_round) == sorted(pairs)
    for of_round in found:
        assert max(Counter(host for pair in of_round for host in pair).values()) == 1
    assert len(found) == (num - 1 if num % 2 == 0 else num)


@given(st.lists(st.sampled_from(list(itertools.combinations("abcdefg", 2))), unique=True, min_size=1))
def test_rounds_of_the_pairs_that_are_left_are_disjoint_too(pairs):
    for of_round in rounds(pairs):
        assert max(Counter(host for pair in of_round for host in pair).values()) == 1


def test_a_large_sweep_has_jobs_of_equal_size_that_use_all_their_nodes_all_the_time(tmp_path):
    _, found, price = batches(tmp_path, sweep(hosts=[f"n[1-{MAX_TOGETHER + 2}]"], sizes=(4096,)))
    assert [batch.shape for batch in found] == [(33, 2)] * 2
    assert sorted(host for batch in found for host in batch.hosts) == sorted(f"n{i}" for i in range(1, 67))
    for batch in found:
        assert Counter(la["together"] for la in batch.content["launches"]) == {0: 33, 1: 33}  # two repeats
        assert price.seconds(batch.launches) == 2 * 15


@given(st.sampled_from(["nodes", "pairs"]), st.integers(2, 9), st.integers(2, 9))
def test_no_job_of_a_sweep_has_more_than_num_nodes_and_no_set_is_lost(over, num, num_nodes):
    sets = list(itertools.combinations([f"n{i}" for i in range(num)], {"nodes": 1, "pairs": 2}[over]))
    jobs = _jobs_of_sweep({of_set: {"num_nodes": num_nodes, "scheduler": "none"} for of_set in sets})
    assert jobs.keys() == set(sets)
    hosts = {job: [host for of_set in sets if jobs[of_set] == job for host in of_set] for job in set(jobs.values())}
    assert all(len(set(of_job)) <= num_nodes for of_job in hosts.values())
    if num > num_nodes:
        assert all(len(set(of_job)) == len(of_job) for of_job in hosts.values())  # no node is in two sets of a job
        sizes = [len(of_job) for of_job in hosts.values()]
        assert max(sizes) - min(sizes) <= len(sets[0])
    else:
        assert hosts.keys() == {0}


def test_no_job_of_a_sweep_has_more_nodes_than_the_partition_allows(tmp_path, monkeypatch):
    partitions = "main*|infinite|9|8|1-3"
    monkeypatch.setattr(slurm_resources, "answer", lambda line, *_: partitions if "%P" in line[-1] else None)
    _, found, _ = batches(tmp_path, sweep(hosts=["n[1-8]"], sizes=(4096,)))
    assert sorted(batch.shape for batch in found) == [(2, 2), (3, 2), (3, 2)]


def test_a_long_sweep_is_split_between_rounds(tmp_path):
    data = sweep("pairs", [f"n{i}" for i in range(6)], sizes=(4096,), limits={"max_batch_minutes": 0.5})
    _, found, price = batches(tmp_path, data)
    assert [price.seconds(batch.launches) for batch in found] == [30, 30, 15, 30, 30, 15]  # 5 rounds of 15 s, twice
    with pytest.raises(UserError, match="takes 1 min"):
        batches(tmp_path, data, seconds=25)


def test_nodes_come_from_sinfo_and_those_that_are_down_are_skipped_with_its_reason(tmp_path, monkeypatch):
    answers = {
        "--format=%P|%l|%D|%c|%s": "main*|infinite|4|8|1-2\nother|infinite|9|8|1-9",
        "--format=%N|%T|%f|%G|%E": "n1|idle|(null)|(null)|none\nn2|down*|a|gpu:4|bad DIMM | here\n"
        "n3|mixed|a|gpu:4|none\nn4|idle*|a,b|gpu:4|\nn5|reserved|a|gpu:4|none",
    }
    asked = []

    def answer(line, *_):
        asked.append(line)
        return answers[line[-1]]

    monkeypatch.setattr(slurm_resources, "answer", answer)
    data = sweep(sizes=(4096,)) | {"sweep_hosts": None}
    matrix = expand(load(tmp_path, data, SITE | {"exclude_nodes": ["n3"]}))
    assert [cell.hosts for cell in matrix.cells] == [("n1",), ("n5",)]
    (down, reason), (idle, _) = matrix.skipped
    assert (down.hosts, idle.hosts) == (("n2",), ("n4",))
    assert all(part in reason for part in ("n2", "down*", "(bad DIMM"))
    assert "--partition=main" in asked[-1]
    pairs = expand(load(tmp_path, sweep("pairs", sizes=(4096,)) | {"sweep_hosts": ["n[1-3]"]}, SITE))
    assert [cell.hosts for cell in pairs.cells] == [("n1", "n3")]
    assert {why for _, why in pairs.skipped} == {reason}
    with pytest.raises(UserError, match=r"campaign.yaml:\d+: sweep_hosts: n7"):
        expand(load(tmp_path, sweep(hosts=["n7"]), SITE))


SHARED = """\
a1|idle|a100,nvlink|gpu:a100:4(S:0-1),nvme:1|none
a2|idle|a100|gpu:a100:4|none
v1|idle|v100|gpu:v100:2|none
m1|idle|a100,mig|gpu:a100:2,gpu:1g.5gb:14|none
c1|idle|(null)|(null)|none
"""


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ({"constraint": "a100"}, ["a1", "a2", "m1"]),
        ({"constraint": "a100&nvlink"}, ["a1"]),
        ({"constraint": "v100|nvlink"}, ["a1", "v1"]),
        ({"constraint": "[a100|v100]"}, ["a1", "a2", "c1", "m1", "v1"]),  # Slurm decides
        ({"gpu_type": "a100"}, ["a1", "a2", "m1"]),
        ({"gpu_type": "1g.5gb", "gpu_request": "gres"}, ["m1"]),
        ({"num_nodes": 9}, ["a1", "a2", "c1", "m1", "v1"]),
    ],
)
def test_of_a_partition_with_several_types_of_nodes_those_of_the_node_type_are_measured(
    tmp_path, monkeypatch, kind, expected
):
    """Slurm would reject a job that names a node without its constraint or its GPUs."""
    monkeypatch.setattr(slurm_resources, "answer", lambda line, *_: SHARED if "%N" in line[-1] else "main*|1:00|5|8|5")
    data = sweep(sizes=(4096,)) | {"sweep_hosts": None, "node_type": "x"}
    site = SITE | {"num_nodes": 9, "node_types": {"x": kind}}
    assert [cell.hosts[0] for cell in expand(load(tmp_path, data, site)).cells] == expected


def test_inside_an_allocation_its_nodes_are_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[3-4]")
    cells = expand(load(tmp_path, sweep(sizes=(4096,)) | {"sweep_hosts": None}, SITE)).cells
    assert [cell.hosts for cell in cells] == [("n3",), ("n4",)]


@pytest.mark.parametrize(
    ("data", "cluster", "words"),
    [
        (sweep(), {}, ["sweep = 'nodes'", "scheduler: none"]),
        (sweep() | {"sweep": None}, SITE, ["sweep_hosts", "without sweep"]),
        (sweep() | {"sweep_hosts": ["n[3"]}, SITE, ["sweep_hosts", "n[3"]),
        (sweep() | {"sweep_hosts": ["../x"]}, SITE, ["sweep_hosts[0]", "../x"]),
        (sweep() | {"shapes": [{"nodes": [1, 2], "gpus_per_node": [2]}]}, SITE, ["shapes[0].nodes", "[1]"]),
        (sweep() | {"sweep": "racks"}, SITE, ["sweep", "racks"]),
    ],
)
def test_each_error_of_a_sweep_names_file_line_and_key(tmp_path, data, cluster, words):
    with pytest.raises(UserError, match=r"campaign\.yaml:\d+: ") as caught:
        load(tmp_path, data, cluster)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("changes", "cluster", "words"),
    [
        ({"sweep_hosts": None}, SITE, "Slurm does not answer"),
        ({"sweep": "pairs", "sweep_hosts": ["n1"], "shapes": [{"nodes": [2], "gpus_per_node": [2]}]}, SITE, "1 node"),
        (
            {"sweep": "pairs", "sweep_hosts": ["n[1-2000]"], "shapes": [{"nodes": [2], "gpus_per_node": [2]}]},
            SITE | {"num_nodes": 5000},
            "1,999,000 pairs",
        ),
    ],
)
def test_nodes_that_cannot_be_swept_are_refused_with_the_reason(tmp_path, changes, cluster, words):
    campaign = load(tmp_path, sweep() | changes, cluster)
    with pytest.raises(UserError, match=words):
        host_sets(campaign.file, campaign.data, campaign.cluster)


def test_ids_of_other_campaigns_do_not_change(tmp_path):
    [cell] = expand(load(tmp_path, collectives(4096))).cells
    assert "hosts" not in cell.spec
    assert expand(load(tmp_path, collectives(4096, pack=True))).cells[0].id == cell.id


def test_steps_of_other_launches_of_the_job_are_left_alone(monkeypatch):
    steps = "7.0|n1|regatta\n7.1|n2|regatta\n7.2|n[1-2]|regatta\n7.batch|n1|batch"
    monkeypatch.setattr(slurm_queue, "answer", lambda line, *_: steps)
    assert slurm_queue.running_steps("7", ["n2"]) == ["7.1"]
    assert slurm_queue.running_steps("7", ["n1", "n2"]) == ["7.0", "7.1", "7.2"]
    assert slurm_queue.running_steps("7") == ["7.0", "7.1", "7.2"]


# pack: true


def test_packed_shapes_share_the_allocation_of_the_largest_and_alternate(tmp_path):
    shapes = [{"nodes": [1, 2, 4], "gpus_per_node": [2]}]
    data = collectives(4096, 8192, shapes=shapes, repeats=2)
    _, apart, price = batches(tmp_path, data)
    assert [batch.shape for batch in apart] == [(1, 2), (2, 2), (4, 2)]
    cells, [packed], price = batches(tmp_path, data | {"pack": True})
    assert packed.shape == (4, 2)
    assert [(la.repeat, la.cells[0].shape[0]) for la in packed.launches] == [
        *((0, nodes) for nodes in (1, 2, 4)),
        *((1, nodes) for nodes in (4, 2, 1)),
    ]
    assert price.seconds(packed.launches) == sum(price.seconds(batch.launches) for batch in apart)
    entries = packed.content["launches"]
    assert [(la.get("nodes"), la.get("gpus_per_node")) for la in entries[:3]] == [(1, 2), (2, 2), (None, None)]
    placed = [(cell.id, launch.repeat) for launch in packed.launches for cell in launch.cells]
    assert sorted(placed) == sorted((cell.id, repeat) for cell in cells for repeat in (0, 1))
