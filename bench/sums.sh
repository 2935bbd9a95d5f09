#!/bin/bash
# What the sums of pages and of their pieces cost: one by itself, on a node that moves nothing, and
# over RDMA; and what is gained by pieces, where parts of pages are read.
#
#   bench/sums.sh [--runs N] [--only WORD,...] [--one-thread] [--json FILE]
#
#   --runs N      interleaved runs with and without, of which the median counts (default 5)
#   --only WORDS  of: sum null parts rdma (default: all)
#   --one-thread  emulate the two CPUs of the last part in turns on one thread of the host
#
# All run in `lab --icount`, where an instruction takes a nanosecond. The second also runs here by
# the clock; its I/O is inline, so that a page costs as little beside its sum as can be. The third
# also runs by the lab's clock, beside what a sum takes by that clock: QEMU emulates each crc32
# instruction by a call, so that a sum takes a hundred times what it takes a CPU. Run this on an
# idle machine. lib.sh has the variables; MEMNODE: the server (default build/memnode/memnode).
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

MEMNODE=$(realpath "${MEMNODE:-build/memnode/memnode}")
RANDMEM=$(realpath "$BENCH_BIN/../examples/randmem")
runs=5
one_thread=
only=sum,null,parts,rdma

wanted() { [[ ,$only, == *,$1,* ]]; }

# --- one line `result WHAT VALUE` a figure ---

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

result() { echo "result $1 $2"; }

# sum WHAT...: of what bench/sums prints.
sum() {
    local what
    ran "$BENCH_BIN/sums" >"$work/out"
    for what; do
        result $what "$(value ${what}_p50 "$work/out")"
    done
}

# null ROUNDS: pages a second from a node that moves nothing, with and without sums, reading and
# writing; and writing with sums of pieces.
null() {
    local round access
    mkdir -p "$work/null"
    cp "$(dirname "$VMRUN")"/runtime/vmrun "$work/null/vmrun" 2>/dev/null ||
        cp "$VMRUN" "$work/null/vmrun"
    cp "$BENCH_BIN/null.so" "$work/null/far-nbd.so"
    for ((round = 0; round < $1; round++)); do
        for access in read write; do
            one_null $access with --cache 8M
            one_null $access without --cache 8M --no-verify
        done
        one_null pieces with --cache 8M
    done
}

# one_null ACCESS NAME OPTION...
one_null() {
    local access=$1 name=$2 write=()
    shift 2
    [ "$access" = read ] || write=(--write)
    [ "$access" != pieces ] || write+=(--parts)
    ran "$work/null/vmrun" --no-config --io inline --node nbd+unix:null "$@" \
        "$BENCH_BIN/touch" --mib 32 --passes 2 --same "${write[@]}" >"$work/out"
    result "null.$access.$name" "$(calc "1e9 / $(value ns_per_access "$work/out")")"
}

address=10.77.0.1

# Starts a node. The first connection is tried again: where instructions are counted, some fail.
serve() {
    ran "$MEMNODE" --size 128M --hugepages none --insecure --listen rdma://$address 2>"$work/memnode.log" &
    memnode=$!
    for _ in {1..100}; do
        grep -q serving "$work/memnode.log" && break
        sleep 0.1
    done
    for _ in {1..5}; do
        ran "$VMRUN" --cache 8M --node rdma://$address true && break
        sleep 0.5
    done
}
stop_serving() {
    kill "$memnode"
    wait "$memnode" || true
}

rdma() {
    local round
    serve
    one_rdma unmeasured
    for ((round = 0; round < $1; round++)); do
        # In turns, so that a drift of the machine falls on both alike.
        if ((round % 2)); then
            one_rdma without --no-verify
            one_rdma with
        else
            one_rdma with
            one_rdma without --no-verify
        fi
    done
    stop_serving
}

# 64 bytes of a far page beside the page, and a tree of small nodes by loads and by such reads.
read_parts() {
    local what
    serve
    ran "$VMRUN" --io inline --cache 8M --node rdma://$address "$BENCH_BIN/hints" >"$work/out"
    for what in fetch read_64_far_first read_64_far read_64_far_unverified; do
        result parts.$what "$(value ${what}_p50 "$work/out")"
    done
    ran "$VMRUN" --io inline --cache 1700K --node rdma://$address \
        "$(dirname "$RANDMEM")/tree" --verbose >/dev/null 2>"$work/out"
    for what in loads reads; do
        result tree.$what "$(value $what "$work/out")"
    done
    stop_serving
}

# Random reads at 25 % local.
one_rdma() {
    local name=$1
    shift
    ran "$VMRUN" --cache 8M --node rdma://$address "$@" \
        "$RANDMEM" --size 32M --accesses 12000 --write-percent 0 --time >/dev/null 2>"$work/time"
    result "rdma.$name" "$(sed -n 's/^randmem: .*(\([0-9.]*\) ns each).*/\1/p' "$work/time")"
}

# --- the table ---

