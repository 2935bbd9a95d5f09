# What programs run on when they are measured: memory nodes, devices for Linux's swap, a memory
# control group; and one run of a program, with what is known of it afterwards. For the inside of a
# lab, or a machine that is measured itself: needs root, but for vmrun alone. Sourced after lib.sh.
# shellcheck shell=bash

MEMNODE=$(realpath "${MEMNODE:-build/memnode/memnode}")
EXAMPLES=$(realpath "${EXAMPLES:-$BENCH_BIN/../examples}")
work=${BENCH_WORK:-/run/bench}
group=/sys/fs/cgroup/bench
# shellcheck disable=SC2034 # lab --rdma has it
address=10.77.0.1
memnode=

# Set by --here: this is no lab, so nothing of the machine is changed.
here=''

# machine_ready KEY=VALUE...: memory control groups and Linux's newest replacement policy, where
# they may be had; the keys are for what cannot be measured without.
machine_ready() {
    if [ -n "$here" ]; then
        no_groups=yes
        not_measured 'Linux swap needs root and changes the machine: it is compared in the lab' \
            "$@" system=swap
        return
    fi
    groups_ready || no_groups=yes
    echo y >/sys/kernel/mm/lru_gen/enabled 2>/dev/null || true
}

# --- memory control groups ---

groups_ready() {
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null &&
        grep -qw memory /sys/fs/cgroup/cgroup.subtree_control
}

# group_make BYTES: a new memory control group, with that memory.max.
group_make() {
    [ ! -d $group ] || rmdir $group
    mkdir $group
    echo "$1" >$group/memory.max
}

in_group() {
    if [ -n "${no_groups:-}" ]; then
        /usr/bin/time -q -o "$work/peak" -f %M "$@"
    else
        sh -c 'echo $$ >'$group'/cgroup.procs; exec "$@"' sh "$@"
    fi
}

# of_group FILE KEY: a number that the group's file has, 0 if none.
of_group() { awk -v key="$2" '$1 == key { v = $2 } END { print v + 0 }' "$group/$1"; }

# --- one run ---

