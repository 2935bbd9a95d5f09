# Tests of memnode as a program, for run, which sources this: what it refuses at start, what it
# tells, signals, its control socket. They need NBD only.
# shellcheck shell=bash disable=SC2016,SC2154

# check_alone NAME COMMAND...: as check, without a memnode beside it.
check_alone() {
    local name=$1
    shift
    selected "$name" || return 0
    run_limited "$@"
    if [ "$status" = 0 ]; then
        ok "$name"
    else
        not_ok "$name" "status $status"
        show "$OUT"
        show "$ERR"
    fi
}

# refused NAME WORDS OPTION...: memnode ends with status 1 and these words.
refused() {
    local name=$1 words=$2
    shift 2
    selected "$name" || return 0
    run_limited "$memnode" --size 1M --hugepages none --insecure "$@"
    if [ "$status" = 1 ] && grep -qF -- "$words" "$ERR"; then
        ok "$name"
    else
        not_ok "$name" "status $status, words not found: $words"
        show "$ERR"
    fi
}

# While a memnode serves at $tcp and $sock.
refused_addresses() {
    refused "port in use" "Address already in use: another program listens there" \
        --listen "nbd://$tcp"
    refused "socket in use" "another program listens there" --listen "nbd+unix://$sock"
    check "the socket in use is still there" "${case[@]}" "$sock" abort
    refused "no such address" "this host has no such address" --listen nbd://192.0.2.77:10999
    refused "no such host" "cannot find the address" --listen nbd://host.invalid:10999
    refused "a port that is no number" "the port '80x' is no number: give 1 to 65535" \
        --listen nbd://127.0.0.1:80x
    refused "an address without brackets" "in brackets" --listen nbd://::1:10999
    refused "an export in a listening address" "exports with --export" \
        --listen nbd://127.0.0.1:10999/disk
    refused "a relative path" "give an absolute one" --listen nbd+unix://relative
    refused "a path that is too long" "too long for a socket" \
        --listen "nbd+unix:///$(printf 'x%.0s' {1..200})"
    refused "a path whose folder is missing" "No such file or directory: make its folder first" \
        --listen "nbd+unix://$WORK/none/x"
    touch "$WORK/file"
    refused "a path that is a file" "it is no socket" --listen "nbd+unix://$WORK/file"
    refused "an export larger than a client may have" "no memory for the export big" \
        --listen "nbd+unix://$WORK/x" --export big=1M --max-per-client 512K
    refused "a control socket in use" "another memnode has it" --listen "nbd+unix://$WORK/x" \
        --control "$WORK/control"
    refused "a control socket whose folder is missing" "make its folder first" \
        --listen "nbd+unix://$WORK/x" --control "$WORK/none/x"
}

# A connection's work may take longer than the end waits for: the memory must still be there. Long
# enough to see that: 220 connections that all zero and give back one range of 512 MiB.
busy_ends() {
    local i name="SIGTERM with busy clients, $rounds times"
    selected "$name" || return 0
    for ((i = 0; i < rounds; i++)); do
        start --size 512M --export disk=512M
        run_limited "${case[@]}" "$sock" busy $server $((512 << 20))
        case_status=$status
        await_end
        if [ "$case_status" != 0 ] || [ "$status" != 0 ] || [ -e "$sock" ] ||
            grep -q 'still at work' "$log"; then
            not_ok "$name" "round $i: the clients: $case_status; memnode: $status"
            show "$ERR"
            show "$log"
            rm -f "$sock"
            return 0
        fi
    done
    ok "$name"
}

# resumes NAME CASE: of resume.py, which starts memnodes itself.
resumes() { check_alone "resume: $1" python3 "$here/resume.py" "$2" "$WORK" "$memnode"; }
resume_tests() {
    resumes "pages, incarnation, generations and cut members are kept" keeps
    resumes "the file has what is not zero" sparse
    resumes "a goodbye does not end what another member has not come back to" awaited
    resumes "no member comes back" grace
    resumes "each answered write is there, and none is answered with the end" busy
    resumes "a client that takes no answers" deaf
    resumes "files that are refused, and stay" files
    resumes "one memnode a file, and once" one
    resumes "a file that cannot be written" full
    resumes "signals while memnode writes" hurried
    resumes "memnode is killed while it writes" killed
}

