#!/bin/bash
# fork, exit of the child and wait, natively and under vmrun, by how much is resident.
#
#   bench/fork.sh [--runs N] [--json FILE]
#
# In the lab under --icount, then on this machine (N interleaved runs, default 5), if programs can
# run here. All fits the cache. written: all pages are written to between two forks. time: from
# fork() to the end of wait(); cpu: what both processes ran for that, the writing included, in the
# lab an instruction count. The time in the lab has waits in it, for timer ticks of 4 ms. lib.sh has
# the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

runs=5
sizes=(1 64)

# one PLACE MB WRITTEN HOW COMMAND...: lines `PLACE MB WRITTEN HOW KEY NS`.
one() {
    local what="$1 $2 $3 $4"
    shift 4
    "$@" | awk -v what="$what" '$1 == "fork_p50" || $1 == "cpu_ns" { print what, $1, $2 }'
}

# pairs PLACE RUNS COUNT
pairs() {
    local place=$1 n=$2 count=$3 i mb written
    printf '+ %d times: [%s --cache 256M --] %s MB %d [MB]\n' \
        "$n" "$VMRUN" "$BENCH_BIN/forks" "$count" >&2
    for ((i = 0; i < n; i++)); do
        for mb in "${sizes[@]}"; do
            for written in 0 "$mb"; do
                one "$place" "$mb" "$written" native "$BENCH_BIN/forks" "$mb" "$count" "$written"
                one "$place" "$mb" "$written" vmrun \
                    "$VMRUN" --cache 256M -- "$BENCH_BIN/forks" "$mb" "$count" "$written"
            done
        done
    done
}

options runs "$@"
if [ -n "$inside" ]; then
    pairs lab-icount 1 21
    exit
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
in_lab --timeout 300 --icount -- bench/fork.sh --inside lab >"$scratch/out"
if "$VMRUN" --check >"$scratch/check" 2>&1; then
    pairs here "$runs" 21 >>"$scratch/out"
else
    echo "on this machine: skipped, for vmrun --check says that programs cannot run here" >&2
fi

# figure PLACE MB WRITTEN HOW KEY: the median in thousands.
figure() {
    awk -v p="$1" -v m="$2" -v w="$3" -v h="$4" -v k="$5" \
        '$1 == p && $2 == m && $3 == w && $4 == h && $5 == k { print $6 / 1000 }' \
        "$scratch/out" | median
}

echo
echo "Medians for one fork + exit + wait, in microseconds; cpu in the lab: thousands of" \
    "instructions.  Load: $(cut -d' ' -f1-3 /proc/loadavg)"
echo
row='%-11s %10s %10s %6s %12s %12s %8s\n'
# shellcheck disable=SC2059 # a format
printf "$row" place resident written what native vmrun ratio
for place in $(cut -d' ' -f1 "$scratch/out" | sort -u); do
    for mb in "${sizes[@]}"; do
        for written in 0 "$mb"; do
            for key in fork_p50 cpu_ns; do
                native=$(figure "$place" "$mb" "$written" native $key)
                vm=$(figure "$place" "$mb" "$written" vmrun $key)
                [ $key = cpu_ns ] && what="cpu" || what="time"
                # shellcheck disable=SC2059
                printf "$row" "$place" "$mb MiB" "$written MiB" "$what" "$native" "$vm" \
                    "$(calc "$vm / $native")"
                record bench=fork place="$place" resident_mib="$mb" written_mib="$written" \
                    what="$what" native_us="$native" vmrun_us="$vm"
            done
        done
    done
done
