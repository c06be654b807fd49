"""Stacks with an image and a wrapper in one job, and a job whose image or wrapper changes while it waits."""

import hashlib
import json
import shutil
import uuid

from drills import UNTIL_MEASURED, Site, campaign
from stacks import fake_in_image, launches, make_stacks, make_wrapper, submitted


def test_stacks_take_turns_in_one_job(site, cpu_image):
    """A B C, then C B A, on the same nodes. What the ranks do is played, in the image and on the host."""
    stacks = make_stacks(site, cpu_image)
    stacks["host"]["python"] = f"{site.folder}/tests/cluster/fake_ranks.py"
    for name in ("contained", "bind_mounted"):
        stacks[name]["python"] = fake_in_image(site)
    del stacks["bind_mounted"]["required_host_libraries"]
    site.write(campaign(stacks))
    assert submitted(site.snakemake(*UNTIL_MEASURED)) == 2  # the preflight, and one batch
    assert site.statuses() == {"ok": 24}  # four cells, three stacks, two repeats
    begun = sorted(site.results.glob("launches/*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    stacks_in_turn = [json.loads(path.read_text().splitlines()[0])["stack"] for path in begun]
    assert stacks_in_turn == ["host", "contained", "bind_mounted", "bind_mounted", "contained", "host"]


def test_what_changes_while_a_job_waits_is_not_measured_under_the_old_id(site, cpu_image):
    """The wrapper is edited while the batch's job waits; then, with the batch planned anew, the image is replaced while
    the preflight's job waits."""
    wrapper = make_wrapper(site, '#!/bin/sh\nexec "$@"\n')
    image = site.host_folder / "an image.sif"
    shutil.copy(site.cluster.state / "images" / "cpu.sif", image)
    stack = {
        "kind": "contained",
        "image": f"{site.folder}/an image.sif",
        "python": fake_in_image(site),
        "wrapper": f"{site.folder}/wrap it.sh",
    }
    site.write(campaign({"changing": stack}, repeats=1, shapes=[{"nodes": [1], "gpus_per_node": [2]}]))
    site.pass_preflight()
    snakemake, blocker = site.popen_behind_a_job()  # the next run plans anew, and no job is submitted again for it
    make_wrapper(site, '#!/bin/sh\nexport OMP_EDITED=1\nexec "$@"\n')
    site.cluster.run(["scancel", blocker])
    assert snakemake.wait(300) == 4
    edited = f"stack changing: {stack['wrapper']} was edited after the cells were planned"
    assert said_in_jobs(site, edited) == 1
    assert site.lines() == []

    other = uuid.uuid4()
    snakemake, blocker = site.popen_behind_a_job()  # the preflight's job: the wrapper is another
    with image.open("r+b") as file:
        file.seek(48)  # of a SIF file's header: the UUID
        file.write(other.bytes)
    site.cluster.run(["scancel", blocker])
    assert snakemake.wait(300) == 4
    replaced = f"stack changing: {stack['image']} is not the image that was planned"
    assert said_in_jobs(site, replaced) == 2  # first in the preflight's, which holds the stack back from the batch
    assert replaced in site.report()
    assert replaced in (site.results / "measurements.csv").read_text()
    assert site.lines() == []

    assert submitted(site.snakemake(*UNTIL_MEASURED)) == 2  # the preflight has to look at it anew, too
    assert site.statuses() == {"ok": 4}
    [line] = launches(site)
    assert line["environment"]["variables"]["OMP_EDITED"] == "1"
    spec = site.records()[0]["spec"]["stack"]
    assert spec["wrapper_sha256"] == hashlib.sha256(wrapper.read_bytes()).hexdigest()
    assert spec["image_id"] == str(other)


def said_in_jobs(site: Site, words: str) -> int:
    """Return how many of the jobs' outputs hold these words."""
    outputs = [path.read_text() for path in site.host_folder.glob(".snakemake/slurm_logs/**/*.log")]
    assert not any("Traceback" in output for output in outputs)
    return sum(words in output for output in outputs)
