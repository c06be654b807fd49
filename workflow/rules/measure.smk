"""Look at the stacks, then measure. GPU hours are spent here and nowhere else."""


rule preflight:
    """One short launch per stack, that shows what it really runs on. A stack that fails is held back from the batches."""
    input:
        request="results/{campaign}/preflight/{preflight}/request.json",
    output:
        result="results/{campaign}/preflight/{preflight}.json",
    wildcard_constraints:
        campaign=CAMPAIGN_PATTERN,
        preflight="preflight-[0-9a-f]{12}",
    threads: THREADS
    resources:
        **PREFLIGHT_RESOURCES,
    params:
        folder="results/{campaign}/preflight/{preflight}",
    message:
        "Look at the stacks ({wildcards.preflight})"
    shell:
        "exec {PYTHON:q} {SCRIPTS:q}/preflight.py --folder {params.folder:q}"


rule measure:
    """Run the launches of a batch. A cell that fails is data: the rule fails only if the supervisor could not finish."""
    input:
        PREFLIGHT,
        batch="results/{campaign}/batches/{batch}/batch.json",
    output:
        manifest="results/{campaign}/batches/{batch}/manifest.json",
    wildcard_constraints:
        campaign=CAMPAIGN_PATTERN,
        batch=BATCH_PATTERN,
    threads: THREADS
    resources:
        **BATCH_RESOURCES,
    params:
        folder="results/{campaign}/batches/{batch}",
    message:
        "Measure {wildcards.batch}"
    shell:
        # exec: the supervisor stops when the process that started it dies, and that must be Snakemake, not a shell.
        "exec {PYTHON:q} {SCRIPTS:q}/measure.py --batch {params.folder:q}"
