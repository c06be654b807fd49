"""What will run, why, and at what price; and the same frozen before anything runs."""


localrules:
    plan,
    freeze,


rule plan:
    """Show the plan and write plan.json, .txt and .html. It has no output that Snakemake knows, so that it always runs."""
    message:
        "Plan {CAMPAIGN}"
    shell:
        "{PYTHON:q} {SCRIPTS:q}/plan.py --campaign {CAMPAIGN:q} --results results {RETRY_FLAG}"


rule freeze:
    """Freeze the campaign and the batches: editing the campaign while they are queued changes nothing for them."""
    output:
        campaign=FROZEN,
        batches=[f"{RESULTS}/batches/{batch}/batch.json" for batch in BATCHES],
        preflight=PREFLIGHT_REQUEST,
    message:
        "Freeze {CAMPAIGN} and its batches"
    shell:
        "{PYTHON:q} {SCRIPTS:q}/freeze.py --campaign {CAMPAIGN:q} --results results {RETRY_FLAG}"
