"""Measure one batch. GPU hours are spent here and nowhere else."""


rule measure:
    """Run the launches of a batch. A cell that fails is data: the rule fails only if the supervisor could not finish."""
    input:
        batch=f"{RESULTS}/batches/{{batch}}/batch.json",
    output:
        manifest=f"{RESULTS}/batches/{{batch}}/manifest.json",
    wildcard_constraints:
        batch=BATCH_PATTERN,
    threads: 10_000  # all that there are: Snakemake cuts this down, and no other batch disturbs this one
    params:
        folder=f"{RESULTS}/batches/{{batch}}",
    message:
        "Measure {wildcards.batch}"
    shell:
        # exec: the supervisor stops when the process that started it dies, and that must be Snakemake, not a shell.
        "exec {PYTHON:q} {SCRIPTS:q}/measure.py --batch {params.folder:q}"
