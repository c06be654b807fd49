"""Show what will run, why and at what cost; and freeze it before anything runs."""

# No rule has conda: or container:, which Snakemake's linter expects. Reason: params.smk.


rule plan:
    """Show the plan and write plan.json, .txt and .html. Without a declared output it always runs."""
    log:
        f"{RESULTS}/logs/plan.log",
    localrule: True
    params:
        program=program("plan.py"),
        campaign=untracked(CAMPAIGN),
        shown=untracked(CAMPAIGN_SHOWN),
        retry=untracked(RETRY_FLAG),
    message:
        "Plan {params.shown}"
    shell:
        "{params.program:q} --log {log:q} --campaign={params.campaign:q} --results results {params.retry}"


rule freeze:
    """Freeze the campaign and the batches, so that edits of the campaign do not affect queued batches."""
    output:
        campaign=FROZEN,
        batches=[f"{RESULTS}/batches/{batch}/batch.json" for batch in BATCHES],
        preflight=PREFLIGHT_REQUEST,
        plan=report(f"{RESULTS}/plan.html", caption="../report/plan.rst", category="Plan"),
    log:
        f"{RESULTS}/logs/freeze.log",
    localrule: True
    params:
        program=program("freeze.py"),
        campaign=untracked(CAMPAIGN),
        shown=untracked(CAMPAIGN_SHOWN),
        retry=untracked(RETRY_FLAG),
    message:
        "Freeze {params.shown} and its batches"
    shell:
        "{params.program:q} --log {log:q} --campaign={params.campaign:q} --results results {params.retry}"
