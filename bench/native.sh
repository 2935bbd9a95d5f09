#!/bin/bash
# Programs that need no far memory, natively and under vmrun: how near to native speed they run.
#
#   bench/native.sh [--runs N] [--json FILE]
#
# In the lab by wall clock (median of N interleaved runs, default 7) and by instruction count
# (--icount); then on this machine (2 N runs), if programs can run here. The section that a program
# measures in itself, after its pages are mapped, is compared; the whole process is shown beside it.
# lib.sh has the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

runs=7

# one PLACE HOW NAME COMMAND...: runs it; its figures as lines `PLACE HOW NAME KEY VALUE`.
one() {
    local place=$1 how=$2 name=$3 out
    shift 3
    out=$(mktemp)
    "$BENCH_BIN/timed" "$out.t" "$@" >"$out"
    sed "s/^/$place $how $name /" "$out" "$out.t"
    rm -f "$out" "$out.t"
}

# pairs PLACE RUNS SCALE: each program natively and under vmrun, in turn.
pairs() {
    local place=$1 n=$2 scale=$3 i
    local compute=("$BENCH_BIN/compute" $((20 * scale)))
    local stream=("$BENCH_BIN/stream" $((scale < 4 ? 1 : scale / 4)))
    local under=("$VMRUN" --cache 128M)
    printf '+ %d times: %s\n' "$n" \
        "${compute[*]}; ${under[*]} ${compute[*]}; ${stream[*]}; ${under[*]} ${stream[*]}" >&2
    # Once for nothing: files come into the page cache.
    one "$place" warm compute "${under[@]}" "${compute[@]}" >/dev/null
    for ((i = 0; i < n; i++)); do
        one "$place" native compute "${compute[@]}"
        one "$place" vmrun compute "${under[@]}" "${compute[@]}"
        one "$place" native stream "${stream[@]}"
        one "$place" vmrun stream "${under[@]}" "${stream[@]}"
    done
}

options runs "$@"
case $inside in
wall) pairs lab-wall "$runs" 1 && exit ;;
icount) pairs lab-icount 1 1 && exit ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
in_lab --timeout 300 -- bench/native.sh --runs "$runs" --inside wall >"$scratch/out"
in_lab --timeout 300 --icount -- bench/native.sh --inside icount >>"$scratch/out"
places=(lab-wall lab-icount)
if "$VMRUN" --check >"$scratch/check" 2>&1; then
    pairs here $((runs * 2)) 40 >>"$scratch/out"
    places+=(here)
else
    echo "on this machine: skipped, for vmrun --check says that programs cannot run here" >&2
fi

# figures PLACE HOW NAME KEY: one a run.
figures() {
    awk -v p="$1" -v h="$2" -v n="$3" -v k="$4" \
        '$1 == p && $2 == h && $3 == n && $4 == k { print $5 }' "$scratch/out" | sort -g
}

limits=()
sums=$(awk '$4 == "sum" { print $1 != "here", $3, $5 }' "$scratch/out" | sort -u | wc -l)
echo
echo "Medians.  lab-wall: milliseconds of an emulated machine, $runs interleaved runs;" \
    "lab-icount: millions of instructions, one run (whole: processor time);"
echo "here: milliseconds of this machine, $((runs * 2)) interleaved runs.  ratio: vmrun / native." \
    " best: that ratio of the fastest run of each,"
echo "and spread: slowest / fastest native run.  A large spread says that others were using the" \
    "machine: no verdict by the clock then holds."
echo "load average: $(cut -d' ' -f1-3 /proc/loadavg)"
echo
row='%-11s %-8s %-9s %12s %12s %9s %9s %8s\n'
# shellcheck disable=SC2059 # a format
printf "$row" place program what native vmrun ratio best spread
for place in "${places[@]}"; do
    for what in compute/compute_ns stream/chase_ns stream/stream_ns \
        compute/wall_ns stream/wall_ns; do
        # The clock of --icount jumps while a file is read from the host; processor time does not.
        if [ "$place/$what" = "lab-icount/${what%/*}/wall_ns" ]; then
            what=${what%/*}/cpu_us
        fi
        mapfile -t natives < <(figures "$place" native "${what%/*}" "${what#*/}")
        mapfile -t vms < <(figures "$place" vmrun "${what%/*}" "${what#*/}")
        native=$(printf '%s\n' "${natives[@]}" | median)
        vm=$(printf '%s\n' "${vms[@]}" | median)
        ratio=$(calc "$vm / $native")
        best=$(calc "${vms[0]} / ${natives[0]}")
        spread=$(calc "${natives[-1]} / ${natives[0]}")
        label=${what#*/} unit=1e6
        case $label in
        wall_ns) label=whole ;;
        cpu_us) label=whole unit=1e3 ;;
        esac
        # shellcheck disable=SC2059
        printf "$row" "$place" "${what%/*}" "${label%_ns}" "$(calc "$native / $unit")" \
            "$(calc "$vm / $unit")" "$ratio" "$best" "$spread"
        record bench=native place="$place" program="${what%/*}" what="${label%_ns}" unit="$unit" \
            native="$native" vmrun="$vm" ratio="$ratio" best="$best" spread="$spread"
        case $place/$label in
        lab-wall/compute_ns) limits+=("compute-bound in the lab, wall clock: $ratio 1.05") ;;
        lab-icount/compute_ns) limits+=("compute-bound in the lab, instructions: $ratio 1.05") ;;
        lab-icount/chase_ns | lab-icount/stream_ns)
            limits+=("memory-bound (${label%_ns}) in the lab, instructions: $ratio 1.02")
            ;;
        here/*_ns) limits+=("${label%_ns} on this machine: $ratio 1.05") ;;
        esac
    done
done
echo
for limit in "${limits[@]}"; do
    read -r ratio most <<<"${limit##*: }"
    verdict "${limit%: *}: vmrun / native" "$ratio" '<=' "$most"
done
verdict "different results of the programs (one each in the lab and here)" \
    $((sums - 2 * (${#places[@]} > 2 ? 2 : 1))) == 0
finish
