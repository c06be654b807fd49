"""The last word, only where it is asked for: fail if a cell is not ok, or slower than in a baseline campaign."""


localrules:
    gate,


def made_by_all(wildcards):
    return list(rules.all.input)


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
        baseline=f"--baseline {SESSION.baseline}" if SESSION.baseline else "",
        margin=SESSION.gate["margin"],
        text=SESSION.gate_files[0],
        junit=SESSION.gate_files[1],
    message:
        "Judge {RESULTS}"
    shell:
        # Its text closes the run instead (Session.close), behind the lines with which Snakemake tells of a failed job.
        "{params.program:q} --log {log:q} --campaign {params.campaign:q} --measurements {params.measurements:q}"
        " {params.baseline} --margin {params.margin}"
        " --out-text {params.text:q} --out-junit {params.junit:q} >/dev/null"