# written_badly NAME WORDS TEXT: a configuration file, in printf's form, that is refused.
written_badly() {
    # shellcheck disable=SC2059
    printf "$3" >"$WORK/bad"
    refused "$1" "$WORK/$2" --listen "nbd+unix://$WORK/x" --config "$WORK/bad"
}
# Without huge pages, what there is to say is of RDMA.
small_pages() {
    local name="pages of 4K are nothing to speak of over NBD"
    selected "$name" || return 0
    local free=/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages
    run_limited timeout -s INT 2 "$memnode" --listen "nbd+unix://$WORK/x" \
        --size $(($(cat $free) * 2 + 2))M
    if grep -q 'serving' "$ERR" && ! grep -q 'pages of 4K' "$ERR"; then
        ok "$name"
    else
        not_ok "$name" "status $status"
        show "$ERR"
    fi
}

refused_settings() {
    local here="nbd+unix://$WORK/x"
    refused "more memory than the host has" "of memory in all: give a smaller size" \
        --listen "$here" --size 60T
    refused "a size that is none" "this is no size" --listen "$here" --size much
    refused "exports that do not fit" "the exports need 2M in all, and --size is 1M" \
        --listen "$here" --export a=1M --export b=1M
    refused "no address" "nothing to listen at is named"
    small_pages
    refused "a configuration file that is not there" \
        "cannot be opened: No such file or directory: give the path" --config "$WORK/none"
    refused "an option that is misspelled" "--sise: no such option: did you mean --size?" --sise 1M
    written_badly "a key that is unknown, with file and line" \
        "bad:3: hue: there is no such setting: see memnode(8)" '[memnode]\nsize = 1M\nhue = 3\n'
    written_badly "a key that is misspelled" "bad:2: listn: there is no such setting: did you mean \
listen?" '[memnode]\nlistn = nbd://[::1]\n'
    written_badly "a key that is for the command line" "bad:2: chekc: there is no such setting: see" \
        '[memnode]\nchekc = yes\n'
    written_badly "an export without a name" "bad:2: [export]: its name is missing" \
        '# disks\n[export]\n# of 1M\nsize = 1M\n'
    written_badly "a section that is unknown" "bad:1: [exprot a]: there is no such section" \
        '[exprot a]\n\nsize = 1M\n'
    refused "figures in a file that no exporter reads" "end in .prom" --listen "$here" \
        --stats "$WORK/figures"
    refused "figures in a folder that is missing" "make its folder first" --listen "$here" \
        --stats "$WORK/none/x.prom"
    refused "no time between figures" "whole number of seconds, 1 to" --listen "$here" \
        --stats-interval 0
    refused "a mode that is none" "not the mode of a socket" --listen "$here" --socket-mode rw
    refused "a file of keys that is empty" "it has no key: make one" --listen "$here" \
        --keys /dev/null
    printf 'a:00112233445566778899aabbccddeeff\nb:0011\n' >"$WORK/bad"
    refused "a key that is short, with its line" "line 2: the key must have 32 to 128" \
        --listen "$here" --keys "$WORK/bad"
    printf '[memnode]\nsize = 1M\n[client a]\nquota = 1M\n' >"$WORK/bad"
    refused "limits of a client without keys" "give --keys FILE" --listen "$here" \
        --config "$WORK/bad"
    name="an address that others reach, without keys"
    if selected "$name"; then
        for open in nbd://0.0.0.0 'nbd://[::]' nbd://192.0.2.1:10999 rdma://0.0.0.0; do
            run_limited "$memnode" --size 1M --hugepages none --listen "$here" --listen "$open"
            [ "$status" = 1 ] && grep -q 'give --keys FILE .*or --insecure' "$ERR" || break
            open=
        done
        [ -z "$open" ] && ok "$name" || not_ok "$name" "$open is taken, status $status"
    fi
    # More huge pages than there are; the lock is that of test/system/mappings.sh.
    local pool=/sys/kernel/mm/hugepages/hugepages-2048kB free
    exec {pool_lock}<$pool && flock "$pool_lock"
    free=$(($(cat $pool/free_hugepages) + 1))
    refused "huge pages of 2M that are not there" "sysctl vm.nr_hugepages=" --listen "$here" \
        --hugepages 2M --size $((free * 2))M
    exec {pool_lock}<&-
    if [ -d /sys/kernel/mm/hugepages/hugepages-1048576kB ] &&
        [ "$(awk '/MemTotal/ { print $2 }' /proc/meminfo)" -gt 1100000 ]; then
        refused "huge pages of 1G that are not there" "hugepagesz=1G hugepages=" \
            --listen "$here" --hugepages 1G --size 1G
    else
        skip "huge pages of 1G that are not there" \
            "this host has no pages of 1G, or no memory for one"
    fi
    refused_memlock
}

