#!/bin/bash
# vmrun's NBD driver against nbdkit, qemu-nbd and memnode (as far as they are there): data,
# refusals, and what happens when a server goes.  The driver runs in ./driver, without a guest.
# Every wait has a limit.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=test/lib.sh
. "$here/../lib.sh"
driver=${DRIVER:-./driver}
rude=${RUDE:-./rude}
memnode=${MEMNODE:-../../memnode/memnode}
LIMIT=60

if [ ! -x "$driver" ] || [ ! -x "$rude" ]; then
    echo "Bail out! $driver or $rude is missing: run make check"
    exit 1
fi
make_work
servers=
# The end is awaited, so that what it held is free, and for the shell's remark about it to go
# nowhere.
kill_server() {
    kill -KILL "$1" 2>/dev/null
    { wait "$1"; } 2>/dev/null
}
stop_servers() {
    local pid
    for pid in $servers; do
        kill_server "$pid"
    done
    servers=
}
trap 'stop_servers; rm -rf "$WORK"' EXIT

# wait_for COMMAND...: until it succeeds, 10 s at most.
wait_for() {
    local i
    for ((i = 0; i < 200; i++)); do
        "$@" 2>/dev/null && return 0
        sleep 0.05
    done
    return 1
}

# serve SOCKET COMMAND...: starts a server in the background and waits for its socket. Sets $server.
serve() {
    local socket=$1
    shift
    rm -f "$socket"
    "$@" >"$WORK/server.out" 2>&1 &
    server=$!
    servers="$servers $server"
    wait_for test -S "$socket"
}
# The socket is there before the server listens.
kit() {
    rm -f "$WORK/kit.pid"
    serve "$1" nbdkit --foreground --pidfile "$WORK/kit.pid" --unix "$@"
    wait_for test -s "$WORK/kit.pid"
}
be_rude() {
    serve "$2" "$rude" "$@"
    wait_for grep -q ready "$WORK/server.out"
}

