"""The prologue of a stack: what is planned of it, what it gives to the ranks, and how its failure is reported."""

import hashlib
import json
import os
import re
from dataclasses import replace

import pytest
from campaign_files import HOSTILE, SLURM, TEXT, changed, collectives, load, matrix, message, plan, program, stack

from regatta import launchers
from regatta.campaign.load import for_jobs
from regatta.campaign.stacks import changed_since_planned
from regatta.core.schemas import fill_defaults, load_schema
from regatta.launchers import LAUNCHERS, Allocation, command_by_hand
from regatta.launchers.base import Geometry
from regatta.launchers.local import LocalRanks
from regatta.plan.plan import write_frozen
from regatta.run.prologue import PrologueFailed, run_prologue
from regatta.runtimes.prologue_steps import script


@pytest.fixture
def site(tmp_path):
    """A file that a prologue may source."""
    path = tmp_path / "env.sh"
    path.write_text("export OF_SITE=1\n")
    return path


def made(*steps: dict, **changes) -> dict:
    return stack(prologue=[*steps], **changes)


def geometry(nodes: int) -> Geometry:
    return Geometry({"exclude_nodes": []}, nodes, 1, "cpu")


def run(folder, *steps: dict, limit: float = 60) -> dict:
    return run_prologue(Allocation(), geometry(1), made(*steps), folder / "prologue", limit, list)


def ids(folder, entry: dict, cluster: dict | None = None) -> list[str]:
    data = collectives(4096, stacks={"a": {"kind": "host", "python": "/bin/sh"} | entry})
    return [cell.id for cell in matrix(folder, data, SLURM | (cluster or {})).cells]


# What is planned.


def test_a_stack_without_a_prologue_keeps_its_cells_and_its_batches_have_no_such_key(folder, monkeypatch):
    assert ids(folder, {"prologue": []}, {"prologue": []}) == ids(folder, {})
    assert "prologue" not in stack()
    campaign = load(folder, collectives(4096), {"prologue": []})
    assert "prologue" not in for_jobs(campaign.cluster)


def test_a_step_and_the_content_of_a_sourced_file_are_part_of_the_id(folder, site):
    source, module = {"source": str(site)}, {"module": "cuda/12.4"}
    found = [ids(folder, {"prologue": steps}) for steps in ([], [source], [module], [source, module], [module, source])]
    site.write_text("export OF_SITE=2\n")
    found.append(ids(folder, {"prologue": [source]}))
    assert len({tuple(cells) for cells in found}) == 6


def test_it_does_not_matter_whether_cluster_or_stack_has_a_step(folder, site):
    steps = [{"source": str(site)}, {"module": "cuda"}]
    by_stack = ids(folder, {"prologue": steps})
    assert ids(folder, {}, {"prologue": steps}) == by_stack
    assert ids(folder, {"prologue": steps[1:]}, {"prologue": steps[:1]}) == by_stack
    assert ids(folder, {"prologue": steps[:1]}, {"prologue": steps[1:]}) != by_stack  # the cluster's come first


def test_the_first_step_is_a_change_of_one_field(tmp_path, site, wording):
    data = collectives(4096, stacks={"host": {"kind": "host"}})
    write_frozen(plan(tmp_path, data))
    steps = [{"source": str(site)}]
    reasons = {p.reason for p in plan(tmp_path, data | {"stacks": {"host": {"kind": "host", "prologue": steps}}}).cells}
    digest = hashlib.sha256(site.read_bytes()).hexdigest()
    wording(reasons, digest=digest)


def test_a_file_that_only_nodes_have_is_identified_by_its_path(folder):
    steps = [{"source": "/nodes/env.sh"}]
    cluster = fill_defaults(SLURM | {"schema": 1, "name": "tiny", "node_folders": ["/nodes"]}, load_schema("cluster"))
    assert stack(cluster=cluster, prologue=steps)["prologue"] == [{"source": "/nodes/env.sh", "sha256": None}]
    assert ids(folder, {"prologue": steps}, {"node_folders": ["/nodes"]})


def test_a_file_that_is_edited_after_planning_is_noticed_in_the_job(site, wording):
    planned = made({"source": str(site)})
    cluster = fill_defaults({"scheduler": "none"}, load_schema("cluster"))
    assert changed_since_planned("a", planned, cluster) is None
    site.write_text("export OF_SITE=2\n")
    wording(changed_since_planned("a", planned, cluster))
    site.unlink()
    assert str(site) in changed_since_planned("a", planned, cluster)


STACK = "  host: {kind: host}\n"


