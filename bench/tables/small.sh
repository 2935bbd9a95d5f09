#!/bin/bash
# First touches and small programs where KVM has page tables of its own (p = 3), by this vmrun and
# by another one, in turns. Run by bench/run, on the machine itself.
#
#   bench/tables/small.sh --figures DIR [--before VMRUN] [--runs N] [--quick]
#
# Medians by the clock: measure on an idle machine.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

figures='' quick='' before='' runs=7
no_groups=yes
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names='true ls python3 shell sort'
# set_program NAME
set_program() {
    case $1 in
    true) program=(/bin/true) ;;
    ls) program=(ls -l /usr/bin) ;;
    python3) program=(/usr/bin/python3 -S -c pass) ;;
    shell) program=(sh -c 'for i in 1 2 3 4 5 6 7 8; do /bin/true; done') ;;
    sort) program=(sort --parallel=1 "$work/text") ;;
    first) program=("$BENCH_BIN/first" --mib "$mib") ;;
    esac
}

# keep WHOM WHAT VALUE: for the medians.
keep() { printf '%s\n' "$3" >>"$work/values.$1.$2"; }

# round WHOM PREFIX...: each program once.
round() {
    local whom=$1 name key n program
    shift
    for name in first $names; do
        set_program "$name"
        run max "$@" "${program[@]}"
        if [ -n "$run_why" ]; then
            failed+=("$whom $name: $run_why")
            continue
        fi
        printf '%s\n' "$run_command" >"$work/command.$whom.$name"
        if [ "$name" = first ]; then
            while read -r key n; do
                keep "$whom" "first-$key" "$n"
            done <"$work/out"
        else
            keep "$whom" "run-$name" "$run_ns"
        fi
    done
}

options "figures before runs quick!" "$@"
[ -n "$figures" ] || usage
mib=8
if [ -n "$quick" ]; then
    runs=1 mib=2
fi
if [ -n "$before" ]; then
    before=$(realpath "$before")
fi
figures "$figures"
seq 1 20000 >"$work/text"
declare -A by=([native]='' [now]="$VMRUN --no-config")
[ -z "$before" ] || by[before]="$before --no-config"
failed=()
for ((i = 0; i <= runs; i++)); do
    for whom in native now ${before:+before}; do
        # shellcheck disable=SC2086 # words
        round $whom ${by[$whom]}
    done
    # The first round brings the files in.
    [ $i != 0 ] || rm -f "$work"/values.*
done
for file in "$work"/values.*; do
    key=${file##*/values.}
    whom=${key%%.*} key=${key#*.}
    name=${key#run-}
    [[ $key == run-* ]] || name=first
    record table=small "system=$whom" "what=$key" unit=ns "value=$(median <"$file")" \
        "least=$(sort -g "$file" | head -n 1)" "most=$(sort -g "$file" | tail -n 1)" \
        "runs=$runs" "command=$(<"$work/command.$whom.$name")"
done
for why in "${failed[@]}"; do
    not_measured "${why#*: }" table=small "system=${why%% *}" "what=${why%%:*}"
done
if [ -z "$before" ]; then
    not_measured 'no other build is named: --before VMRUN' table=small system=before
fi
