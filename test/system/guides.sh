# Guides that are preloaded into programs.
# shellcheck shell=bash disable=SC2034,SC2154

guides() {
    local jemalloc=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 guide=$build/guides/malloc.so
    local slow=$build/test/system/t_malloc_slow.so t_malloc=$build/test/system/t_malloc
    local ok='malloc: ok' idle='guide malloc: the allocator is no shared jemalloc'
    [ ${#nodes[@]} -gt 0 ] || [ "$memory$brief" = yesyes ] || guides_with_nodes
    jemalloc=''
    preloaded "guide malloc over glibc's malloc" "$guide" hello "$idle" \
        "$vmrun" --cache 2M -- sh -c 'echo hello'
    preloaded 'guide malloc and a static program' "$guide" ' sorted' '' \
        "$vmrun" --cache 4M -- "$build/examples/quicksort-static" 1M
}

# These name their own nodes, so others change nothing.
guides_with_nodes() {
    preloaded 'guide malloc under vmrun' "$guide:$jemalloc" "$ok" 'guide malloc: at work' \
        "$vmrun" --cache 2M --node mem:128M -- "$t_malloc" 200
    [ "$brief" = no ] || return 0
    preloaded 'guide malloc under vmrun, ample cache' "$guide:$jemalloc" "$ok" \
        'guide malloc: at work' \
        "$vmrun" --cache 64M --node mem:128M -- "$t_malloc" 200
    preloaded 'guide malloc natively does nothing' "$guide:$jemalloc" "$ok" '' "$t_malloc" 500
    preloaded 'guide malloc natively, with slow drops' "$slow:$jemalloc" "$ok" \
        'guide malloc: at work' "$t_malloc" 1000 guided
}

# preloaded NAME LIBRARIES OUTPUT ERROR COMMAND...: ends with 0 and has this in its standard output,
# and in its standard error; no ERROR: the guide says nothing, not being at work.
preloaded() {
    local name=$1 libraries=$2 output=$3 error=$4 LIMIT=$limit why=''
    shift 4
    selected "$name" || return 0
    if [ -n "$jemalloc" ] && [ ! -e "$jemalloc" ]; then
        skip "$name" 'libjemalloc2 is not installed'
        return
    fi
    OUT=$WORK/out ERR=$WORK/err
    run_limited env VMRUN_GUIDE_VERBOSE=1 LD_PRELOAD="$libraries" "$@"
    [ "$status" = 0 ] || why="exit status $status"
    grep -qF "$output" "$OUT" || why+=" no '$output'"
    if [ -n "$error" ]; then
        grep -qF "$error" "$ERR" || why+=" no '$error'"
    elif grep -q guide "$ERR"; then
        why+=' the guide speaks'
    fi
    verdict "$name" "$why"
}
