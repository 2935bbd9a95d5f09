#!/bin/bash
# What memory nodes cost: the page fetch of vmrun beside a bare loop over the same RDMA device, and
# beside Linux's own remote swap.
#
#   bench/nodes.sh [--runs N] [--only WORD,...] [--one-thread] [--json FILE]
#
#   --runs N      interleaved runs, of which the median counts (default 5)
#   --only WORDS  of: fetch swap nbd bandwidth demand cpu (default: all)
#   --one-thread  emulate the two CPUs in turns on one thread of the host: for a host that has no
#                 two CPUs to spare
#
# One lab with two CPUs, soft-RoCE with itself (lab --rdma); memnode runs in it too. The figures are
# by the clock: run it on an idle machine. On a busy one an emulated CPU that spins waits for
# another that does not run, and that is then what is measured. lib.sh has the variables; MEMNODE:
# the server to measure (default build/memnode/memnode).
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

RANDMEM=$(realpath "$BENCH_BIN/../examples/randmem")
runs=5
lab=(--rdma --cpus 2)
one_thread=
only=fetch,swap,nbd,bandwidth,demand,cpu

wanted() { [[ ,$only, == *,$1,* ]]; }

# --- inside the lab: one line `result WHAT VALUE` a figure ---

cache=8M region=32M             # 25 % local
accesses=4000

result() { echo "result $1 $2"; }

# results PREFIX KEY... <OUTPUT: of its lines `KEY VALUE`.
results() {
    local prefix=$1 key
    cat >"$work/keys"
    shift
    for key in "$@"; do
        result "$prefix.$key" "$(value "$key" "$work/keys")"
    done
}

# attempt COMMAND...: up to three times. An emulated CPU pair loses a virtual machine now and then
# (lab/README.md, Limits), which says nothing about speed; it is told, and counted in the table.
attempt() {
    local try
    for try in 1 2 3; do
        if "$@"; then
            return 0
        fi
        echo "nodes.sh: try $try of $1 failed" >&2
        result runs_that_failed 1
    done
    die "$1 failed three times"
}

# rate NAME COMMAND...: of randmem, accesses a second; it verifies all it reads.
rate() { attempt rate_once "$@"; }
rate_once() {
    local name=$1
    shift
    local randmem=("$RANDMEM" --size "$region" --accesses "$accesses" --write-percent 0 --time)
    printf '+ %s\n' "$* ${randmem[*]}" >&2
    if ! "$@" "${randmem[@]}" >/dev/null 2>"$work/time"; then
        cat "$work/time" >&2
        return 1
    fi
    result "$name" "$(sed -n 's/^randmem: .*(\([0-9.]*\) ns each).*/\1/p' "$work/time" |
        awk '{ printf "%.1f", 1e9 / $1 }')"
}

# under_swap DEVICE NAME
under_swap() {
    swap_on "$1"
    rate "$2" in_group
    ran swapoff "$1"
}

touch_once() {
    ran "$VMRUN" --stats="$work/stats" --cache 4M --io "$1" --node rdma://$address \
        "$BENCH_BIN/touch" --mib 16 --passes 1 >"$work/touch"
}

one_fetch() {
    ib_read_lat -d rxe0 -s 4096 -n 3000 -p 18600 >/dev/null 2>&1 &
    sleep 1
    result ib_read_lat "$(ran ib_read_lat -d rxe0 -s 4096 -n 3000 -p 18600 $address 2>/dev/null |
        awk '$1 == 4096 { print $5 * 1000 }')"
    wait $!
    ran "$BENCH_BIN/reference" --reads 3000 --threads 1 $address |
        results reference1 latency_p50 latency_p99
    ran "$BENCH_BIN/reference" --reads 3000 --threads 2 $address |
        results reference2 latency_p50 latency_p99
    local how
    for how in thread inline; do
        attempt touch_once $how
        results "vmrun_$how" latency_ns.fetch.p50 latency_ns.fetch.p99 count.fetched \
            count.io_doorbells exits.wait_pte <"$work/stats"
        result "program_$how" \
            "$(calc "$(value fault_p50 "$work/touch") / $(value ticks_per_ns "$work/touch")")"
    done
}

one_swap() {
    rate swap_vmrun_thread "$VMRUN" --io thread --cache $cache --node rdma://$address
    rate swap_vmrun_inline "$VMRUN" --io inline --cache $cache --node rdma://$address
    under_swap /dev/nvme0n1 swap_nvmf
}

one_nbd() {
    rate nbd_vmrun_thread "$VMRUN" --io thread --cache $cache --node nbd://127.0.0.1/far
    rate nbd_vmrun_inline "$VMRUN" --io inline --cache $cache --node nbd://127.0.0.1/far
    under_swap /dev/nbd0 nbd_swap
}

one_bandwidth() {
    ran "$BENCH_BIN/reference" --reads 10000 --depth 64 $address | results reference mb_per_s
    ran "$BENCH_BIN/inflight" --reads 10000 --depth 64 bandwidth rdma://$address |
        results driver mb_per_s
}

