#!/bin/bash
# Run a program in an image with the host's libfabric and CXI libraries (Slingshot) instead of the image's:
#   host_libraries.sh PROGRAM [ARGUMENTS...]
#
# The wrapper of a bind-mounted stack: Regatta has it run inside the image, once per rank, in front of Python
# (containers/README.md). It is short, so that you read it and make it your site's. Its content is part of a cell's id:
# an edit measures anew. libfabric and libcxi of the host are linked into a folder that the image's linker searches first,
# and so is what they need in turn (libjson-c, libnl and the like) if the image lacks it. HPE's script, which this follows
# (github.com/crickett-hpe/hpc-ai-envs, dockerfile_scripts/scrape_libs.sh), has the linker search the host's folders too:
# where /usr/lib64 holds libc (RHEL, not SLES 15), no program of the image starts any more.
set -euo pipefail
shopt -s nullglob

# ---- Where things are inside the image. Edit, or set them in the stack's `env`.
: "${HOST_LIBFABRIC_DIR:=/host/lib}"           # binds: /opt/cray/libfabric/VERSION/lib64:/host/lib
: "${HOST_LIBCXI_DIR:=/host/usr/lib64}"        # binds: /usr:/host/usr
: "${HOST_OTHER_DIR:=/host/usr/local/lib64}"   # one more folder for what those two need
: "${HOST_LINKS_DIR:=/tmp}"                    # where the links go: a folder of the node, which ranks may write

# ---- Settings, each only where neither the campaign nor the image has set it. What sites say of them, in 2026: HPE in
# hpc-ai-envs; CSCS in docs.cscs.ch, communication, NCCL; Isambard-AI in docs.isambard.ac.uk, guides, NCCL.
: "${NCCL_NET:=AWS Libfabric}"          # fail, instead of falling back to TCP in silence: 3 to 22 times slower (CSCS)
: "${NCCL_NET_GDR_LEVEL:=PHB}"          # GPU and NIC talk directly where they hang at one CPU: all three
: "${NCCL_CROSS_NIC:=0}"                # sites disagree: HPE measured 0 to be better, CSCS and Isambard-AI set 1
: "${FI_MR_CACHE_MONITOR:=userfaultfd}" # all three
: "${FI_CXI_DISABLE_HOST_REGISTER:=1}"  # all three
: "${FI_CXI_DEFAULT_CQ_SIZE:=131072}"   # CSCS and Isambard-AI; HPE leaves libfabric's
: "${FI_CXI_RDZV_GET_MIN:=0}"           # HPE and Isambard-AI; CSCS where NCCL hangs
# Left as they are, because sites disagree: FI_CXI_RX_MATCH_MODE (CSCS software, Isambard-AI hybrid, HPE as libfabric has
# it), FI_CXI_DEFAULT_TX_SIZE (CSCS 32768, Isambard-AI 2048), NCCL_PROTO (CSCS ^LL128). A setting that sites disagree on is
# worth a stack of its own in a campaign, with it in `env`.
interfaces=(/sys/class/net/hsn*)
[ ${#interfaces[@]} = 0 ] || : "${NCCL_SOCKET_IFNAME:=hsn}" # how their names begin: hsn0 to hsn3. NCCL's first contact
for name in NCCL_NET NCCL_NET_GDR_LEVEL NCCL_CROSS_NIC NCCL_SOCKET_IFNAME \
    FI_MR_CACHE_MONITOR FI_CXI_DISABLE_HOST_REGISTER FI_CXI_DEFAULT_CQ_SIZE FI_CXI_RDZV_GET_MIN; do
    [ -z "${!name:-}" ] || export "${name?}"
done

# ---- The libraries.
fail() { printf 'host_libraries.sh: %s\n' "$1" >&2; exit 1; }

[ $# -gt 0 ] || fail "no program. Usage: host_libraries.sh PROGRAM [ARGUMENTS...]"
libraries=()
for library in {"$HOST_LIBFABRIC_DIR","$HOST_LIBCXI_DIR"}/lib{fabric,cxi}*.so*; do
    [ ! -e "$library" ] || libraries+=("$library")  # not a link into a folder that is not mounted
done
[[ " ${libraries[*]##*/}" = *" libfabric.so"* ]] || fail "no libfabric.so* in $HOST_LIBFABRIC_DIR or $HOST_LIBCXI_DIR.\
 Mount the host's: binds of the stack, such as /opt/cray/libfabric/VERSION/lib64:/host/lib and /usr:/host/usr."

link_once() { [ -e "$2/${1##*/}" ] || ln -s "$1" "$2/"; } # LIBRARY FOLDER: the first of a name wins

link_what_is_missing() { # FOLDER: what its libraries need and the image has not; with each, there may be more
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

# One folder for a job, an image and a set of libraries, which the ranks of a node share. Each makes a whole one under a
# name of its own and moves it there: the first wins, and no rank ever sees half a folder. It stays behind: a few links.
mark=$(printf '%s\n' "${APPTAINER_CONTAINER:-${SINGULARITY_CONTAINER:-}}" "${libraries[@]}" | cksum | cut -d ' ' -f 1)
folder=$HOST_LINKS_DIR/host_libraries.$(id -u).${SLURM_JOB_ID:-no_job}.$mark
if [ ! -d "$folder" ]; then
    new=$(mktemp -d "$folder.XXXXXX" 2>/dev/null) ||
        fail "cannot write to $HOST_LINKS_DIR. Set HOST_LINKS_DIR to a folder of the node."
    for library in "${libraries[@]}"; do link_once "$library" "$new"; done
    link_what_is_missing "$new"
    mv -T "$new" "$folder" 2>/dev/null || rm -rf "$new"
fi
# Whoever else owns it could have put any library there.
[ -d "$folder" ] && [ -O "$folder" ] && [ ! -L "$folder" ] ||
    fail "$folder belongs to somebody else. Set HOST_LINKS_DIR to a folder of your own."

export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$@"
