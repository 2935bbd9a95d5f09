# Split locks on a host where they are fatal, as split_lock has KVM and Linux answer them. The words
# are those that a program says natively of the signal that Linux sends for #AC.
# shellcheck shell=bash disable=SC2034,SC2154

split_locks() {
    local how
    for how in handled thread default ignored blocked; do
        split_lock "$how"
    done
    selected 'split lock: default, --stats' && split_lock_reported
    selected 'split lock: kern' && split_lock_in_kern
    # It names its own node.
    if [ ${#nodes[@]} -eq 0 ]; then
        split_lock_in_guide guide
        split_lock_in_guide guide-blocked
    fi
}

# traced HOW OPTION... -- COMMAND...: COMMAND under vmrun, traced by split_lock.
traced() {
    local how=$1 LIMIT=$limit
    shift
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$build/test/system/split_lock" "$how" \
        "$vmrun" --cache 1M "${vmrun_flags[@]}" "$@"
}

# split_lock HOW: two signals if they are handled; else the first one ends the program.
split_lock() {
    local why='' words="$1, status 135" n said thread=0
    selected "split lock: $1" || return 0
    if [ "$1" = handled ] || [ "$1" = thread ]; then
        words=$1
        [ "$1" = handled ] || thread=1
        for n in 1 2; do
            words+=$'\n'"$n times, code 1, address (nil), at the instruction: 1, trap 17, error 0, "
            words+="thread: $thread, pending: 0, blocked: 0"
        done
        words+=', status 0'
    fi
    traced program -- "$build/test/system/t_split" "$1"
    said="$(cat "$OUT"), status $status"
    [ "$said" = "$words" ] || why="says: ${said//$'\n'/; }"
    verdict "split lock: $1" "$why"
}

split_lock_reported() {
    local why=''
    rm -f "$WORK/stats"
    traced program --stats="$WORK/stats" -- "$build/test/system/t_split" default
    if [ "$status" != 135 ]; then
        why="ends with status $status"
    elif ! [ -s "$WORK/stats" ]; then
        why='writes no statistics'
    fi
    verdict 'split lock: default, --stats' "$why"
}

split_lock_in_kern() {
    local why=''
    traced kern -- "$build/test/system/t_split" plain
    if [ "$status" != 125 ]; then
        why="ends with status $status"
    elif ! grep -q 'a split lock.*split_lock_detect=warn' "$ERR"; then
        why='does not say what is wrong'
    fi
    verdict 'split lock: kern' "$why"
}

# The guide is ended three times and called no more; its program gets no signal.
split_lock_in_guide() {
    local t=$build/test/system/t_split why='' words LIMIT=$limit
    selected "split lock: $1" || return 0
    OUT=$WORK/native ERR=$WORK/err
    run_limited "$t" "$1"
    words="$(cat "$OUT"), status $status"
    traced program --node 'mem:64M?latency=20000' --stats="$WORK/stats" -- "$t" "$1"
    if [ "$(cat "$OUT"), status $status" != "$words" ]; then
        why="ends with status $status, and natively says: ${words//$'\n'/; }"
    elif [ "$(awk '$1 == "guide.0.trapped" { print $2 }' "$WORK/stats")" != 3 ]; then
        why="the statistics say: $(grep guide "$WORK/stats" | tr '\n' ' ')"
    fi
    verdict "split lock: $1" "$why"
}