one_demand() {
    ran "$BENCH_BIN/inflight" --reads 500 --depth 64 demand rdma://$address |
        results demand demand_idle_p50 demand_idle_p99 demand_busy_p50 demand_busy_p99 \
            prefetch_mb_per_s
}

one_cpu() {
    ran "$BENCH_BIN/inflight" --reads 20000 --watch "$memnode" bandwidth rdma://$address |
        results cpu watched_ms wall_ms
}

inside() {
    local run what
    mkdir -p "$work"
    groups_ready
    group_make $cache
    # No readahead: it would only cost on random accesses.
    echo 0 >/proc/sys/vm/page-cluster
    serve --size 512M --export swap=128M --export far=128M \
        --listen rdma://$address --listen nbd://127.0.0.1
    if wanted swap; then
        swap_nvmf 128
    fi
    if wanted nbd; then
        # memnode's export, by the client that Linux has.
        swap_nbd
    fi
    for ((run = 0; run < runs; run++)); do
        for what in ${only//,/ }; do
            quiet
            "one_$what"
        done
    done
}

# --- outside ---

# med KEY: median over the runs.
med() { awk -v k="$1" '$1 == "result" && $2 == k { print $3 }' "$scratch/results" | median; }

# ratio WHAT KEY1 KEY2 OPERATOR LIMIT: the ratio of the medians.
ratio() {
    verdict "$1" "$(calc "$(med "$2") / $(med "$3")" | awk '{ printf "%.2f", $1 }')" "$4" "$5"
}

table() {
    local key median least most
    printf '%-48s %12s %12s %12s\n' 'medians of '"$runs"' runs, host load '"$load" median least most
    awk '$1 == "result" { print $2 }' "$scratch/results" | awk '!seen[$1]++' | while read -r key; do
        awk -v k="$key" '$1 == "result" && $2 == k { print $3 }' "$scratch/results" |
            sort -g >"$scratch/one"
        median=$(median <"$scratch/one")
        least=$(head -1 "$scratch/one")
        most=$(tail -1 "$scratch/one")
        printf '%-48s %12s %12s %12s\n' "$key" "$median" "$least" "$most"
        record bench=nodes "what=$key" "median=$median" "least=$least" "most=$most"
    done
}

report() {
    table
    echo
    echo "fetch: ns.  reference1 posts and polls itself, reference2 has a thread for it as vmrun" \
        "has; vmrun: from kern's entry to its end, upper"
    echo "end of the bucket of --stats (1/8 octave); program: as touch measures it.  swap, nbd:" \
        "accesses a second of randmem."
    echo
    if wanted fetch; then
        ratio "page fetch p50, vmrun / two-thread reference" \
            vmrun_thread.latency_ns.fetch.p50 reference2.latency_p50 '<=' 1.3
        ratio "page fetch p50, vmrun / ib_read_lat" \
            vmrun_thread.latency_ns.fetch.p50 ib_read_lat '<=' 1.3
    fi
    if wanted swap; then
        ratio "randmem, vmrun over rdma / swap on NVMe-oF RDMA" swap_vmrun_thread swap_nvmf '>=' 3
    fi
    if wanted nbd; then
        ratio "randmem, vmrun over nbd / swap on nbd-client" nbd_vmrun_thread nbd_swap '>=' 2
    fi
    if wanted bandwidth; then
        ratio "sequential reads, 64 in flight, driver / reference" \
            driver.mb_per_s reference.mb_per_s '>=' 0.8
    fi
    if wanted demand; then
        ratio "demand read p50, beside 64 prefetches / alone" \
            demand.demand_busy_p50 demand.demand_idle_p50 '<=' 2
    fi
    if wanted cpu; then
        ratio "processor time of memnode / time it was read from by RDMA" \
            cpu.watched_ms cpu.wall_ms '<=' 0.01
    fi
}

options "runs only one-thread!" "$@"
for word in ${only//,/ }; do
    [[ ,fetch,swap,nbd,bandwidth,demand,cpu, == *,$word,* ]] || usage
done
if [ -n "$inside" ]; then
    inside
    exit
fi
for program in ib_read_lat nbd-client; do
    command -v $program >/dev/null ||
        die "there is no $program: install it (Debian: perftest nbd-client)"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
read -r load _ </proc/loadavg
if awk "BEGIN { exit !($load > 1) }"; then
    echo "nodes.sh: this machine is busy (load average $load): two CPUs will not keep step, and" \
        "figures by the clock will be wrong" >&2
fi
# shellcheck disable=SC2086 # nothing, or one word
in_lab --timeout 1800 "${lab[@]}" $one_thread --env MEMNODE="$MEMNODE" -- \
    bench/nodes.sh --runs "$runs" --only "$only" --inside lab >"$scratch/results"
report
finish
