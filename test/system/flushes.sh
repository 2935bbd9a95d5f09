# TLB flushes: how many begin, and how many vCPUs are kicked for them.
# shellcheck shell=bash disable=SC2034,SC2154

flushes() {
    OUT=$WORK/out ERR=$WORK/err
    local threads
    for threads in 1 16 64; do
        flushes_a_turn random $threads 128 $((160000 / threads))
        flushes_a_turn scan $threads 128 3
    done
    flushes_of_a_range
    flushes_of_munmaps unmap 450 50
    flushes_of_munmaps cold 0 0
}

flushes_value() { awk -v key="$1" '$1 == key { print $2 }' "$WORK/stats"; }

# flushes_run CACHE ARGUMENT...: t_flushes, with its statistics in $WORK/stats.
flushes_run() {
    local cache=$1
    shift
    rm -f "$WORK/stats"
    run_limited "$vmrun" --cache "$cache" --stats="$WORK/stats" "${vmrun_flags[@]}" -- \
        "$build/test/system/t_flushes" "$@"
}

# flushes_verdict NAME WHY
flushes_verdict() {
    [ "$status" = 0 ] || set -- "$1" "exit status $status"
    verdict_of "$1" "$2"
}

# Eviction begins at most five in the time in which the hand passes all frames.
flushes_a_turn() {
    local name="flushes a turn of the hand: $1, $2 threads" frames=8192 begun scanned why=''
    local LIMIT=$limit
    selected "$name" || return 0
    flushes_run 32M "$@"
    begun=$(($(flushes_value count.flushes_hand) + $(flushes_value count.flushes_passed)))
    scanned=$(flushes_value count.scanned)
    [ "${scanned:-0}" -gt $frames ] || why="the hand passed only ${scanned:-no} frames"
    [ $((begun * frames)) -le $((5 * scanned + frames)) ] ||
        why="$begun flushes while the hand passed $scanned frames"
    flushes_verdict "$name" "$why"
}

# 64 for 2 GiB: 8 for this quarter of a GiB, and a few more of the program's start.
flushes_of_a_range() {
    local name='flushes of MADV_DONTNEED, 256 MiB' LIMIT=$limit why='' begun
    selected "$name" || return 0
    flushes_run 320M drop 256
    begun=$(flushes_value count.flushes_range)
    [ "${begun:-99}" -le 16 ] || why="$begun flushes"
    flushes_verdict "$name" "$why"
}

# flushes_of_munmaps WHAT KICKS EXITS: at most, of 50 munmaps beside 8 threads that compute. The
# program's start and end, and its threads', need a few more.
flushes_of_munmaps() {
    local name="flushes of 50 munmaps, $1" LIMIT=$limit why='' kicks exits
    selected "$name" || return 0
    flushes_run 32M "$1" 8 50
    kicks=$(flushes_value count.kicks)
    exits=$(flushes_value exits.kick)
    [ "${kicks:-0}" -le $(($2 + 24)) ] || why="$kicks kicks"
    [ "${exits:-0}" -le $(($3 + 6)) ] || why="${why:+$why, }$exits exits"
    flushes_verdict "$name" "$why"
}
