"""The gate, on request: fail if a cell is not ok, or slower than in a baseline campaign."""


def made_by_all(wildcards):
    return list(rules.all.input)


# No rule has conda: or container:, which Snakemake's linter expects. Reason: params.smk.


rule gate:
    """Evaluate the gate. Without a declared output it always runs, and its files are kept if it fails."""
    input:
        made_by_all,
    log:
        f"{RESULTS}/logs/gate.log",
    retries: 0  # overrides the profile: it would fail again
    localrule: True
    params:
        program=program("gate.py"),
        campaign=FROZEN,
        measurements=f"{RESULTS}/measurements.csv",
        baseline=f"--baseline {SESSION.baseline}" if SESSION.baseline else "",
        options=SESSION.gate_options,
        text=SESSION.gate_files[0],
        junit=SESSION.gate_files[1],
        html=SESSION.gate_files[2],
    message:
        f"Evaluate the gate of {RESULTS}"
    shell:
        # Session.close prints the text at the end, after Snakemake's messages about a failed job.
        "{params.program:q} --log {log:q} --campaign {params.campaign:q} --measurements {params.measurements:q}"
        " {params.baseline} {params.options}"
        " --out-text {params.text:q} --out-junit {params.junit:q} --out-html {params.html:q} >/dev/null"
