#!/bin/bash
# What it costs to start a program under vmrun, beside native, and that it does not grow with the
# far tier; and what an execve costs.
#
#   bench/startup.sh [--runs N] [--profile] [--json FILE]
#
# Medians of N interleaved runs (default 7) in the lab by instructions (--icount: processor time of
# the process, in which waits for the host's files do not count), in the lab by wall clock, and on
# this machine if programs can run here. Then where it goes: exits by kind, and the host system
# calls of vmrun by time (strace). --profile adds a profile of the lab's kernel and vmrun (perf).
# lib.sh has the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

runs=7
profile=

# The kinds of run: name, then the command.
python=(/usr/bin/python3 -c pass)
kinds=(true-native true-vmrun true-1G true-1T true-cache4M env-native env-vmrun
    python-native python-vmrun python-1G python-1T)
command_of() {
    case $1 in
    true-native) cmd=(/bin/true) ;;
    true-vmrun) cmd=("$VMRUN" /bin/true) ;;
    true-1G) cmd=("$VMRUN" --node mem:1G /bin/true) ;;
    true-1T) cmd=("$VMRUN" --node mem:1T /bin/true) ;;
    true-cache4M) cmd=("$VMRUN" --cache 4M --node mem:1G /bin/true) ;;
    env-native) cmd=(/usr/bin/env /bin/true) ;;
    env-vmrun) cmd=("$VMRUN" /usr/bin/env /bin/true) ;;
    python-native) cmd=("${python[@]}") ;;
    python-vmrun) cmd=("$VMRUN" "${python[@]}") ;;
    python-1G) cmd=("$VMRUN" --node mem:1G "${python[@]}") ;;
    python-1T) cmd=("$VMRUN" --node mem:1T "${python[@]}") ;;
    esac
}

# rounds PLACE: one line `PLACE KIND KEY VALUE` a figure.
rounds() {
    local place=$1 kind i out cmd
    out=$(mktemp)
    for ((i = 0; i <= runs; i++)); do
        for kind in "${kinds[@]}"; do
            command_of "$kind"
            [ $i -gt 0 ] || printf '+ %s times: %s\n' "$runs" "${cmd[*]}" >&2
            "$BENCH_BIN/timed" "$out" "${cmd[@]}"
            # The first round brings files into the page cache.
            [ $i -eq 0 ] || sed "s/^/$place $kind /" "$out"
            : >"$out"
        done
    done
    rm -f "$out"
}

exits_by_kind() {
    local name cmd
    for name in true-1G python-1G; do
        command_of $name
        ran "$VMRUN" --stats=/run/stats "${cmd[@]:1}"
        sed -n "s/^\(exits\.\|faults\.\|syscalls\.total\|count.syscalls\)/exits $name &/p" \
            /run/stats
    done
}

syscalls_by_time() {
    if ! command -v strace >/dev/null; then
        echo "host system calls: skipped, there is no strace"
        return
    fi
    local cmd
    command_of true-1G
    echo "host system calls of: ${cmd[*]} (strace -c; the seconds are instructions / 1e9)"
    ran strace -f -c -o /run/strace "${cmd[@]}"
    head -n 12 /run/strace
}

profiled() {
    local cmd
    command_of true-1G
    echo 0 >/proc/sys/kernel/kptr_restrict
    ran perf record -q -o /dev/shm/perf -e cpu-clock -c 5000 -a -g -- \
        sh -c 'for i in 1 2 3 4 5 6 7 8 9 10; do "$@"; done' sh "${cmd[@]}"
    echo "profile of ten runs of: ${cmd[*]} (a sample is 5,000 instructions; with all that was" \
        "called)"
    perf report -i /dev/shm/perf --children --comm vmrun,true --sort symbol -g none \
        --percent-limit 1 --stdio 2>/dev/null |
        sed -n 's/ - *- *$//; /^ *[0-9]/p'
}

