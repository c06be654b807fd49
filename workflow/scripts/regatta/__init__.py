"""Regatta's driver: from the campaign file to batches, and from the store to the report. It never imports torch.

A package imports only packages that stand above it:

core        errors, files, text, statistics, verdicts: code that every package uses
model       frozen campaigns and their cells as objects; JSON in and out
kit         columns and findings, from which tables, pages and documentation derive
store       the launch files: what was measured, never rewritten
runtimes    container runtimes, by the `runtime` of a stack
launchers   how ranks are started and jobs requested, by the `scheduler` of a cluster file
campaign    read the YAML files, check them, and expand them into cells
run         code that runs inside one allocation: launches, their deadlines, and why they end
tables      what the page, the gate and other programs read: cells and their metrics
report      from tables to a page
plan        what will run, why, in which batches, at what cost
topics      the report's content, one module or folder per topic: tables, figures, findings
formats     formats of other benchmarks: read into the store, and written from results
compare     compare campaigns, and evaluate the gate
"""

import sys
from importlib.util import find_spec

if find_spec("pandas") is None:  # started with the system's Python: clearer than a traceback
    print(
        f"{sys.executable} lacks the libraries that Regatta needs, such as pandas. Activate the environment first"
        " (. .venv/bin/activate), or use the Python of another one.",
        file=sys.stderr,
    )
    sys.exit(2)  # errors.USER_ERROR
