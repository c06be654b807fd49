"""The prologue of stacks in jobs: once per node, seen by all ranks, and a failure that holds back only its stack."""

import csv
import json

from drills import UNTIL_MEASURED, fake_campaign

SITE_FILE = """\
echo "$SLURM_JOB_ID $(uname -n)" >>{folder}/runs
module() {{ [ "$*" = 'load a/1' ] && export OMP_MODULE=a; }}
export OMP_OF_SITE="it's a 'site'" PATH={folder}/tools:$PATH
"""


def test_ranks_see_what_a_prologue_sets_and_one_that_fails_on_a_node_holds_back_its_stack(site):
    path = site.host_folder / "env of site.sh"
    path.write_text(SITE_FILE.format(folder=site.folder))
    (site.host_folder / "broken.sh").write_text("echo no license on $(uname -n)\n[ $(uname -n) = n1 ]\n")
    tools = site.host_folder / "tools"
    tools.mkdir()
    (tools / "python-of-site").symlink_to(f"{site.folder}/tests/cluster/fake_ranks.py")
    campaign = fake_campaign(site)
    good = {"kind": "host", "python": "python-of-site", "prologue": [{"module": "a/1"}]}  # found on the new PATH
    broken = campaign["stacks"].pop("fake") | {"prologue": [{"source": f"{site.folder}/broken.sh"}]}
    campaign["stacks"] = {"good": good, "broken": broken}
    site.write(campaign, prologue=[{"source": f"{site.folder}/{path.name}"}])
    site.snakemake(*UNTIL_MEASURED)
    assert site.statuses() == {"ok": 8}  # of the good stack: four cells, two repeats
    headers = [line for line in site.lines() if line["kind"] == "launch"]
    variables = [header["environment"]["variables"] for header in headers]
    assert {header["stack"] for header in headers} == {"good"}
    assert {(v["OMP_OF_SITE"], v["OMP_MODULE"]) for v in variables} == {("it's a 'site'", "a")}

    runs = (site.host_folder / "runs").read_text().splitlines()
    jobs = [{line for line in runs if line.startswith(f"{job} ")} for job in sorted({line.split()[0] for line in runs})]
    assert [len(nodes) for nodes in jobs] == [2, 2]  # the preflight's job and the batch's, each on n1 and n2
    assert len(runs) == 2 * 2 + 2  # in the preflight's for both stacks; in the batch's only for the good one

    [result] = site.results.glob("preflight/*.json")
    verdicts = {stack["stack"]: stack["verdict"] for stack in json.loads(result.read_text())["stacks"]}
    assert verdicts["good"]["ok"]
    [problem] = verdicts["broken"]["problems"]
    assert f"n2: source {site.folder}/broken.sh: " in problem
    site.snakemake(check=False)  # builds the report
    with (site.results / "measurements.csv").open(newline="") as file:
        causes = {row["cause"] for row in csv.DictReader(file) if row["stack"] == "broken"}
    assert all("license on n2" in cause for cause in causes)
    assert "license on n2" in site.report()
