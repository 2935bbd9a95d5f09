# Shell functions that all test scripts share: results, in TAP's words, and running a command under
# a time limit. To be sourced by bash. Uses $LIMIT, seconds a command may take, and $WORK, a folder
# for scratch files.
# shellcheck shell=bash disable=SC2034

number=0
passed=0
failed=0
skipped=0

# ok NAME; not_ok NAME REASON; skip NAME REASON
ok() {
    number=$((number + 1))
    passed=$((passed + 1))
    printf 'ok %d - %s\n' "$number" "$1"
}

not_ok() {
    number=$((number + 1))
    failed=$((failed + 1))
    printf 'not ok %d - %s # %s\n' "$number" "$1" "$2"
}

skip() {
    number=$((number + 1))
    skipped=$((skipped + 1))
    printf 'ok %d - %s # SKIP %s\n' "$number" "$1" "$2"
}

# wanted NAME: whether a case is to be run: its name matches $only and not $except, and it comes
# behind the case $CASES_AFTER, with which an earlier run ended. Where that variable is set, empty
# too, each case is announced (test/lab.sh). Not in a subshell, which would forget that the case was
# met.
wanted() {
    [[ -z ${only-} || $1 =~ $only ]] && ! [[ -n ${except-} && $1 =~ $except ]] || return
    if [ -n "${CASES_AFTER-}" ]; then
        [ "$1" != "$CASES_AFTER" ] || CASES_AFTER=''
        return 1
    fi
    [ -z "${CASES_AFTER+set}" ] || printf '# begins: %s\n' "$1"
}

# verdict NAME WHY: the result of a command whose output is in $OUT and $ERR; an empty WHY is none.
verdict() {
    if [ -z "$2" ]; then
        ok "$1"
    else
        not_ok "$1" "$2"
        show "$OUT" 5
        show "$ERR"
    fi
}

# Shows file FILE as diagnostics, at most LINES lines of it.
show() {
    head -n "${2:-20}" "$1" | cut -c 1-300 | LC_ALL=C tr -c '\n\t\40-\176' '?' | sed "s/^/#   /"
}

# Whether $vmrun runs programs in guest ring 3, on a pagetable-based KVM, which differs from a CPU
# in a few points. (To grep -q, a pipe would fail: it ends before all is written.)
at_level3() { [[ $("$vmrun" --check) =~ privilege\ +3 ]]; }

# TAP's plan and the closing line; its status is that of the whole script.
totals() {
    printf '1..%d\n' "$number"
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    [ "$failed" -eq 0 ]
}

# need_built FILE BUILD: the script cannot run without this file of that build folder.
need_built() {
    if [ ! -e "$1" ]; then
        echo "${0##*/}: there is no $1: build it: make -s -C $2 && make -s -C $2/test programs" >&2
        exit 2
    fi
}

# Prints the states of process PID, for a command that hangs: of its vCPUs, if it is a vmrun, and of
# its threads.
dump_states() {
    local task file
    [[ $(readlink "/proc/$1/exe") != */vmrun ]] ||
        "${vmrun:-false}" --states "$1" 2>/dev/null || true
    printf 'state of process %d (%s):\n' "$1" "$(tr '\0' ' ' <"/proc/$1/cmdline" | cut -c 1-200)"
    for task in "/proc/$1"/task/*; do
        for file in stat wchan syscall stack; do
            [ -r "$task/$file" ] && printf '%s/%s: %s\n' "${task##*/}" "$file" \
                "$(tr '\n' ' ' 2>/dev/null <"$task/$file")"
        done
    done
}

# run_limited COMMAND...: runs it in a session of its own, standard input from $STDIN (default
# /dev/null), its output in the files $OUT and $ERR. Sets $status to its exit status, 128 + n for
# signal n, or to "timeout". A command that takes longer than $LIMIT has the states of all processes
# of its session added to $ERR and is killed with them.
run_limited() {
    local pid dog
    [ ! -e "$WORK/timeout" ] || rm "$WORK/timeout"
    setsid "$@" <"${STDIN:-/dev/null}" >"$OUT" 2>"$ERR" &
    pid=$!
    # A read that never ends, as a sleep that leaves no process behind.
    {
        read -r -t "$LIMIT" _ <>"$WORK/never"
        : >"$WORK/timeout"
        for each in $(pgrep -s "$pid"); do
            dump_states "$each"
        done >>"$ERR" 2>&1
        kill -KILL -- "-$pid" "$pid"
    } >/dev/null 2>&1 &
    dog=$!
    # The shell's own remark about a signal is not part of any output.
    { wait "$pid"; } 2>/dev/null
    status=$?
    # Not by a signal that it could still have our trap for: it may just have been made.
    kill -KILL "$dog" 2>/dev/null
    { wait "$dog"; } 2>/dev/null
    if [ -e "$WORK/timeout" ]; then
        status=timeout
    fi
}

# Programs that become other users start vmrun again, which loads its drivers from where it is. In a
# checkout that others cannot enter (below /root) this makes $vmrun a copy in a folder that they
# can. After make_work, whose trap removes it.
PUBLIC=''
make_reachable() {
    local from
    from=$(dirname "$(realpath "$vmrun")")
    if [ "$(id -u)" -ne 0 ] ||
        setpriv --reuid 65534 --regid 65534 --clear-groups test -r "$from/vmrun"; then
        return
    fi
    PUBLIC=$(mktemp -d /tmp/vmrun-public.XXXXXX) && chmod 755 "$PUBLIC" &&
        cp "$from/vmrun" "$from"/far-*.so "$PUBLIC" || exit 1
    vmrun=$PUBLIC/vmrun
}

# A fresh folder in $WORK that goes when the script ends.
make_work() {
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/vmrun-test.XXXXXX") || exit 1
    # shellcheck disable=SC2064 # the folder as it is now
    trap "rm -rf '$WORK' \"\$PUBLIC\"" EXIT
    trap 'exit 1' HUP INT TERM
    mkfifo "$WORK/never"
    OUT=$WORK/out
    ERR=$WORK/err
}
