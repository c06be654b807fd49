#!/bin/sh
# Make the environment VENV hold what the lock files of the named sets pin: sh requirements/install.sh VENV SET...
#
# VENV/.regatta/ marks an environment that Regatta made. It holds a copy of each lock file that was installed to the end,
# so that a second call has nothing to do. An environment without that folder belongs to the user: checked, never changed.
# PYTHON names the interpreter of a new environment; empty: the first of python3, python3.13, ... that is new enough.
set -eu
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_ROOT
export PYTHONNOUSERSITE=1 PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

venv=$1
shift
case $venv in -*) venv=./$venv ;; esac
state=$venv/.regatta
describe='import os, sys; print("%d.%d" % sys.version_info[:2], os.path.realpath(sys.prefix))'

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
check() { "$venv/bin/python3" -I workflow/scripts/check_environment.py "$@"; }
is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

is_made_here() { # by the interpreter that is still there, at the place where it still is
    [ -x "$venv/bin/python3" ] && [ -e "$state/made" ] && [ ! -e "$state/installing" ] &&
        [ "$("$venv/bin/python3" -I -c "$describe" 2>/dev/null)" = "$(cat "$state/made")" ]
}

is_complete() {
    is_made_here || return 1
    for set in "$@"; do cmp -s "requirements/$set.lock" "$state/$set.lock" || return 1; done
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        version=$(version_of "$PYTHON") || fail "PYTHON=$PYTHON does not run. Name Python 3.11 or newer: make PYTHON=python3.12"
        python=$PYTHON
        is_new_enough "$python" || fail "PYTHON=$PYTHON is Python $version; Regatta needs 3.11 or newer. Name another: make PYTHON=python3.12"
    else
        for python in python3 python3.13 python3.12 python3.11 none; do
            is_new_enough "$python" && break
        done
        [ "$python" != none ] || fail "Regatta needs Python 3.11 or newer; python3 here is ${version:=$(version_of python3 || echo missing)}." \
            "Install a newer one, or say where it is: make PYTHON=/path/to/python3.12"
        version=$(version_of "$python")
    fi
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python (Python $version) cannot make environments: venv or ensurepip is missing. Install it (Debian, Ubuntu: apt-get install python3-venv), or name another: make PYTHON=..."
}

announce() {
    case $1 in
        driver) say "Installing Snakemake and the analysis libraries (about 500 MB on disk) into $venv ..." ;;
        rank) say "Installing torch and torchvision (about 5 GB on disk) into $venv ..." ;;
        dev) say "Installing the tools for tests and linting (about 100 MB on disk) into $venv ..." ;;
        *) say "Installing requirements/$1.lock into $venv ..." ;;
    esac
}

if [ -e "$venv" ] && [ ! -d "$state" ] && [ -n "$(ls -A "$venv")" ]; then
    [ -x "$venv/bin/python3" ] || fail "$venv exists and is no Python environment: it has no bin/python3. Name another folder: make VENV=..."
    is_new_enough "$venv/bin/python3" || fail "$venv has Python $(version_of "$venv/bin/python3"); Regatta needs 3.11 or newer. Name another folder: make VENV=..."
    check "$@"
    exit
fi

if [ -n "${PYTHON:-}" ] && is_made_here; then
    wanted=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        fail "PYTHON=$PYTHON does not run. Name Python 3.11 or newer: make PYTHON=python3.12"
    have=$(cut -d ' ' -f 1 "$state/made")
    [ "$wanted" = "$have" ] || fail "$venv was made with Python $have, and PYTHON=$PYTHON is $wanted. Remove it (make clean-env), or have two: make VENV=.venv-$wanted PYTHON=$PYTHON"
fi
if is_complete "$@"; then exit 0; fi

mkdir -p "$state"
if command -v flock >/dev/null; then # macOS has none; there two makes at once in a fresh checkout are the user's risk
    exec 9>"$state/lock"
    flock -n 9 || { say "Another make is installing into $venv; waiting for it."; flock 9 || :; }
fi
if ! is_made_here; then
    if [ -e "$state/installing" ]; then
        say "The last installation into $venv was interrupted; starting it again."
    elif [ -e "$state/made" ]; then
        say "$venv was made at another place or by a Python that is gone; making it again."
    fi
    choose_python
    : >"$state/installing" # before anything is removed: half an environment must never pass for a whole one
    find "$venv" -mindepth 1 -maxdepth 1 ! -name .regatta -exec rm -rf {} +
    rm -f "$state"/*.lock "$state/made"
    say "Making the environment $venv with Python $version ..."
    "$python" -m venv "$venv"
    "$venv/bin/python3" -I -c "$describe" >"$state/made"
fi
: >"$state/installing"
for set in "$@"; do
    cmp -s "requirements/$set.lock" "$state/$set.lock" && continue
    announce "$set"
    "$venv/bin/python3" -I -m pip install --quiet --no-input --no-warn-script-location --use-pep517 \
        --require-hashes -r "requirements/$set.lock" ||
        fail "requirements/$set.lock could not be installed; pip says why above. To use an environment of your own: make VENV=DIR"
done
rm "$state/installing"
check --import "$@"
for set in "$@"; do
    cp "requirements/$set.lock" "$state/$set.part" && mv "$state/$set.part" "$state/$set.lock"
done
