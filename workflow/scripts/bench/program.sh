#!/bin/sh
# Start one rank of a user's program: record that it started, where, which file it runs (path, then size in bytes and
# time in seconds since 1970), and in which locale it prints numbers; then become the program.
# The driver compares these records with the planned ranks. POSIX sh, so that it runs in images without Python.
#
#   sh program.sh STARTED FOLDER COMMAND [ARGUMENT...]
#
# STARTED: folder for the file of each rank. FOLDER: where the program runs. Contract: docs/contracts.md.
VERSION=1
started=$1 folder=$2
shift 2
rank=${SLURM_PROCID:-${RANK:-0}}
cd "$folder" || exit 1
found=$(command -v "$1") || found=
facts=$(stat -Lc '%s %Y' -- "$found" 2>/dev/null) || facts=  # POSIX has no stat; GNU and BusyBox have
locale=${LC_ALL:-${LC_NUMERIC:-${LANG:-C}}}
{ uname -n && printf '%s\n' "$found" "$facts" "locale $locale"; } >"$started/.$rank" && mv "$started/.$rank" "$started/started-$rank" || exit 1
if [ -z "$found" ] && [ ! -e "$1" ]; then
    printf 'PATH is %s\nregatta: program not found: %s\n' "$PATH" "$1" >&2
    exit 127
fi
exec "$@"
