#!/bin/bash
# What a page fault costs: one access pattern under vmrun, Linux swap and userfaultfd, in one boot
# of the lab.
#
#   bench/fault.sh [--mib N] [--json FILE]
#
# Two labs run: one with --icount (a nanosecond is an instruction) for the costs, one with two CPUs
# for how often the cleaner is woken. lib.sh has the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

mib=16
passes=2


# --- inside the lab: one line `result SYSTEM SHARE ACCESS KEY VALUE` a figure ---

# results SYSTEM SHARE ACCESS FILE...: all `KEY VALUE` lines of the files.
results() {
    local name="$1 $2 $3"
    shift 3
    sed -n "s/^\([a-z][a-z0-9_.]*\) \([0-9.]*\)$/result $name \1 \2/p" "$@"
}

# Shares of the region that are local: name, pages.
shares() { echo "25% $((mib * 64)) 12.5% $((mib * 32))"; }

# touch_under_vmrun SHARE PAGES ACCESS OPTION...
touch_under_vmrun() {
    local share=$1 pages=$2 access=$3
    shift 3
    ran "$VMRUN" --stats="$work/stats" --cache $((pages * 4))K --node mem:256M \
        "$BENCH_BIN/touch" --mib "$mib" --passes $passes "$@" >"$work/out"
    results vmrun "$share" "$access" "$work/out" "$work/stats"
}

# In a memory control group of that many pages; nothing else is in there.
touch_under_swap() {
    local system=$1 share=$2 pages=$3 access=$4
    shift 4
    group_make $((pages * 4096))
    ran in_group "$BENCH_BIN/touch" --mib "$mib" --passes $passes "$@" >"$work/out"
    results "$system" "$share" "$access" "$work/out"
}

touch_under_uffd() {
    local system=$1 share=$2 pages=$3 access=$4
    shift 4
    ran "$BENCH_BIN/uffd" --mib "$mib" --passes $passes --local "$pages" "$@" >"$work/out"
    results "$system" "$share" "$access" "$work/out"
}

