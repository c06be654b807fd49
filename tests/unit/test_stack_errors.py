"""Stacks: each error is reported before anything is submitted, and only what can affect results is in a cell's id."""

import os
from pathlib import Path

import pytest
import yaml
from campaign_files import SLURM, TEXT, changed, load, message

from regatta.launchers.slurm_options import SBATCH_BY_REGATTA, SRUN_BY_REGATTA, SRUN_REFUSED

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# A stack on its own lines: `a` is line 7 of the file, its kind line 8, and what follows line 9 and on.
HOST = TEXT.replace("  host: {kind: host}\n", "  a:\n    kind: host\n")


def with_lines(kind: str, *lines: str) -> str:
    """Return the small campaign with one stack `a` of this kind and these further lines."""
    return HOST.replace("kind: host\n", f"kind: {kind}\n" + "".join(f"    {line}\n" for line in lines))


# The stack's kind, and its further lines.
ERRORS = {
    "an image on the host": ("host", ["image: a.sif"]),
    "a runtime on the host": ("host", ["runtime: apptainer"]),
    "the runtime's options on the host": ("host", ["runtime_options: [-c]"]),
    "binds on the host": ("host", ["binds: [/usr]"]),
    "a wrapper on the host": ("host", ["wrapper: wrapper.sh"]),
    "libraries of the host on the host": ("host", ["required_host_libraries: [libfabric]"]),
    "srun's options without Slurm": ("host", ["srun: [--mpi=pmi2]"]),
    "threads of nested levels": ("host", ["env: {OMP_NUM_THREADS: '4,2'}"]),
    "no threads": ("host", ["env: {REGATTA_THREADS_PER_RANK: 0}"]),
    "a Python that is not there": ("host", ["python: ~/venv/bin/python3"]),
    "a Python that is a folder": ("host", ["python: /usr/bin"]),
    "no image": ("contained", []),
    "an image that is not there": ("contained", ["image: b.sif"]),
    "an image in a registry": ("contained", ["image: docker://x/y"]),
    "an image that is a folder": ("contained", ["image: bin"]),
    "an image that is none": ("contained", ["image: wrapper.sh"]),
    "an image of a user who does not exist": ("contained", ["image: ~nobody-at-all/a.sif"]),
    "a wrapper that is not there": ("contained", ["image: a.sif", "wrapper: none.sh"]),
    "a wrapper that cannot be run": ("contained", ["image: a.sif", "wrapper: a.sif"]),
    "a wrapper that is a folder": ("contained", ["image: a.sif", "wrapper: bin"]),
    "nothing mounted": ("bind-mounted", ["image: a.sif"]),
    "a search path that the runtime drops": ("contained", ["image: a.sif", "env: {LD_LIBRARY_PATH: /host/lib}"]),
    "a path that the runtime drops": ("contained", ["image: a.sif", "env:", "  PATH: /host/bin"]),
    "an image without the ranks' variables": (
        "contained",
        ["image: a.sif", "runtime_options: [--fakeroot, --cleanenv]"],
    ),
    "a bind that is not there": ("contained", ["image: a.sif", "binds: [/usr, /no/such/folder:/x]"]),
    "a bind from a relative path": ("contained", ["image: a.sif", "binds: ['bin:/x']"]),
    "a bind to a relative path": ("contained", ["image: a.sif", "binds: ['/usr:x']"]),
    "a bind to a relative path from a job's folder": ("contained", ["image: a.sif", "binds: ['$TMPDIR:x']"]),
    "a bind of four parts": ("contained", ["image: a.sif", "binds: ['/a:/b:/c:ro']"]),
    "a bind with an unknown option": ("contained", ["image: a.sif", "binds: ['/a:/b:rx']"]),
    "a bind of nothing": ("contained", ["image: a.sif", "binds: [':/b']"]),
    "a bind of a variable that is not set": ("contained", ["image: a.sif", "binds: ['$NO_SUCH/x']"]),
    "a bind to a variable that is not set": ("contained", ["image: a.sif", "binds: ['/usr:$NO_SUCH/x']"]),
    "a bind with a shell's words": ("contained", ["image: a.sif", "binds: ['/$(touch x)']"]),
    "a bind with a comma": ("contained", ["image: a.sif", "binds: ['/a:/b,/c:/d']"]),
    "a runtime that is not installed": ("contained", ["image: a.sif", "runtime: singularity"]),
    "a runtime that is none": ("contained", ["image: a.sif", "runtime: docker"]),
}


@pytest.mark.parametrize(("kind", "lines"), ERRORS.values(), ids=list(ERRORS))
def test_each_error_is_reported_with_file_line_value_and_remedy(folder, kind, lines, wording):
    wording(message(folder, with_lines(kind, *lines)))


