"""Campaigns with a user's training script: cells, their identity, the plan, and what is refused."""

import hashlib
import json
import os
import shlex
from pathlib import Path

import pytest
from campaign_files import HOSTILE, TEXT, message, plan, small, write, write_launch

from regatta.campaign.load import load_campaign
from regatta.core.errors import UserError
from regatta.plan.plan import freeze_campaign, write_frozen
from regatta.store.launch_files import read_launch_file

ENTRY = {
    "benchmark": "script",
    "arguments": ["--config", "small.yaml", "--batch-size={batch}", "--lr={lr}"],
    "parameters": {"batch": [8, 16], "lr": [0.1]},
    "samples_per_step": "{batch}",
    "steps": {"warmup": 2, "measure": 5},
}


@pytest.fixture
def code(tmp_path) -> Path:
    """A folder with a training script that imports from it in several ways."""
    folder = tmp_path / "code"
    (folder / "pkg" / "sub").mkdir(parents=True)
    texts = {
        "train.py": "import os, torch\nimport model\nfrom pkg import a, missing\n\ndef late():\n    import pkg.sub.deep\n",
        "model.py": "from pkg.a import x\n",
        "pkg/__init__.py": "",
        "pkg/a.py": "from . import b\nx = 1\n",
        "pkg/b.py": "from ..model import nothing\n",
        "pkg/sub/__init__.py": "",
        "pkg/sub/deep.py": "",
        "unused.py": "",
        "small.yaml": "a: 1\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def campaign(code: Path, *entries: dict, **changes) -> dict:
    shapes = [{"nodes": [1], "gpus_per_node": [2]}]
    entries = [ENTRY | {"script": str(code / "train.py")} | entry for entry in entries or ({},)]
    return small(shapes=shapes, benchmarks=list(entries)) | changes


def cells_of(made) -> dict[str, dict]:
    return {p.cell.spec["parameters"]["settings"]: p.cell.spec for p in made.cells}


def test_the_points_of_an_entry_are_cells(tmp_path, code):
    made = plan(tmp_path, campaign(code, {"files": ["small.yaml"]}))
    cells = cells_of(made)
    assert list(cells) == ["batch 8, lr 0.1", "batch 16, lr 0.1"]
    spec = cells["batch 16, lr 0.1"]
    assert spec["parameters"] == {
        "script": "train.py",
        "settings": "batch 16, lr 0.1",
        "samples_per_step": 16,
        "tokens_per_step": None,
    }
    assert spec["script"]["arguments"] == ["--config", "small.yaml", "--batch-size=16", "--lr=0.1"]
    assert spec["script"]["steps"] == {"warmup": 2, "measure": 5}
    names = {str(Path(path).relative_to(code)): digest for path, digest in spec["script"]["files"].items()}
    wanted = {
        "train.py",
        "model.py",
        "pkg/__init__.py",
        "pkg/a.py",
        "pkg/b.py",
        "pkg/sub/__init__.py",
        "pkg/sub/deep.py",
    }
    assert set(names) == wanted | {"small.yaml"}
    assert names["small.yaml"] == hashlib.sha256(b"a: 1\n").hexdigest()
    assert all(len(launch.cells) == 1 for batch in made.batches for launch in batch.launches)
    words = {name.full for name in freeze_campaign(made).cell_names.values()}
    assert words == {f"train.py · 1×2 processes · batch {batch}, lr 0.1" for batch in (8, 16)}


def test_cells_are_excluded_by_the_names_of_their_parameters(tmp_path, code):
    rules = [{"when": {"batch": 8, "stack": "host"}, "reason": "too small"}]
    assert list(cells_of(plan(tmp_path, campaign(code, exclude=rules)))) == ["batch 16, lr 0.1"]


def test_other_benchmarks_share_launches_and_keep_their_ids(tmp_path, code):
    alone = plan(tmp_path, small())
    both = plan(tmp_path, small(benchmarks=[*small()["benchmarks"], campaign(code)["benchmarks"][0]]))
    ids = {p.cell.id for p in alone.cells}
    assert ids < {p.cell.id for p in both.cells}
    sizes = {len(launch.cells) for batch in both.batches for launch in batch.launches}
    assert 1 in sizes
    assert max(sizes) > 1


@pytest.mark.parametrize("name", ["train.py", "pkg/b.py", "small.yaml"])
def test_an_edit_of_a_file_is_named_and_measured_again(tmp_path, code, name):
    data = campaign(code, {"files": ["small.yaml"]})
    before = play_all(tmp_path, data)
    assert plan(tmp_path, data).batches == []
    (code / name).write_text((code / name).read_text() + "\n# edited\n")
    made = plan_anew(tmp_path, data)
    assert {p.reason for p in made.cells} == {f"changed: {code / name}"}
    assert not {p.cell.id for p in made.cells} & {p.cell.id for p in before.cells}
    (code / "unused.py").write_text("x = 2\n")
    assert {p.cell.id for p in plan_anew(tmp_path, data).cells} == {p.cell.id for p in made.cells}


def plan_anew(tmp_path: Path, data: dict):
    """Plan as another process would: hashes of files are kept within one."""
    from regatta.campaign import script_entries as scripts

    scripts.script_files.cache_clear()
    scripts.edited.cache_clear()
    return plan(tmp_path, data)


def play_all(tmp_path: Path, data: dict, modules: dict | None = None):
    """Plan and freeze a campaign, and write an ok record of each cell with the modules that it loaded."""
    made = plan_anew(tmp_path, data)
    write_frozen(made)
    for batch in made.batches:
        names = []
        for index, launch in enumerate(batch.launches):
            (cell,) = launch.cells
            record = {"cell": cell.id, "status": "ok", "spec": cell.spec, "samples_ns": [[1000]] * cell.world_size}
            record |= {"elapsed_ns": 10**9} | ({"modules": modules} if modules else {})
            names.append(f"{batch.id}-l{index:03d}-a00")
            header = {"generation": batch.content["generation"], "batch": batch.id}
            write_launch(made.results, names[-1], launch.repeat, [record], **header)
        write_manifest(made.results, batch.id, names)
    return made


def write_manifest(results: Path, batch: str, launches: list[str]) -> None:
    from regatta.model.frozen import fields_to_json
    from regatta.store.history import summarize

    entries = [fields_to_json(summarize(read_launch_file(results / "launches" / f"{name}.jsonl"))) for name in launches]
    manifest = {"schema": 1, "batch": batch, "held": {}, "launches": entries}
    (results / "batches" / batch / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_module_that_was_loaded_and_is_edited_is_named_and_measured_again(tmp_path, code, has_manifest):
    data = campaign(code, {"parameters": {"batch": [8], "lr": [1]}})
    module = code / "unused.py"
    digest = hashlib.sha256(module.read_bytes()).hexdigest()
    modules = {str(module): digest, "/not/here.py": digest}
    play_all(tmp_path, data, modules)
    if not has_manifest:
        for path in (tmp_path / "results").rglob("manifest.json"):
            path.unlink()
    assert [p.status for p in plan_anew(tmp_path, data).cells] == ["done"]
    module.write_text("x = 2\n")
    made = plan_anew(tmp_path, data)
    assert [(p.status, p.reason) for p in made.cells] == [("todo", f"changed: {module}, which the script loaded")]
    assert {batch.content["generation"] for batch in made.batches} == {2}
    if has_manifest:
        play_all(tmp_path, data, modules | {str(module): hashlib.sha256(module.read_bytes()).hexdigest()})
        assert [p.status for p in plan_anew(tmp_path, data).cells] == ["done"]


def test_the_command_by_hand_quotes_every_word(tmp_path, code):
    words = [word for word in HOSTILE if "\n" not in word and "{" not in word and word]
    data = campaign(
        code, {"arguments": ["--x={x}", *words], "parameters": {"x": ["$(touch y); 'a"]}, "samples_per_step": 3}
    )
    (cell,) = plan(tmp_path, data).cells
    assert cell.cell.spec["script"]["arguments"] == ["--x=$(touch y); 'a", *words]
    command = shlex.split(cell.cell.command)
    assert [word for word in command if word.startswith("--argument=")] == [
        f"--argument={word}" for word in cell.cell.spec["script"]["arguments"]
    ]
    assert command[command.index("--script") + 1] == str(code / "train.py")
    assert command[command.index("--measure") + 1] == "5"


def test_an_argument_that_becomes_empty_is_omitted_and_braces_are_literal(tmp_path, code):
    data = campaign(
        code,
        {"arguments": ["{mode}", "", '{{"a": 1}}'], "parameters": {"mode": ["", "--compile"]}, "samples_per_step": 1},
    )
    cells = cells_of(plan(tmp_path, data))
    assert cells["no mode"]["script"]["arguments"] == ["", '{"a": 1}']
    assert cells["mode --compile"]["script"]["arguments"] == ["--compile", "", '{"a": 1}']


def test_settings_of_ddp_are_crossed_and_part_of_ids(tmp_path, code):
    data = campaign(code, {"ddp": {"bucket_cap_mb": [1, 25], "static_graph": [True]}, "exposed": True})
    cells = cells_of(plan(tmp_path, data))
    assert "batch 16, lr 0.1, bucket_cap_mb 25, static_graph true" in cells
    assert len(cells) == 4
    spec = cells["batch 8, lr 0.1, bucket_cap_mb 1, static_graph true"]
    assert spec["script"]["ddp"] == {"bucket_cap_mb": 1, "static_graph": True}
    assert spec["script"]["exposed"] is True
    without = cells_of(plan(tmp_path, campaign(code)))["batch 8, lr 0.1"]["script"]
    assert not {"ddp", "exposed"} & without.keys()
    command = plan(tmp_path, data).cells[0].cell.command
    words = shlex.split(command)
    assert json.loads(words[words.index("--ddp") + 1]) == {"bucket_cap_mb": 1, "static_graph": True}
    assert "--exposed" in words


def test_values_are_passed_as_written(tmp_path, code):
    text = TEXT.partition("benchmarks:")[0].replace("cluster: tiny", "cluster: local") + (
        f"benchmarks:\n  - benchmark: script\n    script: {code / 'train.py'}\n    arguments: ['{{a}}', 1.10, no, '010']\n"
        "    parameters: {a: [1.10, yes]}\n    samples_per_step: 4*8\n"
    )
    (tmp_path / "x.yaml").write_text(text)
    loaded = load_campaign(tmp_path / "x.yaml")
    (entry,) = loaded.data["benchmarks"]
    assert [script["arguments"] for _, script in entry["points"]] == [
        ["1.10", "1.10", "no", "010"],
        ["yes", "1.10", "no", "010"],
    ]
    assert entry["parameters"]["samples_per_step"] == [32]


ERRORS = {
    "no script": {"script": None},
    "a script that is not there": {"script": "CODE/absent.py"},
    "a script beside the campaign file": {"script": "code/train.py"},
    "a script that is a folder": {"script": "CODE"},
    "a script that is a pipe": {"script": "CODE/pipe"},
    "a syntax error": {"script": "CODE/broken.py"},
    "a NUL in the text of the script": {"script": "CODE/nul.py"},
    "an unknown value": {"arguments": ["--batch-size={bath}", "{batch}", "{lr}"]},
    "an attribute": {"arguments": ["{batch.__class__}", "{batch}", "{lr}"]},
    "a single brace": {"arguments": ["{batch}", "{lr}", '{"a": 1', "}"]},
    "a parameter in no argument": {"arguments": ["{batch}"]},
    "a parameter with a bad name": {"parameters": {"batch size": [1]}},
    "a parameter that is no list": {"parameters": {"batch": 8, "lr": [1]}},
    "a parameter without values": {"parameters": {"batch": [], "lr": [1]}},
    "a value of two lines": {"parameters": {"batch": ["a\nb"], "lr": [1]}},
    "too many combinations": {"parameters": {"batch": list(range(1000)), "lr": list(range(1000))}},
    "samples that are no number": {"samples_per_step": "{batch}*x"},
    "tokens of zero": {"tokens_per_step": "0*{batch}"},
    "an argument with a NUL": {"arguments": ["\0", "{batch}", "{lr}"]},
    "arguments in one word": {"arguments": "--batch-size={batch}"},
    "steps without a number": {"steps": {"warmup": 3}},
    "no warm-up": {"steps": {"warmup": 0, "measure": 3}},
    "a listed file that is not there": {"files": ["absent.yaml"]},
    "an unknown setting of DDP": {"ddp": {"bucket_cap": [1]}},
    "a setting of DDP that is no list": {"ddp": {"bucket_cap_mb": 25}},
    "an unknown key": {"argument": ["x"]},
    "a key of another benchmark": {"benchmark": "collective", "parameters": {"operation": ["barrier"]}},
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_line_value_and_remedy(tmp_path, code, wording, case):
    import yaml

    (code / "broken.py").write_text("import torch\n\nfor x in range(3)\n    print(x)\n")
    os.mkfifo(code / "pipe")
    (code / "nul.py").write_text("x = 1\0\n")
    (entry,) = campaign(code, ERRORS[case])["benchmarks"]
    entry = {key: value for key, value in entry.items() if value is not None}
    text = TEXT.partition("benchmarks:")[0] + yaml.safe_dump({"benchmarks": [entry]}, sort_keys=False)
    wording(message(tmp_path, text.replace("CODE", str(code))))


def test_two_entries_whose_cells_have_one_name_are_refused(tmp_path, code):
    with pytest.raises(
        UserError, match=r"benchmarks\[1\] measures train\.py with batch 8, lr 0\.1, as benchmarks\[0\]"
    ):
        plan(tmp_path, campaign(code, {}, {"files": ["small.yaml"]}))


def test_a_campaign_is_shown_where_its_script_is_missing(tmp_path, code):
    path = write(tmp_path, campaign(code, {"script": "/not/here.py"}))
    loaded = load_campaign(path, tmp_path / "clusters", may_lack_files=True)
    (missing,) = loaded.missing
    assert missing.is_in_id
    assert loaded.provisional_stacks == ["host"]
