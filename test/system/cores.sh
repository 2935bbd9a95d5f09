# Core files: a program that dies under vmrun has the wait status that it has natively, with its
# core flag. The core is vmrun's, and none of the program's memory is in it: it is small, whatever
# the program had.
# shellcheck shell=bash disable=SC2016,SC2034,SC2154

core_mb=48       # private, and as much shared
# vmrun's own: 10 MB, and as much again for drivers of nodes, with their threads' stacks
core_most=$((32 << 20))

cores() {
    local pattern
    read -r pattern </proc/sys/kernel/core_pattern
    if [[ $pattern == *[/\|]* ]] || ! (ulimit -S -c unlimited) 2>/dev/null; then
        ! selected 'cores' ||
            skip 'cores' "no core files here: core_pattern is '$pattern', ulimit -H -c says $(
                ulimit -H -c)"
        return
    fi
    local how
    for how in abort segv thread quit term nodump; do
        core "$how" unlimited "$build/test/system/t_core" "$how" $core_mb
    done
    core "RLIMIT_CORE 0" 0 "$build/test/system/t_core" abort $core_mb
    # The core of a child of the program, seen by the program.
    core 'child' unlimited "$build/test/system/t_core" wait \
        "$build/test/system/t_core" segv $core_mb
}

# core NAME LIMIT COMMAND...: COMMAND prints the same words, and leaves as many core files, natively
# and under vmrun.
core() {
    local name="core: $1" max=$2 said words count size LIMIT=$limit where
    shift 2
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    for where in natively guest; do
        rm -rf "$WORK/scratch"
        mkdir "$WORK/scratch"
        cd "$WORK/scratch" || exit 1
        if [ $where = guest ]; then
            set -- "$vmrun" --cache 16M "${vmrun_flags[@]}" -- "$@"
        fi
        run_limited bash -c 'ulimit -S -c "$1"; shift; exec "$@"' - "$max" \
            "$build/test/system/t_core" wait "$@"
        count=$(find . -name '*core*' | wc -l)
        words="$(cat "$OUT"), status $status, files: $count"
        if [ $where = natively ]; then
            said=$words
        fi
    done
    size=$(find . -name '*core*' -printf '%s\n' | sort -n | tail -n 1)
    if [[ $said != *core*', status 0, '* ]]; then
        not_ok "$name" "natively says '$said'"
    elif [ "$words" != "$said" ]; then
        not_ok "$name" "says '$words', natively '$said'"
        show "$ERR"
    elif [ "${size:-0}" -gt $core_most ]; then
        not_ok "$name" "the core has $size bytes"
    else
        ok "$name"
    fi
    cd "$WORK" || exit 1
    rm -rf "$WORK/scratch"
}