# each COMMAND ARG...: with every share, reading and writing.
each() {
    local share pages list
    read -r -a list < <(shares)
    while [ ${#list[@]} -gt 0 ]; do
        share=${list[0]} pages=${list[1]}
        list=("${list[@]:2}")
        "$@" "$share" "$pages" read
        "$@" "$share" "$pages" write --write
    done
}
uffd_thread() { touch_under_uffd uffd-thread "$@" --thread; }

inside_costs() {
    mkdir -p "$work"
    ran "$BENCH_BIN/pagecopy" >"$work/out"
    results copy - - "$work/out"
    each touch_under_vmrun

    groups_ready
    # No readahead: it would only cost on random accesses.
    echo 0 >/proc/sys/vm/page-cluster
    local device name
    for name in brd zram; do
        swap_$name $((mib * 2))
        swap_on "$device"
        each touch_under_swap swap-$name
        ran swapoff "$device"
    done

    each touch_under_uffd uffd-sigbus
    each uffd_thread
}

inside_doorbells() {
    mkdir -p "$work"
    each touch_under_vmrun
}

# --- outside ---

# What exits of the whole run could be the others: `op count` for each kind that no fault should
# need.
suspects() {
    awk -v h="$2" -v a="$3" '
        $1 == "result" && $2 == "vmrun" && $3 == h && $4 == a && $6 > 0 &&
        $5 ~ /^exits\.(yield|kick|wait_pte|wake_pte|time|shared_check)$/ {
            printf " %s %d", $5, $6
        }' "$1"
}

# get FILE SYSTEM SHARE ACCESS KEY
get() {
    awk -v s="$2" -v h="$3" -v a="$4" -v k="$5" '
        $1 == "result" && $2 == s && $3 == h && $4 == a && $5 == k { v = $6 }
        END { print v + 0 }' "$1"
}

# Exits that faults made beside what they are allowed: pages of files are read by the host, page
# tables come from a pool that the host grows, and doorbells and frame waits are counted apart.
other_exits() {
    local f=$1 share=$2 access=$3 key sum
    sum=$(get "$f" vmrun "$share" "$access" fault_exits.total)
    for key in exits.file_read exits.grow_pool exits.service_wake exits.wait_frames; do
        sum=$((sum - $(get "$f" vmrun "$share" "$access" $key)))
    done
    echo $((sum < 0 ? 0 : sum))
}

report() {
    local costs=$1 bells=$2 copy system share access row
    copy=$(get "$costs" copy - - copy_p50)

    echo
    echo "Instructions, one CPU (lab --icount), $mib MiB, $passes random passes over all pages" \
        "after a first pass that does not count."
    echo "an access: all that happened, divided by accesses; on this single CPU that holds" \
        "eviction, by cleaner or kswapd, too."
    echo "a fault: one load (or add) that faults, from the instruction before it to the one after" \
        "it, less an access that does not fault."
    echo
    row='%-12s %6s %-6s %12s %8s %10s %10s %10s %12s\n'
    # shellcheck disable=SC2059 # a format
    printf "$row" system local access 'an access' faults 'fault min' p50 p99 'p50-copy'
    for system in vmrun swap-brd swap-zram uffd-sigbus uffd-thread; do
        for share in 25% 12.5%; do
            for access in read write; do
                g() { get "$costs" $system $share $access "$1"; }
                local p50 each
                p50=$(g fault_p50) each=$(g ns_per_access)
                # shellcheck disable=SC2059
                printf "$row" $system $share $access "$each" "$(g faults)" "$(g fault_min)" \
                    "$p50" "$(g fault_p99)" $((p50 - copy))
                record bench=fault system=$system local=$share access=$access \
                    per_access="$each" faults="$(g faults)" fault_min="$(g fault_min)" \
                    fault_p50="$p50" fault_p90="$(g fault_p90)" fault_p99="$(g fault_p99)"
            done
        done
    done
    echo
    echo "The bare copy of a page (rep movsq, 512 words) counts $copy instructions here; vmrun's" \
        "fault holds one, and so do the others'."
    echo
    echo "vmrun beside the fault: exits and the cleaner.  With one CPU the cleaner competes with" \
        "the program: it runs only when the"
    echo "program sleeps or its time slice ends, so a doorbell is answered late and frame waits" \
        "follow.  With two it has its own; what"
    echo "waits are left come from an emulated wake-up, which takes longer than the program needs" \
        "for the few hundred frames in stock."
    echo
    row='%-8s %6s %-6s %9s %11s %10s %10s %11s %13s %14s\n'
    # shellcheck disable=SC2059
    printf "$row" CPUs local access fetches 'fetch.p50' evicted doorbells 'per 64 ev.' \
        'frame waits' 'other exits'
    local file cpus
    for cpus in 1 2; do
        file=$costs
        [ $cpus = 1 ] || file=$bells
        for share in 25% 12.5%; do
            for access in read write; do
                g() { get "$file" vmrun $share $access "$1"; }
                local per64 other p50=-
                per64=$(g doorbells_per_64_evictions)
                other=$(other_exits "$file" $share $access)
                [ $cpus = 2 ] || p50=$(g latency_ns.fetch.p50)
                # shellcheck disable=SC2059
                printf "$row" $cpus $share $access "$(g faults.fetch)" "$p50" "$(g evicted)" \
                    "$(g count.doorbells)" "$per64" "$(g count.frame_waits)" "$other"
                [ "$other" = 0 ] ||
                    echo "         other exits: candidates in this run, all vCPUs:$(
                        suspects "$file" $share $access)"
                record bench=fault-exits cpus=$cpus local=$share access=$access \
                    fetches="$(g faults.fetch)" evicted="$(g evicted)" \
                    doorbells="$(g count.doorbells)" doorbells_per_64="$per64" \
                    frame_waits="$(g count.frame_waits)" other_exits="$other"
            done
        done
    done
    echo "fetch.p50: kern's own histogram of --stats (upper end of its bucket, with the copy," \
        "from the entry of the C code to its end)."
    echo
    local what
    for share in 25% 12.5%; do
        for access in read write; do
            verdict "$share local, $access: instructions from #PF to iret beside the copy (p50)" \
                $(($(get "$costs" vmrun $share $access fault_p50) - copy)) '<=' 400
            for file in "$costs" "$bells"; do
                cpus=1
                [ "$file" = "$costs" ] || cpus=2
                what="$share local, $access, $cpus CPU"
                verdict "$what: exits in faults, but for doorbells, frame waits and file pages" \
                    "$(other_exits "$file" $share $access)" == 0
                verdict "$what: doorbells per 64 evictions" \
                    "$(get "$file" vmrun $share $access doorbells_per_64_evictions)" '<=' 1
            done
        done
    done
}

options mib "$@"
if [ -n "$inside" ]; then
    "inside_$inside"
    exit
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
in_lab --timeout 300 --icount -- bench/fault.sh --mib "$mib" --inside costs >"$scratch/costs"
in_lab --timeout 300 -- bench/fault.sh --mib "$mib" --inside doorbells >"$scratch/bells"
report "$scratch/costs" "$scratch/bells"
finish
