"""Everything that Snakemake and Regatta's scripts eventually import. warm_start.py imports this once, in its server."""

import gc
import importlib

from snakemake.cli import get_argument_parser

from regatta.core.files import SCRIPTS

LIBRARIES = ["pytest", "pandas", "jinja2", "matplotlib.pyplot", "scipy.stats", "smart_open", "snakemake.report"]

get_argument_parser()  # searches for plugins, and imports them
for name in LIBRARIES:
    importlib.import_module(name)
for path in sorted(SCRIPTS.glob("regatta/**/*.py")):
    importlib.import_module(".".join(path.relative_to(SCRIPTS).with_suffix("").parts))
gc.collect()
gc.freeze()  # a collection in a fork would copy the memory that it shares with the others
