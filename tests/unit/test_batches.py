"""Batches: all remaining work is in exactly one launch, in a reproducible order, within the allowed time."""

import itertools

import pytest
from campaign_files import SLURM, collectives, load, pin_versions, stack, write_launch
from hypothesis import given
from hypothesis import strategies as st

from regatta.campaign.expansion import expand
from regatta.plan.batches import Price, make_batches

TWO_STACKS = {"a": {"kind": "host"}, "b": {"kind": "host"}}


def batches(folder, data, *, overhead=10.0, cell_seconds=5.0, todo=None, results=None):
    """Return the campaign's cells and its batches. todo: the (cell, repeat) pairs, all by default."""
    campaign = load(folder, data)
    cells = expand(campaign).cells
    pairs = list(itertools.product(cells, range(data["repeats"]))) if todo is None else todo(cells)
    price = Price(lambda cell: cell_seconds, overhead)
    return cells, make_batches(campaign, pairs, price, results or folder / "results"), price


def names(launches) -> list[tuple[int, str, list[int]]]:
    """Return repeat, stack and message sizes of each launch."""
    sizes = [[cell.spec["parameters"]["message_bytes"] for cell in launch.cells] for launch in launches]
    return [(launch.repeat, launch.stack, size) for launch, size in zip(launches, sizes, strict=True)]


@st.composite
def campaigns(draw):
    """A campaign of collectives, and a number for each (cell, repeat) that says whether it is still to do."""
    shapes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=3, unique=True))
    sizes = draw(st.lists(st.sampled_from([4, 8, 16, 32, 64, 128]), min_size=1, max_size=5, unique=True))
    stacks = draw(st.sampled_from(["a", "ab", "abc"]))
    return collectives(
        *sizes,
        shapes=[{"nodes": [1], "gpus_per_node": shapes}],
        stacks={name: {"kind": "host"} for name in stacks},
        repeats=draw(st.integers(1, 4)),
        isolation=draw(st.sampled_from(["launch", "process"])),
        seed=draw(st.integers(0, 3)),
        limits={"max_batch_minutes": draw(st.sampled_from([0.1, 0.5, 1, 2, 60]))},
    )


OSU = {"benchmark": "program", "command": ["osu_allreduce", "{n}"], "read": "osu", "sizes": [8, "1KiB", "1MiB"]}


@pytest.mark.parametrize("isolation", ["launch", "process"])
def test_one_launch_measures_all_sizes_of_a_command(tmp_path, isolation):
    entry = OSU | {"parameters": {"n": [1, 2]}}
    data = collectives(8, stacks=TWO_STACKS, benchmarks=[entry], isolation=isolation, repeats=1)
    cells, (batch,), price = batches(tmp_path, data, cell_seconds=200.0)
    assert len(cells) == 12
    settings = [[cell.field("n") for cell in launch.cells] for launch in batch.launches]
    assert settings in ([["1"] * 3] * 2 + [["2"] * 3] * 2, [["2"] * 3] * 2 + [["1"] * 3] * 2)
    assert [launch.stack for launch in batch.launches] == ["a", "b"] * 2
    assert price.seconds(batch.launches) == 4 * (10 + 300)  # each launch has the time of one cell
    # Also where a batch is too long for all of them.
    _, found, _ = batches(tmp_path, data | {"limits": {"max_batch_minutes": 0.1}}, cell_seconds=200.0)
    assert [[len(launch.cells) for launch in batch.launches] for batch in found] == [[3, 3]] * 2


def test_nodes_of_a_sweep_measure_all_sizes_in_one_launch(tmp_path):
    data = collectives(8, benchmarks=[OSU | {"command": ["osu_allreduce"]}], cluster="tiny", sweep="nodes")
    data |= {"shapes": [{"nodes": [1], "gpus_per_node": [2]}], "sweep_hosts": ["n[1-2]"]}
    campaign = load(tmp_path, data, SLURM)
    cells = expand(campaign).cells
    (batch,) = make_batches(campaign, [(cell, 0) for cell in cells], Price(lambda cell: 5, 10), tmp_path / "results")
    assert [(launch.cells[0].hosts, len(launch.cells)) for launch in batch.launches] == [(("n1",), 3), (("n2",), 3)]


@given(campaigns(), st.randoms(use_true_random=False))
def test_everything_left_to_do_is_in_exactly_one_launch_of_one_batch(tmp_path_factory, data, rng):
    chosen = []

    def some(cells):
        pairs = list(itertools.product(cells, range(data["repeats"])))
        chosen.extend(rng.sample(pairs, rng.randint(1, len(pairs))))
        return chosen

    _, found, _ = batches(tmp_path_factory.getbasetemp(), data, todo=some)
    placed = [(cell.id, la.repeat) for batch in found for la in batch.launches for cell in la.cells]
    assert sorted(placed) == sorted((cell.id, repeat) for cell, repeat in chosen)
    assert len({batch.id for batch in found}) == len(found)
    for batch in found:
        for launch in batch.launches:
            assert {cell.shape for cell in launch.cells} == {batch.shape}
            assert {cell.spec["stack"]["name"] for cell in launch.cells} == {launch.stack}
            assert data["isolation"] == "launch" or len(launch.cells) == 1


