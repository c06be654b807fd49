"""Plugins of a site: runtimes of a cluster file, formats of an import, and what is refused."""

from pathlib import Path

import pytest
import yaml
from campaign_files import collectives, load, message, small, write

import regatta.formats as formats
import try_output
from regatta.campaign.expansion import expand
from regatta.campaign.load import load_campaign
from regatta.core.errors import UserError
from regatta.core.readers import read_results
from regatta.launchers import LAUNCHERS, find_allocation, inherited_environment, launcher_of
from regatta.plan.batches import for_jobs
from regatta.runtimes import RUNTIMES
from regatta.runtimes.plugins import PLUGINS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "plugins"
COPY = "from regatta.runtimes import RUNTIMES as KNOWN\nRUNTIMES = {'pod': KNOWN['apptainer']}\n"


@pytest.fixture(autouse=True)
def _unchanged(monkeypatch):
    """Forget the plugins of a test, also for the tests after it."""
    known, launchers = dict(RUNTIMES), dict(LAUNCHERS)
    monkeypatch.setattr(formats, "_of_plugins", [])
    PLUGINS.clear()
    yield
    for name in RUNTIMES.keys() - known.keys():
        del RUNTIMES[name]
    for name in LAUNCHERS.keys() - launchers.keys():
        del LAUNCHERS[name]
    PLUGINS.clear()


def with_plugin(folder: Path, text: str) -> dict:
    """Write clusters/site/pod.py, and return the keys of a cluster file that lists it."""
    (folder / "clusters" / "site").mkdir(parents=True)
    (folder / "clusters" / "site" / "pod.py").write_text(text)
    return {"plugins": ["site/pod.py"]}


def test_a_runtime_of_the_cluster_file_starts_stacks(tmp_path):
    image = tmp_path / "torch.sqfs"
    image.write_bytes(b"hsqs" + bytes(92))
    stack = {"kind": "contained", "runtime": "ch-run", "image": str(image)}
    cluster = {"plugins": [str(EXAMPLES / "charliecloud.py")], "scheduler": "slurm"}
    campaign = load(tmp_path, collectives(4096, stacks={"a": stack}), cluster)
    (cell,) = expand(campaign).cells
    assert cell.spec["stack"]["runtime"] == "ch-run"
    assert "ch-run --write-fake" in cell.command


def test_jobs_load_the_plugins_of_their_frozen_cluster(tmp_path):
    path = write(tmp_path, collectives(4096), with_plugin(tmp_path, COPY))
    frozen = for_jobs(load_campaign(path, tmp_path / "clusters").cluster)
    assert frozen["plugins"] == [str(tmp_path / "clusters" / "site" / "pod.py")]
    del RUNTIMES["pod"]
    PLUGINS.clear()
    find_allocation(frozen)
    assert RUNTIMES["pod"] is RUNTIMES["apptainer"]


MPIRUN = {"plugins": [str(EXAMPLES / "mpirun.py")], "scheduler": "mpirun"}


def test_a_launcher_of_the_cluster_file_starts_ranks(tmp_path):
    campaign = load(tmp_path, collectives(4096), MPIRUN)
    (cell,) = expand(campaign).cells
    assert cell.command.split()[:3] == ["mpirun", "-np", "2"]
    frozen = for_jobs(campaign.cluster)
    ids = [cell.id for cell in expand(load(tmp_path, collectives(4096))).cells]
    assert [cell.id] == ids  # the cluster's name is in it, not its scheduler
    del LAUNCHERS["mpirun"]
    PLUGINS.clear()
    assert launcher_of(frozen).title == "mpirun"  # in another process, such as the gate's
    assert find_allocation(frozen).launcher is LAUNCHERS["mpirun"]


def test_variables_of_a_launcher_of_a_plugin_are_those_of_a_launch(tmp_path, monkeypatch):
    entry = {"benchmark": "program", "command": ["train", "$PRTE_RANK"], "ranks": "gpu"}
    entry |= {"read": {"rate": {"samples": "(x)", "unit": "1/s", "better": "larger"}}}
    data = small(shapes=[{"nodes": [1], "gpus_per_node": [2]}], benchmarks=[entry])
    load(tmp_path, data)
    assert "$PRTE_RANK" in message(tmp_path, yaml.safe_dump(data, sort_keys=False), MPIRUN)
    monkeypatch.setenv("PRTE_RANK", "7")
    assert "PRTE_RANK" not in inherited_environment(LAUNCHERS["mpirun"])


def test_a_scheduler_that_no_plugin_has_is_an_error_of_the_cluster_file(tmp_path, wording):
    wording(message(tmp_path, yaml.safe_dump(collectives(4096), sort_keys=False), {"scheduler": "mpirun"}))


def test_a_cluster_without_plugins_is_frozen_as_before(tmp_path):
    assert "plugins" not in load(tmp_path, collectives(4096)).cluster


