"""Write what is derived from workflow/schemas/*.yaml: the JSON Schemas for editors, and the tables of config/README.md.

python workflow/scripts/publish_schemas.py
"""

import argparse

from regatta.campaign.published import published_schemas
from regatta.campaign.reference import README, with_tables
from regatta.core.errors import run_script
from regatta.store.launch_files import write_text


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    texts = published_schemas() | {README: with_tables(README.read_text(encoding="utf-8"))}
    for path, text in texts.items():
        write_text(path, text)
        print(path)


if __name__ == "__main__":
    run_script(main)
