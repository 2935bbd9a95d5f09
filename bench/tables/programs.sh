#!/bin/bash
# Run time of programs against how much of their memory is local, on one tier, beside Linux's swap
# on the same device. Run by bench/run, in a lab.
#
#   bench/tables/programs.sh --figures DIR --tier TIER [--quick] [--here]
#                            [--programs WORDS] [--shares WORDS] [--policies WORDS]
#                            [--clusters WORDS] [--systems WORDS] [--table NAME]
#
#   TIER   mem, wire, rdma, nbd, disk, or a node's URL
#
# All local is what the program takes natively without a limit: the peak of its memory control
# group. A share of it is the memory.max of either side, vmrun with all it needs beside its cache. A
# figure is ns of the whole run, starting included; of redis, of its requests (see now_ns).
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$(realpath "$0")")/../.."
# shellcheck source=bench/lib.sh
. bench/lib.sh
# shellcheck source=bench/systems.sh
. bench/systems.sh

tier='' figures='' quick='' table=programs systems=native,vmrun,swap
programs=quicksort,two-sorts,randmem,scan,kmeans,graph,taxi,barnes,ycsb-b,sort,dict,json,sqlite,get
programs+=,lrange
shares=100,50,25,12.5 policies=auto,none clusters=0,3
python=/usr/bin/python3

wanted() { [[ ,$2, == *,$1,* ]]; }

# --- the programs ---

dict_py='
d = {}
for i in range(ROWS): d[i * 7919 % 1000003] = str(i)
s = 0
for i in range(0, 1000003, 3):
    v = d.get(i)
    if v is not None: s += len(v)
print(len(d), s)'
json_py='
import json
rows = [{"id": i, "name": "user %d" % i, "tags": [i % 7, i % 11, "t%d" % (i % 13)]}
        for i in range(ROWS)]
text = json.dumps(rows)
print(len(text), json.loads(text) == rows)'

# set_program NAME: sets program, its command, and how it is run if that is more than the command.
# What it prints depends on nothing else, so it is compared with the native run's.
set_program() {
    local mib=48
    [ -z "$quick" ] || mib=16
    run_via=in_group vmrun_number=1
    case $1 in
    quicksort) program=("$EXAMPLES/quicksort" "${mib}M") ;;
    two-sorts)
        # Each has a cache of its own; without a group, peak and budget are of one.
        run_via=two_sorts
        [ -n "${no_groups:-}" ] || vmrun_number=2
        program=("$EXAMPLES/quicksort" $((mib / 2))M)
        ;;
    randmem) program=("$EXAMPLES/randmem" --size "${mib}M" --accesses $((mib * 512)) --zipf) ;;
    scan) program=("$EXAMPLES/scan" --size "${mib}M" --passes 2) ;;
    kmeans) program=("$EXAMPLES/kmeans" --size "${mib}M" --iterations 2) ;;
    graph)
        program=("$EXAMPLES/graph" --scale 18 --sources 1)
        [ -z "$quick" ] || program=("$EXAMPLES/graph" --scale 16 --sources 1)
        ;;
    taxi) program=("$EXAMPLES/taxi" --rows $((mib * 36))K) ;;
    barnes) program=("$EXAMPLES/barnes" --size "${mib}M" --steps 1 --theta 0.9) ;;
    ycsb-[abcd])
        program=("$EXAMPLES/ycsb" --workload "$(tr a-d A-D <<<"${1#ycsb-}")" --zipf
            --keys "${mib}K" --operations "${mib}K" --value-size 1016 --threads 1)
        ;;
    sort)
        [ -e "$work/text" ] || base64 -w 31 /dev/urandom | head -c $((mib * 400))K >"$work/text"
        program=(sort --parallel=1 -S 512M "$work/text")
        ;;
    dict) program=("$python" -S -c "${dict_py//ROWS/$((mib * 6000))}") ;;
    json) program=("$python" -S -c "${json_py//ROWS/$((mib * 1250))}") ;;
    sqlite) program=(sqlite3 :memory: ".param set :rows $((mib * 7000))" ".read examples/join.sql") ;;
    get | lrange)
        run_via=redis_session redis_test=$1 redis_values=$((mib * 240))
        program=(redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --daemonize no)
        ;;
    *) die "there is no program $1 in this table" ;;
    esac
}

# two_sorts [RUNNER...] PROGRAM SIZE
two_sorts() {
    local runner=("${@:1:$#-2}")
    in_group env QUICKSORT="${*: -2:1}" examples/two-sorts.sh "${runner[@]}" -- "${*: -1}"
}

redis() { redis-cli -e -s "$work/redis.sock" "$@"; }

