"""From the store to tables. No GPU is needed here, ever."""


localrules:
    collect,
    analyse,


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
    params:
        launches=f"{RESULTS}/launches",
    message:
        "Collect {output.measurements}"
    shell:
        "{PYTHON:q} {SCRIPTS:q}/collect.py --campaign {input.campaign:q} --launches {params.launches:q}"
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
    params:
        tables=f"{RESULTS}/tables",
    message:
        "Analyse {input.measurements}"
    shell:
        "{PYTHON:q} {SCRIPTS:q}/analyse.py --campaign {input.campaign:q}"
        " --measurements {input.measurements:q} --out-dir {params.tables:q}"