# Without the right to lock any amount.
refused_memlock() {
    local name="a memlock limit that is too low, for RDMA"
    selected "$name" || return 0
    local words='the memlock limit is 64K, and 1M must be locked: raise `ulimit -l`'
    run_limited bash -c 'ulimit -l 64 && exec setpriv --bounding-set -ipc_lock \
        --inh-caps -ipc_lock --reuid 65534 --clear-groups "$@"' sh \
        "$memnode" --size 1M --hugepages none --listen rdma://127.0.0.1
    if [ "$status" = 1 ] && grep -q "$words.*limits.d.*LimitMEMLOCK=infinity" "$ERR"; then
        ok "$name"
    else
        not_ok "$name" "status $status"
        show "$ERR"
    fi
}

# checked NAME STATUS WORDS OPTION...: what memnode --check says.
checked() {
    local name=$1 wanted=$2 words=$3
    shift 3
    selected "$name" || return 0
    run_limited "$memnode" --check "$@"
    if [ "$status" = "$wanted" ] &&
        grep '^verdict' "$OUT" | grep -F -- "$words" >/dev/null &&
        grep -q '^memlock ' "$OUT" && grep -q '^device ' "$OUT"; then
        ok "$name"
    else
        not_ok "$name" "status $status, not $wanted, or not the words: $words"
        show "$OUT"
    fi
}

checks() {
    checked "--check, a host that can" 0 "memnode can serve 1M" --size 1M --listen nbd://127.0.0.1
    checked "--check, more memory than there is" 1 "of memory in all" \
        --size 60T --listen nbd://127.0.0.1
    checked "--check, huge pages that are not there" 1 "sysctl vm.nr_hugepages=" \
        --size 8G --hugepages 2M --listen nbd://127.0.0.1
    if [ ! -e /dev/infiniband/rdma_cm ]; then
        checked "--check, RDMA on a host without" 1 "cannot serve over RDMA" \
            --size 1M --listen rdma://0.0.0.0
        checked "--check, RDMA on a host without, beside NBD" 1 "cannot serve over RDMA" \
            --listen nbd://127.0.0.1 --listen rdma://0.0.0.0
        checked "--check, a host without RDMA, and no address" 0 \
            "memnode can serve 1M over NBD, but not over RDMA: see device above" --size 1M
        checked "--check, a host without RDMA, and no option" 0 \
            "memnode can serve over NBD, but not over RDMA"
    fi
}

# While one serves with --control $WORK/control.
statistics_tests() {
    local read_control='
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(10)
s.connect(sys.argv[1])
sys.stdout.write(b"".join(iter(lambda: s.recv(65536), b"")).decode())'

    check "the control socket gives the statistics, and so does SIGUSR1" "${script[@]}" '
        python3 -c "$1" "$2" >"$WORK/statistics"
        grep -E "^pool 256M in pages of 4K, [0-9.]+M left$" "$WORK/statistics"
        grep -E "^accounts [0-9]+, limit of each 100M$" "$WORK/statistics"
        disk="account \"NBD export disk\""
        grep -E "^$disk: holds 64M, [1-9][0-9]* reads of .*, [1-9][0-9]* writes of " \
            "$WORK/statistics"
        kill -USR1 "$3"
        for i in {1..50}; do
            sed -n "s/^.* memnode: \(pool\|account\)/\1/p" "$4" |
                diff - <(grep "^\(pool\|account\)" "$WORK/statistics") && exit 0
            sleep 0.1
        done
        exit 1' script "$read_control" "$WORK/control" "$server" "$log"
    check "the control socket is for its owner only" \
        "${script[@]}" '[ "$(stat -c %a "$1")" = 600 ]' script "$WORK/control"
}