# get WHAT: the median.
get() { awk -v w="$1" '$1 == "result" && $2 == w { print $3 }' "$work/all" | median; }

# pair WHAT UNIT: with and without.
pair() {
    printf '%-46s %12s %12s %s\n' "$1" "$(get "$2.with")" "$(get "$2.without")" "$3"
    record "bench=sums" "what=$1" "with=$(get "$2.with")" "without=$(get "$2.without")"
}

options 'runs only one-thread!' "$@"
case $inside in
counted)
    wanted sum && sum sum store pieces part
    wanted null && null 1
    exit
    ;;
rdma)
    rdma "$runs"
    exit
    ;;
parts)
    read_parts
    exit
    ;;
clock)
    sum sum
    rdma "$runs"
    exit
    ;;
esac

: >"$work/all"
if wanted sum || wanted null; then
    in_lab --icount -- "$PWD/bench/sums.sh" --only "$only" --inside counted |
        sed 's/^result null/result counted/' >>"$work/all"
fi
if wanted null; then
    null "$runs" >>"$work/all"
fi
if wanted parts; then
    in_lab --icount --rdma --env MEMNODE="$MEMNODE" -- "$PWD/bench/sums.sh" --inside parts \
        >>"$work/all"
fi
if wanted rdma; then
    in_lab --icount --rdma --env MEMNODE="$MEMNODE" -- "$PWD/bench/sums.sh" --runs 2 --inside rdma |
        sed 's/^result rdma/result counted/' >>"$work/all"
    in_lab --rdma --cpus 2 ${one_thread:+--one-thread} --env MEMNODE="$MEMNODE" -- \
        "$PWD/bench/sums.sh" --runs "$runs" --inside clock |
        sed 's/^result sum/result emulated/' >>"$work/all"
    "$BENCH_BIN/sums" | sed -n 's/^sum_p50/result here/p' >>"$work/all"
fi

printf '\n%-46s %12s %12s\n' '' 'with sums' without
if wanted null; then
    pair 'null node, reading, instructions' counted.read 'pages in 10^9'
    pair 'null node, writing, instructions' counted.write 'pages in 10^9'
    pair 'null node, reading, here' null.read 'pages a second'
    pair 'null node, writing, here' null.write 'pages a second'
    for what in counted null; do
        printf '%-46s %12s\n' "writing with sums of pieces, $what" "$(get $what.pieces.with)"
        record 'bench=sums' "what=$what.pieces" "with=$(get $what.pieces.with)"
    done
fi
if wanted sum; then
    printf '%-46s %12s instructions\n' 'a page that is sent' "$(get store)" \
        'a page that is sent, with its pieces' "$(get pieces)" 'a piece that came' "$(get part)"
fi
if wanted parts; then
    printf '%-46s %12s instructions\n' 'rdma, a fetch' "$(get parts.fetch)" \
        '64 bytes of a page, by their piece' "$(get parts.read_64_far)" \
        '64 bytes of a page without sums of pieces' "$(get parts.read_64_far_first)" \
        '64 bytes of a page, unverified' "$(get parts.read_64_far_unverified)"
    printf '%-46s %12s us\n' 'tree at 5 % local, a look-up by loads' "$(get tree.loads)" \
        'tree at 5 % local, by reads of parts' "$(get tree.reads)"
    record 'bench=sums' 'what=parts' "fetch=$(get parts.fetch)" "read=$(get parts.read_64_far)" \
        "loads=$(get tree.loads)" "reads=$(get tree.reads)"
fi
if wanted rdma; then
    pair 'rdma, random reads at 25 % local, instructions' counted 'ns an access'
    pair 'rdma, random reads at 25 % local, by the clock' rdma 'ns an access'
    printf '%-46s %12s %12s ns\n' 'a sum by the clock: in the lab, here' \
        "$(get emulated)" "$(get here)"
    record 'bench=sums' 'what=clock' "lab=$(get emulated)" "here=$(get here)"
fi
echo
if wanted sum; then
    verdict 'instructions a sum' "$(get sum)" '<=' 1300
fi
if wanted null; then
    verdict 'null node, reading: pages a second, of those without' \
        "$(calc "$(get null.read.with) / $(get null.read.without)")" '>=' 0.8
    verdict 'null node, writing: pages a second, of those without' \
        "$(calc "$(get null.write.with) / $(get null.write.without)")" '>=' 0.8
    verdict 'null node, reading, by instructions' \
        "$(calc "$(get counted.read.with) / $(get counted.read.without)")" '>=' 0.8
fi
if wanted parts; then
    verdict '64 bytes, verified: of a fetch' \
        "$(calc "$(get parts.read_64_far) / $(get parts.fetch)")" '<=' 0.8
    verdict 'tree: loads, of reads' "$(calc "$(get tree.loads) / $(get tree.reads)")" '>=' 2
fi
if wanted rdma; then
    verdict 'rdma: a random read, of one without, by instructions' \
        "$(calc "$(get counted.with) / $(get counted.without)")" '<=' 1.03
fi
finish