@pytest.mark.parametrize(
    ("kind", "where", "value"),
    [
        ("host", "srun", "pmix"),
        ("contained", "runtime_options", "no-home"),
        ("contained", "required_host_libraries", "lib*"),
    ],
)
def test_words_that_are_no_options_or_libraries_are_refused_by_their_form(folder, kind, where, value):
    said = message(
        folder, with_lines(kind, "image: a.sif" if kind == "contained" else "env: {}", f"{where}: ['{value}']")
    )
    assert said.startswith(f"campaign.yaml:10: stacks.a.{where}[0] = '{value}' is invalid")


def test_all_errors_of_a_stack_are_reported_together_in_the_order_of_the_file(folder):
    lines = [
        "image: b.sif",
        "wrapper: none.sh",
        "binds: [relative, /no/such]",
        "runtime: singularity",
        "env: {PATH: x}",
    ]
    said = message(folder, with_lines("contained", *lines)).splitlines()
    assert [line.split(":")[1] for line in said] == ["9", "10", "11", "11", "12", "13"]


def test_a_stack_without_an_error_is_taken_with_paths_made_absolute(folder, monkeypatch):
    monkeypatch.setenv("WHERE", str(folder))
    lines = ["image: $WHERE/a.sif", "wrapper: wrapper.sh", "binds: ['$WHERE/bin:/host/bin:ro', '$TMPDIR', '/a$$b:/c']"]
    made = load(folder, with_lines("bind-mounted", *lines), {"node_folders": ["/a$b"]}).data["stacks"]["a"]
    assert (made["image"], made["wrapper"]) == (f"{folder}/a.sif", f"{folder}/wrapper.sh")
    assert made["binds"] == ["$WHERE/bin:/host/bin:ro", "$TMPDIR", "/a$$b:/c"]
    assert made["image_id"] == "00000000-0000-0000-0000-000000000001"


def test_folders_that_only_nodes_have_are_not_looked_for(folder, wording):
    lines = ["image: a.sif", "binds: ['/opt/no/such/lib:/host/lib', /optional]"]
    said = message(folder, with_lines("contained", *lines), {"node_folders": ["/opt/no"]})
    wording(said)


def test_what_may_not_be_looked_at_is_as_if_it_were_not_there(folder, monkeypatch, wording):
    """As below the home of somebody else: os.stat refuses, and no traceback is shown."""
    real = os.stat

    def stat(path, **options):
        if str(path).startswith("/secret"):
            raise PermissionError(13, "Permission denied")
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    lines = ["image: a.sif", "wrapper: /secret/wrapper", "binds: [/secret/x]"]
    said = message(folder, with_lines("contained", *lines))
    wording(said)


def test_the_runtime_is_looked_for_on_this_machine_only_where_it_will_run(folder):
    lines = ["image: a.sif", "runtime: singularity"]
    assert load(folder, with_lines("contained", *lines), SLURM).data["stacks"]["a"]["runtime"] == "singularity"


FORMS = ["{}", "{}=4", "{} 4"]


@pytest.mark.parametrize("form", [*FORMS, "{}4"])
@pytest.mark.parametrize("name", SRUN_BY_REGATTA)
def test_options_that_regatta_gives_itself_are_refused_in_every_spelling(folder, name, form, wording):
    option = form.format(name)
    if form == "{}4" and name.startswith("--"):
        return
    said = message(folder, with_lines("host", f"srun: ['{option}']"), SLURM)
    wording(said, option=f"'{option}'")


TAKEN = "--mpi=pmix_v4,--distribution=*:block,--cpu-bind=socket,--ntasks-per-socket=1,-c 72,--hint=nomultithread"


@pytest.mark.parametrize("option", TAKEN.split(","))
def test_other_options_of_srun_are_taken(folder, option):
    assert load(folder, with_lines("host", f"srun: ['{option}']"), SLURM).data["stacks"]["a"]["srun"] == [option]


@pytest.mark.parametrize("path", ["/no/such.sh", "./no/such.sh", "/usr/bin"])
def test_a_script_of_srun_that_cannot_be_read_is_refused(folder, path, wording):
    said = message(folder, with_lines("host", f"srun: ['--mpi=pmi2', '--task-prolog={path}']"), SLURM)
    wording(said, path=path)
    text = said.partition("srun[1]")[2]
    assert message(folder, TEXT, SLURM | {"srun": [f"--task-prolog={path}"]}).partition(": ")[2] == f"srun[0]{text}"
    load(folder, TEXT, SLURM | {"srun": ["--task-prolog=/no/such.sh"], "node_folders": ["/no"]})


def test_a_long_option_with_a_space_is_no_option(folder, wording):
    said = message(folder, with_lines("host", "srun: ['--mpi pmix_v4']"), SLURM)
    wording(said)


@pytest.mark.parametrize(
    "cluster",
    [
        {"sbatch": ["--switches=1", "--partition=x"]},
        {"sbatch": ["-N2"]},
        {"srun": ["--gres=gpu:1"]},
        {"env": {"OMP_NUM_THREADS": "1.5"}},
        {"gpus_per_node": "detect"},
    ],
)
def test_errors_of_a_cluster_are_reported_with_its_file(folder, cluster, wording):
    said = message(folder, TEXT, SLURM | cluster)
    assert said.startswith("clusters/tiny.yaml:")
    wording(said)


