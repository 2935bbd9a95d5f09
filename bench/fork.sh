#!/bin/bash
# fork, exit of the child and wait, natively and under vmrun, by how much is resident.
#
#   bench/fork.sh [--runs N] [--json FILE]
#
# In the lab by instruction count (--icount: one CPU, so both processes count), then on this machine by the clock (N interleaved runs, default
# 5), if programs can run here.  All fits the cache.  written: all pages are written to between two forks.  lib.sh has the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

runs=5
sizes=(1 64)

# pairs PLACE RUNS COUNT: lines `PLACE MB WRITTEN HOW NS`.
pairs() {
    local place=$1 n=$2 count=$3 i mb written
    printf '+ %d times: [%s --cache 256M --] %s MB %d [MB]\n' "$n" "$VMRUN" "$BENCH_BIN/forks" "$count" >&2
    for ((i = 0; i < n; i++)); do
        for mb in "${sizes[@]}"; do
            for written in 0 "$mb"; do
                echo "$place $mb $written native $("$BENCH_BIN/forks" "$mb" "$count" "$written" | awk '$1 == "fork_p50" { print $2 }')"
                echo "$place $mb $written vmrun $("$VMRUN" --cache 256M -- "$BENCH_BIN/forks" "$mb" "$count" "$written" | awk '$1 == "fork_p50" { print $2 }')"
            done
        done
    done
}

inside=
while [ $# -gt 0 ]; do
    case $1 in
    --runs) runs=${2:?} && shift ;;
    --json) json_file=${2:?} && shift ;;
    --inside) inside=yes ;;
    *) die "usage: bench/fork.sh [--runs N] [--json FILE]" ;;
    esac
    shift
done
if [ -n "$inside" ]; then
    pairs lab-icount 1 7
    exit
fi
[ -z "$json_file" ] || : >"$json_file"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
in_lab --timeout 300 --icount -- bench/fork.sh --inside >"$scratch/out"
if "$VMRUN" --check >"$scratch/check" 2>&1; then
    pairs here "$runs" 21 >>"$scratch/out"
else
    echo "on this machine: skipped, for vmrun --check says that programs cannot run here" >&2
fi

# figure PLACE MB WRITTEN HOW: the median in microseconds, of an instruction a nanosecond in the lab.
figure() { awk -v p="$1" -v m="$2" -v w="$3" -v h="$4" '$1 == p && $2 == m && $3 == w && $4 == h { print $5 }' "$scratch/out" | median; }

echo
echo "Medians of fork + exit + wait.  lab-icount: thousands of instructions; here: microseconds.  Load: $(cut -d' ' -f1-3 /proc/loadavg)"
echo
row='%-11s %10s %10s %12s %12s %8s\n'
# shellcheck disable=SC2059 # a format
printf "$row" place resident written native vmrun ratio
for place in $(cut -d' ' -f1 "$scratch/out" | sort -u); do
    for mb in "${sizes[@]}"; do
        for written in 0 "$mb"; do
            native=$(figure "$place" "$mb" "$written" native) vm=$(figure "$place" "$mb" "$written" vmrun)
            # shellcheck disable=SC2059
            printf "$row" "$place" "$mb MiB" "$written MiB" "$(calc "$native / 1000")" "$(calc "$vm / 1000")" "$(calc "$vm / $native")"
            record bench=fork place="$place" resident_mib="$mb" written_mib="$written" native_ns="$native" vmrun_ns="$vm"
        done
    done
done
