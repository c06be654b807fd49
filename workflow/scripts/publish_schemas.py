"""Write the JSON Schemas for editors, workflow/schemas/published/*.json, after a change of workflow/schemas/*.yaml.

python workflow/scripts/publish_schemas.py
"""

import argparse

from regatta.campaign.published import published_schemas
from regatta.core.errors import run_script
from regatta.store.launch_files import write_text


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for path, text in published_schemas().items():
        write_text(path, text)
        print(path)


if __name__ == "__main__":
    run_script(main)
