"""The documentation against the code: links, paths, exit statuses, columns and example campaigns."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from regatta.core.benchmarks import benchmark_names, load_benchmark

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "config/README.md", "containers/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WHERE_PATHS_BEGIN = (
    *("", "workflow/scripts", "workflow/scripts/bench", "config/campaigns", "workflow/scripts/regatta"),
    "examples/benchmark",
)
UPSTREAM = ("executors/local.py", "benchmarks/distributed/ddp/benchmark.py")  # files of other projects


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def blocks(name: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", read(name), re.DOTALL | re.MULTILINE)
    return [text for label, text in found if label == language]


def yaml_blocks(name: str) -> list[dict]:
    return [yaml.safe_load(text) for text in blocks(name, "yaml")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_of_the_repository_that_a_page_names_exists(page):
    named = re.findall(r"`([\w./-]+\.(?:py|smk|sh|def|yaml))`", without_code(page.read_text(encoding="utf-8")))
    missing = [
        name
        for name in named
        if name not in (*UPSTREAM, "config/clusters/mycluster.yaml")
        and "/" in name
        and not any((ROOT / folder / name).exists() for folder in WHERE_PATHS_BEGIN)
    ]
    assert missing == []


def test_every_page_is_linked_from_the_readme_or_from_a_page_that_is():
    found, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in found:
            continue
        found.add(page)
        targets = re.findall(r"\]\(([^)#\s]+)", without_code(page.read_text(encoding="utf-8")))
        files = [(page.parent / target).resolve() for target in targets if not target.startswith("http")]
        queue += [file for file in files if file.suffix == ".md"]
        queue += [file for folder in files if folder.is_dir() for file in folder.glob("*.md")]
    assert sorted(set(PAGES) - found) == []


def test_the_readme_is_at_most_150_lines_long():
    assert len(read("README.md").splitlines()) <= 150


def test_troubleshooting_lists_the_exit_statuses_of_the_code():
    from regatta.core.errors import GATE_UNDECIDED, INCOMPLETE, NOTHING_MEASURED, UNEXPECTED_ERROR, USER_ERROR

    section = read("docs/troubleshooting.md").partition("## Exit status")[2]
    found = {int(status): meaning for status, meaning in re.findall(r"^\| (\d) \| (.*) \|$", section, re.MULTILINE)}
    assert list(found) == [0, UNEXPECTED_ERROR, USER_ERROR, INCOMPLETE, NOTHING_MEASURED, GATE_UNDECIDED]
    assert "gate failed" in found[UNEXPECTED_ERROR]
    assert "user error" in found[USER_ERROR]
    assert "no record" in found[INCOMPLETE]
    assert "nothing measured" in found[NOTHING_MEASURED]


def test_the_page_of_metrics_says_what_a_row_of_each_file_is():
    from regatta.store.csv_files import COLLECTED
    from regatta.topics.catalog import TABLES

    listed = set(re.findall(r"`(\w+)\.csv`", read("docs/metrics.md").partition("\n## Within")[0]))
    assert listed == {*COLLECTED, "cells", *TABLES}


def test_the_example_campaign_is_valid_alone_and_with_the_keys_of_the_page_on_campaigns(tmp_path, monkeypatch):
    from regatta.campaign.load import CLUSTERS, load_campaign

    monkeypatch.chdir(ROOT)
    path = tmp_path / "campaign.yaml"
    (further_keys,) = yaml_blocks("docs/campaigns.md")
    for keys in ({}, further_keys):
        path.write_text(yaml.safe_dump(yaml_blocks("README.md")[0] | keys), encoding="utf-8")
        assert load_campaign(path, CLUSTERS).name == "my-first"


def test_the_examples_of_the_cluster_page_are_valid(tmp_path, monkeypatch):
    import jsonschema
    from campaign_files import fake_sif

    from regatta.campaign.load import load_campaign

    monkeypatch.chdir(ROOT)
    schema = yaml.safe_load(read("workflow/schemas/cluster.yaml"))
    cluster, node_types, typed_shapes, first_look, stacks, with_torchrun, with_prologue = yaml_blocks("docs/cluster.md")
    _, of_readme = yaml_blocks("README.md")
    for example in (cluster, cluster | node_types):
        jsonschema.validate(example, schema)
    shutil.copytree(ROOT / "config" / "clusters", tmp_path / "clusters")
    cluster["node_folders"] = ["/opt/cray", "/opt/site"]  # as the comment beside the key says
    (tmp_path / "clusters" / "mycluster.yaml").write_text(yaml.safe_dump(cluster), encoding="utf-8")
    image = str(fake_sif(tmp_path / "pytorch.sif"))

    def text_of(data: dict) -> str:
        text = yaml.safe_dump(data).replace("/shared/images/pytorch.sif", image)
        return text.replace("/shared/envs/torch/bin/python3", "/bin/sh")

    for changes in ({}, {"device": "cuda", "backend": ["nccl"], **stacks}, with_torchrun, with_prologue, of_readme):
        (tmp_path / "campaign.yaml").write_text(text_of(first_look | changes), encoding="utf-8")
        assert load_campaign(tmp_path / "campaign.yaml", tmp_path / "clusters").name == "first-look"
    (tmp_path / "clusters" / "mycluster.yaml").write_text(yaml.safe_dump(cluster | node_types), encoding="utf-8")
    (tmp_path / "campaign.yaml").write_text(text_of(first_look | typed_shapes), encoding="utf-8")
    assert list(load_campaign(tmp_path / "campaign.yaml", tmp_path / "clusters").shapes) == ["host-h100", "host-cpu"]


def test_the_answers_to_the_ten_questions_are_on_a_page():
    """Bold words of the table are on a golden page, or in the template of the drawer, the list of cells and a section."""
    table = read("docs/reading-the-report.md").partition("## Ten questions")[2].partition("\n## ")[0]
    sources = [*(ROOT / "tests/golden/pages").glob("*.txt"), ROOT / "workflow/report/explore.html.j2"]
    sources += (ROOT / "workflow/scripts/regatta" / name for name in ("tables/metrics.py", "report/explore.py"))
    shown = " ".join(source.read_text(encoding="utf-8") for source in sources)
    words = re.findall(r"\*\*(.*?)\*\*", table)
    assert len(words) > 15
    assert [word for word in words if word not in shown] == []
    assert table.count("\n|") == 2 + 10


@pytest.mark.parametrize("name", benchmark_names())
def test_the_page_of_a_benchmark_states_the_version_of_its_program(name):
    text = read(f"docs/benchmarks/{name}.md")
    assert re.findall(r"^Program: `[^`]*`, version (\d+)\.", text, re.MULTILINE) == [str(load_benchmark(name).version)]