# The server, in the group, and its client, outside: fills it with values of 4 KiB, of which no two
# are alike but which compress, then sends two requests for each key. Prints `ns N` for the requests
# alone.
redis_session() {
    local server start status=0 fill request
    in_group "$@" >"$work/redis.log" 2>&1 &
    server=$!
    for _ in {1..600}; do
        [ "$(redis ping 2>/dev/null)" != PONG ] || break
        sleep 0.1
    done
    if [ "$redis_test" = get ]; then
        fill="redis.call('set', k, v)"
        request=(GET key:__rand_int__)
    else
        # Lists of four values.
        fill="redis.call('rpush', string.format('key:%012d', (i - i % 4) / 4), v)"
        request=(LRANGE key:__rand_int__ 0 3)
    fi
    # In parts, as redis complains of a script that takes long.
    for ((start = 0; start < redis_values; start += 1000)); do
        redis eval "for i = $start, math.min($start + 1000, $redis_values) - 1 do
            local k, v = string.format('key:%012d', i), string.rep(string.format('%08d', i), 512)
            $fill end" 0 >/dev/null || status=1
    done
    [ "$redis_test" = get ] && keys=$redis_values || keys=$((redis_values / 4))
    now_ns
    start=$now
    redis-benchmark -s "$work/redis.sock" -q -c 4 -n $((keys * 2)) -r "$keys" \
        "${request[@]}" >/dev/null || status=1
    now_ns
    start=$((now - start))
    redis shutdown nosave >/dev/null 2>&1 || true
    wait $server || status=$?
    echo "requests $((keys * 2))"
    echo "ns $start" >&2
    return $status
}

# --- the runs ---

budget() { awk "BEGIN { printf \"%d\", $all_local * $1 / 100 }"; }

# took KEY=VALUE...: the figure of the last run of the program, if its output is right.
took() {
    local ns=$run_ns keys=("table=$table" "tier=$tier" "program=$name" "share=$share" "$@"
        "command=$run_command")
    if [ -z "$run_why" ] && ! cmp -s "$work/out" "$work/right"; then
        run_why='its output differs from the native one'
    fi
    if [ -n "$run_why" ]; then
        not_measured "$run_why" "${keys[@]}"
        return
    fi
    if [ "$run_via" = redis_session ]; then
        ns=$(value ns "$work/err")
    fi
    record "${keys[@]}" what=run unit=ns "value=$ns" "all_local=$all_local" "peak=$run_peak"
}

natively() {
    local program share=100
    set_program "$name"
    # The first run brings the files in.
    for _ in first second; do
        run max "${program[@]}"
        cp "$work/out" "$work/right"
    done
    all_local=$run_peak
    took system=native
    [ -z "$run_why" ]
}

under_vmrun() {
    local share policy program limit
    set_program "$name"
    vmrun_forget
    for policy in ${policies//,/ }; do
        # Where a fault copies the page itself there is nothing to prefetch.
        [[ $tier != mem || $policy = auto ]] || continue
        for share in ${shares//,/ }; do
            limit=$(budget "$share")
            # All is local where there is room beside it for vmrun and its reserve of frames.
            [ "$share" != 100 ] || limit=$((all_local * 5 / 4 + (8 << 20)))
            vmrun_run "$limit" --prefetch "$policy" --node "$url" -- "${program[@]}"
            took system=vmrun "policy=$policy" "cache_kib=$cache" "stats=$run_stats"
        done
    done
}

under_swap() {
    local share cluster program
    set_program "$name"
    for cluster in ${clusters//,/ }; do
        echo "$cluster" >/proc/sys/vm/page-cluster
        for share in ${shares//,/ }; do
            [ "$share" != 100 ] || continue         # is the native run
            run "$(budget "$share")" "${program[@]}"
            took system=swap "device=$1" "cluster=$cluster"
        done
    done
}

options "figures table tier programs shares policies clusters systems quick! here!" "$@"
if [ -z "$figures" ] || [ -z "$tier" ]; then
    usage
fi
[ -z "$quick" ] || shares=100,50
figures "$figures"
machine_ready "table=$table" "tier=$tier"
serve_tier "$tier" 256
declare -A device_of
if wanted swap "$systems"; then
    for swap in $(swaps_of "$tier"); do
        device=
        if "swap_$swap" 192; then
            device_of[$swap]=$device
        else
            not_measured "no such device in this machine" "table=$table" "tier=$tier" \
                system=swap "device=$swap"
        fi
    done
fi
[ -n "$why_no_tier" ] || warm_up --node "$url"
for name in ${programs//,/ }; do
    natively || continue
    if [ -n "$why_no_tier" ]; then
        not_measured "$why_no_tier" "table=$table" "tier=$tier" "program=$name" system=vmrun
    elif wanted vmrun "$systems"; then
        under_vmrun
    fi
    for swap in "${!device_of[@]}"; do
        swap_on "${device_of[$swap]}"
        under_swap "$swap"
        ran swapoff "${device_of[$swap]}"
    done
done
