"""The content of a stack's image and wrapper, and everything else that can affect results, is in a cell's id; nothing more."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
from campaign_files import SLURM, TEXT, collectives, fake_sif, load, matrix, pin_versions, program, stack, write

from regatta.campaign.expansion import expand
from regatta.campaign.load import load_campaign
from regatta.campaign.stacks import changed_since_planned as changed_for
from regatta.core.errors import UserError
from regatta.run.preflight import plan_preflight
from regatta.runtimes.apptainer import image_id
from regatta.runtimes.base import expand as expand_bind

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def changed_since_planned(name: str, made: dict) -> str | None:
    return changed_for(name, made, SLURM)


def test_the_identity_of_an_image_is_the_uuid_in_its_header(tmp_path):
    number = 0x6A5C759F8D4D48A3B803255132C4EC71
    assert image_id(fake_sif(tmp_path / "a.sif", number)) == "6a5c759f-8d4d-48a3-b803-255132c4ec71"


def test_the_header_of_an_image_that_apptainer_built_is_read():
    """The first 128 bytes of a SIF file of Apptainer 1.4.5; `apptainer sif header` said the same ID."""
    assert image_id(GOLDEN / "apptainer" / "sif_header.bin") == "6a5c759f-8d4d-48a3-b803-255132c4ec71"


@pytest.mark.parametrize("content", [b"", b"SIF_MAGIC", b"\0" * 64, b"#!/bin/sh\n" * 20])
def test_what_is_no_image_is_told_apart(tmp_path, content, wording):
    (tmp_path / "a.sif").write_bytes(content)
    with wording.raises(ValueError):
        image_id(tmp_path / "a.sif")


def test_a_header_that_is_cut_off_is_no_image(tmp_path, wording):
    whole = fake_sif(tmp_path / "a.sif").read_bytes()
    (tmp_path / "a.sif").write_bytes(whole[:63])
    with wording.raises(ValueError):
        image_id(tmp_path / "a.sif")


def test_an_image_without_a_uuid_could_not_be_told_from_another_one(tmp_path, wording):
    with wording.raises(ValueError):
        image_id(fake_sif(tmp_path / "a.sif", 0))


def test_an_image_or_wrapper_that_changed_after_planning_is_noticed_in_the_job(folder, wording):
    made = stack("contained", image="a.sif", wrapper="wrapper.sh")
    again = "Run the same command again to plan with the current files."
    assert changed_since_planned("a", made) is None
    program(folder / "wrapper.sh", 'exec env A=1 "$@"\n')
    edited = f"stack a: {folder}/wrapper.sh was edited after the cells were planned. {again}"
    assert changed_since_planned("a", made) == edited
    fake_sif(folder / "a.sif", 2)
    other = f"stack a: {folder}/a.sif is not the image that was planned. {again}"
    assert changed_since_planned("a", made) == other
    (folder / "a.sif").write_text("no image")
    wording(changed_since_planned("a", made))
    (folder / "a.sif").unlink()
    assert changed_since_planned("host", stack()) is None


# ---- Variables in binds


@pytest.mark.parametrize(
    ("bind", "expanded"),
    [
        ("/a:/b", "/a:/b"),
        ("$A/x:/b", "/one/x:/b"),
        ("${A}x", "/onex"),
        ("/a:$B", "/a:two words"),
        ("/cost$$5", "/cost$5"),
        ("$$A", "$A"),
    ],
)
def test_variables_of_a_bind_are_replaced_and_nothing_else(bind, expanded):
    assert expand_bind(bind, {"A": "/one", "B": "two words"}) == expanded


@pytest.mark.parametrize("bind", ["$(touch x)", "/a$", "${A", "${A:-x}", "$1"])
def test_other_words_of_a_shell_are_refused(bind, wording):
    with wording.raises(UserError):
        expand_bind(bind, {"A": "/one"})


# ---- What is in a cell's id


def ids(folder: Path, changes: dict | None = None, cluster: dict | None = None) -> list[str]:
    """Return the ids of a campaign with one bind-mounted stack, changed so."""
    entry = {"kind": "bind-mounted", "image": "a.sif", "wrapper": "wrapper.sh", "binds": ["/usr:/host/usr"]}
    data = collectives(4096, stacks={"a": entry | (changes or {})})
    return [cell.id for cell in matrix(folder, data, SLURM | (cluster or {})).cells]


def test_an_image_and_a_wrapper_keep_their_cells_wherever_they_lie(folder):
    before = ids(folder)
    shutil.move(folder / "a.sif", folder / "moved.sif")
    shutil.move(folder / "wrapper.sh", folder / "moved.sh")
    assert ids(folder, {"image": "moved.sif", "wrapper": "moved.sh"}) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"binds": ["/usr:/host"]},
        {"binds": ["/usr:/host/usr", "/etc"]},
        {"runtime": "singularity"},
        {"runtime_options": ["--ipc"]},
        {"env": {"NCCL_CROSS_NIC": 1}},
        {"srun": ["--mpi=pmi2"]},
        {"python": "/opt/python"},
        {"kind": "contained"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_of_a_stack_can_change_a_number_makes_other_cells(folder, changes):
    assert set(ids(folder, changes)).isdisjoint(ids(folder))


def test_what_is_only_asked_of_a_stack_leaves_its_cells(folder):
    asked = {"required_network": "AWS Libfabric", "required_host_libraries": ["libfabric"]}
    assert ids(folder, asked | {"runtime": "apptainer", "env": {}}) == ids(folder)


def test_how_jobs_are_asked_for_leaves_the_cells(folder):
    asked = {"partition": "gpu", "account": "physics", "qos": "high", "constraint": "nvlink", "reservation": "tuesday"}
    asked |= {"exclusive": False, "sbatch": ["--switches=1"], "max_walltime_minutes": 5, "max_jobs": 5}
    asked |= {"memory_mb_per_node": 0, "gpu_request": "gres", "node_folders": ["/scratch"], "num_nodes": 7}
    assert ids(folder, cluster=asked | {"gpus_per_node": 8}) == ids(folder)


@pytest.mark.parametrize(
    "cluster",
    [
        {"env": {"NCCL_DEBUG": "WARN"}},
        {"srun": ["--cpu-bind=socket"]},
        {"cpus_per_rank": 72},
        {"network_interface": "hsn0"},
    ],
    ids=lambda cluster: next(iter(cluster)),
)
def test_what_of_a_cluster_reaches_the_ranks_makes_other_cells(folder, cluster):
    assert set(ids(folder, cluster=cluster)).isdisjoint(ids(folder))


def test_it_does_not_matter_whether_cluster_or_stack_says_it(folder):
    by_cluster = ids(folder, cluster={"env": {"A": "1"}, "srun": ["--cpu-bind=socket"]})
    assert ids(folder, {"env": {"A": "1"}, "srun": ["--cpu-bind=socket"]}) == by_cluster


def test_the_network_interface_is_set_for_gloo_and_nccl(folder, wording):
    env = {"GLOO_SOCKET_IFNAME": "hsn0", "NCCL_SOCKET_IFNAME": "hsn0"}
    assert ids(folder, cluster={"network_interface": "hsn0"}) == ids(folder, cluster={"env": env})
    assert ids(folder, cluster={"network_interface": ["hsn0"]}) == ids(folder, cluster={"env": env})
    both = dict.fromkeys(env, "hsn0,hsn1")
    assert ids(folder, cluster={"network_interface": ["hsn0", "hsn1"]}) == ids(folder, cluster={"env": both})
    assert ids(folder, cluster={"network_interface": None}) == ids(folder)
    with wording.raises(UserError):
        ids(folder, cluster={"network_interface": "hsn0", "env": {"NCCL_SOCKET_IFNAME": "ib0"}})


def test_a_variable_of_the_stack_replaces_the_cluster_s(folder):
    made = stack("contained", {**SLURM, "env": {"A": "1", "B": "2"}}, image="a.sif", env={"A": "3"})
    assert made["env"] == {"A": "3", "B": "2"}


def test_the_cluster_s_options_come_before_the_stack_s(folder):
    cluster = {**SLURM, "srun": ["--cpu-bind=socket"], "cpus_per_rank": 72}
    assert stack(cluster=cluster, srun=["--mpi=pmi2"])["srun"] == [
        "--cpu-bind=socket",
        "--cpus-per-task=72",
        "--mpi=pmi2",
    ]
    assert stack(srun=[])["srun"] == []


@pytest.mark.parametrize(
    ("entry", "cell"),
    [
        ({"kind": "host"}, "collective-all_reduce-4096-n01g02-host-4b4cb9ce1d4f"),
        ({"kind": "host", "python": "/bin/sh", "env": {"A": 1}}, "collective-all_reduce-4096-n01g02-host-2e1fd90a96f5"),
    ],
)
def test_cells_of_this_machine_have_the_ids_they_had_before_there_were_containers(tmp_path, monkeypatch, entry, cell):
    """If this fails, every store made on one machine loses its history. Do that on purpose only."""
    pin_versions(monkeypatch)
    path = write(tmp_path, collectives("4KiB", cluster="local", stacks={"host": entry}))
    assert [c.id for c in expand(load_campaign(path)).cells] == [cell]


# ---- Scripts that a stack names

NO_SCRIPT = {
    "80239841576c": {"kind": "host", "python": "/usr/bin/env", "srun": ["--mpi=pmix_v4", "--task-prolog=prolog.sh"]},
    "1d870e739cfc": {"kind": "host", "python": "python3.11"},
    "61a1817c9390": {"kind": "bind-mounted", "image": "a.sif", "wrapper": "wrapper.sh", "binds": ["/usr:/host/usr"]}
    | {"python": "/opt/python"},
}


@pytest.mark.parametrize("digest", NO_SCRIPT)
def test_a_stack_that_names_no_script_has_the_ids_it_had_before_scripts_were_hashed(folder, monkeypatch, digest):
    """If this fails, stores lose their history. Do that on purpose only."""
    pin_versions(monkeypatch)
    found = matrix(folder, collectives(4096, stacks={"a": NO_SCRIPT[digest]}), SLURM).cells
    assert [cell.id for cell in found] == [f"collective-all_reduce-4096-n01g02-a-{digest}"]
    assert "scripts" not in found[0].spec["stack"] | found[0].stack_entry


def test_a_preflight_without_a_script_has_the_id_it_had_before(folder, monkeypatch):
    pin_versions(monkeypatch)
    campaign = load(folder, collectives(4096, stacks={"a": {"kind": "host", "python": "/usr/bin/env"}}), SLURM)
    assert plan_preflight(campaign, [(1, 2)], {"a"}, folder).id == "preflight-d7123a2122a6"


def scripted(folder: Path, entry: dict, cluster: dict | None = None) -> tuple[list[str], str, dict, dict]:
    """Return a campaign's cell ids, its preflight's id, the scripts in the cell and the stack as launches need it."""
    campaign = load(folder, collectives(4096, stacks={"a": entry}), SLURM | (cluster or {}))
    found = expand(campaign).cells
    preflight = plan_preflight(campaign, [(1, 2)], {"a"}, folder).id
    return [cell.id for cell in found], preflight, found[0].spec["stack"].get("scripts"), found[0].stack_entry


IMAGE = {"kind": "contained", "image": "a.sif"}
SCRIPTS = {  # what names the script: the stack, the cluster, the key under which its hash stands
    "python": ({"kind": "host", "python": "{folder}/env.sh"}, {}, "python"),
    "python, from Regatta's folder": ({"kind": "host", "python": "./env.sh"}, {}, "python"),
    "python in a bind": (IMAGE | {"python": "/env/env.sh", "binds": ["{folder}:/env"]}, {}, "python"),
    "python in a bind within a bind": (
        IMAGE | {"python": "/env/x/env.sh", "binds": ["$DIR:/env/x", "/usr:/env"]},
        {},
        "python",
    ),
    "python in the folder that is always mounted": (IMAGE | {"python": "{folder}/env.sh"}, {}, "python"),
    "a prolog": ({"kind": "host", "srun": ["--prolog={folder}/env.sh"]}, {}, "--prolog"),
    "a prolog without a folder": ({"kind": "host", "srun": ["--prolog=env.sh"]}, {}, "--prolog"),
    "an epilog": ({"kind": "host", "srun": ["--epilog={folder}/env.sh"]}, {}, "--epilog"),
    "a task prolog": (IMAGE | {"srun": ["--task-prolog=./env.sh"]}, {}, "--task-prolog"),
    "a shortened option": ({"kind": "host", "srun": ["--task-e=./env.sh"]}, {}, "--task-epilog"),
    "the last of two": ({"kind": "host", "srun": ["--epilog=./bin/apptainer", "--epilog=./env.sh"]}, {}, "--epilog"),
    "the cluster": ({"kind": "host"}, {"srun": ["--task-epilog={folder}/env.sh"]}, "--task-epilog"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_content_of_a_script_that_a_stack_names_is_part_of_its_cells(folder, monkeypatch, name, wording):
    monkeypatch.setenv("DIR", str(folder))
    entry, cluster, key = json.loads(json.dumps(SCRIPTS[name]).replace("{folder}", str(folder)))
    program(folder / "modules_of_2025.sh", 'exec python3 "$@"\n')
    (folder / "env.sh").symlink_to("modules_of_2025.sh")  # a link is followed
    text = (folder / "env.sh").read_bytes()
    before = scripted(folder, entry, cluster)
    assert before[2] == before[3]["scripts"] == {key: hashlib.sha256(text).hexdigest()}
    assert changed_since_planned("a", before[3]) is None

    program(folder / "modules_of_2025.sh", 'module load new; exec python3 "$@"\n')
    edited = scripted(folder, entry, cluster)
    assert (edited[0] != before[0], edited[1] != before[1]) == (True, True)
    said = changed_since_planned("a", before[3])
    wording(said)

    (folder / "modules_of_2025.sh").write_bytes(text)
    assert scripted(folder, entry, cluster) == before
    (folder / "modules_of_2025.sh").unlink()
    wording(changed_since_planned("a", before[3]))


def test_on_one_machine_a_plain_name_is_the_script_that_the_path_finds(folder, monkeypatch, wording):
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    data = collectives(4096, stacks={"a": {"kind": "host", "python": "env.sh"}})

    def ids_and_stack() -> tuple:
        found = expand(load(folder, data)).cells
        return [cell.id for cell in found], found[0].stack_entry

    program(folder / "env.sh", 'exec python3 "$@"\n')
    before, stack_before = ids_and_stack()
    program(folder / "env.sh", 'module load new; exec python3 "$@"\n')
    assert ids_and_stack()[0] != before
    wording(changed_since_planned("a", stack_before))


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "host", "python": "env.sh"},  # looked up on the nodes' PATH
        {"kind": "host", "srun": ["--task-prolog=env.sh", "--prolog=none", "--epilog"]},
        {"kind": "host", "python": "{folder}/node/env.sh", "srun": ["--epilog={folder}/node/env.sh"]},
        IMAGE | {"python": "/env/env.sh", "binds": ["{folder}/node:/env"]},
        IMAGE | {"python": "/env/env.sh", "binds": ["$TMPDIR:/env"]},
        IMAGE | {"python": "/usr/bin/{script}"},  # a script of this machine, and maybe none in the image
    ],
)
def test_what_only_the_nodes_or_the_image_have_is_not_hashed(folder, monkeypatch, entry):
    monkeypatch.delenv("TMPDIR", raising=False)
    script = next(p.name for p in Path("/usr/bin").iterdir() if p.is_file() and p.read_bytes()[:2] == b"#!")
    (folder / "node").mkdir()
    for path in (folder / "env.sh", folder / "node" / "env.sh"):
        program(path, "")
    entry = json.loads(json.dumps(entry).replace("{folder}", str(folder)).replace("{script}", script))
    _, _, in_cell, made = scripted(folder, entry, {"node_folders": [f"{folder}/node"]})
    assert (in_cell, "scripts" in made) == (None, False)


def test_a_batch_that_was_frozen_before_scripts_were_hashed_is_still_run(folder):
    program(folder / "env.sh", "")
    made = stack(python=f"{folder}/env.sh")
    assert list(made.pop("scripts")) == ["python"]
    assert changed_since_planned("a", made) is None


def test_a_variable_of_the_cluster_is_taken_as_it_is_written(folder):
    path = write(folder, TEXT)
    file = folder / "clusters" / "tiny.yaml"
    file.write_text(file.read_text() + "env: {A: 1.10, B: 010}\n")
    assert load_campaign(path, folder / "clusters").data["stacks"]["host"]["env"] == {"A": "1.10", "B": "010"}
