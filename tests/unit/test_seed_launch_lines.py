"""config/campaigns/gh200-slingshot-ddp.yaml runs the published command lines, option by option, and nothing else.

The two lines are from github.com/crickett-hpe/hpc-ai-envs, examples/torch-distributed/README.md. The campaign names paths of that
machine; the tests load a copy in which the images are local files, and the sources of binds exist on compute nodes only.
"""

import re
import shlex
from pathlib import Path

import pytest
from campaign_files import fake_sif

from regatta.campaign.expansion import expand
from regatta.campaign.load import CLUSTERS, Campaign, load_campaign
from regatta.core.files import ROOT
from regatta.launchers import RUN_LAUNCH, launch_argv
from regatta.launchers.base import Geometry

CAMPAIGN = CLUSTERS.parent / "campaigns" / "gh200-slingshot-ddp.yaml"
JOB = {"TMPDIR": "/tmp/job7", "HOME": "/home/me"}
RESULTS = Path("/scratch/results/gh200-slingshot-ddp")

PUBLISHED = {
    "contained": (
        "srun --mpi=pmix_v4 -n 8 --ntasks-per-node=4 --distribution=*:block --cpu-bind=socket --ntasks-per-socket=1 -c 72"
        " singularity run --nv --bind /projects --bind $TMPDIR --bind $HOME --bind `pwd`"
        " IMAGE python /projects/benchmarking/public/examples/ddp/benchmark.py"
    ),
    "bind_mounted": (
        "srun --mpi=pmi2 -n 8 --ntasks-per-node=4 --distribution=*:block --cpu-bind=socket --ntasks-per-socket=1 -c 72"
        " singularity run --nv --bind /projects --bind $TMPDIR --bind $HOME --bind `pwd` --bind /projects/benchmarking/public"
        " --bind /opt/cray/libfabric/1.15.2.0/lib64:/host/lib,/usr:/host/usr"
        " IMAGE /projects/benchmarking/public/examples/wrapper.sh"
        " python /projects/benchmarking/public/examples/ddp/benchmark.py"
    ),
}
# What of a published line is another word here. `>& FILE` is the supervisor's log, MASTER_ADDR the launch's environment.
TRANSLATION = {
    "-n 8": "--ntasks=8",
    "-c 72": "--cpus-per-task=72",
    "--bind $TMPDIR": "--bind /tmp/job7",
    "--bind $HOME": "--bind /home/me",
    "--bind `pwd`": f"--bind {ROOT}",
    "--bind /opt/cray/libfabric/1.15.2.0/lib64:/host/lib,/usr:/host/usr": (
        "--bind /opt/cray/libfabric/1.15.2.0/lib64:/host/lib --bind /usr:/host/usr"
    ),
    "/projects/benchmarking/public/examples/wrapper.sh": f"{ROOT}/containers/host_libraries.sh",
    "python": "python3",
    "/projects/benchmarking/public/examples/ddp/benchmark.py": f"{RUN_LAUNCH} --request r.json",
}
# What Regatta says beyond: the number of nodes, that all ranks end with one, and where results go.
ADDED = [
    "--nodes=2",
    "--job-name=regatta",
    "--kill-on-bad-exit=1",
    "--wait=60",
    "--export=ALL",
    "--time=10",
    f"--bind {RESULTS}",
]


@pytest.fixture
def campaign(tmp_path, monkeypatch) -> Campaign:
    return edited(tmp_path, monkeypatch, CAMPAIGN.read_text(encoding="utf-8"))


def edited(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Campaign:
    """Load a campaign's text with images that are here, and binds that need not be."""
    monkeypatch.chdir(ROOT)  # as people run it: the wrapper's path begins there
    monkeypatch.setenv("HOME", str(folder))
    for number, path in enumerate(sorted(set(re.findall(r"image: (\S+)", text)))):
        text = text.replace(f"image: {path}\n", f"image: {fake_sif(folder / f'{number}.sif', number + 1)}\n")
    (folder / "campaign.yaml").write_text(text, encoding="utf-8")
    (folder / "clusters").mkdir(exist_ok=True)
    cluster = (CLUSTERS / "gh200-slingshot.yaml").read_text(encoding="utf-8")
    assert "node_folders: [/opt/cray]" in cluster
    cluster = cluster.replace("node_folders: [/opt/cray]", "node_folders: [/opt/cray, /projects]")
    (folder / "clusters" / "gh200-slingshot.yaml").write_text(cluster, encoding="utf-8")
    return load_campaign(folder / "campaign.yaml", folder / "clusters")


def line(campaign: Campaign, stack: str, nodes: int, gpus_per_node: int) -> list[str]:
    geometry = Geometry(campaign.cluster, nodes, gpus_per_node, campaign.data["device"])
    program = [str(RUN_LAUNCH), "--request", "r.json"]
    made = campaign.data["stacks"][stack]
    words = launch_argv(geometry, made, program, variables=JOB, folders=(ROOT, RESULTS), limit_seconds=600)
    return ["IMAGE" if word == made["image"] else word for word in words]


def options(words: list[str]) -> list[str]:
    """Return a line's words, with what takes a value in the next word as one: `-n 8`, `--bind /projects`."""
    found: list[str] = []
    for word in words:
        if found and found[-1] in ("-n", "-c", "--bind", "--request"):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def translated(stack: str) -> list[str]:
    """Return the published line in the words of Regatta."""
    words = options(shlex.split(PUBLISHED[stack]))
    return options(" ".join(TRANSLATION.get(word, word) for word in words).split(" "))


@pytest.mark.parametrize("stack", PUBLISHED)
def test_every_option_of_the_published_line_is_there_and_no_other(campaign, stack):
    assert sorted(options(line(campaign, stack, 2, 4))) == sorted(translated(stack) + ADDED)


@pytest.mark.parametrize("stack", PUBLISHED)
def test_what_depends_on_order_is_in_the_published_order(campaign, stack):
    """Binds are mounted one over the other; Regatta's own folder and the results come last."""
    own = [f"--bind {ROOT}", f"--bind {RESULTS}"]

    def of_the_container(words: list[str]) -> list[str]:
        return [word for word in words[words.index("singularity") :] if word not in own]

    assert of_the_container(options(line(campaign, stack, 2, 4))) == of_the_container(translated(stack))


def test_the_whole_lines_of_eight_ranks(campaign):
    head = "srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --job-name=regatta --kill-on-bad-exit=1 --wait=60"
    head += " --export=ALL --time=10"
    layout = "--distribution=*:block --cpu-bind=socket --ntasks-per-socket=1 --cpus-per-task=72"
    binds = "--bind /projects --bind /tmp/job7 --bind /home/me"
    own = f"--bind {ROOT} --bind {RESULTS} IMAGE"
    host = "--bind /opt/cray/libfabric/1.15.2.0/lib64:/host/lib --bind /usr:/host/usr"
    program = f"python3 {RUN_LAUNCH} --request r.json"
    contained = f"--mpi=pmix_v4 singularity run --nv {binds} {own} {program}"
    assert " ".join(line(campaign, "contained", 2, 4)) == f"{head} {layout} {contained}"
    binds += f" --bind /projects/benchmarking/public {host}"
    mounted = f"--mpi=pmi2 singularity run --nv {binds} {own} {ROOT}/containers/host_libraries.sh {program}"
    assert " ".join(line(campaign, "bind_mounted", 2, 4)) == f"{head} {layout} {mounted}"


@pytest.mark.parametrize("stack", PUBLISHED)
@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2)])
def test_other_shapes_differ_in_nothing_but_the_numbers_of_nodes_and_tasks(campaign, stack, nodes, gpus):
    eight, other = line(campaign, stack, 2, 4), line(campaign, stack, nodes, gpus)
    assert other[:4] == ["srun", f"--nodes={nodes}", f"--ntasks={nodes * gpus}", f"--ntasks-per-node={gpus}"]
    assert other[4:] == eight[4:]


