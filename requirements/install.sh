#!/bin/sh
# Install the packages pinned in the lock files into VENV: sh requirements/install.sh VENV SET...
#
# The set `campaign` is what the campaign file CONFIG needs with the profile PROFILE: driver, or driver and rank.
# VENV/.regatta/ marks an environment that Regatta created. `made` contains its Python version and path. `installing`
# exists during an installation and contains its path. The copy of a lock file means that it is completely installed, so
# a second call does nothing. An environment without that folder belongs to the user: packages that it lacks are listed,
# and it is never changed.
# Never remove anything: an environment of unknown origin may be in use. `make clean-env` removes it.
# PYTHON names the interpreter of a new environment; empty: the first of python3, python3.13, ... that is new enough.
set -eu
unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX PIP_ROOT CDPATH
export PYTHONNOUSERSITE=1 PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

venv=$1
shift
[ -n "$venv" ] || fail "VENV is empty. Specify a folder: make VENV=DIR"
case $venv in -*) venv=./$venv ;; esac
state=$venv/.regatta
clean="make clean-env"
[ "$venv" = .venv ] || clean="make clean-env VENV='$venv'"
describe='import os, sys; print("%d.%d" % sys.version_info[:2], os.path.realpath(sys.prefix))'
lacks='import sys; from importlib.metadata import Distribution as D; print(*(n for n in sys.argv[1:] if not any(D.discover(name=n))))'

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }
owner() { ls -ld "$venv" | awk '{print $3}'; }

value() { # of a key at the top level of a YAML file: there may be no Python yet. Empty in another layout, such as JSON
    { awk -v key="$1:" 'index($0, key) == 1 {
        sub(/^[^:]*:[ \t]*/, ""); sub(/([ \t]+#.*)?[ \t\r]*$/, ""); gsub(/^["\047]|["\047]$/, ""); print; exit
    }' <"$2"; } 2>/dev/null || :
}

campaign_sets() { # a scheduler's ranks use the stack's Python, also within an allocation: VENV needs no torch (5 GB)
    case ${PROFILE:-} in *profiles/local*) ;; *) echo driver; return ;; esac
    case $(value scheduler "config/clusters/$(value cluster "${CONFIG:-}").yaml") in
        none | "") echo driver rank ;;
        *) echo driver ;;
    esac
}

look() { # made: recorded Python and path; now: actual ones, empty if bin/python3 does not run; here: the path
    here=$(cd "$venv" 2>/dev/null && pwd -P) || here=
    made=$(cat "$state/made" 2>/dev/null) || made=
    now=$("$venv/bin/python3" -I -c "$describe" 2>/dev/null) || now=
}

refuse_what_lacks_packages() { # in any version: they are the user's
    lines= locks=
    for set in "$@"; do
        # shellcheck disable=SC2046 # one word for each package
        names=$("$venv/bin/python3" -I -c "$lacks" $(sed 's/[^A-Za-z0-9._-].*//' "requirements/$set.in")) || exit 1
        [ -z "$names" ] || { lines="${lines}requirements/$set.in: missing: $names
" locks="$locks -r requirements/$set.lock"; }
    done
    [ -z "$lines" ] || fail "${lines}Regatta installs nothing into $venv, which it did not create. Install what is missing yourself" \
        "('$venv/bin/python3' -m pip install --require-hashes$locks), or let Regatta create a new one: make VENV=DIR, where DIR does not exist."
}

is_made_here() { [ -n "$made" ] && [ "$now" = "$made" ] && [ "$now" = "${made%% *} $here" ]; }

is_complete() { # true even if it was created at a different path: it is only read
    [ -n "$made" ] && [ "$now" = "${made%% *} $here" ] && [ ! -e "$state/installing" ] || return 1
    for set in "$@"; do cmp -s "requirements/$set.lock" "$state/$set.lock" || return 1; done
}

add_plugins() { # to the path of plain snakemake; run_campaign.py, which make starts, needs no such file
    is_made_here || return 0
    plugins=$(pwd -P)/workflow/plugins
    [ "${here%/*}/workflow/plugins" != "$plugins" ] || plugins=../../../../workflow/plugins # also after both are moved
    for site in "$venv"/lib/python*/site-packages; do
        file=$site/regatta-plugins.pth
        [ "$(cat "$file" 2>/dev/null)" = "$plugins" ] || { printf '%s\n' "$plugins" >"$file"; } 2>/dev/null || :
    done
}

use_if_complete() {
    is_complete "$@" || return 0
    add_plugins
    is_made_here || say "$venv was created at ${made#* }. It is complete, so it is used and not changed; bin/activate and the scripts in bin/ refer to that path."
    exit 0
}

refuse_what_is_not_ours() {
    if is_made_here; then return; fi
    if [ -n "$made" ]; then
        if [ -z "$now" ]; then
            why="its bin/python3 does not run here (it was created at ${made#* } with Python ${made%% *})"
        elif [ "${now#* }" != "${made#* }" ]; then
            why="it was created at ${made#* } and is incomplete"
        else
            why="it was created with Python ${made%% *}, but its bin/python3 is ${now%% *}"
        fi
    elif [ -e "$state/installing" ]; then
        began=$(cat "$state/installing")
        [ "$began" != "$here" ] || return 0
        why="its installation at ${began:-an unknown path} was interrupted"
    elif [ "$(ls -A "$venv")" = .regatta ]; then
        return 0
    else
        why="its origin is unknown (no .regatta/made)"
    fi
    fail "$venv cannot be used: $why. Nothing was changed." \
        "Use another folder: make VENV=DIR. Or, if no job uses it any more, remove it ($clean) and run the same command again."
}

refuse_what_is_not_writable() {
    if [ -e "$venv" ] && [ -n "$(ls -A "$venv")" ] && [ ! -O "$venv" ]; then # even if the group or root may write
        [ -z "$made" ] || [ -n "$now" ] ||
            fail "$venv belongs to $(owner), and its bin/python3 does not run for $(id -un || id -u). Use another folder: make VENV=DIR"
        fail "$venv is incomplete and belongs to $(owner). Ask them to run the same command, or use another folder: make VENV=DIR"
    fi
    for path in "$venv" "$state" "$state/lock" "$venv/bin" "$venv/lib"; do
        [ ! -e "$path" ] || [ -w "$path" ] ||
            fail "$venv is incomplete, and $path cannot be written to. Make it writable, or use another folder: make VENV=DIR"
    done
}

choose_python() {
    if [ -n "${PYTHON:-}" ]; then
        version=$(version_of "$PYTHON") || fail "PYTHON=$PYTHON does not run. Specify Python 3.11 or newer: make PYTHON=python3.12"
        python=$PYTHON
        is_new_enough "$python" || fail "PYTHON=$PYTHON is Python $version; Regatta needs 3.11 or newer. Specify another: make PYTHON=python3.12"
    else
        for python in python3 python3.13 python3.12 python3.11 none; do
            is_new_enough "$python" && break
        done
        [ "$python" != none ] || fail "Regatta needs Python 3.11 or newer; python3 here is ${version:=$(version_of python3 || echo missing)}." \
            "Install a newer one, or say where it is: make PYTHON=/path/to/python3.12"
        version=$(version_of "$python")
    fi
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python (Python $version) cannot create environments: venv or ensurepip is missing. Install it (Debian, Ubuntu: apt-get install python3-venv), or specify another: make PYTHON=..."
}

announce() {
    case $1 in
        driver) say "Installing Snakemake and the analysis libraries (about 500 MB on disk) into $venv ..." ;;
        rank) say "Installing torch and torchvision (about 5 GB on disk) into $venv ..." ;;
        dev) say "Installing the tools for tests and linting (about 100 MB on disk) into $venv ..." ;;
        *) say "Installing requirements/$1.lock into $venv ..." ;;
    esac
}