# SIGHUP: from a configuration file that changes.
reload_tests() {
    local name="SIGHUP takes over limits, and not those of a file with a mistake"
    selected "$name" || return 0
    printf '[memnode]\nmax-per-client = 1M\ngrace = 1\n' >"$WORK/conf"
    start --size 8M --config "$WORK/conf"
    run_limited env SERVER="$server" LOG="$log" SOCK="$sock" CASES="$here/cases.py" "${script[@]}" '
        # WORDS: they must appear in the log.
        reload() {
            kill -HUP "$SERVER"
            for i in {1..50}; do
                grep -q "$1" "$LOG" && return 0
                sleep 0.1
            done
            return 1
        }
        limited() { python3 "$CASES" "$SOCK" limited "$1"; }
        limited 1
        printf "[memnode]\nmax-per-client = 4M\ngrace = 1\n" >"$WORK/conf"
        reload "limits read again: at most 4M a client, 1 s of grace"
        limited 4
        printf "[memnode]\nmax-per-client = 2M\nnonsense = 1\n" >"$WORK/conf"
        reload "conf:3: .*; the limits stay as they were"
        limited 4'
    if [ "$status" = 0 ]; then
        ok "$name"
    else
        not_ok "$name" "status $status"
        show "$ERR"
        show "$log"
    fi
    stop
}

# As the systemd unit has it: umask 077, under which others connect where --socket-mode lets them.
other_users() {
    local name="--socket-mode lets other users in" public at connect='import os, socket, sys
os.setgroups([]), os.setgid(65534), os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
assert s.recv(8) == b"NBDMAGIC"'
    selected "$name" || return 0
    if [ "$(id -u)" -ne 0 ]; then
        skip "$name" "only root can become another user"
        return
    fi
    public=$(mktemp -d /tmp/vmrun-public.XXXXXX) && chmod 755 "$public"
    at=$public/nbd
    umask 077
    start --size 1M --listen "nbd+unix://$at" --socket-mode 666
    umask 022
    run_limited python3 -c "$connect" "$at"
    if [ "$status" = 0 ] && [ "$(stat -c %a "$at")" = 666 ]; then
        ok "$name"
    else
        not_ok "$name" "status $status, mode $(stat -c %a "$at")"
        show "$ERR"
    fi
    stop
    rm -rf "$public"
}

# lives NAME CASE: of life.py, which starts memnodes itself.
lives() { check_alone "$1" python3 "$here/life.py" "$2" "$WORK" "$memnode"; }
# With a file system of its own, which becomes full.
hour_tests() {
    local name="an hour of an operator is told by log and figures" own
    selected "$name" || return 0
    for own in "unshare -m" "unshare -rm" ""; do
        $own true 2>/dev/null && break
    done
    if [ -z "$own" ]; then
        skip "$name" "nothing can be mounted here"
        return
    fi
    mkdir "$WORK/small"
    # shellcheck disable=SC2086 # words
    check_alone "$name" $own "${script[@]}" 'mount -t tmpfs -o size=2M none "$2/small"
        exec python3 "$1/hour.py" "$2" "$2/small" "$3"' script "$here" "$WORK" "$memnode"
}
service_tests() {
    check_alone "systemd is told: ready, reloading, stopping" \
        python3 "$here/notify.py" "$WORK/notify" "$memnode" --size 1M --hugepages none \
        --listen nbd://127.0.0.1:0
    check_alone "a standard error that no process reads stops nothing" \
        python3 "$here/deaf.py" "$WORK/deaf.sock" "$memnode"
    lives "--run: a command has the URL, and memnode its end" run
    lives "--pidfile: it is there while memnode serves" pidfile
    lives "sockets that systemd listens at" sockets
    lives "systemd's watchdog is fed by threads that go on" watchdog
    check_alone "the log: times, levels, names" python3 "$here/log.py" "$WORK" "$memnode"
    check_alone "--stats: figures for Prometheus" python3 "$here/figures.py" "$WORK" "$memnode"
    check_alone "descriptors that are used up while clients wait" \
        python3 "$here/crowd.py" "$WORK" "$memnode"
    other_users
    hour_tests
    local name="the systemd unit is one" unit
    unit=$(dirname "$memnode")/memnode.service
    if have systemd-analyze && [ -e "$unit" ]; then
        # The program is where it was built, not where it will be installed.
        sed "s,^ExecStart=[^ ]*,ExecStart=$memnode," "$unit" >"$WORK/memnode.service"
        check_alone "$name" "${script[@]}" '
            systemd-analyze verify --man=no "$WORK/memnode.service" 2>&1 | tee "$WORK/said"
            [ ! -s "$WORK/said" ]'
    elif selected "$name"; then
        skip "$name" "there is no systemd-analyze, or no memnode.service beside memnode"
    fi
}