BAD = {
    "missing": None,
    "syntax": "x = 1\nRUNTIMES = {\n",
    "exception": "import os\n\ndef f():\n    1 / 0\n\nf()\n",
    "exit": "raise SystemExit(3)\n",
    "empty": "x = 1\n",
    "not a dictionary": "RUNTIMES = ['pod']\n",
    "not a runtime": "RUNTIMES = {'pod': 'apptainer'}\n",
    "not a launcher": "LAUNCHERS = {'pbs': 'slurm'}\n",
    "name of a built-in launcher": "from regatta.launchers import LAUNCHERS as KNOWN\nLAUNCHERS = {'slurm': KNOWN['none']}\n",
    "name of a built-in runtime": COPY.replace("'pod'", "'singularity'"),
}
LINES = {"syntax": 2, "exception": 4, "exit": 1}


@pytest.mark.parametrize("kind", BAD)
def test_a_plugin_that_cannot_be_used_is_an_error_with_its_file(tmp_path, kind, wording):
    cluster = with_plugin(tmp_path, BAD[kind] or "")
    if BAD[kind] is None:
        (tmp_path / "clusters" / "site" / "pod.py").unlink()
    before = dict(RUNTIMES)
    text = message(tmp_path, yaml.safe_dump(collectives(4096), sort_keys=False), cluster)
    wording(text)
    assert text.startswith("clusters/tiny.yaml:7: plugins[0]: clusters/site/pod.py:")
    assert kind not in LINES or f"pod.py:{LINES[kind]}:" in text
    assert before == RUNTIMES


def test_a_plugins_list_of_another_form_is_an_error_of_the_cluster_file(tmp_path, wording):
    wording(message(tmp_path, yaml.safe_dump(collectives(4096), sort_keys=False), {"plugins": "site/pod.py"}))


def test_a_format_of_a_plugin_is_recognized(tmp_path):
    text = (EXAMPLES / "perftest-write-lat.txt").read_text()
    with pytest.raises(UserError):
        formats.read_text(text, "x.txt", formats.Options())
    formats.add_formats(EXAMPLES / "perftest.py")
    kind, source = formats.read_text(text, "x.txt", formats.Options())
    assert kind.name == "perftest-text"
    assert [reading.parameters["message_bytes"] for reading in source.readings] == [2, 4, 4096]
    (tmp_path / "again.py").write_text((EXAMPLES / "perftest.py").read_text())
    with pytest.raises(UserError, match="perftest-text"):
        formats.add_formats(tmp_path / "again.py")
    (tmp_path / "none.py").write_text("FORMATS = ('perftest',)\n")
    with pytest.raises(UserError, match=r"none\.py"):
        formats.add_formats(tmp_path / "none.py")


def test_a_campaign_reads_outputs_in_a_format_of_its_cluster_file(tmp_path, capsys):
    entry = {"benchmark": "program", "command": ["ib_write_lat"], "ranks": "node", "read": "perftest", "sizes": [2, 4]}
    shapes = [{"nodes": [2], "gpus_per_node": [1]}]
    cluster = {"plugins": [str(EXAMPLES / "perftest.py")], "num_nodes": 2, "scheduler": "slurm"}
    with pytest.raises(UserError, match="read = 'perftest'"):
        load(tmp_path, small(shapes=shapes, benchmarks=[entry]))
    (whole,) = load(tmp_path, small(shapes=shapes, benchmarks=[entry]), cluster).data["benchmarks"]
    output = EXAMPLES / "perftest-write-lat.txt"
    found = read_results(output, "perftest", (2, 1), 1, PLUGINS)
    assert [(result.size, result.samples) for result in found[:2]] == [(2, [1.47e-6]), (4, [1.47e-6])]
    assert try_output.try_format(output, whole, [(2, 1)]) == []
    assert "ib_write_lat, 4 B: 1.47 µs" in capsys.readouterr().out
    PLUGINS.clear()
    with pytest.raises(UserError, match="read = 'perftest'"):
        load(tmp_path, small(shapes=shapes, benchmarks=[entry]))


def test_a_pattern_of_a_format_that_backtracks_without_end_is_stopped_and_its_line_named(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(SLOW)
    formats.add_formats(tmp_path / "slow.py")
    monkeypatch.setattr(formats, "CPU_SECONDS", 1)
    content = b"slow 1\n" + b"a" * 60 + b"b\n"
    with pytest.raises(UserError, match=r"^x: line 2: stopped after 1 s in the pattern of title"):
        formats.read_checked(content, "x", formats.Options())


SLOW = """from regatta.formats.text_tables import SIZE, TableLayout, table_format
LAYOUT = TableLayout("slow", "a slow table", r"(a+)+ \\d", "bytes", {"bytes": SIZE}, recognized="^slow")
FORMATS = (table_format(LAYOUT),)
"""
