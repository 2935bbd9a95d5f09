# Functions that the fault tests share: for options; for memnodes and programs under vmrun, which
# run in the background and are awaited with a limit; for cases, which leave no process behind. Each
# script sets $here, its folder, and sources this first; then it calls set_up. $flags are vmrun's
# options.
#
# Options that most of them have:
#
#   --only REGEX     only the cases whose name matches
#   --runs N         each case N times, each time with the next seed (default 1)
#   --seed N         of the first run (default 1)
#   --long           more cases, or longer ones
#   --keep           shows the output of programs in cases that passed, too
# and then BUILD, the build folder, default build. They print TAP, then `N passed, N failed, N
# skipped`, and fail if a case failed.
# shellcheck shell=bash disable=SC2034,SC2154

# shellcheck source=test/lib.sh
. "$here/../lib.sh"
export LC_ALL=C

# --- options and programs ---

usual_options='only= runs= seed= long keep'
only='' runs=1 seed=1 long=no keep=no patient=no
build=$here/../../build
tools=''                    # where words and liar are; default: in $build
vmrun='' vmctl='' memnode='' words='' liar='' false_node='' randmem=''  # once they are found
scratch=()                  # folders that go when the script ends, beside $WORK

# unable REASON...: the script cannot run.
unable() {
    echo "${0##*/}: $*" >&2
    exit 2
}

# set_up OPTIONS PROGRAMS ARGUMENT...: reads the command line, finds PROGRAMS, and makes $WORK. An
# option that OPTIONS names sets the variable of that name: to its value if the name ends with =,
# else to yes. A program that is found is in the variable of its name.
set_up() {
    local programs=$2
    take_options "$1" "${@:3}"
    build=$(cd "$build" && pwd) || exit 2
    find_programs "$programs"
    make_room
}

take_options() {
    local known=" $1 " name     # with a space around each
    shift
    while [ $# -gt 0 ]; do
        name=${1#--}
        if [[ $1 != -* ]]; then
            build=$1
        elif [[ $known = *" $name= "* ]]; then
            [ $# -gt 1 ] || unable "$1 needs a value"
            printf -v "$name" %s "$2"
            shift
        elif [[ $known = *" $name "* ]]; then
            printf -v "$name" yes
        else
            unable "unknown option $1"
        fi
        shift
    done
}

find_programs() {
    local name at
    for name in $1; do
        case $name in
        vmrun | vmctl) at=$build/runtime ;;
        memnode) at=$build/memnode ;;
        words | liar) at=${tools:-$build/test/faults} ;;
        false_node) at=$build/test/rdma ;;
        *) at=$build/examples ;;
        esac
        need_built "$at/$name" "$build"
        printf -v "$name" %s "$at/$name"
    done
}

# --- clocks ---

now() { echo $((${EPOCHREALTIME/./} / 1000)); }     # ms

# How many times longer than on an idle machine things may take: the lab's is emulated.
slow=1
[ ! -d /run/lab ] || slow=4

# --drain-timeout of memnodes whose clients must all move, in s: three times the default.
patience=$((75 * slow))

# await SECONDS COMMAND...: until it is true.
await() {
    local end=$(($(now) + $1 * 1000 * slow))
    shift
    until "$@"; do
        [ "$(now)" -lt $end ] || { echo "in vain: $*"; return 1; }
        sleep 0.1
    done
}

# --- nodes ---

declare -A node             # process ids, by the names we give

# start_memnode NAME OPTION...: its words go to $WORK/NAME.log, where an earlier one's may be.
start_memnode() {
    local name=$1 before
    shift
    before=$(grep -cs 'memnode: serving' "$WORK/$name.log")
    "$memnode" --hugepages none --control "$WORK/$name.control" -v "$@" 2>>"$WORK/$name.log" &
    node[$name]=$!
    await 20 has_served "$name" $((before + 1))
}
has_served() { [ "$(grep -c 'memnode: serving' "$WORK/$1.log")" -ge "$2" ]; }

# end_node NAME: by SIGTERM; true if it ended well.
end_node() {
    kill -TERM "${node[$1]}" && wait "${node[$1]}"
}

# all_moved NAME: no memnode NAME of this case has ended because --drain-timeout was over.
all_moved() { ! grep 'did not move away' "$WORK/$1.log"; }

# halt PID: stops that process, and waits until it stands still.
halt() {
    kill -STOP "$1" && await 5 grep -q 'State:.*stopped' "/proc/$1/status"
}

# kill_node NAME: at once, without a word.
kill_node() {
    kill -KILL "${node[$1]}"
    wait "${node[$1]}"
    unset "node[$1]"
} 2>/dev/null

statistics() {
    perl -MIO::Socket::UNIX -e 'print readline(IO::Socket::UNIX->new($ARGV[0]) or die)' \
        "$WORK/$1.control"
}
stat_has() { statistics "$1" | grep -- "$2" >/dev/null; }
# All of NAME's memory is free.
all_free() { statistics "$1" | awk '/^pool/ { ok = $2 == $(NF - 1) } END { exit !ok }'; }
# held NAME: MiB that its clients hold.
held() {
    statistics "$1" | awk '/^account / {
        for (i = 1; i < NF; i++)
            if ($i == "holds") {
                n = $(i + 1) + 0
                sum += $(i + 1) ~ /G/ ? n * 1024 : $(i + 1) ~ /K/ ? n / 1024 : n
            }
    } END { printf "%d\n", sum }'
}

# --- programs under vmrun ---

as=()                       # words before vmrun: another user, say
declare -A program ended status_of

