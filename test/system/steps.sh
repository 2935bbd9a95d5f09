# Children that get a signal, or are killed, at each step of their beginning (at_steps). at_steps
# itself runs on the host, and traces vmrun.
# shellcheck shell=bash disable=SC2034,SC2154

steps() {
    local t=$build/test/system/t_steps rounds=512
    # Each of 256 pairs of a signal and its action, at each of some 170 steps.
    [ "$long" = no ] || rounds=50000
    [ "$brief" = no ] || rounds=32
    at_steps 'signals at each step of a fork' signals "$t" fork "$rounds"
    at_steps 'signals at each step of a vfork' signals "$t" vfork "$rounds"
    # Each of some 300 steps, a thousand times.
    [ "$long" = no ] || rounds=300000
    at_steps 'children of vfork killed at each step' kill "$t" work "$rounds"
}

# at_steps NAME HOW COMMAND...
at_steps() {
    local name=$1 LIMIT=$limit why='' how=$2
    shift 2
    selected "$name" || return 0
    [ "$long" = no ] || LIMIT=14400
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$build/test/system/at_steps" "$how" "$vmrun" --cache 1M --debug -- "$@"
    [ "$status" = 0 ] || why="exit status $status: $(head -n 3 "$OUT" "$ERR" | tr '\n' ' ')"
    verdict "$name" "$why"
}
