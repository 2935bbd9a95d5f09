# vmrun's own threads have the policy, nice value and CPUs that vmrun began with, whatever the
# thread of the program has that needs them first (t_sched.c).
# shellcheck shell=bash disable=SC2034,SC2154

# Without CAP_SYS_NICE, as an ordinary user: a thread of low priority stays so.
unprivileged=(setpriv --bounding-set -sys_nice --inh-caps -sys_nice)
[ "$(id -u)" = 0 ] || unprivileged=()

own_threads() {
    local kind
    truncate -s 64M "$WORK/own.far"
    for kind in idle batch nice pinned pinned-main pinned-fork; do
        beginner $kind "${unprivileged[@]}"
    done
    if [ "$(id -u)" = 0 ]; then
        for kind in fifo idle-fork nice-fork fifo-fork; do
            beginner $kind
        done
    fi
    one_cpu_for_all
}

# with_ready KIND FUNCTION PREFIX...: t_sched under vmrun, with PREFIX before it; calls FUNCTION
# with its process id once it is ready. Sets why, and status as run_limited does.
with_ready() {
    local kind=$1 check=$2 pid runs LIMIT=$limit
    shift 2
    OUT=$WORK/out ERR=$WORK/err
    rm -f "$WORK/in" "$OUT"
    mkfifo "$WORK/in"
    why=''
    {
        STDIN=$WORK/in run_limited "$@" "$build/test/system/t_sched" "$kind" 8
        echo "$status" >"$WORK/status"
    } &
    runs=$!
    exec 8<>"$WORK/in"
    for ((i = 0; i < LIMIT * 20; i++)); do
        if pid=$(sed -n 's/^ready //p' "$OUT" 2>/dev/null) && [ -n "$pid" ]; then
            $check "$pid"
            break
        fi
        kill -0 $runs 2>/dev/null || break
        sleep 0.05
    done
    # All that hold it open for writing close it, and the program ends.
    exec 8>&-
    wait $runs
    status=$(cat "$WORK/status")
}

# A thread's policy, nice value and CPUs: `policy_of PID TID`
policy_of() {
    local stat
    stat=$(cat "/proc/$1/task/$2/stat") || return
    stat=${stat##*) }
    # shellcheck disable=SC2086 # words: the third of all fields is the first one here
    set -- "$1" "$2" $stat
    echo "policy ${41}, nice ${19}, CPUs $(
        sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "/proc/$1/task/$2/status")"
}

# Sets why if one of vmrun's own threads has something else than this shell.
look_at_own() {
    local task name is n=0 expected
    expected=$(policy_of $$ $$)
    for task in "/proc/$1"/task/*; do
        read -r name <"$task/comm"
        [[ $name = vmrun-* ]] || continue
        n=$((n + 1))
        is=$(policy_of "$1" "${task##*/}")
        [ "$is" = "$expected" ] || why="$name has $is, vmrun began with $expected"
    done
    [ $n -ge 2 ] || why="only $n threads of vmrun's own"
}

# beginner KIND PREFIX...
beginner() {
    local name="own threads: the beginner is $1" why kind=$1
    shift
    selected "$name" || return 0
    with_ready "$kind" look_at_own "$@" "$vmrun" --cache 2M \
        --node "file:$WORK/own.far?size=64M" "${vmrun_flags[@]}" --
    if [ "$status" = 77 ]; then
        skip "$name" 'this user may not'
    else
        [ "$status" = 0 ] || why="exit status $status"
        verdict_of "$name" "$why"
    fi
}

is_on_one_cpu() { "$vmrun" --states "$1" | grep -q ', all on one CPU' || why='several, it says'; }
is_on_several() { ! "$vmrun" --states "$1" | grep -q ', all on one CPU' || why='one, it says'; }

# kern's hint that all have one CPU, which a program may leave, and return to.
one_cpu_for_all() {
    local name kind check why cpu
    cpu=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
    for kind in other widened widened-fork narrowed; do
        name="own threads: one CPU for all, $kind"
        selected "$name" || continue
        check=is_on_one_cpu
        [[ $kind != widened* || $(nproc) = 1 ]] || check=is_on_several
        with_ready $kind $check taskset -c "$cpu" "$vmrun" --cache 2M --node mem:64M \
            "${vmrun_flags[@]}" --
        [ "$status" = 0 ] || why="exit status $status"
        verdict_of "$name" "$why"
    done
}