# now_ns: sets now. By the clock; or with BENCH_COUNTED (bench/run sets it for lab --icount, which
# has one CPU) without what the CPU was idle, in steps of 10 ms: there the clock jumps while files
# come from the host and while KVM waits for RCU, and all that devices do is done by the CPU.
now_ns() {
    local up idle
    if [ -n "${BENCH_COUNTED:-}" ]; then
        read -r up idle </proc/uptime
        now=$(((10#${up/./} - 10#${idle/./}) * 10000000))
    else
        now=$((${EPOCHREALTIME/./} * 1000))
    fi
}

# run LIMIT COMMAND...: in a group of its own with that memory.max (bytes, or max); without one
# where there can be none (no_groups). Output is in $work/out and $work/err. Sets run_status, run_ns
# (from start to end, by now_ns), run_peak (bytes; 0 if it is not known), run_command, and
# run_why, what was wrong. run_via is a function that starts the command in_group, if it is more
# than that.
run_via=in_group
run() {
    local limit=$1 start
    shift
    run_status=0 run_peak=0 run_why='' run_command=''
    [ -n "${no_groups:-}" ] || group_make "$limit"
    run_command=${*//"$figures/"/}
    run_command=${run_command//"$PWD/"/}
    printf '+ %s\n' "$run_command" >&2
    quiet
    now_ns
    start=$now
    # Through a pipe: what the group writes into memory would be the group's.
    set +e
    $run_via "$@" 2>"$work/err" | cat >"$work/out"
    run_status=${PIPESTATUS[0]}
    set -e
    now_ns
    # shellcheck disable=SC2034 # for the caller
    run_ns=$((now - start))
    if [ -n "${no_groups:-}" ]; then
        # Of the largest process.
        run_peak=$(($(tail -n 1 "$work/peak") << 10))
    else
        run_peak=$(<$group/memory.peak)
        [ "$(of_group memory.events oom_kill)" = 0 ] ||
            run_why="out of memory in $((limit >> 10)) KiB"
    fi
    [ $run_status = 0 ] || run_why=${run_why:-$(run_message)}
}

# Why the last run failed, in a line.
run_message() {
    local said
    said=$(grep -v '^$' "$work/err" | tail -n 1 | cut -c 1-160)
    echo "status $run_status${said:+: $said}"
}

# --- figures ---

# figures DIR: record() writes to DIR/figures.jsonl from now on. Statistics of vmrun go to files
# beside it, which the figures name.
figures() {
    figures=$1
    # shellcheck disable=SC2034 # record() looks at it
    json_file=$figures/figures.jsonl
    run_count=0
    mkdir -p "$work"
}

# A file for the statistics of the next run.
next_stats() {
    run_count=$((run_count + 1))
    run_stats=$run_count.json
}

# not_measured REASON KEY=VALUE...
not_measured() {
    local reason=$1
    shift
    echo "not measured: $reason ($*)" >&2
    record "$@" "reason=$reason"
}

# --- vmrun ---

# vmrun_run BUDGET OPTION... -- PROGRAM...: with a cache (cache, in KiB) such that vmrun with all
# that it needs beside it (its own text and heap, page tables, KVM's) fits in a group of BUDGET
# bytes. At first a small program's need is taken for it (warm_up). If that is too little, a run
# without a limit shows the need, which is remembered until vmrun_forget. Statistics go to
# run_stats.
vmrun_least=$((3072 << 10))
vmrun_forget() { vmrun_needs=$vmrun_least; }
vmrun_forget
# How many run at once and share the budget.
vmrun_number=1
# Under lab --icount the clock runs while files come from the host.
vmrun_patience=(--connect-timeout 60 --timeout 60)
vmrun_run() {
    local budget=$1 options=() limit tier=0 tries=0 command shown
    shift
    while [ "$1" != -- ]; do
        # A memory tier is the group's too, and is none of the budget.
        if [[ $1 =~ ^mem:([0-9]+)M ]]; then
            tier=$((BASH_REMATCH[1] << 20))
        fi
        options+=("$1")
        shift
    done
    shift
    limit=$((budget + tier))
    while :; do
        cache=$(((budget / vmrun_number - vmrun_needs) >> 10))
        if [ "$cache" -lt 1024 ]; then
            run_why="vmrun needs $((vmrun_needs >> 10)) KiB of $((budget >> 10)) beside its cache"
            return
        fi
        next_stats
        command=("$VMRUN" --no-config --stats="$figures/$run_stats" --cache "${cache}K"
            "${vmrun_patience[@]}" "${options[@]}" "$@")
        run $limit "${command[@]}"
        if [ $tier != 0 ]; then
            # The tier's part of the peak is not known apart, so the program's share is taken as it
            # is.
            # shellcheck disable=SC2034 # for the caller
            run_peak=0
        fi
        # Seen in one run of fifty with --icount: a time-out though both ends were there.
        if [[ $run_why == *'does not answer'* ]] && [ $tries -lt 2 ]; then
            tries=$((tries + 1))
            echo "once more: $run_why" >&2
            continue
        fi
        [[ $run_why == 'out of memory'* ]] || return 0
        run max "${command[@]}"
        shown=$(((run_peak - tier) / vmrun_number - (cache << 10)))
        vmrun_needs=$((vmrun_needs + (64 << 10)))
        [ $shown -lt $vmrun_needs ] || vmrun_needs=$shown
    done
}

# warm_up OPTION... : runs vmrun in a group without a limit, so that the pages of the files it needs
# are there, and charged to none of the groups that count. A second run tells what it needs beside
# its cache at least, unless its tier is memory of the group.
warm_up() {
    for _ in first second; do
        run max "$VMRUN" --no-config --cache 8M "${vmrun_patience[@]}" "$@" \
            "$EXAMPLES/scan" --size 12M
        [ -z "$run_why" ] || echo "the first runs of vmrun: $run_why" >&2
    done
    if [[ -z $run_why && -z ${no_groups:-} && $* != *mem:* ]]; then
        vmrun_least=$((run_peak - (8 << 20)))
        echo "vmrun needs at least $((vmrun_least >> 10)) KiB beside its cache" >&2
        vmrun_forget
    fi
}

# --- memory nodes ---

# serve OPTION...: a memnode on this machine, for RDMA and NBD.
serve() {
    ran "$MEMNODE" --hugepages none "$@" 2>"$work/memnode.log" &
    memnode=$!
    for _ in {1..100}; do
        grep -q serving "$work/memnode.log" && return
        sleep 0.1
    done
    die "memnode does not serve: $(cat "$work/memnode.log")"
}

# Processor time of a process and of its threads so far, in clock ticks of 10 ms: user and system.
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }

# Waits until memnode has taken back, and cleared, what the last client had, which costs processor
# time.
quiet() {
    local before=-1 now
    [ -n "$memnode" ] || return 0
    for _ in {1..100}; do
        now=$(ticks "$memnode")
        [ "$now" = "$before" ] && return
        before=$now
        sleep 0.2
    done
}

# serve_tier TIER MIB: starts what MIB of far memory and as much swap need. Sets url, and
# why_no_tier if this vmrun or machine does not have it.
serve_tier() {
    why_no_tier=
    # shellcheck disable=SC2034 # for the caller
    case $1 in
    mem) url=mem:$((2 * $2))M ;;
    wire)
        url="mem:$((2 * $2))M?latency=2400&bandwidth=12.5G"
        "$VMRUN" --no-config --node "$url" /bin/true >/dev/null 2>"$work/err" ||
            why_no_tier="not in this vmrun: $(head -n 1 "$work/err")"
        ;;
    rdma)
        serve --size $((4 * $2))M --grace 2 --insecure --listen rdma://$address
        url=rdma://$address
        ;;
    nbd)
        serve --size $((3 * $2))M --grace 2 --export swap="$2"M --export far="$2"M \
            --listen nbd://127.0.0.1
        url=nbd://127.0.0.1/far
        ;;
    # The device that Linux's swap gets, when vmrun's turn is over.
    disk)
        if swap_disk; then
            url="file:$device?overwrite=yes"
        else
            why_no_tier='this lab has no second disk'
        fi
        ;;
    *) url=$1 ;;
    esac
}

