#!/bin/sh
# Start one process of a user's program: record that it started, where, which file it runs (path, then size in bytes and
# time in seconds since 1970), and in which locale it prints numbers; then become the program.
# The driver compares these records with the planned processes. POSIX sh, so that it runs in images without Python.
#
#   sh program.sh STARTED FOLDER STARTS MOUNT COMMAND [ARGUMENT...]
#
# STARTED: folder for the file of each process, - for none. FOLDER: where the program runs. STARTS: nodes, ranks per node
# and under Slurm the nodes of a program that starts its ranks itself, 2x4:n1,n2; - if its processes are the ranks.
# MOUNT: mount point that exists only in the image, /regatta-LAUNCH or squashfs:PATH; - for none.
# Contract: docs/contracts.md.
VERSION=1
started=$1 folder=$2 starts=$3 mount=$4
shift 4
rank=${SLURM_PROCID:-${RANK:-0}}
is_inside=
[ "$mount" = - ] || while read -r _ _ _ _ point rest; do
    [ "$point" = "${mount#squashfs:}" ] || continue
    case $mount,$rest in /* | *,*' - '*squash*) is_inside=1 ;; esac
done </proc/self/mountinfo
if [ "$mount" != - ] && [ -z "$is_inside" ]; then
    printf 'regatta: not in the image: %s is not mounted on %s. The Slurm plugin did not start the image: %s\n' \
        "${mount#squashfs:}" "$(uname -n)" "check plugstack.conf there." >&2
    exit 1
fi
cd "$folder" || exit 1
found=$(command -v "$1") || found=
facts=$(stat -Lc '%s %Y' -- "$found" 2>/dev/null) || facts=  # POSIX has no stat; GNU and BusyBox have
locale=${LC_ALL:-${LC_NUMERIC:-${LANG:-C}}}
if [ "$started" != - ]; then
    { uname -n && printf '%s\n' "$found" "$facts" "locale $locale"; } >"$started/.$rank" &&
        mv "$started/.$rank" "$started/started-$rank" || exit 1
fi
if [ -z "$found" ] && [ ! -e "$1" ]; then
    printf 'PATH is %s\nregatta: program not found: %s\n' "$PATH" "$1" >&2
    exit 127
fi

export NODE_RANK="${SLURM_NODEID:-0}"
if [ "$starts" != - ]; then
    # Otherwise the program would act as one of its ranks. What mpirun and torchrun need stays: job, node list, number of the node.
    unset RANK WORLD_SIZE LOCAL_RANK LOCAL_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE
    unset SLURM_PROCID SLURM_LOCALID SLURM_NTASKS SLURM_NPROCS MPI_LOCALRANKID MPI_LOCALNRANKS
    set -f
    for name in $(env); do
        name=${name%%=*}
        case $name in
        *[!A-Za-z0-9_]*) ;; # part of a value
        PMI* | OMPI_COMM_WORLD_* | MV2_COMM_WORLD_*) unset "$name" ;;
        esac
    done
    set +f
    shape=${starts%%:*} hosts=${starts#*:}
    if [ "$hosts" != "$starts" ]; then # those of the step, such as a single task, are too few for mpirun
        export SLURM_NNODES="${shape%x*}" SLURM_JOB_NUM_NODES="${shape%x*}" SLURM_NODELIST="$hosts"
        export SLURM_JOB_NODELIST="$hosts" SLURM_TASKS_PER_NODE="${shape#*x}(x${shape%x*})"
    fi
elif [ -n "${SLURM_PROCID:-}" ]; then # the variables of torchrun
    export RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS" LOCAL_RANK="$SLURM_LOCALID"
    export LOCAL_WORLD_SIZE="$((SLURM_NTASKS / SLURM_NNODES))"
fi
exec "$@"
