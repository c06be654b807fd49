"""From the store to tables. No GPU is needed here, ever."""


localrules:
    collect,
    analyse,


# No rule has conda: or container:, which Snakemake's linter misses. params.smk says why.


rule collect:
    """One row for each planned cell and repeat, whatever became of it; of trainings for each epoch and rank too."""
    input:
        campaign=FROZEN,
        manifests=MANIFESTS,
        launches=UNLISTED,
        code=sources("collect.py"),
    output:
        measurements=f"{RESULTS}/measurements.csv",
        of_trainings=OF_TRAININGS,
        problems=f"{RESULTS}/problems.json",
    log:
        f"{RESULTS}/logs/collect.log",
    params:
        program=program("collect.py"),
        launches=untracked(f"{RESULTS}/launches"),
    message:
        "Collect {output.measurements}"
    shell:
        "{params.program:q} --log {log:q} --campaign {input.campaign:q} --launches {params.launches:q}"
        " --out {output.measurements:q} --problems {output.problems:q}"


rule analyse:
    """The tables of the report, tables/*.csv."""
    input:
        campaign=FROZEN,
        measurements=f"{RESULTS}/measurements.csv",
        of_trainings=OF_TRAININGS,
        code=sources("analyse.py"),
    output:
        [f"{RESULTS}/tables/{name}.csv" for name in TABLES],
    log:
        f"{RESULTS}/logs/analyse.log",
    params:
        program=program("analyse.py"),
        tables=untracked(f"{RESULTS}/tables"),
    message:
        "Analyse {input.measurements}"
    shell:
        "{params.program:q} --log {log:q} --campaign {input.campaign:q}"
        " --measurements {input.measurements:q} --out-dir {params.tables:q}"
