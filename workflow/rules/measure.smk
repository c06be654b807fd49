"""Check the stacks, then measure. Only these rules use GPUs."""

# No rule has conda: or container:, which Snakemake's linter expects. Reason: params.smk.


rule preflight:
    """Run one short launch per stack, which reports what it runs on. A stack that fails is excluded from this run."""
    input:
        request="results/{campaign}/preflight/{preflight}/request.json",
    output:
        result="results/{campaign}/preflight/{preflight}.json",
    log:
        "results/{campaign}/logs/{preflight}.log",
    wildcard_constraints:
        campaign=CAMPAIGN_PATTERN,
        preflight="preflight-[0-9a-f]{12}",
    threads: SESSION.preflight_threads
    resources:
        **PREFLIGHT_RESOURCES,
    params:
        program=program("preflight.py"),
        folder=subpath(input.request, parent=True),
    message:
        "Check the stacks ({wildcards.preflight})"
    shell:
        "exec {params.program:q} --log {log:q} --parent $PPID --folder {params.folder:q}"


rule measure:
    """Run the launches of a batch. A failed cell is a record: the rule fails only if the supervisor did not finish."""
    input:
        PREFLIGHT,
        batch="results/{campaign}/batches/{batch}/batch.json",
    output:
        manifest="results/{campaign}/batches/{batch}/manifest.json",
    log:
        "results/{campaign}/logs/measure/{batch}.log",
    wildcard_constraints:
        campaign=CAMPAIGN_PATTERN,
        batch=BATCH_PATTERN,
    threads: SESSION.batch_threads
    resources:
        **BATCH_RESOURCES,
    params:
        program=program("measure.py"),
        folder=subpath(input.batch, parent=True),
    message:
        "Measure {wildcards.batch}"
    shell:
        # exec: the supervisor stops when its parent process dies, which must be Snakemake, not a shell. It may die
        # before the supervisor has started, so the shell names it.
        "exec {params.program:q} --log {log:q} --parent $PPID --batch {params.folder:q}"
