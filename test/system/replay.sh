# --record and --replay: pages that a run waits for are fetched ahead in the next run, and no
# file that --replay is given does harm.
# shellcheck shell=bash disable=SC2034,SC2154

replays() {
    OUT=$WORK/out ERR=$WORK/err
    replay_waits
    if [ "$brief" = no ]; then
        replay_threads
        replay_fork
    fi
    replay_no_harm
    replay_ends
    [ "$memory$brief" != nono ] || replay_bad_files
}

replay_node='mem:64M?latency=3000&bandwidth=12.5G'

# replay_run OPTION... -- PROGRAM...: its statistics in $WORK/stats; sets `waits`.
replay_cache=4M
replay_run() {
    rm -f "$WORK/stats"
    run_limited "$vmrun" --cache "$replay_cache" --debug --stats="$WORK/stats" \
        --node "$replay_node" "$@"
    waits=$(awk '$1 == "faults.fetch" || $1 == "faults.wait" { n += $2 } END { print n + 0 }' \
        "$WORK/stats")
    [ "$status" = 0 ] || why="exit status $status: $(head -n 1 "$ERR")"
    ! grep -q wrong "$OUT" || why=$(grep wrong "$OUT")
}

# replay_three NAME MOST PROGRAM...: plain, recorded and replayed. The last may wait for MOST
# percent of the pages that the first waited for: the best of three, since pages come late to a vCPU
# that the host does not run (on a busy machine for a third of them).
replay_three() {
    local name=$1 most=$2 LIMIT=$limit why='' plain waits sum i
    selected "$name" || return 0
    shift 2
    replay_run -- "$@"
    plain=$waits sum=$(cat "$OUT")
    [ "$plain" -ge 2000 ] || why="only $plain pages were waited for"
    replay_run --record "$WORK/record" -- "$@"
    [ "$(cat "$OUT")" = "$sum" ] || why='other output while recorded'
    for i in 1 2 3; do
        replay_run --replay "$WORK/record" -- "$@"
        [ "$(cat "$OUT")" = "$sum" ] || why='other output when replayed'
        [ $((waits * 100)) -gt $((plain * most)) ] || break
    done
    [ $((waits * 100)) -le $((plain * most)) ] || why="$waits waits, without the record $plain"
    verdict "$name" "$why"
}

replay_waits() {
    replay_three 'replay: most waits are gone' 35 "$build/test/system/t_replay" 2500 6
}

# Which thread runs when is another matter each time.
replay_threads() {
    local replay_cache=8M
    replay_three 'replay: threads' 40 "$build/test/system/t_replay" 2000 6 3
}

# A child neither records nor replays; its parent does.
replay_fork() {
    replay_three 'replay: a child' 50 "$build/test/system/t_replay" fork 2500 6
}

# Records of another program, and of other accesses.
replay_no_harm() {
    local name LIMIT=$limit why waits plain program=$build/test/system/t_replay
    name='replay: the record of another program'
    if selected "$name"; then
        why=''
        replay_run --record "$WORK/other" -- "$build/examples/randmem" --size 4M --accesses 2000
        replay_run --replay "$WORK/other" -- "$program" 1000 2
        grep -q 'this is a record of .*/randmem, not of .*/t_replay: it is not used' "$ERR" ||
            why='no message'
        verdict "$name" "$why"
    fi
    name='replay: the record of other accesses'
    if selected "$name"; then
        why=''
        replay_run --record "$WORK/record" -- "$program" 2000 3 1 12345
        replay_run -- "$program" 2000 3
        plain=$waits
        replay_run --replay "$WORK/record" -- "$program" 2000 3
        [ $((waits * 10)) -le $((plain * 12)) ] || why="$waits waits, without the record $plain"
        verdict "$name" "$why"
    fi
}

# Programs that end by a signal, and by execve.
replay_ends() {
    local name LIMIT=$limit why waits program=$build/test/system/t_replay
    name='replay: a program that is killed leaves its record'
    if selected "$name"; then
        why=''
        run_limited timeout -s TERM 2 "$vmrun" --cache 4M --node "$replay_node" \
            --record "$WORK/killed" "$program" 2000 1000000
        replay_run --replay "$WORK/killed" -- "$program" 2000 2
        verdict "$name" "$why"
    fi
    name='replay: the record is of the program that was started'
    if selected "$name"; then
        why=''
        replay_run --record "$WORK/exec" -- sh -c "exec $program 1000 2"
        replay_run --replay "$WORK/exec" -v -- sh -c "exec $program 1000 2"
        [ "$(grep -c 'events of' "$ERR")" = 1 ] || why='not replayed once'
        replay_run --replay "$WORK/exec" -- "$program" 1000 2
        grep -q 'this is a record of .*sh, not of' "$ERR" || why='of another program'
        verdict "$name" "$why"
    fi
}

# replay_refused NAME TEXT OPTION...: status 125, and a message with the text.
replay_refused() {
    local name="replay: $1" text=$2 LIMIT=$limit why=''
    selected "$name" || return 0
    shift 2
    run_limited "$vmrun" --node mem:64M "$@" true
    [ "$status" = 125 ] || why="exit status $status"
    grep -q -e "$text" "$ERR" || why="no message '$text'"
    verdict "$name" "$why"
}

replay_bad_files() {
    if [ "$list" = no ]; then
        "$vmrun" --cache 1M --node "$replay_node" --record "$WORK/good" \
            "$build/examples/randmem" --size 4M --accesses 3000 >/dev/null
        : >"$WORK/empty"
        head -c 1000 "$WORK/good" >"$WORK/short"
        head -c 20 "$WORK/good" >"$WORK/head"
        { cat "$WORK/good" && echo; } >"$WORK/long"
        { head -c 700 "$WORK/good" && printf '\377' && tail -c +702 "$WORK/good"; } >"$WORK/byte"
        { head -c 8 "$WORK/good" && printf '\002' && tail -c +10 "$WORK/good"; } >"$WORK/version"
    fi
    replay_refused 'no such file' 'cannot be opened: No such file' --replay "$WORK/none"
    replay_refused 'an empty file' 'it is empty: the program' --replay "$WORK/empty"
    replay_refused 'a foreign file' 'it is no record of vmrun' --replay "$vmrun"
    replay_refused 'a folder' 'it is no record of vmrun' --replay "$WORK"
    [ "$list" = yes ] || mkfifo "$WORK/fifo"
    replay_refused 'a pipe' 'it is no record of vmrun' --replay "$WORK/fifo"
    for each in short head long byte; do
        replay_refused "a damaged file, $each" 'it is damaged or cut short' --replay "$WORK/$each"
    done
    replay_refused 'a file of another version' 'of another version of vmrun' \
        --replay "$WORK/version"
    replay_refused 'both options' 'exclude each other' --record "$WORK/a" --replay "$WORK/good"
    replay_refused 'a record that cannot be made' 'cannot be opened: No such file' \
        --record "$WORK/none/record"
    replay_refused 'a record that is no file' 'this is no regular file' --record /dev/null
}
