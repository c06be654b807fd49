"""Regatta: from a campaign file to a report. The workflow is in workflow/Snakefile, whose head has its commands."""


include: "workflow/Snakefile"


workflow.default_target = "all"  # an included file does not set it
