#!/bin/bash
# What goes over the wire with guides/malloc.so and without: redis with a quarter of its memory as
# cache; half of the keys, at random, are deleted and set again, four times.
#
#   bench/guides.sh [--rounds N] [--json FILE]
#
# On the host, over a timed tier. Pages that were fetched, prefetched, and written, in MiB; without
# looking ahead, too, since the guide leaves it less to do. lib.sh has the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

rounds=4
node='mem:1G?latency=3000&bandwidth=12.5G'
guide=$(realpath "${GUIDE:-$BENCH_BIN/../guides/malloc.so}")

redis() { redis-cli -e -s "$scratch/redis.sock" "$@"; }

# session GUIDE PREFETCH SIZE KEYS CACHE: sets fetched, prefetched, written, seconds.
session() {
    local server start end
    LD_PRELOAD=$1 ran "$VMRUN" --cache "$5" --prefetch "$2" --stats="$scratch/stats" \
        --node "$node" redis-server --port 0 --unixsocket "$scratch/redis.sock" --save '' \
        --daemonize no >"$scratch/log" &
    server=$!
    for _ in {1..300}; do
        [ "$(redis ping 2>/dev/null)" != PONG ] || break
        sleep 0.1
    done
    start=$(date +%s.%N)
    bench/guides-load.py "$scratch/redis.sock" "$4" "$rounds" "$3" ||
        die "the load failed: $(tail -n 3 "$scratch/log")"
    end=$(date +%s.%N)
    redis shutdown nosave || true
    wait "$server"
    fetched=$(calc "$(value count.fetched "$scratch/stats") / 256")
    prefetched=$(calc "$(value count.prefetched "$scratch/stats") / 256")
    written=$(calc "$(value count.writeback "$scratch/stats") / 256")
    seconds=$(calc "$end - $start")
}

# line SIZE KEYS CACHE PREFETCH: without and with the guide. Sets saved, in per cent.
line() {
    local with sum first=
    for with in '' "$guide"; do
        session "$with" "$4" "$1" "$2" "$3"
        sum=$(calc "$fetched + $prefetched + $written")
        printf '%-8s %6d %5s %-5s %-5s %8.0f %10.0f %8.0f %6.0f %6.1f\n' "$1" "$2" "$3" "$4" \
            "${with:+malloc}" "$fetched" "$prefetched" "$written" "$sum" "$seconds"
        record bench=guides "size=$1" "prefetch=$4" "guide=${with:+malloc}" "fetched=$fetched" \
            "prefetched=$prefetched" "written=$written" "seconds=$seconds"
        saved=$(calc "100 - 100 * $sum / ${first:-$sum}")
        first=${first:-$sum}
    done
}

options rounds "$@"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf '%-8s %6s %5s %-5s %-5s %8s %10s %8s %6s %6s\n' value keys cache ahead guide fetched \
    prefetched written MiB s
results=()
for prefetch in auto none; do
    for load in '4096 16000 20M' '64-8192 16000 18M' '1024 50000 17M'; do
        read -r size keys cache <<<"$load"
        line "$size" "$keys" "$cache" "$prefetch"
        results+=("$size $prefetch $saved")
    done
done
for result in "${results[@]}"; do
    read -r size prefetch saved <<<"$result"
    # Of values this small, few pages lose all.
    [ "$size" = 1024 ] ||
        verdict "per cent less, values of $size bytes, --prefetch $prefetch" "$saved" '>=' 20
done
finish
