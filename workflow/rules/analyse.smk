"""Build the tables from the store. Needs no GPU."""


localrules:
    collect,
    analyse,


# No rule has conda: or container:, which Snakemake's linter expects. Reason: params.smk.


rule collect:
    """Collect one row for each planned cell and repeat, and the details of training runs and stragglers."""
    input:
        campaign=FROZEN,
        manifests=MANIFESTS,
        launches=UNLISTED,
        code=sources("collect.py"),
    output:
        measurements=f"{RESULTS}/measurements.csv",
        details=DETAILS,
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
    """Compute the tables of the report, tables/*.csv."""
    input:
        campaign=FROZEN,
        measurements=f"{RESULTS}/measurements.csv",
        details=DETAILS,
        code=sources("analyse.py"),
    output:
        [f"{RESULTS}/tables/{name}.csv" for name in TABLES],
    log:
        f"{RESULTS}/logs/analyse.log",
    params:
        program=program("analyse.py"),
        tables=untracked(f"{RESULTS}/tables"),
    message:
        "Analyze {input.measurements}"
    shell:
        "{params.program:q} --log {log:q} --campaign {input.campaign:q}"
        " --measurements {input.measurements:q} --out-dir {params.tables:q}"
