#!/bin/sh
# Run every GPU path of the ranks once on a node that has Python with torch and torchvision, and nothing else.
#
# On the machine with Regatta's driver:
#   python workflow/scripts/freeze.py --campaign config/campaigns/first-gpu-run.yaml
# On the GPU node, in a copy of the repository with results/first-gpu-run:
#   tests/gpu/first_run.sh [FOLDER]
#   tests/gpu/first_run.sh --device cpu DIR     dry run; freeze config/campaigns/cpu/first-gpu-run.yaml first
#   tests/gpu/first_run.sh --only layouts DIR   several ranks on one GPU, and emulated nodes; needs no frozen campaign
#
# It installs nothing and needs no network. It ends within 8 minutes (--minutes), goes on after failures, and writes
# summary.txt, summary.json and results.tar.gz into FOLDER ($OUT, else first-run). PYTHON selects the interpreter. Exit
# status: 0 if every stage passed, at least one record is ok and no check failed; else 1; 2 for an error of the user.
#
#   tar -xzf FOLDER/results.tar.gz -C results             where the driver is, after copying FOLDER there
#   python workflow/scripts/rebuild_report.py results/first-gpu-run
set -eu
exec "${PYTHON:-python3}" "$(dirname "$0")/first_run.py" "$@"