@pytest.mark.parametrize(
    ("steps", "place", "words"),
    [
        ("[{source: /none/env.sh}]", "stacks.host.prologue[0].source = '/none/env.sh'", "node_folders"),
        ("[{source: env.sh}]", "stacks.host.prologue[0].source = 'env.sh'", "Absolute path"),
        ("[{module: cuda 12}]", "stacks.host.prologue[0].module = 'cuda 12'", "one word"),
        ("[{module: -f}]", "stacks.host.prologue[0].module = '-f'", "one word"),
        ("[{modules: cuda}]", "'modules'", "Did you mean 'module'?"),
        ("[{source: /bin/sh, module: cuda}]", "stacks.host.prologue[0]", "One step"),
        ("[module load cuda]", "stacks.host.prologue[0] = 'module load cuda'", "One step"),
        ("[{}]", "stacks.host.prologue[0]", "empty"),
    ],
)
def test_an_invalid_step_is_reported_with_file_and_line(folder, steps, place, words):
    said = message(folder, changed(STACK, f"  host:\n    kind: host\n    prologue: {steps}\n"))
    assert said.startswith("campaign.yaml:9: ")
    assert place in said
    assert words in said


def test_an_invalid_step_of_a_cluster_is_reported_with_its_file(folder, wording):
    said = message(folder, TEXT, {"prologue": [{"source": "/none/env.sh"}]})
    wording(said)


def test_a_runtime_may_be_a_module(folder, wording):
    entry = {"kind": "contained", "image": "a.sif"}
    (folder / "bin" / "apptainer").unlink()
    said = message(folder, json.dumps(collectives(4096, stacks={"a": entry})))
    wording(said)
    load(folder, collectives(4096, stacks={"a": entry | {"prologue": [{"module": "apptainer"}]}}))


def test_a_stack_with_a_prologue_has_a_preflight_on_one_machine_too(tmp_path, site):
    entry = {"kind": "host", "prologue": [{"source": str(site)}]}
    found = plan(tmp_path, collectives(4096, stacks={"a": entry, "b": {"kind": "host"}}))
    assert len(found.preflights) == 1
    assert plan(tmp_path, collectives(4096, stacks={"b": {"kind": "host"}})).preflights == ()


# What it gives to the ranks.


def test_ranks_get_what_changed_and_a_stack_s_env_wins(tmp_path, monkeypatch, site):
    monkeypatch.setenv("REMOVED", "1")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/old")
    site.write_text(
        "export LD_LIBRARY_PATH=/new:$LD_LIBRARY_PATH ADDED=$'a\\nb' OF_STACK=0 OMP_NUM_THREADS=3\nunset REMOVED\nhidden=1\n"
    )
    found = run(tmp_path, {"source": str(site)})
    wanted = {"LD_LIBRARY_PATH": "/new:/old", "ADDED": "a\nb", "OF_STACK": "0", "OMP_NUM_THREADS": "3", "REMOVED": None}
    assert found == wanted
    environment = launchers.launch_environment(LAUNCHERS["none"], stack(env={"OF_STACK": "1"}), prologue=found)
    assert environment["ADDED"] == "a\nb"
    assert environment["LD_LIBRARY_PATH"] == "/new:/old"
    assert environment["OF_STACK"] == "1"
    assert environment["REGATTA_THREADS_PER_RANK"] == "3"
    assert "REMOVED" not in environment
    assert list((tmp_path / "prologue").glob("*.before")) == []  # an environment may have secrets


def test_variables_of_the_host_are_not_forced_on_an_image(tmp_path, site):
    environment = launchers.launch_environment(
        LAUNCHERS["slurm"], stack("contained", env={"A": "1"}), prologue={"CUDA_HOME": "/host"}
    )
    assert environment["CUDA_HOME"] == "/host"
    assert [key for key in environment if key.startswith("APPTAINERENV_") and "CUDA" in key] == []


@pytest.mark.parametrize("value", [value for value in HOSTILE if "\n" not in value and "\x1b" not in value])
def test_a_hostile_path_is_one_word(tmp_path, value):
    path = tmp_path / f"env {value.replace('/', '')}.sh"
    path.write_text("export OF_SITE=1\n")
    assert run(tmp_path, {"source": str(path)}) == {"OF_SITE": "1"}
    assert not (tmp_path / "x").exists()


def test_a_module_is_loaded_with_the_module_command_of_the_site(tmp_path, monkeypatch, wording):
    init = tmp_path / "lmod" / "init"
    init.mkdir(parents=True)
    (init / "bash").write_text('module() { export LOADED="$LOADED$*;" _ModuleTable001_=x LMOD_ticket=1; }\n')
    monkeypatch.setenv("LMOD_PKG", str(tmp_path / "lmod"))
    wording(run(tmp_path, {"module": "a/1"}, {"module": "$(touch x)"}))
    assert not (tmp_path / "x").exists()