inside_icount() {
    rounds lab-icount
    exits_by_kind
    syscalls_by_time >/run/text
    [ -z "$profile" ] || profiled >>/run/text
    sed 's/^/text /' /run/text
}
inside_wall() { rounds lab-wall; }

options "runs profile!" "$@"
if [ -n "$inside" ]; then
    "inside_$inside"
    exit
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# shellcheck disable=SC2086 # nothing, or one word
in_lab --timeout 300 --icount -- bench/startup.sh --runs "$runs" $profile --inside icount \
    >"$scratch/out"
in_lab --timeout 300 -- bench/startup.sh --runs "$runs" --inside wall >>"$scratch/out"
places=(lab-icount:cpu_us lab-wall:wall_ns)
if "$VMRUN" --check >"$scratch/check" 2>&1; then
    rounds here >>"$scratch/out"
    places+=(here:wall_ns here:cpu_us)
else
    echo "on this machine: skipped, for vmrun --check says that programs cannot run here" >&2
fi

# figure PLACE KIND KEY: the median, in thousands of instructions or in microseconds.
figure() {
    local m
    m=$(awk -v p="$1" -v h="$2" -v k="$3" '$1 == p && $2 == h && $3 == k { print $4 }' \
        "$scratch/out" | median)
    case $3 in
    wall_ns) calc "int($m / 1000 + 0.5)" ;;
    *) echo "$m" ;;
    esac
}

echo
echo "Medians of $runs.  lab-icount: thousands of instructions; the others: microseconds."
echo
row='%-14s'
for place in "${places[@]}"; do row+=' %14s %8s'; done
heads=()
for place in "${places[@]}"; do
    heads+=("${place%:*}/$([[ $place == *cpu* ]] && echo cpu || echo wall)" beside)
done
# shellcheck disable=SC2059 # a format
printf "$row\n" run "${heads[@]}"
for kind in "${kinds[@]}"; do
    cells=()
    for place in "${places[@]}"; do
        v=$(figure "${place%:*}" "$kind" "${place#*:}")
        base=$(figure "${place%:*}" "${kind%-*}-native" "${place#*:}")
        cells+=("$v" "$(calc "$v - $base")")
        record bench=startup place="${place%:*}" unit="${place#*:}" run="$kind" value="$v"
    done
    # shellcheck disable=SC2059
    printf "$row\n" "$kind" "${cells[@]}"
done
echo "beside: what vmrun adds to native."
for place in "${places[@]}"; do
    at=${place%:*} unit=${place#*:}
    # env is a program as small as true.
    v=$(calc "$(figure "$at" env-vmrun "$unit") - $(figure "$at" true-vmrun "$unit")")
    native=$(calc "$(figure "$at" env-native "$unit") - $(figure "$at" true-native "$unit")")
    echo "execve, with the start and end of the small program that makes it," \
        "$at/${unit%_*}: $v, natively $native"
    record bench=startup place="$at" unit="$unit" run=execve value="$v"
done
echo
echo "Exits by kind, system calls and faults (--node mem:1G)"
awk '
    $1 == "exits" && $4 > 0 { v[$2, $3] = $4; keys[$3] }
    END {
        for (k in keys)
            printf "%-28s %10d %10d\n", k, v["true-1G", k], v["python-1G", k]
    }' "$scratch/out" | sort |
    { printf '%-28s %10s %10s\n' '' true python && cat; }
echo
sed -n 's/^text //p' "$scratch/out"
echo
for program in true python; do
    large=$(figure lab-icount $program-1T cpu_us)
    small=$(figure lab-icount $program-1G cpu_us)
    ratio=$(calc "$large / $small")
    # A huge page more or less to clear is 2 million instructions here, and a matter of luck; what
    # grew with the tier would be a thousand times as much.
    verdict "$program: instructions with a far tier of 1 TiB / with 1 GiB" "$ratio" '<=' 1.2
done
finish