@given(campaigns(), st.sampled_from([0.0, 1.0, 10.0, 30.0]), st.sampled_from([0.0, 1.0, 5.0, 45.0]))
def test_no_batch_is_longer_than_allowed_unless_one_group_of_twins_alone_is(tmp_path_factory, data, overhead, seconds):
    _, found, price = batches(tmp_path_factory.getbasetemp(), data, overhead=overhead, cell_seconds=seconds)
    for batch in found:
        groups = {cell.spec["parameters"]["message_bytes"] for launch in batch.launches for cell in launch.cells}
        repeats = {launch.repeat for launch in batch.launches}
        allowed = data["limits"]["max_batch_minutes"] * 60
        assert price.seconds(batch.launches) <= allowed + 1e-6 or (len(groups), len(repeats)) == (1, 1)


@given(campaigns())
def test_cells_that_differ_in_their_stack_only_share_a_batch_in_each_repeat(tmp_path_factory, data):
    _, found, _ = batches(tmp_path_factory.getbasetemp(), data)
    where: dict[tuple, set[str]] = {}
    for batch in found:
        for launch in batch.launches:
            for cell in launch.cells:
                key = (cell.shape, cell.spec["parameters"]["message_bytes"], launch.repeat)
                where.setdefault(key, set()).add(batch.id)
    assert {len(ids) for ids in where.values()} == {1}


