"""Regatta: from a campaign file to a report. The rules are in workflow/rules/.

snakemake --profile profiles/local                                   the default campaign, config/config.yaml
snakemake --profile profiles/local --configfile config/my.yaml      another campaign
snakemake --profile profiles/local plan                              what would run, why, and at what cost
snakemake --profile profiles/local --forcerun measure               retry what is not ok
snakemake --profile profiles/local gate                              run all, and fail if a cell is not ok or slower
"""

from snakemake.utils import min_version

min_version("9.20")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/params.smk"
include: "workflow/rules/plan.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/analyse.smk"
include: "workflow/rules/report.smk"
include: "workflow/rules/gate.smk"


rule all:
    """Check that the campaign is complete. Without a declared output it always runs, so that `onsuccess` follows."""
    default_target: True
    input:
        # All files, not the report alone: it may be older than they are.
        FROZEN,
        MANIFESTS,
        expand(f"{RESULTS}/{{name}}.csv", name=COLLECTED),
        f"{RESULTS}/problems.json",
        expand(f"{RESULTS}/tables/{{table}}.csv", table=TABLES),
        f"{RESULTS}/report.html",
    localrule: True
    message:
        "Check that {RESULTS} is complete"
    shell:
        "true"


onstart:
    SESSION.prepare()
    make_log_folder()


onsuccess:
    SESSION.close()


onerror:
    SESSION.close_failed(log)
