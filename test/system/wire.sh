# Memory nodes that are as slow as ones behind a network (latency=, bandwidth=): how long pages
# take, and that nothing is lost. (`nodes timed` runs other cases with such a node.)
# shellcheck shell=bash disable=SC2034,SC2154

wire_by_the_clock() {
    OUT=$WORK/out ERR=$WORK/err
    wire_latency
    wire_bandwidth
    wire_listed
    wire_mixed
    wire_one_cpu
    if [ "$brief" = no ]; then
        wire_redis
        wire_guides
        wire_graph
    fi
}

# wire NODE OPTION... -- PROGRAM...: its statistics in $WORK/stats.
wire() {
    local node=$1
    shift
    rm -f "$WORK/stats"
    run_limited "$vmrun" --cache 2M --debug --stats="$WORK/stats" --node "$node" "$@"
}

# A page takes at least the latency, however it is waited for: 20 us are polled for, 1 ms is slept.
wire_latency() {
    local name ns p50 LIMIT=$limit why
    for ns in 20000 1000000; do
        name="wire: a page takes $ns ns"
        selected "$name" || continue
        why=''
        wire "mem:64M?latency=$ns" --prefetch none -- \
            "$build/examples/randmem" --size 8M --accesses 500
        p50=$(stats_value latency_ns.fetch.p50)
        # The upper end of a bucket, of which there are eight an octave.
        [ "${p50:-0}" -ge $ns ] || why="a fetch takes ${p50:-no time}"
        [ "$(stats_value faults.fetch)" -ge 200 ] || why="only $(stats_value faults.fetch) fetches"
        ran_verdict "$name" "$why"
    done
}

# A program cannot read pages faster than the wire brings them, nor, with pages fetched ahead, at
# much less than half that: 4 MiB a second are 1,024 pages.
wire_bandwidth() {
    local name='wire: pages come no faster than its bandwidth' LIMIT=$limit why='' before moved took
    selected "$name" || return 0
    before=$EPOCHREALTIME
    wire 'mem:64M?bandwidth=40M' -- "$build/examples/scan" --size 8M --passes 2
    took=$(((${EPOCHREALTIME/./} - ${before/./}) / 1000))
    moved=$(($(stats_value count.fetched) + $(stats_value count.prefetched)))
    # 40 MB/s are 102.4 us a page; nothing is under way when the program ends.
    [ $((moved * 1024)) -le $((took * 10000)) ] || why="$moved pages in $took ms"
    [ $moved -ge 3000 ] || why="only $moved pages"
    ran_verdict "$name" "$why"
}

wire_listed() {
    local name='wire: --check and --stats say what it stands for' LIMIT=$limit why=''
    selected "$name" || return 0
    wire 'mem:64M?latency=2400&bandwidth=12.5G' -- true
    [ "$(stats_value node.0.latency_ns)" = 2400 ] || why='no latency'
    [ "$(stats_value node.0.bandwidth)" = 12500000000 ] || why='no bandwidth'
    stats_value wire.copied_ns | grep -q '^[0-9]' || why='no time of copies'
    run_limited "$vmrun" --check --node 'mem:64M?latency=2400&bandwidth=12.5G'
    grep -q 'behind a network of 2400 ns and 12.5 GB/s' "$OUT" || why='not in --check'
    [ "$status" != 125 ] || status=0            # of a host without KVM
    ran_verdict "$name" "$why"
}

# Two wires and plain memory side by side, in both ways of doing I/O, and while pages are written.
wire_mixed() {
    local name io LIMIT=$limit why
    for io in thread inline; do
        name="wire: beside other nodes, --io $io"
        selected "$name" || continue
        wire 'mem:24M?latency=100000' --io $io --node 'mem:24M?latency=500&bandwidth=1G' \
            --node mem:24M -- "$build/examples/scan" --size 48M --write --streams 4
        why=''
        grep -q ' 0 errors' "$OUT" || why='wrong words'
        ran_verdict "$name" "$why"
    done
}

