# Wild writes: a program that writes into kern's memory is refused, or its VM stops and vmrun says
# that the program may have done it. It never hangs, and never ends with status 0.
# shellcheck shell=bash disable=SC2034,SC2154

# Places that only kern has a reason to write: writes there must not pass.
wild_guarded=(header text gdt idt idt.all tss guard pml4 pdpt ram.pd self self.first
    block0 block0.all control control.first)

wild() {
    local size place value
    wild_write '' 1 0x4141414141414141
    for place in "${wild_guarded[@]}"; do
        wild_write "$place" guarded 0x4141414141414141
        [ "$long" = no ] || wild_write "$place" guarded 0
    done
    # Single words among kern's own: some have no effect, none makes a program hang or succeed by
    # mistake.
    if [ "$long" = yes ]; then
        while read -r size place; do
            [[ " ${wild_guarded[*]} " != *" $place "* ]] || continue
            for value in 0x4141414141414141 0 1 -1; do
                wild_write "$place" word $value
            done
        done < <("$build/test/system/t_wild" list)
    fi
}

spinning='' spin_name='kern spins: SIGTERM ends a program that has a handler for it'

# Kern lets no signal through, so none can be handled; vmrun ends the program after --timeout and a
# minute (runtime/vm/watch.c), which are 5 s here but with --long. In the lab it is emulation, for
# which there is --long.
kern_spins() {
    if [ "$list" = no ] && [ "$long" = no ] && ! at_level3; then
        return
    fi
    selected "$spin_name" || return 0
    VMRUN_WATCH_MS=$([ "$long" = yes ] && echo 60000 || echo 4000) \
        "$vmrun" --timeout 1 --cache 16M -- "$build/test/system/t_wild" spin \
        >"$WORK/spin.out" 2>"$WORK/spin.err" &
    spinning=$!
}

kern_has_spun() {
    local i status
    [ -n "$spinning" ] || return 0
    # The first may come before kern spins, and is handled then.
    for ((i = 0; i < 5 * limit; i++)); do
        if [ -s "$WORK/spin.out" ]; then
            kill -TERM "$spinning" 2>/dev/null || break
        fi
        read -r -t 1 _ <>"$WORK/never"
    done
    kill -KILL "$spinning" 2>/dev/null
    { wait "$spinning"; } 2>/dev/null
    status=$?
    if [ $status = 125 ] &&
        grep -q 'kern has not let the program have a signal' "$WORK/spin.err"; then
        ok "$spin_name"
    else
        not_ok "$spin_name" "exit status $status, says '$(head -n 1 "$WORK/spin.out")'"
        show "$WORK/spin.err"
    fi
}

# wild_write PLACE CLASS VALUE
wild_write() {
    local name="wild write: ${1:-none}${1:+, $3}" why='' LIMIT=$limit
    selected "$name" || return 0
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    cd "$WORK" || exit 1
    # A program that hangs gets a SIGTERM first, which must end it too.
    run_limited timeout $((limit / 3)) "$vmrun" --cache 16M -- \
        "$build/test/system/t_wild" ${1:+"$1" "$3"}
    case $status in
    124) why='hangs; SIGTERM ends it' ;;
    timeout) why='hangs, and SIGTERM does not end it' ;;
    7)
        if [ "$2" = guarded ]; then
            why='goes unnoticed'
        elif [ -z "$1" ] && [ "$(cat "$OUT")" != '30488 1 3' ]; then
            why="without a wild write it says: $(head -n 1 "$OUT")"
        fi
        ;;
    125)
        grep -aq '^vmrun: .*program may have written' "$ERR" ||
            why='stops, and does not say that the program may have written there'
        ;;
    13[0-9]) ;;
    *) why="exit status $status" ;;
    esac
    [ -n "$1" ] || [ "$status" = 7 ] || why="exit status $status without a wild write"
    verdict "$name" "$why"
}
