# vmrun's promises about memory: --cache is a hard limit on its local memory, cache and far
# tier together are all that a program gets, and nothing is lost when they are full. And --stats.
# shellcheck shell=bash disable=SC2034,SC2053,SC2154

# Beside the cache: page tables, the frame table, kern, vmrun's own heap.
overhead_kb=2048

limits() {
    local cache=4M far=28M      # 8192 pages
    hard_limit
    full_memory 'all memory taken and given back' 0 'limits: ok' t_memory --limits 8192
    full_memory 'all memory in use' 0 'full: ok' t_memory --full 500
    full_memory 'all memory in use by many threads' 0 'crowd: ok' t_crowd 1024 8 0 0 300
    full_memory 'hot pages and a burst of others' 0 'hot: ok' t_memory --hot 2
    full_memory 'memory operations at random' 0 '*: ok' t_memory --random 1 4000 512
    full_memory 'more memory than there is' 135 'exhausting' t_memory --exhaust
    cache=16M far=8M
    full_memory 'all memory in use, free frames in stock' 0 'crowd: ok' t_crowd 4096 1 55 2 200
    everything_at_once
    thread_limit
    bulk_transfer
    used_by_calls
    collisions
    statistics
    # These cases hardly touch far memory, and no page tables.
    if [ "$memory$brief" = nono ]; then
        reports_of_the_killed
        first_of_a_container
        unread
        end_without_statistics
    fi
}

