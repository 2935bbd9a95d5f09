#!/bin/bash
# A command with a part of the memory that it takes: under vmrun, and natively with Linux's swap on
# the same store. In the lab, by instructions: a second is 10^9.
#
#   bench/beside.sh [--share PERCENT] [--store STORE] [--systems WORDS] [--clusters WORDS] --
#                   COMMAND...
#
#   --share PERCENT   of its memory that is local (default 25)
#   --store STORE     mem, rdma or nbd (default mem)
#   --systems WORDS   of: none vmrun swap zswap zram, with commas (default vmrun,swap)
#   --clusters WORDS  swap reads so many pages at once, as powers of two; the best time counts
#                     (default 3, as the kernel has it)
#
# A word @ in COMMAND stands for what starts the program that is measured, so COMMAND may be a
# script that starts it; else all of COMMAND is measured. What COMMAND prints must be the same each
# time. All local is the peak of its memory control group, and a share of it swap's memory.max.
# vmrun has the same with rdma and nbd, whose memory is not the group's. With mem it is, so that
# nothing enforces the share: all but 3 MiB of it are the cache, of each process of a tree.
# Times are of the whole run (now_ns).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

share=25 store=mem systems=vmrun,swap clusters=3
own=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    own+=("$1")
    shift
done
[ $# -ge 2 ] || usage
options "share store systems clusters" "${own[@]}"
shift
given=("$@")
if [ -z "$inside" ]; then
    rdma=()
    [ "$store" != rdma ] || rdma=(--rdma)
    in_lab --icount --env BENCH_COUNTED=yes --timeout 3000 "${rdma[@]}" -- \
        bench/beside.sh "${own[@]}" --inside lab -- "${given[@]}"
    exit
fi

wanted() { [[ ,$systems, == *,$1,* ]]; }

# started [VMRUN OPTION... --] COMMAND...: for run().
started() {
    local runner=("${@:1:$#-${#given[@]}}") words=() word found=
    for word in "${given[@]}"; do
        if [ "$word" = @ ]; then
            found=yes
            # in_group, for another script.
            words+=(sh -c "echo \$\$ >$group/cgroup.procs; exec \"\$@\"" sh "${runner[@]}")
        else
            words+=("$word")
        fi
    done
    if [ -n "$found" ]; then "${words[@]}"; else in_group "$@"; fi
}
# shellcheck disable=SC2034 # run() looks at it
run_via=started

# shown NAME: the last run, beside the native one.
shown() {
    if [ -z "$run_why" ] && ! cmp -s "$work/out" "$work/right"; then
        run_why='its output differs from the native one'
    fi
    if [ -n "$run_why" ]; then
        printf '  %-28s %s\n' "$1" "$run_why"
        [[ $1 != *vmrun ]] || failures=$((failures + 1))
    else
        printf '  %-28s %7.2f s %7.2f\n' "$1" "$(calc "$run_ns / 1e9")" \
            "$(calc "$run_ns / $all_ns")"
    fi
}

natively() {
    # The first run brings the files in.
    for _ in first second; do
        run max "${given[@]}"
        [ -z "$run_why" ] || die "natively, ${given[0]} ends so: $run_why"
        cp "$work/out" "$work/right"
    done
    all_local=$run_peak all_ns=$run_ns
    shown "natively, $((all_local >> 10)) KiB"
}

# under_swap NAME DEVICE: the best time of all sizes of reads.
under_swap() {
    local cluster best=''
    swap_on "$2"
    for cluster in ${clusters//,/ }; do
        echo "$cluster" >/proc/sys/vm/page-cluster
        run "$budget" "${given[@]}"
        [ -z "$run_why" ] || break
        if [ -z "$best" ] || [ "$run_ns" -lt "$best" ]; then
            best=$run_ns
        fi
    done
    run_ns=${best:-$run_ns}
    shown "$share %, $1"
    ran swapoff "$2"
}

swap_device() {
    [ -z "$device" ] || return 0
    "swap_$(swaps_of "$store" | cut -d ' ' -f 1)" "$mib" || die "no device for swap on $store"
}

mkdir -p "$work"
exec 3>&2 2>"$work/log"
trap '[ $? = 0 ] || tail -n 5 "$work/log" >&3' EXIT
groups_ready || die "there are no memory control groups"
figures "$work"
natively
budget=$((all_local * share / 100)) mib=$(((all_local >> 20) * 2 + 64)) device=
serve_tier "$store" "$mib"
[ -z "$why_no_tier" ] || die "$why_no_tier"
if wanted none; then
    run "$budget" "${given[@]}"
    shown "$share %, without swap"
fi
if wanted vmrun; then
    warm_up --node "$url"
    vmrun_run "$budget" --node "$url" -- "${given[@]}"
    shown "$share %, vmrun"
    [ "$store" != mem ] ||
        echo "  (vmrun's $share % are its cache and 3 MiB: with mem no limit enforces them)"
fi
if wanted swap; then
    swap_device
    under_swap swap "$device"
fi
if wanted zswap; then
    swap_device
    echo Y >/sys/module/zswap/parameters/enabled
    under_swap zswap "$device"
    echo N >/sys/module/zswap/parameters/enabled
fi
if wanted zram; then
    swap_zram "$mib"
    under_swap zram "$device"
fi
[ $failures = 0 ]
