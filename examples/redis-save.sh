#!/bin/bash
# A redis that saves its data (BGSAVE, a fork) while it answers: fills it, saves, reads all of it
# meanwhile, and loads what was saved into a new one. Prints a digest of the data each time; fails
# if they differ.
#
# usage: redis-save.sh KEYS [RUNNER...]    values of 4 KiB; RUNNER starts the servers, as
#                                          `build/vmrun --cache 16M --node mem:256M --`
set -euo pipefail

keys=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/redis-save.XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; wait; rm -rf "$work"' EXIT

redis() { redis-cli -e -s "$work/socket" "$@"; }

# start RUNNER...
start() {
    "$@" redis-server --port 0 --unixsocket "$work/socket" --dir "$work" --save '' \
        --enable-debug-command yes >"$work/log" 2>&1 &
    server=$!
    for _ in {1..600}; do
        [ "$(redis ping 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    cat "$work/log" >&2
    exit 1
}
stop() {
    redis shutdown nosave >/dev/null 2>&1 || true
    wait "$server"
    server=
}

start "$@"
# In parts, as redis complains of a script that takes long.
for ((first = 0; first < keys; first += 1000)); do
    redis eval "for i = $first, math.min($first + 1000, $keys) - 1 do
        redis.call('set', i, string.rep(string.format('%08d', i), 512)) end" 0 >/dev/null
done
redis bgsave >/dev/null
during=$(redis debug digest)
echo "while it saves: $during"
while redis info persistence | grep -q 'rdb_bgsave_in_progress:1'; do
    sleep 0.1
done
redis info persistence | grep -o 'rdb_last_bgsave_status:ok'
stop
start "$@"
again=$(redis debug digest)
echo "loaded again:   $again"
stop
[ "$during" = "$again" ]
