"""Formats of other benchmarks, read into the store, and results written in their form: docs/formats.md."""

from regatta.core.files import check_listed
from regatta.formats.nccl import NCCL_JSON, NCCL_TEXT
from regatta.formats.osu import OSU
from regatta.formats.pytorch import PYTORCH_JSON, PYTORCH_TEXT
from regatta.formats.suite_json import SUITE
from regatta.formats.tidy_csv import CSV

# In the order in which a file is tried. A new format is a file and an entry here; a test names what else is missing.
FORMATS = (CSV, PYTORCH_TEXT, OSU, NCCL_TEXT, PYTORCH_JSON, NCCL_JSON, SUITE)
check_listed("formats", "Format", FORMATS, "FORMATS of formats/__init__.py")