# run_program NAME OPTION... -- PROGRAM...: vmrun, in the background, until wait_vm() has seen its
# end.
run_program() {
    local name=$1
    shift
    : >"$WORK/$name.err"        # now: lines of an earlier program must not be waited for
    "${as[@]}" "$vmrun" "${flags[@]}" "$@" >"$WORK/$name.out" 2>"$WORK/$name.err" &
    program[$name]=$!
}

running() {
    kill -0 "${program[$1]}" 2>/dev/null || {
        echo "$1 has ended too early: $(tail -n 1 "$WORK/$1.err")"
        return 1
    }
}

# dump_tree PID: the states of this process and of its descendants.
dump_tree() {
    local child
    dump_states "$1"
    for child in $(pgrep -P "$1"); do
        dump_tree "$child"
    done
}
kill_tree() {
    local child children
    children=$(pgrep -P "$1")
    kill -KILL "$1" 2>/dev/null
    for child in $children; do
        kill_tree "$child"
    done
}

# wait_vm NAME SECONDS: its status in status_of, ms it took in ended. False, and it is killed, if it
# takes longer.
wait_vm() {
    local name=$1 pid=${program[$1]} end=$(($(now) + $2 * 1000)) status=0
    while kill -0 "$pid" 2>/dev/null; do
        if [ "$(now)" -ge $end ]; then
            echo "$name hangs"
            dump_tree "$pid"
            kill_tree "$pid"
            break
        fi
        sleep 0.1
    done
    { wait "$pid"; } 2>/dev/null || status=$?
    ended[$name]=$(($(now)))
    status_of[$name]=$status
    awk -v who="[$name, status $status] " '{ print who $0 }' "$WORK/$name.out" "$WORK/$name.err"
    unset "program[$name]"
    [ "$(now)" -lt $((end + 500)) ]
}

# said NAME PATTERN [TIMES]: TIMES times at least.
said() {
    local times
    times=$(grep -Ec -- "$2" "$WORK/$1.err")
    [ "$times" -ge "${3:-1}" ] || { echo "$1 said '$2' $times times"; return 1; }
}

# said_soon NAME PATTERN [SECONDS]: within them, and before it ended.
said_soon() {
    await "${3-30}" said_or_gone "$1" "$2" && grep -Eq -- "$2" "$WORK/$1.err" && return
    sed "s/^/[$1] /" "$WORK/$1.err" | tail -n 20
    running "$1" && echo "$1 has not said '$2' in $((${3-30} * slow)) s"
    return 1
}
said_or_gone() { grep -Eq -- "$2" "$WORK/$1.err" || ! kill -0 "${program[$1]}" 2>/dev/null; }

# --- cases ---

# end_all: nothing that a case started lives on.
end_all() {
    local n
    for n in "${!program[@]}"; do
        kill_tree "${program[$n]}"
        wait "${program[$n]}"
    done
    for n in "${!node[@]}"; do
        kill_node "$n"
    done
    program=()
    node=()
} 2>/dev/null

# make_room: $WORK. When the script ends, nothing that it started lives on, and $WORK is gone.
make_room() {
    make_work
    # Also when the script is ended: a process in a session of its own gets no
    # signal of the terminal.
    trap 'end_all; rm -rf "$WORK" "$PUBLIC" "${scratch[@]}"' EXIT
}

after_case() { :; }         # for scripts that must clean up more

# try NAME FUNCTION [ARGUMENT...]: the output of FUNCTION is shown if it fails; its last line is the
# reason.
try() {
    local name=$1 begin why n again=no
    shift
    wanted "$name" || return 0
    begin=$(now)
    rm -f "$WORK"/*.log "$WORK"/*.out
    if "$@" >"$OUT" 2>&1; then
        ok "$name"
        printf '#   %d ms\n' $(($(now) - begin))
        sed -n 's/^measured /#   /p' "$OUT" | cut -c 1-220
        [ "$keep" = no ] || show "$OUT" 60
    else
        why=$(tail -n 1 "$OUT")
        if [ "$patient" = yes ] && ! found_wrong; then
            echo "# first try: $name # ${why:-it failed}"
            again=yes
        else
            not_ok "$name" "${why:-it failed}"
        fi
        show "$OUT" 80
        # Of memnodes that have ended, too.
        for n in "$WORK"/*.log; do
            [ -s "$n" ] || continue
            echo "# the end of $(basename "$n"):"
            tail -n 30 "$n" >"$OUT"
            show "$OUT" 30
        done
    fi
    end_all
    after_case
    if [ $again = yes ]; then
        local patient=no
        try "$name" "$@"
    fi
}

# A program of this case has found a word that is not what it wrote: then no second try may hide it.
found_wrong() {
    local some='(^|[^0-9.])[1-9][0-9]* (wrong|errors?)\b|wrong (data|at)'
    grep -Eqs "$some" "$OUT" "$WORK"/*.out
}

try_long() {
    if [ "$long" = yes ]; then
        try "$@"
    elif wanted "$1"; then
        skip "$1" 'only with --long'
    fi
}

# case_of NAME FUNCTION [ARGUMENT...]: as often as told, each time with the next seed. long_case_of:
# only with --long.
case_of() {
    local name=$1 i
    shift
    for ((i = seed; i < seed + runs; i++)); do
        try "$name$([ "$runs" -eq 1 ] || echo ", seed $i")" "$@" "$i"
    done
}
long_case_of() {
    if [ "$long" = yes ]; then case_of "$@"; else try_long "$1"; fi
}