# The devices for swap that are compared with a tier.
swaps_of() {
    [ -z "$here" ] || return 0
    case $1 in
    mem) echo brd zram ;;
    rdma) echo nvmf ;;
    nbd) echo nbd ;;
    disk) echo disk ;;
    esac
}

# --- devices for swap: each function makes one of MIB and sets device ---

swap_brd() {
    ran modprobe brd rd_nr=1 rd_size=$(($1 * 1024))
    device=/dev/ram0
}

swap_zram() {
    ran modprobe zram
    echo "$1M" >/sys/block/zram0/disksize
    device=/dev/zram0
}

# The second disk of the lab's machine, if it has one.
swap_disk() {
    device=/dev/vda
    ran modprobe virtio_blk
    for _ in {1..20}; do
        [ ! -b $device ] || return 0
        sleep 0.1
    done
    return 1
}

# Of memnode's export `swap`, by the client that Linux has.
swap_nbd() {
    modprobe nbd
    ran nbd-client -b 4096 -N swap 127.0.0.1 10809 /dev/nbd0 >&2
    device=/dev/nbd0
}

# Over NVMe-oF, with RDMA to this same machine, where a RAM disk of the kernel's is served.
swap_nvmf() {
    local nvmet=/sys/kernel/config/nvmet
    mount -t configfs none /sys/kernel/config 2>/dev/null || true
    modprobe -a nvmet-rdma nvme-rdma && modprobe brd rd_nr=1 rd_size=$(($1 * 1024))
    mkdir $nvmet/subsystems/bench
    echo 1 >$nvmet/subsystems/bench/attr_allow_any_host
    mkdir $nvmet/subsystems/bench/namespaces/1
    echo /dev/ram0 >$nvmet/subsystems/bench/namespaces/1/device_path
    echo 1 >$nvmet/subsystems/bench/namespaces/1/enable
    mkdir $nvmet/ports/1
    echo rdma >$nvmet/ports/1/addr_trtype
    echo ipv4 >$nvmet/ports/1/addr_adrfam
    echo $address >$nvmet/ports/1/addr_traddr
    echo 4420 >$nvmet/ports/1/addr_trsvcid
    ln -s $nvmet/subsystems/bench $nvmet/ports/1/subsystems/bench
    # What `nvme connect` writes.
    printf '+ %s\n' "nvme connect -t rdma -a $address -s 4420 -n bench" >&2
    echo "transport=rdma,traddr=$address,trsvcid=4420,nqn=bench" >/dev/nvme-fabrics
    for _ in {1..50}; do
        [ -b /dev/nvme0n1 ] && break
        sleep 0.1
    done
    device=/dev/nvme0n1
}

swap_on() {
    ran mkswap "$1" >/dev/null 2>&1
    ran swapon "$1"
}
