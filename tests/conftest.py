"""Tests import Regatta's library as the thin scripts do: `from regatta import ...`, with workflow/scripts on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "workflow" / "scripts"))