def test_the_matrix_is_the_published_one_with_more_buckets_and_both_stacks(campaign):
    matrix = expand(campaign)
    # For each stack and model: `none` on 1x1, and 4 buckets on each of 6 shapes. `none` on 5 shapes is skipped.
    assert len(matrix.cells) == 2 * 2 * (1 + 4 * 6) == 100
    assert len(matrix.skipped) == 2 * 2 * 5
    assert matrix.notes == []
    parameters = [cell.spec["parameters"] for cell in matrix.cells]
    assert {p["model"] for p in parameters} == {"resnet50", "resnet101"}
    assert {p["batch_size"] for p in parameters} == {32}
    assert {p["image_size"] for p in parameters} == {224}
    assert {p["dtype"] for p in parameters} == {"fp32"}
    assert {p["bucket_cap_mb"] for p in parameters if p["strategy"] == "ddp"} == {1, 10, 25, 100}
    assert {cell.shape for cell in matrix.cells} == {(n, g) for n in (1, 2) for g in (1, 2, 4)}
    assert {(cell.spec["device"], cell.spec["backend"]) for cell in matrix.cells} == {("cuda", "nccl")}
    assert campaign.data["repeats"] >= 6


def test_the_published_rows_are_cells(campaign):
    """no ddp, 1M/1G, 1M/2G, 1M/4G, 2M/4G (called 2M/8G there), with buckets of 25 MB."""
    found = {
        (cell.spec["parameters"]["strategy"], *cell.shape)
        for cell in expand(campaign).cells
        if cell.spec["parameters"]["bucket_cap_mb"] in (None, 25) and cell.spec["stack"]["name"] == "contained"
    }
    assert {("none", 1, 1), ("ddp", 1, 1), ("ddp", 1, 2), ("ddp", 1, 4), ("ddp", 2, 4)} <= found


def test_both_stacks_must_use_the_fabric_and_one_the_host_s_libraries(campaign):
    stacks = campaign.data["stacks"]
    assert {name: stack["required_network"] for name, stack in stacks.items()} == dict.fromkeys(stacks, "AWS Libfabric")
    assert stacks["bind_mounted"]["required_host_libraries"] == ["libfabric", "libcxi"]


def test_the_third_stack_differs_from_the_bind_mounted_one_in_the_libraries_alone(tmp_path, monkeypatch):
    text = re.sub(r"^  #(?=\S|  )", "  ", CAMPAIGN.read_text(encoding="utf-8"), flags=re.MULTILINE)
    stacks = edited(tmp_path, monkeypatch, text).data["stacks"]
    third, mounted = stacks["contained_pmi2"], stacks["bind_mounted"]
    differs = {key for key in mounted if third[key] != mounted[key]}
    assert differs == {"kind", "binds", "wrapper", "wrapper_sha256", "env", "required_host_libraries"}
    of_the_host = ["/opt/cray/libfabric/1.15.2.0/lib64:/host/lib", "/usr:/host/usr"]
    assert mounted["binds"] == [*third["binds"], *of_the_host]


def test_elsewhere_the_campaign_is_refused_with_what_a_site_must_edit():
    if Path("/projects").exists():
        pytest.skip("this machine has /projects")
    from regatta.core.errors import UserError

    with pytest.raises(UserError) as caught:
        load_campaign(CAMPAIGN)
    said = str(caught.value)
    assert "stacks.contained.image = '/path/to/sif/pytorch-ngc-hpc-dev.sif'" in said
    assert "stacks.bind_mounted.binds[0] = '/projects'" in said
