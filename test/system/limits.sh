# What vmrun promises about memory: --cache is a hard limit on what it holds locally, cache and far tier together are all that a program
# gets, and nothing is lost when they are full. And --stats.
# shellcheck shell=bash disable=SC2034,SC2053,SC2154

# Beside the cache: page tables, the frame table, kern, vmrun's own heap.
overhead_kb=16384

limits() {
    hard_limit
    full_memory 'all memory taken and given back' 0 'limits: ok' --limits 8192
    full_memory 'all memory in use' 0 'full: ok' --full 500
    full_memory 'hot pages and a burst of others' 0 'hot: ok' --hot 2
    full_memory 'memory operations at random' 0 '*: ok' --random 1 4000 512
    full_memory 'more memory than there is' 135 'exhausting' --exhaust
    thread_limit
    bulk_transfer
    used_by_calls
    collisions
    statistics
}

# The value of FIELD in kB of process PID, or nothing.
status_kb() { sed -n "s/^$1:[[:space:]]*\([0-9]*\) kB/\1/p" "/proc/$2/status" 2>/dev/null; }

hard_limit() {
    local name='RssAnon stays within --cache' cache_kb=16384 anon far most_anon=0 most_far=0 pid status
    selected "$name" || return 0
    "$vmrun" --cache ${cache_kb}K -- "$build/examples/randmem" --size 128M --accesses 5000 >"$WORK/out" 2>"$WORK/err" &
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
    elif [ "$most_anon" -gt $((cache_kb + overhead_kb)) ]; then
        not_ok "$name" "RssAnon was $most_anon kB with a cache of $cache_kb kB"
    elif [ ${#nodes[@]} -eq 0 ] && [ "$most_far" -lt 100000 ]; then
        not_ok "$name" "RssShmem was $most_far kB at most: where did the other pages go?"
    else
        ok "$name"
    fi
}

# full_memory NAME STATUS PATTERN ARGUMENT...: t_memory with 4 MiB of cache and 28 MiB of far memory, 8192 pages in all.
full_memory() {
    local name=$1 wanted=$2 pattern=$3 LIMIT=$limit node=mem:28M
    shift 3
    if [ ${#nodes[@]} -gt 0 ]; then
        node=$(sed -E 's/\?size=[^&]*&/?/; t; s/[?&]size=[^&]*//' <<<"${nodes[0]}")
        [[ $node = *\?* ]] && node+='&size=28M' || node+='?size=28M'
    fi
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    cd "$WORK" || exit 1
    run_limited "$vmrun" --cache 4M --node "$node" "${vmrun_flags[@]}" -- "$build/test/system/t_memory" "$@"
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

# A cache that holds no more threads: EAGAIN for the program, a word from vmrun, and the program goes on.
thread_limit() {
    local name='a cache too small for many threads' LIMIT=$limit
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 1M "${vmrun_flags[@]}" -- "$build/test/system/t_threads" limit
    if [ "$status" = 0 ] && [ "$(cat "$OUT")" = 'limit: ok, then EAGAIN' ] && grep -q '^vmrun: no more threads: a cache of 256 pages is too small' "$ERR"; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, says '$(head -n 1 "$OUT")'"
        show "$ERR"
    fi
}

# A call that moves more than what is resident has its pages made so in large pieces: by an eighth of the cache an exit, not page by page.
bulk_transfer() {
    local name='a large read into a small cache takes few exits' LIMIT=$limit upcalls
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 1M --stats="$WORK/stats" "${vmrun_flags[@]}" -- dd if=/dev/zero of=/dev/null bs=1M count=8
    upcalls=$(sed -n 's/^exits\.upcall_done //p' "$WORK/stats")
    # 2,048 pages, 32 at once, some of which have gone again before they are used.
    if [ "$status" = 0 ] && [ "${upcalls:-9999}" -lt 512 ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, ${upcalls:-no} upcalls"
        show "$ERR"
    fi
}

# 64 pages in a cache of 256, used 400 times by calls while 6,400 others are touched once.
used_by_calls() {
    local name='a buffer that only system calls use stays resident' LIMIT=$limit fetches
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 1M --stats="$WORK/stats" "${vmrun_flags[@]}" -- "$build/test/system/t_memory" --calls 200
    fetches=$(sed -n 's/^faults\.fetch //p' "$WORK/stats")
    if [ "$status" = 0 ] && [ "${fetches:-9999}" -lt 700 ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, ${fetches:-no} fetches"
        show "$ERR"
    fi
}

# A thread that meets a page which another copies from a tier that is memory, in a microsecond, sees it arrive: no exit, no sleep.
# How often they meet is the scheduler's business, so runs are added up.
collisions() {
    local name='threads that meet at a page of a memory tier do not sleep' LIMIT=$limit run waits=0 sleeps=0
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    for ((run = 0; run < 8 && waits < 100; run++)); do
        run_limited "$vmrun" --no-config --cache 2M --node mem:64M --stats="$WORK/stats" -- "$build/test/system/t_threads" collide
        if [ "$status" != 0 ]; then
            not_ok "$name" "exit status $status"
            show "$ERR"
            return
        fi
        waits=$((waits + $(sed -n 's/^faults\.wait //p' "$WORK/stats")))
        sleeps=$((sleeps + $(sed -n '/^exits\.wait_pte /{s/.* //;p}' "$WORK/stats" | grep . || echo 0)))
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
    local name='--stats=FILE leaves the streams alone'
    selected "$name" || return 0
    local LIMIT=$limit
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 4M --stats="$WORK/stats" -- echo hello
    if [ "$status" = 0 ] && [ "$(cat "$OUT")" = hello ] && [ ! -s "$ERR" ] && grep -q '[0-9]' "$WORK/stats"; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, or output, or no statistics"
        show "$ERR"
    fi
    name='--stats goes to standard error'
    run_limited "$vmrun" --cache 4M --stats -- echo hello
    if [ "$status" = 0 ] && [ "$(cat "$OUT")" = hello ] && [ -s "$ERR" ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status"
        show "$ERR"
    fi
}
