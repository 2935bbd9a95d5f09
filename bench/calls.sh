#!/bin/bash
# What system calls, threads, processes and signals cost under vmrun, beside native and beside the
# bare exit of KVM.
#
#   bench/calls.sh [--runs N] [--json FILE]
#
# In the lab by instructions (--icount, one CPU), then in the lab by the clock with two CPUs on two
# threads: medians of N interleaved runs (default 5), all in one boot each. lib.sh has the
# variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

runs=5
what=(getppid read1 read1m futex thread fork spawn signal)


# inside PLACE: one line `PLACE WHO KEY VALUE` a figure; WHO: bare, native or vmrun.
inside() {
    local i
    mkdir -p /run/bench
    for ((i = 0; i <= runs; i++)); do
        "$BENCH_BIN/kvmexit" >/run/bench/bare
        ran "$BENCH_BIN/calls" 200 >/run/bench/native
        ran "$VMRUN" --cache 64M "$BENCH_BIN/calls" 200 >/run/bench/vmrun
        # The first round brings files into the page cache.
        [ $i -eq 0 ] ||
            (cd /run/bench && for who in bare native vmrun; do sed "s/^/$1 $who /" $who; done)
    done
}

med() {
    awk -v p="$1" -v w="$2" -v k="$3" '$1 == p && $2 == w && $3 == k { print $4 }' \
        "$scratch/results" | median
}

report() {
    local place=$1 key native vmrun
    printf '%-10s %14s %14s %8s   (%s)\n' what native vmrun ratio "$2"
    for key in "${what[@]}"; do
        native=$(med "$place" native "${key}_p50")
        vmrun=$(med "$place" vmrun "${key}_p50")
        printf '%-10s %14.0f %14.0f %8.2f\n' "$key" "$native" "$vmrun" "$(calc "$vmrun / $native")"
        record bench=calls "place=$place" "what=$key" "native=$native" "vmrun=$vmrun"
    done
    printf '%-10s %14.0f\n\n' "bare exit" "$(med "$place" bare exit_p50)"
}

options runs "$@"
if [ -n "$inside" ]; then
    inside "$inside"
    exit
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
in_lab --icount --timeout 900 -- bench/calls.sh --runs "$runs" --inside instructions \
    >"$scratch/results"
in_lab --timeout 900 -- bench/calls.sh --runs "$runs" --inside clock >>"$scratch/results"
report instructions "instructions, lab --icount"
report clock "ns by the clock, lab, two CPUs"
for place in instructions clock; do
    verdict "getppid under vmrun / bare exit, $place" \
        "$(calc "$(med $place vmrun getppid_p50) / $(med $place bare exit_p50)")" '<=' 2
done
finish