# For ten minutes with --long. With latency, so that threads wait and guides are called.
everything_at_once() {
    local seconds=5 pages=128 cache=6M far='256M?latency=2400' limit=$limit
    [ ${#nodes[@]} -eq 0 ] || return 0
    [ "$long" = no ] || seconds=600 pages=1024 cache=24M far='2G?latency=2400' limit=900
    full_memory 'everything at once' 0 '*stress: ok' t_stress $seconds 16 $pages "$RANDOM"
}

# The value of FIELD in kB of process PID, or nothing.
status_kb() {
    local key kb _
    while read -r key kb _; do
        [ "$key" != "$1:" ] || echo "$kb"
    done 2>/dev/null <"/proc/$2/status"
}

hard_limit() {
    local name='RssAnon stays within --cache' cache_kb=16384 anon far most_anon=0 most_far=0
    local pid status size=128 node
    local over_kb=$overhead_kb
    selected "$name" || return 0
    # Drivers of nodes have libraries, threads and buffers of their own: what is there for `true`,
    # and for an NBD node the 3 MiB of copies that it may have under way (`room` in far/nbd/nbd.h).
    # How much of that is touched is a matter of how busy the machine is.
    if [ ${#nodes[@]} -gt 0 ]; then
        "$vmrun" --cache 1M --stats="$WORK/stats" -- true
        over_kb=$((over_kb + $(sed -n 's/^rss_bytes\.anon //p' "$WORK/stats") / 1024))
        for node in "${nodes[@]}"; do
            [[ $node != nbd* ]] || over_kb=$((over_kb + 3072))
        done
    fi
    # Emulated, 128M take a minute.
    [ "$sizing" != small ] || size=64
    "$vmrun" --cache ${cache_kb}K -- "$build/examples/randmem" --size ${size}M --accesses 5000 \
        >"$WORK/out" 2>"$WORK/err" &
    pid=$!
    while kill -0 $pid 2>/dev/null; do
        anon=$(status_kb RssAnon $pid)
        far=$(status_kb RssShmem $pid)
        ((${anon:-0} > most_anon)) && most_anon=$anon
        ((${far:-0} > most_far)) && most_far=$far
        read -r -t 0.02 _ <>"$WORK/never"
    done
    wait $pid
    status=$?
    if [ $status -ne 0 ]; then
        not_ok "$name" "exit status $status"
        show "$WORK/err"
    elif [ "$most_anon" -gt $((cache_kb + over_kb)) ]; then
        not_ok "$name" "RssAnon was $most_anon kB: $cache_kb kB of cache, and $over_kb kB allowed"
    elif [ "$most_anon" -lt $((cache_kb / 2)) ]; then
        not_ok "$name" "RssAnon was $most_anon kB at most: it was looked at too late"
    elif [ ${#nodes[@]} -eq 0 ] && [ "$most_far" -lt $((size * 800)) ]; then
        not_ok "$name" "RssShmem was $most_far kB at most: where did the other pages go?"
    else
        ok "$name"
    fi
}

# full_memory NAME STATUS PATTERN PROGRAM ARGUMENT...: with $cache of cache, and $far of far memory.
full_memory() {
    local name=$1 wanted=$2 pattern=$3 program=$4 LIMIT=$limit node=mem:$far
    shift 4
    if [ ${#nodes[@]} -gt 0 ]; then
        node=$(sed -E 's/\?size=[^&]*&/?/; t; s/[?&]size=[^&]*//' <<<"${nodes[0]}")
        [[ $node = *\?* ]] && node+="&size=$far" || node+="?size=$far"
    fi
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    cd "$WORK" || exit 1
    run_limited "$vmrun" --cache "$cache" --node "$node" "${vmrun_flags[@]}" -- \
        "$build/test/system/$program" "$@"
    if [ "$status" != "$wanted" ]; then
        not_ok "$name" "exit status $status, not $wanted"
    elif [[ $(cat "$OUT") != $pattern ]]; then
        not_ok "$name" "says '$(head -n 1 "$OUT")', not '$pattern'"
    elif [ "$wanted" != 0 ] && ! grep -q '^vmrun: .*full' "$ERR"; then
        not_ok "$name" 'does not say that memory is full'
    else
        ok "$name"
        return
    fi
    show "$ERR"
}

# A cache that holds no more threads: EAGAIN for the program, a message of vmrun, and the program
# continues.
thread_limit() {
    local name='a cache too small for many threads' LIMIT=$limit
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 1M "${vmrun_flags[@]}" -- "$build/test/system/t_threads" limit
    if [ "$status" = 0 ] && [ "$(cat "$OUT")" = 'limit: ok, then EAGAIN' ] &&
        grep -q '^vmrun: no more threads: a cache of 256 pages is too small' "$ERR"; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, says '$(head -n 1 "$OUT")'"
        show "$ERR"
    fi
}

# few NAME KEY MOST PROGRAM [ARGUMENT...]: the statistics count fewer than MOST of KEY in a cache of
# 1M, in one of three runs: on a busy machine the cleaner may not get its turn.
few() {
    local name=$1 key=$2 most=$3 LIMIT=$limit n run
    shift 3
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    for run in 1 2 3; do
        run_limited "$vmrun" --cache 1M --stats="$WORK/stats" "${vmrun_flags[@]}" -- "$@"
        n=$(awk -v key="$key" '$1 == key { print $2 }' "$WORK/stats")
        if [ "$status" != 0 ]; then
            break
        elif [ "${n:-$most}" -lt "$most" ]; then
            ok "$name"
            return
        fi
    done
    not_ok "$name" "exit status $status, $key ${n:-missing} in run $run"
    show "$ERR"
}

# The pages of a call that moves more than is resident are made resident in large pieces, by an
# eighth of the cache an exit: 2,048 pages, 32 at once, some of which have gone again before they
# are used. Emulated CPUs take turns, and the cleaner takes back more in its turn.
bulk_transfer() {
    local most=512
    [ "$sizing" != small ] || most=1024
    few 'a large read into a small cache takes few exits' exits.upcall_done $most \
        dd if=/dev/zero of=/dev/null bs=1M count=8
}

# 64 pages in a cache of 256, used 400 times by calls while 6,400 others are touched once.
used_by_calls() {
    few 'a buffer that only system calls use stays resident' faults.fetch 700 \
        "$build/test/system/t_memory" --calls 200
}

# A thread that meets a page which another copies from a tier that is memory, in a microsecond, sees
# it arrive: no exit, no sleep. How often they meet is the scheduler's business, so runs are added
# up. This has a tier of its own, whatever nodes the other tests use.
collisions() {
    local name='threads that meet at a page of a memory tier do not sleep'
    local LIMIT=$limit run waits=0 sleeps=0
    # Emulated CPUs that take turns do not meet: once or twice in half a minute.
    [ "$memory$sizing" = no ] || return 0
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    for ((run = 0; run < 8 && waits < 100; run++)); do
        run_limited "$vmrun" --no-config --cache 2M --node mem:64M --stats="$WORK/stats" -- \
            "$build/test/system/t_threads" collide
        if [ "$status" != 0 ]; then
            not_ok "$name" "exit status $status"
            show "$ERR"
            return
        fi
        waits=$((waits + $(sed -n 's/^faults\.wait //p' "$WORK/stats")))
        sleeps=$((sleeps + $(sed -n '/^exits\.wait_pte /{s/.* //;p}' "$WORK/stats" |
            grep . || echo 0)))
    done
    if [ "$waits" -lt 20 ]; then
        skip "$name" "they met $waits times only"
    elif [ $((sleeps * 4)) -lt "$waits" ]; then
        ok "$name"
    else
        not_ok "$name" "they met $waits times and slept $sleeps times"
    fi
}

statistics() {
    local LIMIT=$limit name
    OUT=$WORK/out ERR=$WORK/err
    name='--stats=FILE leaves the streams alone'
    if selected "$name"; then
        run_limited "$vmrun" --cache 4M --stats="$WORK/stats" -- echo hello
        if [ "$status" = 0 ] && [ "$(cat "$OUT")" = hello ] && [ ! -s "$ERR" ] &&
            grep -q '[0-9]' "$WORK/stats"; then
            ok "$name"
        else
            not_ok "$name" "exit status $status, or output, or no statistics"
            show "$ERR"
        fi
    fi
    name='metadata_bytes is what is in memory'
    ! selected "$name" || metadata "$name"
    name='--stats: sums and percentiles agree, and what is only read is not written back'
    ! selected "$name" || values "$name"
    name='--stats goes to standard error'
    if selected "$name"; then
        run_limited "$vmrun" --cache 4M --stats -- echo hello
        if [ "$status" = 0 ] && [ "$(cat "$OUT")" = hello ] && [ -s "$ERR" ]; then
            ok "$name"
        else
            not_ok "$name" "exit status $status"
            show "$ERR"
        fi
    fi
}

# disagreements FILE: prints the lines of these statistics that disagree with others.
disagreements() {
    awk '
        { value[$1] = $2; group = $1; sub(/\.[^.]*$/, "", group) }
        $1 ~ /^(faults|fault_exits|exits|syscalls)\./ && $1 !~ /\.total$/ { sum[group] += $2 }
        $1 ~ /^latency_ns\./ { split($1, key, "."); kind[key[2]] = 1 }
        END {
            for (group in sum)
                if (sum[group] != value[group ".total"])
                    print group ".total " value[group ".total"] " is not the sum, " sum[group]
            if (value["evicted"] != value["count.evicted_clean"] + value["count.evicted_dirty"])
                print "evicted " value["evicted"] " is not the sum of its parts"
            if (value["count.writeback"] < value["count.evicted_dirty"])
                print "more dirty pages were evicted than written back"
            n = split("p50 p90 p99 p99.9 max", point, " ")
            for (k in kind) {
                if (!value["faults." k])
                    print "faults." k " is 0, but took time"
                for (i = 2; i <= n; i++)
                    if (value["latency_ns." k "." point[i - 1]] > \
                        value["latency_ns." k "." point[i]])
                        print "latency_ns." k "." point[i - 1] " is more than " point[i]
            }
            for (k in value)
                if (k ~ /^faults\.(zero|file|fetch)$/ && value[k] && !((substr(k, 8)) in kind))
                    print k " is " value[k] ", but took no time"
        }' "$1"
}

# values NAME: of a program that writes 4,096 pages once, and then only reads them.
values() {
    local name=$1 pages=4096 why='' written evicted slack=300 # a few are the program's own
    run_limited "$vmrun" --cache 2M --stats="$WORK/stats" "${vmrun_flags[@]}" -- \
        "$build/examples/randmem" --size 16M --accesses 20000 --write-percent 0
    written=$(sed -n 's/^count\.writeback //p' "$WORK/stats")
    evicted=$(sed -n 's/^evicted //p' "$WORK/stats")
    if [ "$status" != 0 ]; then
        why="exit status $status"
    elif [ -n "$(disagreements "$WORK/stats")" ]; then
        why=$(disagreements "$WORK/stats" | head -n 1)
    # Each page is written back once: a page that is fetched later is clean.
    elif [ "${evicted:-0}" -lt $((4 * pages)) ] ||
        [ "${written:-99999}" -gt $((pages + slack)) ]; then
        why="${written:-no} pages were written back for $pages, and $evicted evicted"
    fi
    if [ -z "$why" ]; then
        ok "$name"
    else
        not_ok "$name" "$why"
        show "$WORK/stats" 60
        show "$ERR"
    fi
}

# metadata NAME
metadata() {
    local name=$1 metadata anon
    run_limited "$vmrun" --stats="$WORK/stats" -- true
    metadata=$(sed -n 's/^metadata_bytes //p' "$WORK/stats")
    anon=$(sed -n 's/^rss_bytes\.anon //p' "$WORK/stats")
    if [ "$status" = 0 ] && [ "${metadata:-0}" -gt 0 ] && [ "$metadata" -lt "${anon:-0}" ] &&
        [ "$metadata" -lt $((16 << 20)) ]; then
        ok "$name"
    else
        not_ok "$name" \
            "exit status $status, metadata_bytes ${metadata:-none}, rss_bytes.anon ${anon:-none}"
        show "$ERR"
    fi
}

# Each process reports, except the child of a vfork and the process that SIGKILL ends. Reports come
# from one process for each line of t_ends that says `sent`, less the one of SIGKILL; from the first
# process; from the child of a child; and from two programs of which the first executes the second.
reports_of_the_killed() {
    local name='--stats reports when a signal ends the program, and changes nothing else'
    local LIMIT=$limit wanted reports whole
    selected "$name" || return 0
    OUT=$WORK/native.out ERR=$WORK/native.err
    run_limited "$build/test/system/t_ends"
    rm -rf "$WORK/reports" && mkdir "$WORK/reports"
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 8M --stats="$WORK/reports/stats" "${vmrun_flags[@]}" -- \
        "$build/test/system/t_ends"
    wanted=$(($(grep -c sent "$WORK/native.out") + 3))
    reports=$(find "$WORK/reports" -name 'stats*' | wc -l)
    whole=$(cat "$WORK"/reports/* | grep -c '^mapped_files ')
    if [ "$status" != 0 ] || ! cmp -s "$WORK/native.out" "$OUT"; then
        not_ok "$name" "exit status $status, or not the same words as natively"
        diff "$WORK/native.out" "$OUT" | head -n 20 >>"$ERR"
    elif [ "$reports" != "$wanted" ] || [ "$whole" != "$wanted" ]; then
        not_ok "$name" "$reports reports, $whole of them whole, instead of $wanted"
    else
        ok "$name"
        return
    fi
    show "$ERR"
}

# The kernel drops signals with their default action that process 1 is sent from its namespace.
first_of_a_container() {
    local name='--stats, process 1 of a container' LIMIT=$limit
    selected "$name" || return 0
    if ! unshare -rpf --mount-proc true 2>/dev/null; then
        skip "$name" 'unshare cannot make a namespace of processes here'
        return
    fi
    OUT=$WORK/out ERR=$WORK/err
    # shellcheck disable=SC2016 # for the inner shells
    run_limited unshare -rpf --mount-proc \
        "$vmrun" --cache 8M --stats="$WORK/stats" "${vmrun_flags[@]}" -- \
        bash -c '(kill -TERM 1); echo "$$ lives"; sleep 1000 & kill -TERM $!; wait $!; echo $?'
    if [ "$status" = 0 ] && [ "$(tr '\n' ' ' <"$OUT")" = '1 lives 143 ' ] &&
        grep -q '^pid 1$' "$WORK/stats"; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, says '$(tr '\n' ' ' <"$OUT")'"
        show "$ERR"
    fi
}

unread() {
    local name='a standard error without a reader stops nothing' LIMIT=$limit
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    run_limited python3 "$here/deaf.py" "$vmrun"
    if [ "$status" = 0 ]; then
        ok "$name"
    else
        not_ok "$name" "status $status"
        show "$ERR"
    fi
}

# The vCPUs of a program cannot be stopped while its node is silent. The signal still ends the
# program, after 4 s.
end_without_statistics() {
    local name='--stats, a signal while a node is silent' node pid status before
    local socket=$WORK/node.sock
    selected "$name" || return 0
    "$build/memnode/memnode" --size 64M --hugepages none --listen "nbd+unix://$socket" \
        2>"$WORK/err" &
    node=$!
    for _ in {1..100}; do
        [ ! -S "$socket" ] || break
        read -r -t 0.1 _ <>"$WORK/never"
    done
    "$vmrun" --cache 1M --timeout 60 --stats="$WORK/silent" \
        --node "nbd+unix:///?socket=$socket&size=64M" -- \
        "$build/examples/randmem" --size 32M --accesses 1000000000 >"$WORK/out" 2>>"$WORK/err" &
    pid=$!
    for _ in {1..300}; do
        [ "$(status_kb RssAnon $pid)" -lt 2048 ] 2>/dev/null || break
        read -r -t 0.1 _ <>"$WORK/never"
    done
    read -r -t 2 _ <>"$WORK/never"
    kill -STOP $node
    read -r -t 0.5 _ <>"$WORK/never"
    before=$SECONDS
    kill -USR1 $pid
    { wait $pid; } 2>/dev/null
    status=$?
    kill -CONT $node
    kill $node
    wait $node
    if [ $status = 138 ] && [ $((SECONDS - before)) -lt 30 ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status after $((SECONDS - before)) s"
        show "$WORK/err"
    fi
}
