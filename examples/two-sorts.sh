#!/bin/bash
# Two quicksorts at once, as in the HPBD paper (Liang, Noronha, Panda, "Swapping to Remote Memory
# over InfiniBand", 2005): two programs that compete for processors, network and memory servers.
#
# usage: two-sorts.sh [RUNNER...] -- ARGUMENT-OF-QUICKSORT...
#   RUNNER: what runs each of them, as `build/vmrun --cache 4M`; without it, they run natively
# Environment: QUICKSORT, the program (default: build/examples/quicksort beside this folder)
#
# The two have the seeds 1 and 2, unless the arguments name another. Their output comes when both
# have ended, that of the first one first. Exit status: 0 if both succeeded, else that of the first
# that failed, in this order.
set -uo pipefail

usage() {
    echo "usage: two-sorts.sh [RUNNER...] -- ARGUMENT-OF-QUICKSORT..." >&2
    exit 2
}

runner=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    runner+=("$1")
    shift
done
[ $# -ge 2 ] || usage
shift
quicksort=${QUICKSORT:-$(dirname "$0")/../build/examples/quicksort}
[ -x "$quicksort" ] || { echo "two-sorts.sh: there is no program $quicksort" >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/two-sorts.XXXXXX") || exit 2
pids=()
trap 'rm -rf "$work"' EXIT
trap 'kill ${pids[@]+"${pids[@]}"}; wait; exit 2' HUP INT TERM

for seed in 1 2; do
    ${runner[@]+"${runner[@]}"} "$quicksort" --seed $seed "$@" \
        >"$work/$seed.out" 2>"$work/$seed.err" &
    pids+=($!)
done
result=0
for seed in 1 2; do
    status=0
    wait "${pids[seed - 1]}" || status=$?
    [ $result -ne 0 ] || result=$status
done
for seed in 1 2; do
    cat "$work/$seed.err" >&2
    cat "$work/$seed.out"
done
exit $result