@given(campaigns())
def test_the_same_campaign_gives_the_same_batches(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    first, second = batches(folder, data)[1], batches(folder, data, results=folder / "elsewhere")[1]
    assert [batch.id for batch in first] == [batch.id for batch in second]
    assert [batch.content for batch in first] == [batch.content for batch in second]


def test_a_batch_is_split_by_repeats_first(tmp_path):
    # A repeat is one launch: 10 s + 4 cells x 5 s = 30 s. Two of them fill a minute.
    data = collectives(4, 8, 16, 32, repeats=5, limits={"max_batch_minutes": 1})
    _, found, price = batches(tmp_path, data)
    assert [[launch.repeat for launch in batch.launches] for batch in found] == [[0, 1], [2, 3], [4]]
    assert [price.seconds(batch.launches) for batch in found] == [60.0, 60.0, 30.0]
    assert {len(launch.cells) for batch in found for launch in batch.launches} == {4}


def test_a_repeat_that_is_too_long_is_split_by_cells(tmp_path):
    # One launch may last 24 s: 10 s + 2 cells x 5 s = 20 s; a third cell would make 25 s.
    data = collectives(4, 8, 16, 32, 64, repeats=2, limits={"max_batch_minutes": 0.4})
    _, found, _ = batches(tmp_path, data)
    sizes = [[(launch.repeat, len(launch.cells)) for launch in batch.launches] for batch in found]
    assert sizes == [[(0, 2)], [(0, 2)], [(0, 1)], [(1, 2)], [(1, 2)], [(1, 1)]]


def test_what_follows_a_repeat_split_by_cells_begins_a_batch(tmp_path):
    # 60 s: repeat 0 takes 15 s; repeat 1 is split into 60 s and 55 s; repeat 2's 15 s fit only the batch of repeat 0,
    # which is closed by then.
    def uneven(cells):
        return [(cells[0], 0), *((cell, 1) for cell in cells), (cells[0], 2)]

    data = collectives(*[4 * i for i in range(1, 20)], limits={"max_batch_minutes": 1})
    _, found, price = batches(tmp_path, data, todo=uneven)
    assert [price.seconds(batch.launches) for batch in found] == [15.0, 60.0, 55.0, 15.0]


def test_a_cell_that_alone_is_too_long_gets_a_batch_of_its_own(tmp_path):
    data = collectives(4, 8, repeats=1, limits={"max_batch_minutes": 0.1})
    _, found, price = batches(tmp_path, data)
    assert [[len(launch.cells) for launch in batch.launches] for batch in found] == [[1], [1]]
    assert [price.seconds(batch.launches) for batch in found] == [15.0, 15.0]


def test_a_split_by_cells_counts_the_start_of_every_stack(tmp_path):
    # Two stacks: 2 x 10 s + pairs x 2 x 5 s; a minute holds 4 pairs, and 5 would be 70 s.
    data = collectives(4, 8, 16, 32, 64, repeats=1, stacks=TWO_STACKS, limits={"max_batch_minutes": 1})
    _, found, price = batches(tmp_path, data)
    assert [price.seconds(batch.launches) for batch in found] == [60.0, 30.0]
    assert [[len(launch.cells) for launch in batch.launches] for batch in found] == [[4, 4], [1, 1]]


def test_a_split_of_isolated_cells_counts_a_start_for_each(tmp_path):
    # Each cell is 10 s + 5 s; a minute holds 4.
    data = collectives(4, 8, 16, 32, 64, repeats=1, isolation="process", limits={"max_batch_minutes": 1})
    _, found, price = batches(tmp_path, data)
    assert [price.seconds(batch.launches) for batch in found] == [60.0, 15.0]


def test_cells_that_cost_nothing_by_the_history_are_planned_too(tmp_path):
    _, found, _ = batches(tmp_path, collectives(4, repeats=2), overhead=0.0, cell_seconds=0.0)
    assert [len(batch.launches) for batch in found] == [2]


def test_each_shape_has_its_own_batch_smallest_first(tmp_path):
    shapes = [{"nodes": [1], "gpus_per_node": [4, 2]}, {"nodes": [1], "gpus_per_node": [3]}]
    _, found, _ = batches(tmp_path, collectives(4, shapes=shapes))
    assert [batch.shape for batch in found] == [(1, 2), (1, 3), (1, 4)]
    assert [batch.id.split("-")[0] for batch in found] == ["n01g02", "n01g03", "n01g04"]


def test_stacks_alternate_a_b_b_a(tmp_path):
    _, [batch], _ = batches(tmp_path, collectives(4, repeats=4, stacks=TWO_STACKS))
    stacks = [(launch.repeat, launch.stack) for launch in batch.launches]
    assert stacks == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b"), (3, "b"), (3, "a")]


def test_isolated_cells_alternate_stacks_cell_by_cell(tmp_path):
    data = collectives(4, 8, repeats=2, stacks=TWO_STACKS, isolation="process")
    _, [batch], _ = batches(tmp_path, data)
    order = names(batch.launches)
    assert [(repeat, stack) for repeat, stack, _ in order] == [*[(0, "a"), (0, "b")] * 2, *[(1, "b"), (1, "a")] * 2]
    for first, second in zip(order[::2], order[1::2], strict=True):
        assert first[2] == second[2], "twins follow each other"


def test_the_shuffled_order_is_pinned(tmp_path, monkeypatch):
    """Order depends on seed, shape, stack and repeat alone; if this fails, old orders cannot be had again."""
    pin_versions(monkeypatch)
    _, [batch], _ = batches(tmp_path, collectives(4, 8, 16, 32, 64, repeats=2))
    assert names(batch.launches) == [(0, "host", [32, 16, 4, 64, 8]), (1, "host", [64, 16, 8, 32, 4])]


def test_the_order_depends_on_seed_repeat_and_stack(tmp_path):
    sizes = [4 * i for i in range(1, 41)]
    _, [batch], _ = batches(tmp_path, collectives(*sizes, repeats=2, stacks=TWO_STACKS))
    _, [other], _ = batches(tmp_path, collectives(*sizes, repeats=2, stacks=TWO_STACKS, seed=2))
    orders = [tuple(order) for _, _, order in [*names(batch.launches), *names(other.launches)]]
    assert len(set(orders)) == 8
    assert {tuple(sorted(order)) for order in orders} == {tuple(sizes)}


CHANGES = {
    "seed": {"seed": 2},
    "repeats": {"repeats": 2},
    "isolation": {"isolation": "process"},
    "a deadline": {"limits": {"cell_seconds": 7}},
    "the start's deadline": {"limits": {"launch_start_seconds": 7}},
    "a variable": {"stacks": {"host": {"kind": "host", "env": {"A": "1"}}}},
    "the campaign's name": {"name": "other"},
    "sampling": {"sampling": {"max_seconds": 2}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_other_content_gives_another_id(tmp_path, change):
    data = collectives(4, 8, 16, 32)
    _, [batch], _ = batches(tmp_path, data)
    _, [other], _ = batches(tmp_path, data | change)
    assert batch.id != other.id


def test_a_fact_of_the_cluster_is_content_too(tmp_path):
    campaign = load(tmp_path, collectives(4), {"gpus_per_node": 0})
    other = load(tmp_path, collectives(4), {"gpus_per_node": 4})
    price = Price(lambda cell: 1.0, 1.0)
    ids = [make_batches(c, [(expand(c).cells[0], 0)], price, tmp_path)[0].id for c in (campaign, other)]
    assert ids[0] != ids[1]


def test_words_that_no_job_reads_leave_the_id(tmp_path):
    _, [batch], _ = batches(tmp_path, collectives(4))
    _, [other], _ = batches(tmp_path, collectives(4, description="Other words", baseline={"nodes": 7}))
    assert batch.id == other.id


def test_a_finished_batch_planned_again_is_the_next_generation(tmp_path):
    data = collectives(4)
    ids = []
    for generation in (1, 2, 3):
        _, [batch], _ = batches(tmp_path, data)
        assert batch.content["generation"] == generation
        ids.append(batch.id)
        manifest = tmp_path / "results" / "batches" / batch.id / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text("{}")
    assert len(set(ids)) == 3


def test_an_unfinished_batch_keeps_its_id(tmp_path):
    _, [batch], _ = batches(tmp_path, collectives(4))
    write_launch(tmp_path / "results", f"{batch.id}-l000-a00", 0, [])
    (tmp_path / "results" / "batches" / batch.id).mkdir(parents=True)
    _, [again], _ = batches(tmp_path, collectives(4))
    assert (again.id, again.content["generation"]) == (batch.id, 1)


def test_a_batch_holds_all_that_its_job_needs(tmp_path):
    cells, [batch], _ = batches(tmp_path, collectives(4, 8, repeats=1, stacks=TWO_STACKS))
    content = batch.content
    assert content["stacks"] == {"a": stack(), "b": stack()}
    assert content["preflight"] is None
    assert (content["nodes"], content["gpus_per_node"], content["device"]) == (1, 2, "cpu")
    assert content["launch_start_seconds"] == 300
    assert set(content["cells"]) == {cell.id for cell in cells}
    for cell in cells:
        assert content["cells"][cell.id]["spec"] == cell.spec
        assert content["cells"][cell.id]["limit_seconds"] == 300.0
        assert content["cells"][cell.id]["command"].startswith("torchrun ")
    assert [(launch["repeat"], launch["stack"]) for launch in content["launches"]] == [(0, "a"), (0, "b")]
    launched = [cell for launch in content["launches"] for cell in launch["cells"]]
    assert sorted(launched) == sorted(content["cells"])


def test_a_batch_holds_stacks_whole_and_its_cells_only_what_changes_their_numbers(folder):
    entry = {"kind": "bind-mounted", "image": "a.sif", "wrapper": "wrapper.sh", "binds": ["/usr:/host/usr"]}
    entry |= {"srun": ["--mpi=pmi2"], "required_network": "AWS Libfabric", "required_host_libraries": ["libfabric"]}
    campaign = load(folder, collectives(4, stacks={"a": entry}), SLURM | {"cpus_per_rank": 8})
    [cell] = expand(campaign).cells
    [batch] = make_batches(
        campaign, [(cell, 0)], Price(lambda cell: 1.0, 1.0), folder / "results", {None: "preflight-1"}
    )
    frozen = batch.content["stacks"]["a"]
    assert frozen == stack(cluster=SLURM | {"cpus_per_rank": 8}, **entry)
    assert (frozen["image"], frozen["wrapper"]) == (f"{folder}/a.sif", f"{folder}/wrapper.sh")
    of_the_cell = {"kind", "python", "env", "image_id", "runtime", "runtime_options", "binds", "wrapper_sha256", "srun"}
    assert cell.spec["stack"] == {"name": "a", **{key: frozen[key] for key in of_the_cell}}
    assert frozen["srun"] == ["--cpus-per-task=8", "--mpi=pmi2"]
    assert batch.content["cluster"]["scheduler"] == "slurm"
    assert batch.content["preflight"] == "preflight-1"


@pytest.mark.parametrize(
    ("repeats", "allocations", "expected"),
    [(3, 3, [[0], [1], [2]]), (4, 2, [[0, 1], [2, 3]]), (5, 2, [[0, 1, 2], [3, 4]]), (3, 1, [[0, 1, 2]])],
)
def test_repeats_are_spread_over_allocations_in_which_stacks_alternate(tmp_path, repeats, allocations, expected):
    data = collectives(4, repeats=repeats, allocations=allocations, stacks=TWO_STACKS)
    _, found, _ = batches(tmp_path, data)
    assert [list(dict.fromkeys(launch.repeat for launch in batch.launches)) for batch in found] == expected
    orders = [[launch.stack for launch in batch.launches] for batch in found]
    assert orders == [[name for r in of_batch for name in ("ab", "ba")[r % 2]] for of_batch in expected]


def test_the_rest_of_an_allocation_stays_one_batch(tmp_path):
    """Of 6 launches in 2 allocations the first 3 are done and 1 of the others, so 2 are left in one job."""
    data = collectives(4, repeats=6, allocations=2)
    _, found, _ = batches(tmp_path, data, todo=lambda cells: [(cells[0], repeat) for repeat in (4, 5)])
    assert [[launch.repeat for launch in batch.launches] for batch in found] == [[4, 5]]