def test_a_person_s_line_begins_with_the_prologue(site, wording):
    spec = {"benchmark": "collective", "device": "cpu", "backend": "gloo", "nodes": 1, "gpus_per_node": 2}
    spec |= {"parameters": {}, "sampling": {}}
    cluster = fill_defaults({"scheduler": "none"}, load_schema("cluster"))
    line = command_by_hand(spec, made({"source": "/a b/env.sh"}, {"module": "cuda/12.4"}, env={"A": "1"}), cluster)
    wording(line)


def test_srun_starts_it_once_per_node_and_lets_every_node_report():
    words = LAUNCHERS["slurm"].ranks.once_per_node(replace(geometry(3), hosts=["n1", "n2", "n4"]), 90)
    assert {"--nodes=3", "--ntasks=3", "--ntasks-per-node=1", "--nodelist=n1,n2,n4", "--time=2"} <= set(words)
    assert "--kill-on-bad-exit=0" in words
    assert LAUNCHERS["none"].ranks.once_per_node(geometry(1), 90) == []


# How it fails.


def failed(folder, *steps: dict, limit: float = 60) -> PrologueFailed:
    with pytest.raises(PrologueFailed) as error:
        run(folder, *steps, limit=limit)
    return error.value


def test_a_failure_names_step_node_status_and_its_last_lines(tmp_path, site, wording):
    site.write_text("echo first\necho 'no such license' >&2\nreturn 7\n")
    error = failed(tmp_path, {"source": str(site)})
    wording(str(error))
    assert f"on {os.uname().nodename}" in str(error)
    assert error.cause.hosts == frozenset()  # it failed on all nodes
    assert "no such license" in error.output
    assert list((tmp_path / "prologue").glob("*.before")) == []


def test_a_file_that_exits_and_a_missing_module_command_are_named(tmp_path, site, monkeypatch, wording):
    site.write_text("exit 5\n")
    wording(str(failed(tmp_path, {"source": str(site)})))
    monkeypatch.setenv("LMOD_PKG", "/none")
    monkeypatch.setenv("MODULESHOME", "/none")
    found = str(failed(tmp_path, {"module": "cuda"}))
    wording(found)


def test_a_file_s_set_e_ends_it_but_not_a_later_step(tmp_path, site, wording):
    """A stack must not be measured with the half of an environment."""
    site.write_text("set -e\nexport FIRST=1\n(exit 3)\nexport LAST=1\n")
    with pytest.raises(PrologueFailed) as found:
        run(tmp_path, {"source": str(site)})
    wording(str(found.value))
    site.write_text("set -e\nexport FIRST=1\n")
    later = tmp_path / "later.sh"
    later.write_text("(exit 3)\nexport LAST=1\n")
    assert run(tmp_path, {"source": str(site)}, {"source": str(later)}) == {"FIRST": "1", "LAST": "1"}


def test_an_environment_that_cannot_be_saved_is_a_failure_with_its_reason(tmp_path, site):
    site.write_text("export PATH=/nonexistent\n")
    with pytest.raises(PrologueFailed) as found:
        run(tmp_path, {"source": str(site)})
    assert re.search(rf"source {site}: .* 127: .*env", str(found.value))


def test_one_that_hangs_is_ended(tmp_path, site, wording):
    site.write_text("sleep 1000\n")
    wording(str(failed(tmp_path, {"source": str(site)}, limit=0.5)))


def test_nodes_that_differ_are_named(tmp_path, wording):
    nodes = [f'SLURMD_NODENAME=n{number} bash "$1" "$2"' for number in (1, 2)]
    program(tmp_path / "both.sh", "shift\n" + "\n".join(nodes) + "\n")
    site = tmp_path / "env.sh"
    site.write_text("export SAME=1 WHERE=$SLURMD_NODENAME\n")

    class OnTwoNodes(LocalRanks):
        def once_per_node(self, geometry, limit_seconds):
            return [str(tmp_path / "both.sh")]

    launcher = replace(LAUNCHERS["none"], ranks=OnTwoNodes())
    steps = made({"source": str(site)})
    with wording.raises(PrologueFailed):
        run_prologue(Allocation(launcher), geometry(2), steps, tmp_path / "prologue", 60, list)
    with wording.raises(PrologueFailed):
        run_prologue(Allocation(launcher), geometry(3), steps, tmp_path / "prologue", 60, list)
    site.write_text("[ $SLURMD_NODENAME = n1 ]\n")
    with wording.raises(PrologueFailed) as error:
        run_prologue(Allocation(launcher), geometry(2), steps, tmp_path / "prologue", 60, list)
    assert error.value.cause.hosts == {"n2"}
    site.write_text("export SAME=1\n")
    assert run_prologue(Allocation(launcher), geometry(2), steps, tmp_path / "prologue", 60, list) == {"SAME": "1"}


def test_the_script_has_no_word_of_a_step_unquoted():
    text = script([{"source": "/a;b/$(x)"}])
    assert "\nsource '/a;b/$(x)'\n" in text
