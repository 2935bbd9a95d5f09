#!/bin/bash
# LRANGE of whole lists with guides/redis.so, by the policies without it, with all memory local, and
# natively.
#
#   bench/lrange.sh [--lists N] [--elements N] [--bytes N] [--requests N] [--cache SIZE]
#       [--node URL] [--policies LIST] [--json FILE]
#
# In the lab under --icount: a nanosecond is an instruction. Its processor does not have the fast
# `rep movsb` (ERMS) here, of which each byte would count as one. With --node rdma: over soft-RoCE,
# with a memnode on that processor, too. lrange.c explains the times, lib.sh the variables.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

lists=400 elements=100 bytes=1024 requests=1000 cache=12M
node='mem:768M?latency=3000&bandwidth=12.5G'
policies=none,auto,readahead,pointers,guide,local,native
client=$BENCH_BIN/lrange
guide=$(realpath "${GUIDE:-$BENCH_BIN/../guides/redis.so}")
vmctl=$(dirname "$VMRUN")/vmctl
memnode=$(dirname "$VMRUN")/../memnode/memnode

redis() { redis-cli -e -s "$scratch/socket" "$@"; }

# server POLICY: starts redis-server; sets `server`.
server() {
    local under=("$VMRUN" --cache "$cache" --stats="$scratch/stats" --node "$node")
    case $1 in
    native) under=() ;;
    local) under+=(--cache 512M) ;;
    guide) under+=(--guide "$guide") ;;
    *) under+=(--prefetch "$1") ;;
    esac
    under+=(redis-server --port 0 --unixsocket "$scratch/socket" --save '' --daemonize no)
    printf '+ %s\n' "${under[*]}" >&2
    # Not by ran, whose process would be another one.
    "${under[@]}" >"$scratch/log" &
    server=$!
    for _ in {1..300}; do
        [ "$(redis ping 2>/dev/null)" != PONG ] || return 0
        sleep 0.1
    done
    die "redis-server does not start: $(tail -n 3 "$scratch/log")"
}

# one POLICY: a line of the table.
one() {
    local shape=("$lists" "$elements" "$bytes") waits='' key
    server "$1"
    "$client" "$scratch/socket" fill "${shape[@]}"
    "$client" "$scratch/socket" ask "${shape[@]}" $((requests / 4 + 1)) "$server" >/dev/null
    [ "$1" = native ] || "$vmctl" "$server" stats --reset >/dev/null
    "$client" "$scratch/socket" ask "${shape[@]}" "$requests" "$server" >"$scratch/times"
    if [ "$1" != native ]; then
        "$vmctl" "$server" stats --flat >"$scratch/flat"
        waits=$(calc "($(value faults.fetch "$scratch/flat") + \
            $(value faults.wait "$scratch/flat")) / $requests")
        echo "copied $(calc "$(value wire.copied_ns "$scratch/flat") / $requests")" \
            >>"$scratch/times"
    fi
    redis shutdown nosave || true
    wait "$server"
    printf '%-10s' "$1"
    local figures=("bench=lrange" "policy=$1" "lists=$lists" "elements=$elements" "bytes=$bytes"
        "cache=$cache" "node=$node" "waits=$waits")
    for key in requests_s mean server_p50 server_p99 thread_mean thread_p99 cpu_client copied; do
        printf ' %10.0f' "$(value $key "$scratch/times")"
        figures+=("$key=$(value $key "$scratch/times")")
    done
    printf ' %8s\n' "${waits:--}"
    record "${figures[@]}"
}

options 'lists elements bytes requests cache node policies' "$@"
if [ -z "$inside" ]; then
    lab=(--timeout 480 --icount --qemu=-cpu '--qemu=max,+svm,+npt,-erms,-fsrm')
    [[ $node != rdma* ]] || lab+=(--rdma)
    [ -z "$json_file" ] || lab+=(--rw "$(dirname "$json_file")")
    in_lab "${lab[@]}" -- "bench/${0##*/}" --inside lab --lists "$lists" --elements "$elements" \
        --bytes "$bytes" --requests "$requests" --cache "$cache" --node "$node" \
        --policies "$policies" ${json_file:+--json "$json_file"}
    exit
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# An answer fits the socket, so that the client need not run before it is complete.
sysctl -qw net.core.wmem_default=8388608
if [[ $node == rdma* ]]; then
    node=rdma://10.77.0.1:7471
    "$memnode" --size 768M --hugepages none --insecure --listen "$node" 2>"$scratch/memnode" &
    for _ in {1..100}; do
        ! grep -qs serving "$scratch/memnode" || break
        sleep 0.1
    done
fi
printf '%-10s %10s %10s %10s %10s %10s %10s %10s %10s %8s\n' policy requests/s mean p50 p99 \
    thread "its p99" client copied waits
for policy in ${policies//,/ }; do
    one "$policy"
done
