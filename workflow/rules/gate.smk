"""The last word, only where it is asked for: fail if a cell is not ok, or slower than in a baseline campaign."""

from regatta.compare.baseline import check_baseline_campaign


localrules:
    gate,


GATE = PLAN.campaign.data["gate"] if PLAN else {"baseline_campaign": None, "margin": 0}
GATE_FILES = [Path(RESULTS) / "gate.txt", Path(RESULTS) / "gate.junit.xml"]
BASELINE = Path(RESULTS).parent / GATE["baseline_campaign"] if GATE["baseline_campaign"] else None


def prepare_gate():
    """Before the first job: forget what the last gate said, for it was about other results."""
    targets = set(workflow.dag_settings.targets)
    if targets == {"plan"}:
        return
    if BASELINE and "gate" in targets:
        check_baseline()
    for path in GATE_FILES:
        path.unlink(missing_ok=True)


def check_baseline():
    """Tell a baseline campaign without results before anything is measured, and not after."""
    where = PLAN.campaign.file.at(("gate", "baseline_campaign"))
    if GATE["baseline_campaign"] == PLAN.campaign.name:
        exit_with_user_error(f"{where}: gate.baseline_campaign is this campaign itself. Name another.")
    try:
        check_baseline_campaign(BASELINE)
    except UserError as error:
        exit_with_user_error(f"{where}: gate.baseline_campaign = '{GATE['baseline_campaign']}', but {error}")


def made_by_all(wildcards):
    return list(rules.all.input)


def has_judged():
    return "gate" in workflow.dag_settings.targets and GATE_FILES[0].exists()


def print_gate():
    if has_judged():
        print(GATE_FILES[0].read_text(encoding="utf-8"), end="", flush=True)


def close_failed_run(log):
    """A gate that failed has the last word. Any other run that failed ends with the report of what there is."""
    if has_judged():
        print_outcome()
        print_gate()
        sys.exit(UNEXPECTED_ERROR)
    if set(workflow.dag_settings.targets) == {"plan"}:
        sys.exit(USER_ERROR)  # such as a folder that cannot be written; it says so above
    problem_of_report = report_what_there_is()
    print(f"Snakemake's log: {log}", file=sys.stderr)
    end_with_status(what_failed() or problem_of_report)
    print(f"exit status {UNEXPECTED_ERROR}: the run failed, see above", file=sys.stderr)
    sys.exit(UNEXPECTED_ERROR)


# No rule has conda: or container:, which Snakemake's linter misses. params.smk says why.


rule gate:
    """Judge the campaign. It has no output that Snakemake knows: it always runs, and what it writes outlives its failure."""
    input:
        made_by_all,
    log:
        f"{RESULTS}/logs/gate.log",
    retries: 0  # whatever the profile says: it would fail again
    params:
        program=program("gate.py"),
        campaign=FROZEN,
        measurements=f"{RESULTS}/measurements.csv",
        baseline=f"--baseline {BASELINE}" if BASELINE else "",
        margin=GATE["margin"],
        text=GATE_FILES[0],
        junit=GATE_FILES[1],
    message:
        "Judge {RESULTS}"
    shell:
        # Its text closes the run instead (print_gate), behind the lines with which Snakemake tells of a failed job.
        "{params.program:q} --log {log:q} --campaign {params.campaign:q} --measurements {params.measurements:q}"
        " {params.baseline} --margin {params.margin}"
        " --out-text {params.text:q} --out-junit {params.junit:q} >/dev/null"
