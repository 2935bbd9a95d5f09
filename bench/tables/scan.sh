#!/bin/bash
# One tier of the table of orders: examples/scan in six orders at two local shares, by policy of
# prefetching, beside a bare loop over the same device and beside Linux's swap on it. Run by
# bench/run, in a lab.
#
#   bench/tables/scan.sh --figures DIR --tier TIER [--quick] [--here] [--size MIB] [--io WORDS]
#                        [--systems WORDS] [--orders WORDS] [--policies WORDS] [--clusters WORDS]
#                        [--shares WORDS] [--touch page|line]
#
#   TIER      mem, wire, rdma, nbd, disk, or a node's URL
#   --systems WORDS of: vmrun reference swap, with commas (default: all that the tier has)
#   --io WORDS      of: inline thread
#
# A figure is ns a page of the second pass: instructions, in lab --icount. Both sides get the same
# memory.max, vmrun with all it needs beside its cache.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/../.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

tier='' size=64 io=inline,thread touch=page systems=vmrun,reference,swap figures='' quick=''
orders=sequential,reverse,stride,streams,random,zipf
shares=25,12.5 policies=none,readahead,trend,auto clusters=0,1,2,3,4,5

wanted() { [[ ,$2, == *,$1,* ]]; }

# The options of scan for an order.
order_options() {
    case $1 in
    stride) echo --stride 7 ;;
    streams) echo --streams 4 ;;
    *) echo --"$1" ;;
    esac
}

budget() { awk "BEGIN { printf \"%d\", $size * 1048576 * $1 / 100 }"; }

# The program, for the order of the loop.
set_program() {
    local options
    read -r -a options < <(order_options "$order")
    program=("$EXAMPLES/scan" --size "${size}M" --passes 2 --touch "$touch" --time
        "${options[@]}")
}

# took KEY=VALUE...: the figure of the last run.
took() {
    local value fill keys=(table=scan "tier=$tier" "share=$share" "order=$order" \
        "size_mib=$size" "touch=$touch" "$@" "command=$run_command")
    value=$(sed -n 's/^scan: pass 2 .*(\([0-9.]*\) ns a page.*/\1/p' "$work/err")
    fill=$(sed -n 's/^scan: fill .*(\([0-9.]*\) ns a page.*/\1/p' "$work/err")
    if [ -n "$run_why" ] || [ -z "$value" ]; then
        not_measured "${run_why:-no time}" "${keys[@]}"
    else
        record "${keys[@]}" what=page unit=ns "value=$value" "fill=$fill" \
            "budget=$(budget "$share")" "peak=$run_peak"
    fi
}

# under_vmrun URL
under_vmrun() {
    local url=$1 how policy program
    set_program
    for how in ${io//,/ }; do
        # shellcheck disable=SC2154 # set_program sets it
        for policy in ${policies//,/ }; do
            # The guest reads memory tiers itself, and prefetches only where there is a wire.
            [[ $tier != mem && $tier != wire || $how = inline ]] || continue
            [[ $tier != mem || $policy = none ]] || continue
            vmrun_run "$(budget "$share")" --io "$how" --prefetch "$policy" --node "$url" -- \
                "${program[@]}"
            took system=vmrun "io=$how" "policy=$policy" "cache_kib=$cache" "stats=$run_stats"
        done
    done
}

# under_swap NAME: on the device, which is swapped on.
under_swap() {
    local cluster program
    set_program
    for cluster in ${clusters//,/ }; do
        echo "$cluster" >/proc/sys/vm/page-cluster
        run "$(budget "$share")" "${program[@]}"
        took system=swap "device=$1" "cluster=$cluster"
    done
}

# The program's own work, without far memory.
natively() {
    local program
    set_program
    run max "${program[@]}"
    took system=native
}

vmrun_table() {
    warm_up --node "$1"
    each_run under_vmrun "$1"
}

each_run() {
    local share order
    for share in ${shares//,/ }; do
        for order in ${orders//,/ }; do
            "$@"
        done
    done
}

swap_table() {
    local device
    if ! "swap_$1" $((2 * size)); then
        not_measured "no such device in this machine" table=scan "tier=$tier" system=swap \
            "device=$1" "size_mib=$size"
        return
    fi
    swap_on "$device"
    each_run under_swap "$1"
    ran swapoff "$device"
}

reference() {
    local program value
    for depth in 1 64; do
        program=("$BENCH_BIN/reference" --reads 10000 --depth "$depth" --threads 1 "$address")
        run max "${program[@]}"
        value=$(awk '
            $1 == "mb_per_s" { print 4096e3 / $2 }
            $1 == "latency_p50" { print $2 }' "$work/out")
        record table=scan "tier=$tier" system=reference "depth=$depth" what=page unit=ns \
            "value=$value" "command=$run_command"
    done
}

options "figures tier size touch io systems orders policies clusters shares quick! here!" "$@"
if [ -z "$figures" ] || [ -z "$tier" ]; then
    usage
fi
# A disk's pages are moved by the thread.
[ "$tier" != disk ] || io=thread
if [ -n "$quick" ]; then
    size=32 shares=25 clusters=0,3
fi
figures "$figures"
machine_ready table=scan "tier=$tier"
serve_tier "$tier" $((2 * size))
share=100
for order in ${orders//,/ }; do
    natively
done
[ "$tier" != rdma ] || ! wanted reference "$systems" || reference
if wanted vmrun "$systems"; then
    if [ -n "$why_no_tier" ]; then
        not_measured "$why_no_tier" table=scan "tier=$tier" system=vmrun
    else
        vmrun_table "$url"
    fi
fi
if wanted swap "$systems"; then
    for name in $(swaps_of "$tier"); do
        swap_table "$name"
    done
fi
