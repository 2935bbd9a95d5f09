# Instructions that programs seldom have: each must have its native result, but for the
# differences that instructions.known lists.
# shellcheck shell=bash disable=SC2034,SC2154

instructions() {
    local name=instructions LIMIT=$((limit * 5)) t=$build/test/system/t_entry without=()
    selected "$name" || return 0
    if ! command -v python3 >/dev/null; then
        skip "$name" 'python3 is not installed'
        return
    fi
    # QEMU lets CPL 0 load a task register with a null selector, where a CPU says #GP, and aborts at
    # the next exception that changes the stack.
    ! grep -q 'QEMU TCG' /proc/cpuinfo || without=(5 without 'ltr 0')
    OUT=$WORK/native.out ERR=$WORK/native.err
    run_limited "$t" instructions "${without[@]}"
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    run_limited "$vmrun" -- "$t" instructions "${without[@]}"
    if [ "$status" != 0 ]; then
        not_ok "$name" "exit status $status"
        show "$ERR"
    elif "$here/instructions.py" compare "$WORK/native.out" "$WORK/guest.out" \
        >"$WORK/compared" 2>&1; then
        ok "$name: $(tail -n 1 "$WORK/compared")"
    else
        not_ok "$name" "$(tail -n 1 "$WORK/compared")"
        show "$WORK/compared" 700
    fi
}