@pytest.mark.parametrize(
    ("key", "value"), [("partition", "gpu"), ("exclusive", False), ("srun", ["--mpi=pmix"]), ("cpus_per_rank", 2)]
)
def test_keys_of_slurm_are_refused_where_there_is_none(folder, key, value, wording):
    said = message(folder, TEXT, {key: value})
    assert said.startswith("clusters/tiny.yaml:")
    wording(said)


def test_every_option_that_is_refused_has_been_thought_of_for_sbatch_too():
    shared = {"-N", "--nodes", "-n", "--ntasks", "--ntasks-per-node", "-G", "--gpus", "--gpus-per-node", "--gres", "-t"}
    assert shared <= set(SRUN_BY_REGATTA) & set(SBATCH_BY_REGATTA)


def test_a_number_of_threads_is_taken_quoted_or_not(folder):
    made = load(folder, with_lines("host", "env: {OMP_NUM_THREADS: 4, REGATTA_THREADS_PER_RANK: '16'}")).data["stacks"][
        "a"
    ]
    assert made["env"] == {"OMP_NUM_THREADS": "4", "REGATTA_THREADS_PER_RANK": "16"}


def test_the_examples_here_are_yaml(folder):
    assert yaml.safe_load(with_lines("contained", "image: a.sif"))["stacks"]["a"]["image"] == "a.sif"
    assert changed("repeats: 3", "repeats: 4", with_lines("host")).count("repeats: 4") == 1


BREAKING = "--help,--test-only,--mpi=list,--uid=0,--multi-prog,--pty,--exclude=n1,-xn1,--nodelist=n1,-w n1,--no-kill,-k"
BREAKING += ",--partition=gpu,-pgpu,--qos=high,--clusters=x,-Mx,--,-"


@pytest.mark.parametrize("option", BREAKING.split(","))
def test_an_option_of_srun_that_breaks_launches_is_refused_with_what_to_use_instead(folder, option, wording):
    said = message(folder, with_lines("host", f"srun: ['{option}']"), SLURM)
    wording(said)


# Slurm takes every abbreviation that fits one option only, as getopt_long(3) does.
SHORTENED = {
    "srun": "--ntasks-per-n=2 --node=2 --gpus-per-n=1 --exp=NONE --job-n=x --kill=0 --exclud=n1 --nodel=n1 --multi --pt"
    " --tes --ui=0 --part=gpu",
    "sbatch": "--part=gpu --ntasks-per-n=2 --cpus-per-t=3 --gpus-per-n=4 --mem-per-c=1G --arr=1-3 --wr=ls --no-req"
    " --requeu --exclusiv --expo=NONE --chdi=/x --job-n=x --out=x",
}
WHOLE_NAMES = {"srun": [*SRUN_BY_REGATTA, *SRUN_REFUSED], "sbatch": SBATCH_BY_REGATTA}


@pytest.mark.parametrize(("key", "option"), [(key, word) for key, text in SHORTENED.items() for word in text.split()])
def test_an_abbreviated_option_is_refused_as_the_option_is(folder, key, option):
    """Slurm would take it, and start other ranks than planned, or use another partition than was checked."""
    name, _, value = option.partition("=")
    whole = next(known for known in WHOLE_NAMES[key] if known.startswith(name))
    said = message(folder, TEXT, SLURM | {key: [option]})
    assert said.startswith("clusters/tiny.yaml:")
    assert said == message(folder, TEXT, SLURM | {key: [f"{whole}={value}" if value else whole]}).replace(
        f"{whole}={value}" if value else f"'{whole}'", option if value else f"'{option}'"
    )


@pytest.mark.parametrize("option", ["--nodel=n1", "--exclud=n1", "--nodef=/x", "--gr=nvme:1"])
def test_options_that_are_merged_with_regatta_s_are_written_in_full(folder, option, wording):
    wording(message(folder, TEXT, SLURM | {"sbatch": [option]}))


@pytest.mark.parametrize("option", ["--help", "-V", "--test-only", "--tes", "--wait", "-W", "-", "--", "--=x"])
def test_an_option_of_sbatch_that_submits_nothing_is_refused(folder, option, wording):
    wording(message(folder, TEXT, SLURM | {"sbatch": [option]}))


OTHERS = "--comment=a b,--com=a,--sig=B:USR1@300,--hold,--time-min=5,--wait-all-nodes=1,--gres-flags=enforce-binding"
OTHERS += (
    ",--gpu-bind=none,--mem-per-gpu=1G,--ntasks-per-socket=2,--exclude=n1,--nodelist=n1,-x n4,--tres-bind=gres/gpu:1"
)


@pytest.mark.parametrize("option", OTHERS.split(","))
def test_other_options_of_sbatch_are_taken(folder, option):
    text = TEXT.replace("{kind: host}", "{kind: host, python: /bin/ls}")
    assert load(folder, text, SLURM | {"sbatch": [option]}).cluster["sbatch"] == [option]
