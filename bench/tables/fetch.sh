#!/bin/bash
# One fetch from far memory on one tier: how long it takes as the program sees it, beside Linux's
# swap on the same device; where the time goes; which exits it makes; and what a read takes by its
# size, and by the number of nodes. Run by bench/run, in a lab.
#
#   bench/tables/fetch.sh --figures DIR --tier TIER [--quick] [--here] [--parts WORDS]
#                         [--size MIB] [--io WORDS] [--policies WORDS]
#
#   TIER     mem, wire, rdma, nbd, disk, or a node's URL
#   --parts  of: latency exits sizes nodes (default: latency,exits)
#
# The program is bench/touch.c: each page once a pass, in random order, 25 % local.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

tier='' figures='' quick='' parts=latency,exits size=32 io=inline,thread policies=none,auto

wanted() { [[ ,$2, == *,$1,* ]]; }

# took WHAT KEY=VALUE...: the last run of touch; ns where it was ticks.
took() {
    local what=$1 keys p scale
    shift
    keys=(table=fetch "tier=$tier" "what=$what" "size_mib=$size" "$@" "command=$run_command")
    if [ -n "$run_why" ]; then
        not_measured "$run_why" "${keys[@]}"
        return
    fi
    scale=$(value ticks_per_ns "$work/out")
    for p in p50 p90 p99 max; do
        keys+=("$p=$(calc "$(value fault_$p "$work/out") / $scale")")
    done
    record "${keys[@]}" unit=ns "value=$(value ns_per_access "$work/out")" \
        "faults=$(value faults "$work/out")" "budget=$budget" "peak=$run_peak"
}

# A memory tier has no requests, so no two ways of making them; a disk's are the thread's.
ios() {
    if [[ $tier == mem || $tier == wire ]]; then
        echo inline
    elif [[ $tier == disk ]]; then
        echo thread
    else
        echo "${io//,/ }"
    fi
}

latency() {
    local how policy name cluster
    if [ -z "$why_no_tier" ]; then
        for how in $(ios); do
            for policy in ${policies//,/ }; do
                [[ $tier != mem || $policy = none ]] || continue
                vmrun_run "$budget" --io "$how" --prefetch "$policy" --node "$url" -- \
                    "$BENCH_BIN/touch" --mib "$size" --passes 2
                took latency system=vmrun "io=$how" "policy=$policy" "cache_kib=$cache" \
                    "stats=$run_stats"
            done
        done
    fi
    for name in $(swaps_of "$tier"); do
        "swap_$name" $((2 * size))
        swap_on "$device"
        for cluster in 0 3; do
            echo $cluster >/proc/sys/vm/page-cluster
            run "$budget" "$BENCH_BIN/touch" --mib "$size" --passes 2
            took latency system=swap "device=$name" "cluster=$cluster"
        done
        ran swapoff "$device"
    done
}

# Two runs that differ in the number of passes alone: what differs in exits is the passes'.
exits() {
    local how passes
    for how in $(ios); do
        for passes in 1 3; do
            vmrun_run "$budget" --io "$how" --prefetch none --node "$url" -- \
                "$BENCH_BIN/touch" --mib "$size" --passes $passes
            took exits system=vmrun "io=$how" "passes=$passes" "cache_kib=$cache" \
                "stats=$run_stats" "cpus=$(nproc)"
        done
    done
}

sizes() {
    local bytes keys
    for bytes in 64 512 4096 8192 16384 65536 262144; do
        run max "$BENCH_BIN/reference" --reads 500 --threads 1 --bytes $bytes "$address"
        keys=(table=fetch "tier=$tier" what=size "bytes=$bytes" "command=$run_command")
        if [ -n "$run_why" ]; then
            not_measured "$run_why" "${keys[@]}"
        else
            record "${keys[@]}" unit=ns "value=$(value latency_p50 "$work/out")" \
                "p99=$(value latency_p99 "$work/out")"
        fi
    done
}

# On this machine, each at a port of its own.
nodes() {
    local n i options=()
    for ((i = 1; i < 4; i++)); do
        serve --size $((4 * size))M --grace 2 --insecure --listen "rdma://$address:$((7471 + i))"
    done
    for n in 1 2 4; do
        options=()
        for ((i = 0; i < n; i++)); do
            options+=(--node "rdma://$address:$((7471 + i))")
        done
        vmrun_run "$budget" --io inline --prefetch none "${options[@]}" -- \
            "$BENCH_BIN/touch" --mib "$size" --passes 2
        took nodes system=vmrun io=inline policy=none "nodes=$n" "stats=$run_stats"
    done
}

options "figures tier parts size io policies quick! here!" "$@"
if [ -z "$figures" ] || [ -z "$tier" ]; then
    usage
fi
[ -z "$quick" ] || size=16
budget=$((size << 18))
figures "$figures"
machine_ready table=fetch "tier=$tier"
serve_tier "$tier" $((2 * size))
if [ -z "$why_no_tier" ] && [ "$parts" != sizes ]; then
    warm_up --node "$url"
fi
for part in ${parts//,/ }; do
    if [ -n "$why_no_tier" ] && [ "$part" != latency ]; then
        not_measured "$why_no_tier" table=fetch "tier=$tier" "what=$part" system=vmrun
    else
        "$part"
    fi
done
