"""Regatta's driver: from the campaign file to batches, and from the store to the report. It never imports torch."""

import sys
from importlib.util import find_spec

if find_spec("pandas") is None:  # started with the system's Python: clearer than a traceback
    print(
        f"{sys.executable} lacks the libraries that Regatta needs, such as pandas. Activate the environment first"
        " (. .venv/bin/activate), or use the Python of another one.",
        file=sys.stderr,
    )
    sys.exit(2)  # errors.USER_ERROR
