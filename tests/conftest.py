"""Tests import Regatta's library as the thin scripts do: `from regatta import ...`, with workflow/scripts on the path.

`make test` runs four files at a time; those in tests/cluster mostly wait, and each has a cluster of its own.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow" / "scripts"))
