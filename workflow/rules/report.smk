"""The report: one self-contained HTML file, and its first lines as JSON."""

# No rule has conda: or container:, which Snakemake's linter expects. Reason: params.smk.


rule report:
    """Build the report from the tables, and from the store for provenance."""
    input:
        campaign=FROZEN,
        measurements=f"{RESULTS}/measurements.csv",
        details=DETAILS,
        problems=f"{RESULTS}/problems.json",
        tables=[f"{RESULTS}/cells.csv", *(f"{RESULTS}/tables/{name}.csv" for name in TABLES)],
        preflight=LATEST_PREFLIGHT,
    output:
        # update: the previous ones stay if this fails
        report=update(report(f"{RESULTS}/report.html", caption="../report/report.rst", category="Report")),
        answer=update(f"{RESULTS}/answer.json"),
    log:
        f"{RESULTS}/logs/report.log",
    localrule: True
    params:
        program=program("report.py"),
        code=digest(sources("report.py") + PAGE),
        command=SESSION.command,
        tables=untracked(f"{RESULTS}/tables"),
        launches=untracked(f"{RESULTS}/launches"),
    message:
        "Write {output.report}"
    shell:
        "{params.program:q} --log {log:q} --campaign {input.campaign:q} --measurements {input.measurements:q}"
        " --tables {params.tables:q} --launches {params.launches:q} --out {output.report:q}"
        " --preflight {input.preflight:q}"
