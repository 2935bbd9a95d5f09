#!/bin/bash
# How rates grow with threads: natively, under Linux swap and under vmrun.
#
#   bench/many.sh [--shapes WORDS] [--threads WORDS] [--places WORDS] [--cpus N] [--mib N] [--ms N]
#                 [--runs N] [--json FILE]
#
#   shapes   those of many.c but munmap; kmeans, graph (page rank), ycsb; stress, which has munmap
#   places   lab: with N CPUs (2); counted: lab --icount; here: if programs can run here
#
# WORDS are divided by commas. T threads run on min(T, CPUs) CPUs, with all that serves them. e: the
# rate of T threads divided by (the CPUs they have x the rate of one thread). A quarter of the array
# of N MiB, or of about as much that a program takes, is local: --cache, or memory.max for swap on a
# RAM disk, which is measured in the lab, as it changes the machine. More is local where vmrun has
# to have it for the threads. All else fits. Medians of N runs. lib.sh has the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

runs=1 cpus=2 mib=64 ms=1000 places=lab,here threads=''
shapes=random,sequential,page_fault1,page_fault2,page_fault3,mmap1,malloc1,futex1,pingpong,stress
limit=120 # seconds, of a run
far=random,sequential,fair,kmeans,graph,ycsb
known=random,sequential,fair,page_fault1,page_fault2,page_fault3,mmap1,malloc1,futex1,pingpong
known+=,kmeans,graph,ycsb,stress

wanted() { [[ ,$2, == *",$1,"* ]]; }

# number OPTION VALUE MOST
number() {
    [[ $2 =~ ^[1-9][0-9]{0,5}$ && $2 -le $3 ]] ||
        die "$1 '$2': must be a whole number from 1 to $3"
}

# words OPTION WORDS KNOWN
words() {
    local word list
    IFS=, read -ra list <<<"$2"
    for word in "${list[@]:-}"; do
        wanted "$word" "$3" || die "$1 '$word': must be one of ${3//,/, }"
    done
}

check_options() {
    local name list t
    for name in runs cpus mib ms; do number "--$name" "${!name}" 999999; done
    words --places "$places" lab,counted,here
    words --shapes "$shapes" "$known"
    IFS=, read -ra list <<<"$threads"
    for t in "${list[@]}"; do number --threads "$t" 256; done
}

# first_cpus N: of those that this process may use.
first_cpus() {
    local range usable=()
    for range in $(sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status | tr , ' '); do
        mapfile -O ${#usable[@]} -t usable < <(seq "${range%-*}" "${range#*-}")
    done
    (IFS=, && echo "${usable[*]:0:$1}")
}

# --- inside a place: a line `PLACE SYSTEM SHAPE THREADS CPUS KEY VALUE` for each figure ---

# set_program SHAPE THREADS: program; and part, which of the times that it tells counts.
set_program() {
    local scale
    scale=$(calc "12 + int(log($mib) / log(2) + 0.01)")
    part=
    case $1 in
    kmeans) part=iterations program=("$EXAMPLES/kmeans" --size "${mib}M" --iterations 3) ;;
    graph) part='page rank' program=("$EXAMPLES/graph" --sources 1 --scale "$scale") ;;
    ycsb) part=operations program=("$EXAMPLES/ycsb" --keys "${mib}K" --operations "${mib}K") ;;
    munmap-*) program=("$BENCH_BIN/many" -n "${1#*-}" munmap "$2") ;;
    *) program=("$BENCH_BIN/many" -m "$mib" -t "$ms" "$1" "$2") ;;
    esac
    [ -z "$part" ] || program+=(--threads "$2" --time)
}

# attempt COMMAND...
attempt() {
    : >"$work/stats"
    "$@" "${program[@]}" >"$work/out" 2>"$work/err"
}

# one SYSTEM SHAPE THREADS CPUS COMMAND...
one() {
    local what="$place $1 $2 $3 $4" status=0
    attempt "${@:5}" || status=$?
    # The lab's own vCPUs end so, too (lab/README.md). A second time is vmrun's.
    if [ "$place" = lab ] && grep -q 'triple fault' "$work/err"; then
        triple_faults=$((triple_faults + 1)) status=0
        attempt "${@:5}" || status=$?
    fi
    if [ $status != 0 ]; then
        [ $status != 124 ] || echo "it did not end in $limit s" >"$work/err"
        echo "not measured: $what: $(grep -v '^$' "$work/err" | tail -n 1)" >&2
        return
    fi
    [ -z "$part" ] || sed -n "s/.*$part \([0-9.]*\) s.*/\1/p" "$work/err" |
        awk -v what="$what" '{ print what, "rate", 1 / $1 }'
    sed -n "s/^\([a-z][a-z0-9_.]*\) \([0-9.]*\)$/$what \1 \2/p" "$work/out" "$work/stats"
}

# systems SHAPE THREADS CPUS: one run under each.
systems() {
    local cache=$((64 + 16 * $2)) least=$(($2 / 4 + 1)) program part pinned
    pinned=(timeout "$limit" taskset -c "$(first_cpus "$3")")
    set_program "$1" "$2"
    if wanted "$1" "$far"; then
        # vmrun takes 64 frames for each thread, and the main thread is one more.
        cache=$((mib / 4 > least ? mib / 4 : least))
    fi
    one native "$@" "${pinned[@]}"
    one vmrun "$@" "${pinned[@]}" "$VMRUN" --no-config --overcommit --stats="$work/stats" \
        --cache "${cache}M" --node "mem:$((2 * mib + 512))M" --
    if [ -n "$swap" ] && wanted "$1" "$far"; then
        group_make $((cache << 20))
        one swap "$@" in_group "${pinned[@]}"
    fi
}