# A TCP port of the loopback interface that no process listens on now.
free_port() {
    local port
    for port in $(shuf -i 20000-32000 -n 50); do
        if ! (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
}

# good NAME ARG...: the driver must end with 0.
good() {
    local name=$1
    shift
    run_limited "$driver" "$@"
    if [ "$status" = 0 ]; then
        ok "$name"
    else
        not_ok "$name" "status $status"
        show "$OUT"
        show "$ERR"
        show "$WORK/server.out"
    fi
}

# refused NAME PATTERN ARG...: must end with 125 and a sentence that matches.
refused() {
    local name=$1 pattern=$2
    shift 2
    run_limited "$driver" "$@"
    check_refusal "$name" "$pattern"
}
check_refusal() {
    if [ "$status" = 125 ] && grep -Eq -- "$2" "$ERR"; then
        ok "$1"
    else
        not_ok "$1" "status $status, or not the words /$2/"
        show "$ERR"
    fi
}

# in_background ARG...: starts the driver, and waits until it is connected.  after_that: waits for
# its end, and sets $status, $OUT and $ERR as run_limited does.  finish NAME [PATTERN]: like
# after_that, and it must be a good end.
in_background() {
    "$driver" "$@" >"$WORK/job.out" 2>"$WORK/job.err" &
    job=$!
    wait_for grep -q connection "$WORK/job.out" || show "$WORK/job.err"
}
after_that() {
    local i
    for ((i = 0; i < LIMIT * 20; i++)); do
        kill -0 "$job" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$job" 2>/dev/null
    { wait "$job"; } 2>/dev/null
    status=$?
    cp "$WORK/job.out" "$OUT"
    cp "$WORK/job.err" "$ERR"
}
finish() {
    after_that
    if [ "$status" = 0 ] && { [ -z "${2:-}" ] || grep -Eq -- "$2" "$ERR"; }; then
        ok "$1"
    else
        not_ok "$1" "status $status${2:+, or not the words /$2/}"
        show "$OUT"
        show "$ERR"
    fi
}

S=$WORK/s
unix_url="nbd+unix:///x?socket=$S"

# ---- What needs no server ----

refused 'unknown host' "unknown host|name server" --connect-timeout 4000 \
    nbd://no-such-host.invalid/x
refused 'port without a listener' 'refuses connections' "nbd://127.0.0.1:$(free_port)/x"
refused 'socket that is not there' 'there is no socket' "nbd+unix:///x?socket=$WORK/nothing"
refused 'no host' 'no host is named' nbd:///x
refused 'no socket' 'no socket is named' nbd+unix:///x
refused 'bad port' 'is no port' nbd://127.0.0.1:99999/x
refused 'bad escape' 'two hexadecimal digits' nbd://127.0.0.1/%zz
refused 'option that is none' 'is not understood' 'nbd://127.0.0.1/x?colour=red'
refused 'socket path that is too long' 'longer than' "nbd+unix:///x?socket=/$(printf '%0120d' 0)"
refused 'one slash' 'two slashes' nbd:/x

# ---- nbdkit ----

if ! command -v nbdkit >/dev/null; then
    skip 'nbdkit' 'nbdkit is not installed (Debian: nbdkit)'
else
    kit "$S" memory 64M
    for depth in 1 64 128; do
        good "nbdkit, unix socket, depth $depth" --depth "$depth" "$unix_url"
    done
    good 'nbdkit, few pages, again and again' --pages 40 --depth 32 "$unix_url"
    good 'nbdkit, a forked child and the next program' --count 1000 --family "$unix_url"
    good 'hand back: nbdkit, a forked child and the next program' --count 1000 --family \
        --hand-back "$unix_url"
    LIBNBD_DEBUG=1 good 'LIBNBD_DEBUG of the program' --count 100 "$unix_url"
    if grep -q 'libnbd: debug' "$ERR"; then
        not_ok 'LIBNBD_DEBUG prints nothing' 'libnbd wrote to standard error'
    else
        ok 'LIBNBD_DEBUG prints nothing'
    fi
    refused 'a lease of a server that is no memnode' 'no memnode' --size 67108864 \
        "nbd+unix:///?socket=$S"

    printf 'alice:%032x\n' 1 >"$WORK/nbdkit.keys"
    port=$((20000 + RANDOM % 10000))
    rm -f "$WORK/kit.pid"
    nbdkit --foreground --pidfile "$WORK/kit.pid" --ipaddr 127.0.0.1 --port $port --tls=require \
        --tls-psk="$WORK/nbdkit.keys" memory 64M >"$WORK/server.out" 2>&1 &
    servers="$servers $!"
    wait_for test -s "$WORK/kit.pid"
    good 'nbdkit, with TLS' --keys "$WORK/nbdkit.keys" --client alice "nbds://127.0.0.1:$port/x"
    refused 'nbdkit, which wants TLS' 'give nbds://' "nbd://127.0.0.1:$port/x"

    in_background --seconds 8 --gap 50 "$unix_url"
    refused 'an export that is in use' 'a vmrun on this host uses this export' "$unix_url"
    finish 'its first user goes on'
    good 'and it is free again' --count 100 "$unix_url"

    # Nothing is in flight when the server stops for a while; then much is.
    in_background --seconds 4 "$unix_url"
    sleep 1
    kill -STOP "$server"
    sleep 1.5
    kill -CONT "$server"
    finish 'a server that stands still for a while'

    in_background --seconds 30 --timeout 1500 "$unix_url"
    sleep 0.5
    kill -STOP "$server"
    after_that
    check_refusal 'a server that stands still for too long' \
        'has not answered for 2 s while [0-9]+ transfers wait'
    stop_servers

    kit "$S" memory 64M
    in_background --seconds 30 --timeout 2000 "$unix_url"
    sleep 0.5
    kill_server "$server"
    after_that
    check_refusal 'a server that dies for good' \
        'could not be made again within 2 s: socket .* refuses connections'
    stop_servers

    kit "$S" memory 64M
    in_background --seconds 30 "$unix_url"
    sleep 0.5
    kill_server "$server"
    kit "$S" memory 64M
    after_that
    check_refusal 'a server that comes back empty' 'what vmrun had written there is gone'
    stop_servers

    truncate -s 64M "$WORK/disk"
    kit "$S" file "$WORK/disk"
    in_background --seconds 4 --timeout 5000 "$unix_url"
    for _ in 1 2 3; do
        sleep 0.5
        kill_server "$server"
        kit "$S" file "$WORK/disk"
    done
    finish 'a server that dies three times and keeps its data' 'connected again'
    stop_servers

    # One answer about the mark has the page of another place: it is read once more.
    kit "$S" file "$WORK/disk"
    in_background --seconds 3 --gap 200 --timeout 5000 "$unix_url"
    sleep 0.5
    kill_server "$server"
    : >"$WORK/lie"
    # shellcheck disable=SC2016
    disk=$WORK/disk lie=$WORK/lie kit "$S" eval get_size='stat -c %s "$disk"' \
        can_write='exit 0' \
        pread='from=$disk; [ "$4" != $((67108864 - 4096)) ] || ! rm "$lie" || from=/dev/zero
            dd if="$from" iflag=skip_bytes,count_bytes,fullblock skip="$4" count="$3"' \
        pwrite='dd of="$disk" iflag=fullblock oflag=seek_bytes seek="$4" conv=notrunc bs=4K'
    finish 'a server that answers with another page than the mark, once' 'connected again'
    if [ -e "$WORK/lie" ]; then not_ok 'and it did' 'the mark is unread'; else ok 'and it did'; fi
    stop_servers

    # Between the driver's posts nothing is in flight: the driver still sees that a connection ends,
    # and loses no time by it.
    kit "$S" file "$WORK/disk"
    in_background --seconds 3 --gap 200 --timeout 5000 "$unix_url"
    sleep 0.5
    kill_server "$server"
    kit "$S" file "$WORK/disk"
    finish 'a server that dies while nothing is in flight' 'connected again'
    stop_servers

    # Of three breaks at once, one each for a connection, the owner hears once.
    kit "$S" file "$WORK/disk"
    in_background --hand-back --downs 2 --seconds 3 "$unix_url"
    for _ in 1 2; do
        sleep 0.7
        kill_server "$server"
        kit "$S" file "$WORK/disk"
    done
    finish 'hand back: a server that dies twice and keeps its data' 'down: .*closed|down: .*broke'
    stop_servers

    # One thread: of several, nbdkit 1.32 may abort where a client leaves while answers are due.
    kit "$S" --threads 1 --filter=error file "$WORK/disk" error-rate=100% \
        error-file="$WORK/fail" error=ENOSPC
    in_background --hand-back --seconds 2 "$unix_url"
    sleep 0.3
    : >"$WORK/fail"
    sleep 0.5
    rm "$WORK/fail"
    finish 'hand back: a server that fails all transfers for a while' \
        'down: the server has failed a transfer \(No space left'
    stop_servers

    kit "$S" --filter=error memory 64M error-rate=2% error=EIO
    # The first transfer, the handshake's own, may fail: then vmrun says so.
    run_limited "$driver" --timeout 20000 --count 3000 "$unix_url"
    if [ "$status" = 0 ] ||
        { [ "$status" = 125 ] && grep -q 'fails the first transfer' "$ERR"; }; then
        ok 'a server that fails some transfers'
    else
        not_ok 'a server that fails some transfers' "status $status"
        show "$ERR"
    fi
    stop_servers
    kit "$S" --filter=error memory 64M error-rate=100% error-file="$WORK/fail" error=ENOSPC
    in_background --seconds 30 --timeout 1500 "$unix_url"
    sleep 0.3
    : >"$WORK/fail"
    after_that
    check_refusal 'a server that fails all transfers' \
        'has failed a transfer again and again for 2 s \(No space left'
    stop_servers

    kit "$S" --readonly memory 64M
    refused 'a read-only export' 'is read-only' "$unix_url"
    stop_servers
    kit "$S" memory 4096
    refused 'an export that is too small' 'is too small' "$unix_url"
    stop_servers
    kit "$S" memory 8192
    good 'the smallest export' --depth 1 --count 100 "$unix_url"
    stop_servers
    kit "$S" memory 1000003
    good 'an export that ends within a page' "$unix_url"
    stop_servers

    # most BYTES PLUGIN...: a server that refuses commands of more bytes.
    most() {
        local bytes=$1 preferred=4K
        shift
        [ "$bytes" = 2K ] && preferred=2K
        kit "$S" --filter=blocksize-policy "$@" blocksize-preferred=$preferred \
            blocksize-maximum="$bytes" blocksize-error-policy=error
    }
    for bytes in 4K 8K 20K 32K 64K 1M 32M; do
        most "$bytes" memory 64M
        good "a server that takes $bytes at a time" --runs --depth 128 "$unix_url"
        stop_servers
    done
    most 2K memory 64M
    refused 'a server that takes less than a page at a time' \
        'takes 2048 bytes at a time, and a page is 4K: let the server allow larger' "$unix_url"
    stop_servers
    # Requests under way are cut to the limit of the server before this one.
    most 64K file "$WORK/disk"
    in_background --runs --depth 128 --count 400000 --timeout 8000 "$unix_url"
    for bytes in 8K 1M; do
        sleep 0.3
        kill_server "$server"
        most "$bytes" file "$WORK/disk"
    done
    finish 'a server that takes less at a time for a while' 'connected again'
    stop_servers
    most 64K file "$WORK/disk"
    in_background --runs --depth 128 --count 10000000 --timeout 1500 "$unix_url"
    sleep 0.3
    kill_server "$server"
    most 8K file "$WORK/disk"
    after_that
    check_refusal 'a server that takes less at a time from now on' \
        'now takes 8K at a time, and took 64K before: let the server allow as much again'
    stop_servers

    kit "$S" --filter=multi-conn memory 64M multi-conn-mode=disable
    good 'a server without multi-conn' --depth 128 "$unix_url"
    if grep -q ' 1 connection ' "$OUT"; then
        ok 'it has one connection'
    else
        not_ok 'it has one connection' "$(head -1 "$OUT")"
    fi
    stop_servers
    kit "$S" --mask-handshake=0 memory 64M
    good 'an old server without fixed newstyle' "$unix_url"
    stop_servers
    if nbdkit --dump-config | grep 'tls=yes' >/dev/null; then
        mkdir "$WORK/tls"
        echo 'test:0123456789abcdef0123456789abcdef' >"$WORK/tls/psk"
        kit "$S" --tls=require --tls-psk="$WORK/tls/psk" memory 64M
        refused 'a server that wants TLS' 'wants TLS' "$unix_url"
        stop_servers
    else
        skip 'a server that wants TLS' 'this nbdkit has no TLS'
    fi

    port=$(free_port)
    nbdkit --foreground --ipaddr 127.0.0.1 --port "$port" --pidfile "$WORK/pid" memory 64M \
        2>"$WORK/server.out" &
    servers="$servers $!"
    wait_for test -s "$WORK/pid"
    for depth in 1 64 128; do
        good "nbdkit, TCP, depth $depth" --depth "$depth" "nbd://localhost:$port/x"
    done
    stop_servers
fi

# ---- qemu-nbd ----

if ! command -v qemu-nbd >/dev/null; then
    skip 'qemu-nbd' 'qemu-nbd is not installed (Debian: qemu-utils)'
else
    truncate -s 64M "$WORK/raw"
    serve "$S" qemu-nbd --persistent --socket "$S" --export-name disk --format raw --shared 4 \
        "$WORK/raw"
    for depth in 1 64 128; do
        good "qemu-nbd, four clients, depth $depth" --depth "$depth" "nbd+unix:///disk?socket=$S"
    done
    refused 'no such export' "no export 'other'" "nbd+unix:///other?socket=$S"
    refused 'no lease of qemu-nbd' 'no memnode' --size 67108864 "nbd+unix:///?socket=$S"
    stop_servers
    serve "$S" qemu-nbd --persistent --socket "$S" --export-name 'a b' --format raw "$WORK/raw"
    good 'qemu-nbd, one client, a name with a space' --depth 128 "nbd+unix:///a%20b?socket=$S"
    stop_servers
fi

# ---- What is no NBD server ----

for how in text zeros noise half; do
    be_rude "$how" "$S"
    refused "a port that is no NBD server: $how" \
        'does not answer as an NBD server|broke|closed' --connect-timeout 2000 "$unix_url"
    stop_servers
done
be_rude silent "$S"
refused 'a port that says nothing' 'says nothing \(1 s\)' --connect-timeout 1000 "$unix_url"
stop_servers
be_rude deaf "$S"
refused 'a port without an accept' 'says nothing \(1 s\)' --connect-timeout 1000 "$unix_url"
stop_servers
port=$(free_port)
"$rude" full "$port" >"$WORK/server.out" 2>&1 &
servers="$servers $!"
wait_for grep -q ready "$WORK/server.out"
refused 'a host that does not answer' 'does not answer \(1 s\)' --connect-timeout 1000 \
    "nbd://127.0.0.1:$port/x"
stop_servers
be_rude full "$S"
refused 'a socket with too many clients' 'too many clients' --connect-timeout 1000 "$unix_url"
stop_servers

# ---- memnode ----

if [ ! -x "$memnode" ] || ! "$memnode" --help 2>/dev/null | grep nbd >/dev/null; then
    skip 'memnode' 'memnode is not built here, or without NBD'
else
    # Leases that were used stay for the grace time: there is room for all of them.
    serve "$S" "$memnode" --size 512M --max-per-client 128M --hugepages none \
        --listen "nbd+unix://$S"
    for depth in 1 64 128; do
        good "memnode, a lease, depth $depth" --size $((64 << 20)) --depth "$depth" \
            "nbd+unix:///?socket=$S"
    done
    good 'a command is sent at once after sockets were looked at in vain' --size $((16 << 20)) \
        --count 1000 --unasked "nbd+unix:///?socket=$S"
    good 'memnode, a forked child and the next program' --size $((16 << 20)) --count 1000 \
        --family "nbd+unix:///?socket=$S"
    in_background --size $((64 << 20)) --seconds 2 "nbd+unix:///?socket=$S"
    good 'memnode, a second lease beside the first' --size $((64 << 20)) --count 20000 \
        "nbd+unix:///?socket=$S"
    finish 'and the first one is as it was'
    refused 'memnode, more than a client may have' 'size=' --size $((160 << 20)) \
        "nbd+unix:///?socket=$S"
    in_background --size $((64 << 20)) --seconds 20 "nbd+unix:///?socket=$S"
    sleep 0.5
    kill_server "$server"
    serve "$S" "$memnode" --size 192M --max-per-client 128M --hugepages none \
        --listen "nbd+unix://$S"
    after_that
    check_refusal 'memnode that was restarted' 'does not know that lease: it was restarted'
    stop_servers

    lease_url="nbd+unix:///?socket=$S"
    serve "$S" "$memnode" --size 512M --hugepages none --drain-timeout 0 --listen "nbd+unix://$S"
    good 'hand back: memnode without trouble' --hand-back --downs 0 --size $((16 << 20)) \
        "$lease_url"
    good 'hand back: memnode, a forked child and the next program' --hand-back --downs 0 \
        --size $((16 << 20)) --count 1000 --family "$lease_url"
    # Stopped, it is down after a second, and never lost by silence.
    good 'hand back: memnode that stands still' --hand-back --downs 1 --timeout 500 \
        --connect-timeout 300 --size $((64 << 20)) --stop "$server" "$lease_url"
    # "hold": bytes sent before a break arrive a second later, when newer pages are there.
    if command -v python3 >/dev/null; then
        serve "$WORK/relay" python3 "$here/../faults/proxy.py" --seed 3 --fault delay=0.05:0.02 \
            --fault hold=0.002:1 --fault reset=0.002 "$WORK/relay" "$S"
        wait_for grep -q listens "$WORK/server.out"
        good 'hand back: memnode behind a network that resets, and delivers late' --hand-back \
            --count 1500 --size $((64 << 20)) "nbd+unix:///?socket=$WORK/relay"
        if grep -q 'down: ' "$ERR"; then
            ok 'and connections broke'
        else
            not_ok 'and connections broke'
        fi
    else
        skip 'hand back: memnode behind a network that resets' 'there is no python3'
    fi
    in_background --hand-back --size $((64 << 20)) --seconds 20 "$lease_url"
    sleep 0.5
    kill -TERM "$(echo "$servers" | awk '{ print $1 }')"
    after_that
    check_refusal 'hand back: memnode that ends' 'its memnode (was stopped|has ended)'
    stop_servers
    serve "$S" "$memnode" --size 512M --hugepages none --listen "nbd+unix://$S"
    in_background --hand-back --size $((64 << 20)) --seconds 20 "$lease_url"
    sleep 0.5
    kill_server "$server"
    after_that
    check_refusal 'hand back: memnode that is killed' 'its memnode has ended'
    stop_servers
    serve "$S" "$memnode" --size 512M --hugepages none --listen "nbd+unix://$S"
    good 'memnode drains' --size $((64 << 20)) --count 2000 --drain "$server" "$lease_url"
    wait_for eval '! kill -0 "$server" 2>/dev/null'
    if kill -0 "$server" 2>/dev/null; then
        not_ok 'and ends when it was'
    else
        ok 'and ends when it was'
    fi
    stop_servers
    keys=$WORK/keys
    printf 'alice:%032x\nbob:%032x\n' 1 2 >"$keys"
    printf 'alice:%032x\n' 3 >"$keys.wrong"
    chmod 600 "$keys" "$keys.wrong"
    port=$((20000 + RANDOM % 10000))
    serve "$S" "$memnode" --size 192M --hugepages none --keys "$keys" \
        --listen "nbd+unix://$S" --listen "nbd://127.0.0.1:$port"
    tls=nbds://127.0.0.1:$port
    good 'memnode, with a key' --size $((16 << 20)) --keys "$keys" --client alice "$tls"
    good 'memnode, with a key: a forked child and the next program' --size $((16 << 20)) \
        --keys "$keys" --client bob --count 1000 --family "$tls"
    name='memnode, 341 members with a key: 1,023 connections in 64 MiB'
    if run_limited ./members --keys "$keys" --client alice --limit-kib 65536 --pid $server \
        127.0.0.1 $port 341 && [ "$status" = 0 ]; then
        ok "$name"
    else
        not_ok "$name" "$(cat "$OUT" "$ERR")"
    fi
    good 'memnode, a key is not needed here' --size $((16 << 20)) "nbd+unix:///?socket=$S"
    refused 'memnode, without a key' 'give nbds://' --size $((16 << 20)) "nbd${tls#nbds}"
    refused 'memnode, with a wrong key' 'does not take our key' --size $((16 << 20)) \
        --keys "$keys.wrong" --client alice "$tls"
    printf 'carol:%032x\n' 1 >"$keys.wrong"
    refused 'memnode, with a name that it has not' 'does not take our key' --size $((16 << 20)) \
        --keys "$keys.wrong" --client carol "$tls"
    stop_servers
    serve "$S" "$memnode" --size 64M --hugepages none --listen "nbd+unix://$S" \
        --listen "nbd://127.0.0.1:$port"
    refused 'memnode, that has no keys' 'TLS with' --size $((16 << 20)) --keys "$keys" \
        --client alice "$tls"
    stop_servers
fi

totals