# shellcheck disable=SC2046 # one word for each set
[ "$*" != campaign ] || set -- $(campaign_sets)
for path in "$venv" "$state"; do
    [ ! -d "$path" ] || { [ -r "$path" ] && [ -x "$path" ]; } ||
        fail "$path cannot be read; it belongs to $(owner). Use another folder: make VENV=DIR"
done
if [ -e "$venv" ] && [ ! -d "$state" ] && [ -n "$(ls -A "$venv")" ]; then
    [ -x "$venv/bin/python3" ] || fail "$venv exists but is not a Python environment: it has no bin/python3. Use another folder: make VENV=..."
    is_new_enough "$venv/bin/python3" || fail "$venv has Python $(version_of "$venv/bin/python3"); Regatta needs 3.11 or newer. Use another folder: make VENV=..."
    refuse_what_lacks_packages "$@"
    exit
fi

look
if [ -n "${PYTHON:-}" ] && [ -n "$made" ] && [ -n "$now" ]; then
    wanted=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        fail "PYTHON=$PYTHON does not run. Specify Python 3.11 or newer: make PYTHON=python3.12"
    have=${made%% *}
    [ "$wanted" = "$have" ] || fail "$venv was created with Python $have, but PYTHON=$PYTHON is $wanted. Remove it ($clean), or create a second one: make VENV=.venv-$wanted PYTHON=$PYTHON"
fi
use_if_complete "$@"

refuse_what_is_not_writable
[ ! -e "$venv" ] || [ -z "$(ls -A "$venv")" ] || refuse_what_is_not_ours
mkdir -p "$state" || fail "$venv cannot be created. Use another folder: make VENV=DIR"
if command -v flock >/dev/null; then # macOS has none: concurrent runs of make are not serialized there
    exec 9>"$state/lock"
    flock -n 9 || { say "Another make is installing into $venv; waiting for it."; flock 9 || fail "$state/lock: the file system has no locks. Put the environment elsewhere: make VENV=DIR"; }
fi
look
use_if_complete "$@"
refuse_what_is_not_ours
if [ -e "$state/installing" ]; then
    say "The last installation into $venv was interrupted; continuing it."
    rm -f "$state"/*.lock # pip determines which packages are complete
    for info in "$venv"/lib/python*/site-packages/*.dist-info; do
        # pip writes INSTALLER last, yet treats a package without it as installed.
        [ ! -d "$info" ] || [ -e "$info/INSTALLER" ] || rm -r "$info"
    done
fi
[ -n "$made" ] || choose_python
# Before anything is written: an incomplete environment must never pass for a complete one.
printf '%s\n' "$here" >"$state/installing.part" && mv "$state/installing.part" "$state/installing"
if [ -z "$made" ]; then
    say "Creating the environment $venv with Python $version ..."
    "$python" -m venv "$venv"
    "$venv/bin/python3" -I -c "$describe" >"$state/made.part" && mv "$state/made.part" "$state/made"
fi
for set in "$@"; do
    cmp -s "requirements/$set.lock" "$state/$set.lock" && continue
    announce "$set"
    "$venv/bin/python3" -I -m pip install --quiet --no-input --no-warn-script-location --use-pep517 \
        --require-hashes -r "requirements/$set.lock" ||
        fail "requirements/$set.lock could not be installed; see pip's message above. To use an existing environment: make VENV=DIR"
    cp "requirements/$set.lock" "$state/$set.part" && mv "$state/$set.part" "$state/$set.lock"
done
rm "$state/installing"
look
add_plugins