# inside PLACE
inside() {
    local place=$1 swap='' shape t n triple_faults=0
    mkdir -p "$work"
    if [ "$place" = lab ] && groups_ready && swap_brd $((2 * mib)) >&2; then
        swap_on "$device" >&2
        echo 0 >/proc/sys/vm/page-cluster
        swap=yes
    fi
    n=$(nproc)
    [ -n "$threads" ] || for ((t = 1; t <= n; t *= 2)); do threads+=,$t; done
    for shape in ${shapes//,/ }; do
        set --
        if [ "$shape" = stress ]; then
            set -- "fair 1 $n" "fair 8 $n" "random 15 $n" "random 2 2" "random 64 2"
            for t in 1 2 8; do set -- "$@" "munmap-0 $t $n" "munmap-50 $t $n"; done
        else
            for t in ${threads//,/ }; do set -- "$@" "$shape $t $((t < n ? t : n))"; done
        fi
        for _ in $(seq "$runs"); do
            # shellcheck disable=SC2086 # three words
            for t; do systems $t; done
        done
    done
    [ $triple_faults = 0 ] ||
        echo "runs that ended in a triple fault, and were repeated once: $triple_faults" >&2
}

# --- the report ---

# get SYSTEM SHAPE THREADS CPUS KEY: the median, 0 if there is none.
get() {
    awk -v what="$place $*" '$1 " " $2 " " $3 " " $4 " " $5 " " $6 == what { print $7 }' \
        "$scratch/figures" | median
}

# by A B: the quotient; - where one of them is 0 or not known.
by() {
    awk -v a="$1" -v b="$2" 'BEGIN {
        print((a > 0 && b > 0) ? sprintf(a / b < 100 ? "%.2f" : "%.0f", a / b) : "-")
    }'
}

rates() {
    local shape t n system rate k row='%-11s %3s %3s %10s %5s %10s %5s %10s %5s'
    row+=' %5s %6s %6s %4s %8s %7s %7s\n'
    # shellcheck disable=SC2059 # a format
    printf "$row" shape T CPU native e swap e vmrun e slow waits direct p99 flushes kicks exits
    while read -r shape t n; do
        set -- "$shape" "$t" "$n"
        for system in native swap vmrun; do
            rate=$(get $system "$shape" "$t" "$n" rate)
            set -- "$@" "$(by "$rate" 1)" \
                "$(by "$rate" "$(calc "$n * $(get $system "$shape" 1 1 rate)")")"
            record bench=many "place=$place" "system=$system" "shape=$shape" "threads=$t" \
                "cpus=$n" "rate=$rate"
        done
        v() { get vmrun "$shape" "$t" "$n" "$1"; }
        k=$(calc "$(v faults.fetch) / 1000")
        # shellcheck disable=SC2059
        printf "$row" "$@" "$(by "$(v slowest)" "$(v fastest)")" \
            "$(by "$(v count.frame_waits)" "$k")" "$(by "$(v count.direct_reclaim)" "$k")" \
            "$(calc "int($(v latency_ns.fetch.p99) / 1000)")" \
            "$(v count.flushes)" "$(v count.kicks)" "$(v exits.total)"
    done < <(awk -v p="$place" '
        $1 == p && $6 == "rate" && !/munmap/ && !seen[$3, $4, $5]++ { print $3, $4, $5 }
        ' "$scratch/figures")
}

stress() {
    local n=$1 t system
    for system in native swap vmrun; do
        g() { get $system "$@"; }
        [ "$(g random 2 2 rate)" != 0 ] || continue
        printf '%s: %s %s, %s %s, %s %s\n' $system \
            "a reader's time beside 7 writers / alone" \
            "$(by "$(g fair 1 "$n" first)" "$(g fair 8 "$n" first)")" \
            "slowest / fastest of 15 threads" \
            "$(by "$(g random 15 "$n" slowest)" "$(g random 15 "$n" fastest)")" \
            "64 threads on two CPUs / 2 threads" \
            "$(by "$(g random 64 2 rate)" "$(g random 2 2 rate)")"
    done
    for t in 1 2 8; do
        d() { echo $(($(get vmrun munmap-50 $t "$n" "$1") - $(get vmrun munmap-0 $t "$n" "$1"))); }
        printf '50 munmaps of 16 pages beside %d threads: %s kicks, %s exits, %s flushes;' \
            $t "$(d count.kicks)" "$(d exits.kick)" "$(d count.flushes)"
        printf ' longest, us: %s, native %s\n' \
            "$(by "$(get vmrun munmap-50 $t "$n" munmap_max)" 1000)" \
            "$(by "$(get native munmap-50 $t "$n" munmap_max)" 1000)"
    done
}

options "runs cpus mib ms places threads shapes" "$@"
check_options
if [ -n "$inside" ]; then
    inside "$inside"
    exit
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for place in ${places//,/ }; do
    set -- bench/many.sh --runs "$runs" --mib "$mib" --ms "$ms" --threads "$threads" \
        --shapes "$shapes" --inside "$place"
    case $place in
    lab) n=$cpus && in_lab --cpus "$n" --timeout 3600 -- "$@" ;;
    counted) n=1 && in_lab --icount --timeout 3600 -- "$@" ;;
    here)
        n=$(nproc)
        "$VMRUN" --check >"$scratch/check" 2>&1 ||
            die "on this machine: vmrun --check says that programs cannot run here"
        BENCH_WORK=$scratch "$@"
        ;;
    esac >"$scratch/$place"
    printf '\n%s: operations a second. Of the whole run of vmrun: waits for frames and direct\n' \
        "$place"
    echo "reclaims for 1,000 fetches, the 99th percentile of fetches (us), and counts."
    ln -sf "$place" "$scratch/figures"
    rates
    ! wanted stress "$shapes" || stress "$n"
done
