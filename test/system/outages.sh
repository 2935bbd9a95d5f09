# What a memory node that answers late costs: time, but no processor time (t_outage.c says of what).
# shellcheck shell=bash disable=SC2034,SC2154

outages() {
    late 'writes that are held back' writes 5 440
    late 'writes that are held back, inline' writes 5 440 --io inline
    late 'reads that are held back' reads 2 1200
    late 'reads that are held back, inline' reads 2 1200 --io inline
    silent 'one of two nodes is silent, inline'
    # A minute and --timeout are 1.5 s here. The second one is not to wait for the end of the call.
    VMRUN_WATCH_MS=500 late 'a call that brings many pages' populate 0.01 700 --timeout 1
    limit=8 VMRUN_WATCH_MS=500 late 'the end during such a call' exit 0.1 700 --timeout 1
}

# late NAME KIND SECONDS PAGES OPTION...: t_outage with 512 pages of cache beside a node that
# answers requests of that kind so late; reads, unless KIND is writes.
late() {
    local name=$1 kind=$2 seconds=$3 pages=$4 LIMIT=$((limit * 3)) i kit slowest
    local expected=0 delay=$3 socket=$WORK/late.sock
    shift 4
    [ "$kind" != exit ] || expected=7
    # nbdkit knows milliseconds, and an option for each kind.
    delay=$(awk "BEGIN { print $delay * 1000 }")ms
    if [ "$kind" = writes ]; then delay=delay-write=$delay; else delay=delay-read=$delay; fi
    selected "$name" || return 0
    command -v nbdkit >/dev/null || { skip "$name" 'nbdkit is not installed'; return; }
    OUT=$WORK/out ERR=$WORK/err
    rm -f "$socket" "$WORK/late.pid"
    # The pid file is there once it listens.
    nbdkit --foreground --threads 128 --pidfile "$WORK/late.pid" --unix "$socket" \
        --filter=delay memory 256M "$delay" 2>"$WORK/late.log" &
    kit=$!
    for ((i = 0; i < 200; i++)); do
        [ ! -s "$WORK/late.pid" ] || break
        sleep 0.05
    done
    run_limited "$vmrun" --cache 2M --connect-timeout 60 --timeout 60 --stats="$WORK/stats" \
        --node "nbd+unix:///disk?socket=$socket" "$@" "${vmrun_flags[@]}" -- \
        "$build/test/system/t_outage" "$kind" "$seconds" "$pages"
    kill -KILL $kit
    { wait $kit; } 2>/dev/null
    # A page that is read late comes late, by the statistics too.
    slowest=$(sed -n 's/^latency_ns\.fetch\.max //p' "$WORK/stats")
    if [ "$status" = 0 ] && [ "$kind" = reads ] &&
        [ "${slowest:-0}" -lt $((seconds * 1000000000)) ]; then
        not_ok "$name" "the statistics say that the slowest fetch took ${slowest:-no} ns"
    elif [ "$status" = $expected ] && [ "$(cat "$OUT")" = "$kind: ok" ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, says '$(head -n 1 "$OUT")'"
        show "$ERR"
    fi
}

# silent NAME: t_silent with two nodes, of which the second takes 2 s to answer a read.
silent() {
    local name=$1 LIMIT=$limit i node ms=0 kits=()
    selected "$name" || return 0
    command -v nbdkit >/dev/null || { skip "$name" 'nbdkit is not installed'; return; }
    OUT=$WORK/out ERR=$WORK/err
    for node in early late; do
        rm -f "$WORK/$node.sock" "$WORK/$node.pid"
        nbdkit --foreground --threads 16 --pidfile "$WORK/$node.pid" --unix "$WORK/$node.sock" \
            --filter=delay memory 64M delay-read=${ms}ms \
            2>"$WORK/$node.log" &
        kits+=($!)
        ms=2000
        for ((i = 0; i < 200; i++)); do
            [ ! -s "$WORK/$node.pid" ] || break
            sleep 0.05
        done
    done
    run_limited "$vmrun" --io inline --prefetch none --cache 2M --connect-timeout 60 --timeout 60 \
        --node "nbd+unix:///disk?size=4M&socket=$WORK/early.sock" \
        --node "nbd+unix:///disk?size=32M&socket=$WORK/late.sock" "${vmrun_flags[@]}" -- \
        "$build/test/system/t_silent" 12
    kill -KILL "${kits[@]}"
    { wait "${kits[@]}"; } 2>/dev/null
    if [ "$status" = 0 ] && [ "$(cat "$OUT")" = 'silent: ok' ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, says '$(head -n 1 "$OUT")'"
        show "$ERR"
    fi
}
