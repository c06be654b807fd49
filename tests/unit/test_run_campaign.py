"""`make campaign` checks the campaign, prints the path of the report last, and forwards signals to Snakemake."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import run_campaign

CAMPAIGN = Path(run_campaign.__file__).parents[2] / "config" / "config.yaml"  # its name is laptop
SNAKEMAKE_THAT_WAITS = """import pathlib, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("ready", flush=True)
pathlib.Path("received").write_text(str(int(signal.sigwait([signal.SIGTERM]))))
sys.exit(7)
"""


def run(folder: Path, snakemake: str, *arguments: object) -> subprocess.Popen:
    """Start the script in a folder, with a module in the place of Snakemake."""
    (folder / "snakemake.py").write_text(snakemake)
    command = [sys.executable, run_campaign.__file__, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(folder)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)


def test_the_last_line_is_the_report_and_the_status_is_snakemakes(tmp_path, wording):
    report = tmp_path / "results" / "laptop" / "report.html"
    report.parent.mkdir(parents=True)
    report.touch()
    write = "import os, sys\nprint(*sys.argv[1:])\nos.utime('results/laptop/report.html', (9, 9))\nsys.exit(3)\n"
    process = run(tmp_path, write, CAMPAIGN, "--profile", "x")
    wording(process.communicate()[0])
    assert process.returncode == 3


def test_a_refused_run_does_not_print_the_report_that_another_run_is_writing(tmp_path):
    report = tmp_path / "results" / "laptop" / "report.html"
    report.parent.mkdir(parents=True)
    report.touch()
    process = run(tmp_path, "import os, sys\nos.utime('results/laptop/report.html', (9, 9))\nsys.exit(2)\n", CAMPAIGN)
    assert process.communicate()[0] == ""
    assert process.returncode == 2


def test_without_a_report_no_path_is_printed(tmp_path):
    process = run(tmp_path, "", CAMPAIGN)
    assert process.communicate()[0] == ""
    assert process.returncode == 0


def test_a_campaign_with_a_mistake_is_told_before_snakemake_starts(tmp_path):
    (tmp_path / "mine.yaml").write_text("schema: 1\nname: [\n")
    process = run(tmp_path, "print('started')\n", "mine.yaml")
    output, errors = process.communicate()
    assert process.returncode == 2
    assert output == ""
    assert "mine.yaml" in errors
    assert "Traceback" not in errors


def test_another_campaign_than_the_default_one_is_handed_on_as_configfile(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(CAMPAIGN.read_text())
    echo = "import sys\nprint(*sys.argv[3:])\n"  # behind --snakefile and its path
    for words, given in (
        (["-n"], "--configfile=mine.yaml -n"),
        (["--", "plan"], "--configfile=mine.yaml -- plan"),
        (["--configfile", "mine.yaml", "-n"], "--configfile mine.yaml -n"),
        (["--configfile=mine.yaml", "-n"], "--configfile=mine.yaml -n"),
    ):
        assert run(tmp_path, echo, "mine.yaml", *words).communicate()[0] == f"{given}\n"


def test_a_loop_of_links_is_one_message_and_a_name_need_not_be_utf_8(tmp_path, wording):
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    process = run(tmp_path, "print('started')\n", "loop.yaml", "-n")
    output, errors = process.communicate()
    assert (process.returncode, output, errors.count("\n")) == (2, "", 1)
    wording(errors)
    for name in (os.fsdecode(b"d\xe9.yaml"), "-z.yaml"):
        (tmp_path / name).write_text(CAMPAIGN.read_text())
        process = run(tmp_path, "import sys\nprint(ascii(sys.argv[3:]))\n", name)
        assert (process.communicate()[0], process.returncode) == (f"{[f'--configfile={name}']!a}\n", 0)


def test_two_campaigns_are_refused(tmp_path, wording):
    (tmp_path / "mine.yaml").write_text(CAMPAIGN.read_text())
    for first, second in (("mine.yaml", "other.yaml"), (CAMPAIGN, "mine.yaml")):
        process = run(tmp_path, "print('started')\n", first, "--configfile", second, "-n")
        output, errors = process.communicate()
        assert (process.returncode, output) == (2, "")
        wording(errors)


def test_help_names_the_exit_statuses_and_ends_well(tmp_path, wording):
    process = run(tmp_path, "", "--help")
    output, _ = process.communicate()
    assert process.returncode == 0
    wording.lines(output, "  4  ")
    process = run(tmp_path, "")
    assert process.communicate()[0] == ""
    assert process.returncode == 2


def test_a_signal_reaches_snakemake_and_its_status_is_kept(tmp_path):
    process = run(tmp_path, SNAKEMAKE_THAT_WAITS, CAMPAIGN)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 7
    assert (tmp_path / "received").read_text() == str(int(signal.SIGTERM))


def test_no_report_is_named_if_nothing_ran(tmp_path):
    report = tmp_path / "results" / "laptop" / "report.html"
    report.parent.mkdir(parents=True)
    report.touch()
    named = {
        words: run(tmp_path, "", CAMPAIGN, *words.split()).communicate()[0] for words in ("", "-n", "--unlock", "plan")
    }
    assert named == {"": "Report: results/laptop/report.html\n", "-n": "", "--unlock": "", "plan": ""}
