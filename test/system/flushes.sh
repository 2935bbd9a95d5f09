# TLB flushes: how many begin, and how many vCPUs are kicked for them.
# shellcheck shell=bash disable=SC2034,SC2154

flushes() {
    OUT=$WORK/out ERR=$WORK/err
    local mib mibs=32 threads
    [ "$long" = no ] || mibs+=' 256'
    for mib in $mibs; do
        for threads in 1 16 64; do
            flushes_a_turn "$mib" random $threads $((4 * mib)) $((2000 * mib / threads))
            flushes_a_turn "$mib" scan $threads $((4 * mib)) 3
        done
    done
    flushes_of_a_range 256
    [ "$long" = no ] || flushes_of_a_range 2048
    flushes_of_munmaps unmap 450 50
    flushes_of_munmaps cold 0 0
}

# flushes_run CACHE ARGUMENT...: t_flushes, with its statistics in $WORK/stats.
flushes_run() {
    local cache=$1
    shift
    rm -f "$WORK/stats"
    run_limited "$vmrun" --cache "$cache" --stats="$WORK/stats" "${vmrun_flags[@]}" -- \
        "$build/test/system/t_flushes" "$@"
}

# flushes_a_turn MIB ARGUMENT...: with MIB of cache. Eviction begins at most five in the time in
# which the hand passes all frames.
flushes_a_turn() {
    local name="flushes a turn of the hand: $2, $3 threads, $1 MiB" frames=$(($1 * 256)) begun
    local scanned why='' LIMIT=$limit
    selected "$name" || return 0
    flushes_run "$1M" "${@:2}"
    begun=$(($(stats_value count.flushes_hand) + $(stats_value count.flushes_passed)))
    scanned=$(stats_value count.scanned)
    [ "${scanned:-0}" -gt $frames ] || why="the hand passed only ${scanned:-no} frames"
    [ "$begun" -gt 0 ] || why='no flush was begun'
    [ $((begun * frames)) -le $((5 * ${scanned:-0} + frames)) ] ||
        why="$begun flushes while the hand passed $scanned frames"
    ran_verdict "$name" "$why"
}

# flushes_of_a_range MIB: 64 for 2 GiB, and a few more of the program's start.
flushes_of_a_range() {
    local name="flushes of MADV_DONTNEED, $1 MiB" LIMIT=$limit why='' begun
    selected "$name" || return 0
    flushes_run $(($1 + 64))M drop "$1"
    begun=$(stats_value count.flushes_range)
    [[ ${begun:-0} -ge 1 && $begun -le $(($1 / 32 + 8)) ]] || why="${begun:-no} flushes"
    ran_verdict "$name" "$why"
}

# flushes_of_munmaps WHAT KICKS EXITS: at most, of 50 munmaps beside 8 threads that compute; and 24
# kicks and 6 exits of the start and end of the program and its threads. A kick that has had no
# effect for 40 ms is repeated, so vCPUs that wait for a CPU cost up to 9 kicks and an exit for each
# 40 ms.
flushes_of_munmaps() {
    local name="flushes of 50 munmaps, $1" LIMIT=$limit why='' kicks exits again
    selected "$name" || return 0
    flushes_run 32M "$1" 8 50
    kicks=$(stats_value count.kicks)
    exits=$(stats_value exits.kick)
    again=$(($(stats_value elapsed_ns) / 40000000))
    [ "${kicks:-99999}" -le $(($2 + 24 + 9 * again)) ] || why="${kicks:-no} kicks"
    [ "${exits:-99999}" -le $(($3 + 6 + again)) ] || why="${why:+$why, }${exits:-no} exits"
    ran_verdict "$name" "$why"
}

# KVM flushes the TLBs of vCPUs that the host does not run: on one CPU, of all but the waiting one.
flushes_left_to_kvm() {
    local name='flushes of 50 munmaps, left to KVM' LIMIT=$limit why='' kicks left
    selected "$name" || return 0
    if at_level3; then
        skip "$name" 'a pagetable-based KVM does not say which vCPUs it does not run'
        return
    fi
    OUT=$WORK/out ERR=$WORK/err
    rm -f "$WORK/stats"
    run_limited taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" \
        "$vmrun" --cache 32M --stats="$WORK/stats" "${vmrun_flags[@]}" -- \
        "$build/test/system/t_flushes" unmap 8 50
    kicks=$(stats_value count.kicks)
    left=$(stats_value count.flushes_kvm)
    [ "${left:-0}" -ge 300 ] || why="${left:-no} flushes were left to KVM"
    [ "${kicks:-99999}" -le 100 ] || why="${why:+$why, }${kicks:-no} kicks"
    ran_verdict "$name" "$why"
}
