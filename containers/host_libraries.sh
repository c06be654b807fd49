#!/bin/bash
# Run a program in an image with the host's libfabric and CXI libraries (Slingshot) instead of the image's:
#   host_libraries.sh PROGRAM [ARGUMENTS...]
#
# The wrapper of a bind-mounted stack: Regatta has it run inside the image, once per rank, in front of Python
# (containers/README.md). Read it and adapt it to your site. Its content is part of the cell ids: editing it remeasures
# its cells. It links the host's libfabric and libcxi into a directory that the image's linker searches first, with any
# dependencies that the image lacks (such as libjson-c and libnl). It follows HPE's script
# (github.com/crickett-hpe/hpc-ai-envs, dockerfile_scripts/scrape_libs.sh). That one also makes the linker search the
# host's directories; where /usr/lib64 contains libc (RHEL, not SLES 15), no program of the image starts any more.
set -euo pipefail
shopt -s nullglob

# ---- Paths inside the image. Edit, or set them in the stack's `env`.
: "${HOST_LIBFABRIC_DIR:=/host/lib}"           # binds: /opt/cray/libfabric/VERSION/lib64:/host/lib
: "${HOST_LIBCXI_DIR:=/host/usr/lib64}"        # binds: /usr:/host/usr
: "${HOST_OTHER_DIR:=/host/usr/local/lib64}"   # one more directory to search for dependencies
: "${HOST_LINKS_DIR:=/tmp}"                    # for the links: a directory on the node that ranks can write

# ---- Settings, applied only if neither the campaign nor the image sets them. Recommendations of sites, in 2026: HPE in
# hpc-ai-envs; CSCS in docs.cscs.ch, communication, NCCL; Isambard-AI in docs.isambard.ac.uk, guides, NCCL.
: "${NCCL_NET:=AWS Libfabric}"          # fail instead of silently falling back to TCP: 3 to 22 times slower (CSCS)
: "${NCCL_NET_GDR_LEVEL:=PHB}"          # GPUDirect if GPU and NIC are attached to the same CPU: all three
: "${NCCL_CROSS_NIC:=0}"                # sites disagree: HPE found 0 faster, CSCS and Isambard-AI set 1
: "${FI_MR_CACHE_MONITOR:=userfaultfd}" # all three
: "${FI_CXI_DISABLE_HOST_REGISTER:=1}"  # all three
: "${FI_CXI_DEFAULT_CQ_SIZE:=131072}"   # CSCS and Isambard-AI; HPE keeps libfabric's default
: "${FI_CXI_RDZV_GET_MIN:=0}"           # HPE and Isambard-AI; CSCS if NCCL hangs
# Unset, because sites disagree: FI_CXI_RX_MATCH_MODE (CSCS software, Isambard-AI hybrid, HPE libfabric's default),
# FI_CXI_DEFAULT_TX_SIZE (CSCS 32768, Isambard-AI 2048), NCCL_PROTO (CSCS ^LL128). A setting that sites disagree on is
# worth a separate stack in a campaign, with the setting in its `env`.
interfaces=(/sys/class/net/hsn*)
[ ${#interfaces[@]} = 0 ] || : "${NCCL_SOCKET_IFNAME:=hsn}" # prefix of hsn0 to hsn3; for NCCL's bootstrap
for name in NCCL_NET NCCL_NET_GDR_LEVEL NCCL_CROSS_NIC NCCL_SOCKET_IFNAME \
    FI_MR_CACHE_MONITOR FI_CXI_DISABLE_HOST_REGISTER FI_CXI_DEFAULT_CQ_SIZE FI_CXI_RDZV_GET_MIN; do
    [ -z "${!name:-}" ] || export "${name?}"
done

# ---- Libraries.
fail() { printf 'host_libraries.sh: %s\n' "$1" >&2; exit 1; }

[ $# -gt 0 ] || fail "no program. Usage: host_libraries.sh PROGRAM [ARGUMENTS...]"
libraries=()
for library in {"$HOST_LIBFABRIC_DIR","$HOST_LIBCXI_DIR"}/lib{fabric,cxi}*.so*; do
    [ ! -e "$library" ] || libraries+=("$library")  # skip links into a directory that is not mounted
done
[[ " ${libraries[*]##*/}" = *" libfabric.so"* ]] || fail "no libfabric.so* in $HOST_LIBFABRIC_DIR or $HOST_LIBCXI_DIR.\
 Mount the host's: binds of the stack, such as /opt/cray/libfabric/VERSION/lib64:/host/lib and /usr:/host/usr."

link_once() { [ -e "$2/${1##*/}" ] || ln -s "$1" "$2/"; } # LIBRARY DIRECTORY: the first library of a name wins

link_what_is_missing() { # DIRECTORY: link dependencies that the image lacks, repeatedly, as each may need more
    local name dir missing before=
    while true; do
        missing=$( (LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ldd "$1"/*.so* 2>/dev/null || true) |
            sed -n 's/^[[:space:]]*\([^ ]*\) => not found.*/\1/p' | sort -u)
        [ "$missing" != "$before" ] || return 0
        for name in $missing; do
            for dir in "$HOST_LIBFABRIC_DIR" "$HOST_LIBCXI_DIR" "$HOST_OTHER_DIR"; do
                [ ! -e "$dir/$name" ] || link_once "$dir/$name" "$1"
            done
        done
        before=$missing
    done
}

# The ranks of a node share one directory per job, image and set of libraries. Each rank fills a temporary directory and
# renames it: the first wins, so ranks never see an incomplete directory. It is not deleted, as it contains only links.
mark=$(printf '%s\n' "${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-}}" "${libraries[@]}" | cksum | cut -d ' ' -f 1)
folder=$HOST_LINKS_DIR/host_libraries.$(id -u).${SLURM_JOB_ID:-no_job}.$mark
if [ ! -d "$folder" ]; then
    new=$(mktemp -d "$folder.XXXXXX" 2>/dev/null) ||
        fail "cannot write to $HOST_LINKS_DIR. Set HOST_LINKS_DIR to a folder of the node."
    for library in "${libraries[@]}"; do link_once "$library" "$new"; done
    link_what_is_missing "$new"
    mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
fi
# Another owner could have put any library there.
[ -d "$folder" ] && [ -O "$folder" ] && [ ! -L "$folder" ] ||
    fail "$folder belongs to somebody else. Set HOST_LINKS_DIR to a folder of your own."

export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
