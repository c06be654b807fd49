"""Build the tables from the store. Needs no GPU."""

# No rule has conda: or container:, which Snakemake's linter expects. Reason: params.smk.


rule analyse:
    """Collect one row for each planned cell and repeat, and compute the tables of the report from them.

    One process, because importing pandas takes longer than the work on a small campaign. The report is a separate
    rule: if it fails, these files stay.
    """
    input:
        campaign=FROZEN,
        manifests=MANIFESTS,
        launches=UNLISTED,
    output:
        measurements=f"{RESULTS}/measurements.csv",
        details=DETAILS,
        problems=f"{RESULTS}/problems.json",
        tables=[f"{RESULTS}/cells.csv", *(f"{RESULTS}/tables/{name}.csv" for name in TABLES)],
    log:
        f"{RESULTS}/logs/analyse.log",
    localrule: True
    params:
        program=program("analyse.py"),
        code=digest(sources("analyse.py")),
        launches=untracked(f"{RESULTS}/launches"),
        tables=untracked(f"{RESULTS}/tables"),
    message:
        f"Analyze {RESULTS}/launches"
    shell:
        "{params.program:q} --log {log:q} --campaign {input.campaign:q} --launches {params.launches:q}"
        " --measurements {output.measurements:q} --problems {output.problems:q} --out-dir {params.tables:q}"
