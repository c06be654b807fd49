"""Readmit nodes that Regatta avoids because they failed jobs of a campaign.

python workflow/scripts/clear_nodes.py my.yaml            # list them
python workflow/scripts/clear_nodes.py my.yaml n3 n7
python workflow/scripts/clear_nodes.py results/my-first --all
"""

from pathlib import Path

from regatta.campaign.load import results_folder
from regatta.core.errors import UserError, nearest, run_script, script_parser
from regatta.core.files import is_results_folder
from regatta.store.nodes import blame_text, blamed_nodes, clear_nodes


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("campaign", type=Path, help="campaign file or results folder")
    parser.add_argument("nodes", nargs="*", help="nodes to readmit; without any, they are listed")
    parser.add_argument("--all", action="store_true", help="readmit all nodes")
    options = parser.parse_args()
    results = results_folder(options.campaign)
    if not is_results_folder(results):
        raise UserError(
            f"{results}: not a results folder. Specify the campaign file, or a folder such as results/my-first."
        )
    blamed = blamed_nodes(results)
    if unknown := [node for node in options.nodes if node not in blamed]:
        known = f"Choose from: {', '.join(blamed)}." if blamed else "No node is avoided."
        raise UserError(f"{results}: {unknown[0]} is not avoided.{nearest(unknown[0], blamed)} {known}")
    chosen = list(blamed) if options.all else options.nodes
    clear_nodes(results, chosen)
    for node in chosen:
        print(f"readmitted: {node}")
    for node in blamed.keys() - set(chosen):
        print(f"avoided: {blame_text(node, blamed[node])}")
    if not blamed:
        print(f"{results}: no node is avoided")


if __name__ == "__main__":
    run_script(main)