# With one CPU for all, a scan that never waits must still let the cleaner run: without it 570 to
# 1,240 of these pages are fetched on demand, since vmrun can ask for none ahead.  With it 40 to
# 290, by what else the CPU does; so one of three runs is to stay below that.
wire_one_cpu() {
    local name='wire: one CPU, and pages still come ahead' LIMIT=$limit why='' fetched i
    selected "$name" || return 0
    for i in 1 2 3; do
        rm -f "$WORK/stats"
        run_limited taskset -c "$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')" \
            "$vmrun" --cache 4M --stats="$WORK/stats" \
            --node 'mem:64M?latency=2400&bandwidth=12.5G' \
            "$build/examples/scan" --size 32M --passes 3
        fetched=$(stats_value count.fetched)
        [ "$status" = 0 ] && [ "${fetched:-9999}" -gt 250 ] || break
    done
    [ "${fetched:-9999}" -le 250 ] || why="$fetched pages fetched on demand"
    [ "$(stats_value count.prefetched)" -ge 20000 ] || why='hardly anything came ahead'
    ran_verdict "$name" "$why"
}

# Guides are called, good and bad ones; --stats names those that were stopped, and why. There is
# room for 64 guides, so guides of a later part may take the places of earlier ones.
wire_guides() {
    local name='wire: guides' LIMIT=$limit why='' node='mem:64M?latency=100000&bandwidth=1G' how
    selected "$name" || return 0
    wire "$node" -- "$build/test/system/t_guides" --called
    [ "$status" = 0 ] || why="exit status $status"
    wire "$node" -- "$build/test/system/t_guides" --called misbehaving
    for how in touched trapped called late; do
        wire_guides_ended $how || why="none was ended: $how"
    done
    [ "$(stats_value guide.0.state)" = removed ] || why='the first one is not removed'
    wire "$node" -- "$build/test/system/t_guides" --called signals
    wire_guides_ended interrupted || why='none was interrupted'
    [ "$(stats_value guide.0.state)" = off ] || why='an interrupted guide is not off'
    ran_verdict "$name" "$why"
}

wire_guides_ended() {
    awk -v how="$1" '$1 ~ "^guide[.][0-9]+[.]" how "$" { n += $2 } END { exit n == 0 }' \
        "$WORK/stats"
}

# redis-server as it is, with its guide: lists that were filled in random order, so that their
# blocks are no neighbours, are walked with far fewer waits, and keep their elements.
wire_redis() {
    local name='wire: redis and its guide' LIMIT=$limit why='' guide
    local -A waits said
    selected "$name" || return 0
    command -v redis-server >/dev/null || { skip "$name" 'redis-server is not installed'; return; }
    for guide in none redis; do
        rm -f "$WORK/stats"
        set -- --cache 8M --debug --stats="$WORK/stats" --node 'mem:256M?latency=50000&bandwidth=4G'
        [ "$guide" = none ] || set -- "$@" --guide "$guide"
        run_limited "$here/redis-lists" "$WORK/redis.sock" "$vmrun" "$@"
        [ "$status" = 0 ] || why="exit status $status with guide: $guide"
        said[$guide]=$(<"$OUT")
        waits[$guide]=$(stats_value count.fetched)
    done
    [ "${said[none]}" = "${said[redis]}" ] || why="it says ${said[redis]}, not ${said[none]}"
    [ "$(stats_value guide.0.state)" = on ] || why="its state is $(stats_value guide.0.state)"
    [ $((waits[redis] * 2)) -lt $((waits[none])) ] ||
        why="${waits[redis]} waits with the guide, ${waits[none]} without"
    ran_verdict "$name" "$why"
}

# Neighbours in compressed rows, which no stride foresees.
wire_graph() {
    local name='wire: rows and their guide' LIMIT=$limit why='' guide
    local -A waits
    selected "$name" || return 0
    for guide in none graph; do
        set -- 'mem:64M?latency=50000&bandwidth=4G'
        [ "$guide" = none ] || set -- "$@" --guide "$guide"
        wire "$@" -- "$build/test/system/t_graph"
        [ "$status" = 0 ] || why="exit status $status with guide: $guide"
        waits[$guide]=$(($(stats_value count.fetched) + $(stats_value count.prefetch_late)))
    done
    [ "$(stats_value guide.0.state)" = on ] || why="its state is $(stats_value guide.0.state)"
    [ $((waits[graph] * 2)) -lt $((waits[none])) ] ||
        why="${waits[graph]} waits with the guide, ${waits[none]} without"
    ran_verdict "$name" "$why"
}
