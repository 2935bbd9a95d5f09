#!/bin/bash
# What a program notices when a node that has copies of its pages fails: seconds without progress,
# throughput before, while the node is away and while copies are made up for, and when all is whole.
#
#   bench/replicas.sh [--runs N] [--only WORD,...] [--tree] [--size MIB] [--stop S] [--rate MB]
#                     [--rdma] [--json FILE]
#
#   --runs N     of each fault (default 5)
#   --only WORDS of: kill stop unplug restart (default: all)
#   --tree       twelve processes instead of one, of which one is stopped while there is a fault
#   --size MIB   memory of all processes, a quarter of it local (default 192, in the lab 16, with
#                --tree 24, which is the least: 2 MiB a process)
#   --stop S     how long a node is silent (default 15)
#   --rate MB    --rebuild-rate, MB a second of all processes, at least 1 (default 100)
#   --rdma       in the lab, over RDMA: a node on the program's machine, and two others. There a
#                node is stopped with its machine, and unplugged at its port. A memnode that is
#                restarted or killed is on the program's machine
#
# Three nodes, --replicas 2. The program is randmem, half of whose accesses write, and which
# verifies all words in the end; each 20 ms it says how far it is and how long its slowest access
# took. When all copies are there again, another node is lost for good: the program must survive
# that too.
# A loop beside it sleeps for 5 ms again and again; where that takes much longer, the machine was
# busy: the longest such gap is in a column, and so is how many threads of the machine wanted to run
# in the mean, of which three or four are of the program and its nodes. Run it on an idle machine.
set -uo pipefail
cd "$(dirname "$(realpath "$0")")/.." || exit
here=$PWD/test/faults
# shellcheck source=test/faults/common.sh
. test/faults/common.sh
make_room
# shellcheck source=test/faults/words.sh
. test/faults/words.sh
# shellcheck source=test/faults/unkind.sh
. test/faults/unkind.sh
# shellcheck source=bench/lib.sh
. bench/lib.sh

vmrun=$VMRUN
# shellcheck disable=SC2034 # for common.sh
memnode=$(realpath "${MEMNODE:-build/memnode/memnode}")
RANDMEM=$(realpath "$BENCH_BIN/../examples/randmem")
runs=5 size='' stop=15 rate=100 tree='' rdma='' only=kill,stop,unplug,restart
options "runs only tree! size stop rate rdma!" "$@"
for word in ${only//,/ }; do
    [[ ,kill,stop,unplug,restart, == *,$word,* ]] || usage
done
small=16
[ -z "$tree" ] || small=24
[ -z "$tree" ] || [ "${size:-24}" -ge 24 ] || usage
if [ -n "$rdma" ] && [ -z "$inside" ]; then
    [ -z "$json_file" ] || rw=(--rw "$(dirname "$json_file")")
    in_lab --one-thread --memnodes 3 --memnode-size 256M --timeout 14000 "${rw[@]}" \
        --env MEMNODE="$memnode" -- bench/replicas.sh --runs "$runs" --only "$only" \
        --size "${size:-$small}" --stop "$stop" --rate "$rate" --rdma ${tree:+--tree} --inside lab \
        ${json_file:+--json "$json_file"}
    exit
fi
: "${size:=192}"
silent=1000                 # ms of silence after which a node is suspected
gap=1                       # seconds between processes that notice one fault
[ -z "$rdma" ] || silent=500 gap=3
as=(setsid)                 # so that the processes of a tree can be found

monotonic() {
    perl -MTime::HiRes=clock_gettime,CLOCK_MONOTONIC -e \
        'printf "%.4f\n", clock_gettime(CLOCK_MONOTONIC)'
}

# --- nodes and faults: m fails, and then n ---

nodes_up() {
    local each=$((size * 2))M
    if [ -n "$rdma" ]; then
        case $1 in
        stop | unplug) first=rdma://m1 ;;
        *)
            start_memnode m --listen rdma://10.77.0.1 --insecure --size 256M || return
            first=rdma://10.77.0.1
            ;;
        esac
        nodes=(--node "$first?size=$each" --node "rdma://m2?size=$each"
            --node "rdma://m3?size=$each")
        return
    fi
    for n in m n o; do
        serve $n --size $((size * 2 + 2))M || return
    done
    nodes=(--node "$(at m $each)" --node "$(at n $each)" --node "$(at o $each)")
    [ "$1" != unplug ] || proxy 1 || return
    [ "$1" != unplug ] || nodes[1]=$(through $each)
}

lab_fault() { echo "$1" >/run/lab/fault; }

fault_begins() {
    case ${rdma:+rdma-}$1 in
    kill | rdma-kill) kill_node m ;;
    restart)
        kill_node m
        serve m --size $((size * 2 + 2))M
        ;;
    rdma-restart)
        kill_node m
        start_memnode m --listen rdma://10.77.0.1 --insecure --size 256M
        ;;
    stop) kill -STOP "${node[m]}" ;;
    unplug) kill -STOP "${node[proxy]}" ;;
    rdma-stop) lab_fault stop:m1 ;;
    rdma-unplug) lab_fault unplug:m1 ;;
    esac
}

fault_ends() {
    case ${rdma:+rdma-}$1 in
    stop) kill -CONT "${node[m]}" ;;
    unplug) kill -CONT "${node[proxy]}" ;;
    rdma-stop) lab_fault cont:m1 ;;
    rdma-unplug) lab_fault plug:m1 ;;
    esac
}

second_loss() { if [ -n "$rdma" ]; then lab_fault unplug:m2; else kill_node n; fi; }
second_ends() { [ -z "$rdma" ] || lab_fault plug:m2; }

# --- one run ---

# watch FILE PID: its lines with the time before them, where this loop did not run for 20 ms longer
# than it wanted, and how many threads can run, until the process has ended.
watch() {
    perl -MTime::HiRes=clock_gettime,CLOCK_MONOTONIC,sleep -e '
        my ($file, $pid) = @ARGV;
        open my $f, "<", $file or die;
        my ($last, $line, $alive) = (clock_gettime(CLOCK_MONOTONIC), "", 1);
        $| = 1;
        while ($alive) {
            $alive = kill 0, $pid;
            sleep 0.005;
            my $now = clock_gettime(CLOCK_MONOTONIC);
            printf "%.4f busy %.0f\n", $now, 1000 * ($now - $last) if $now - $last > 0.025;
            $last = $now;
            if (++$looks % 10 == 0 && open my $l, "<", "/proc/loadavg") {
                printf "%.4f runnable %d\n", $now, (split m{[ /]}, <$l>)[3];
            }
            seek $f, 0, 1;
            while (defined(my $part = <$f>)) {
                $line .= $part;
                next if $part !~ /\n$/;
                printf "%.4f %s", $now, $line;
                $line = "";
            }
        }' "$1" "$2" >"$WORK/times" &
    node[watch]=$!
}

stopped=''
begin() {
    local each=$((size / 12)) one
    local randmem=("$RANDMEM" --write-percent 50 --accesses 1G --time --seed "$1")
    if [ -z "$tree" ]; then
        run_program it --cache $((size / 4))M --replicas 2 --rebuild-rate "$rate"M \
            "${nodes[@]}" -- "${randmem[@]}" --size "$size"M --timeline 20
    else
        one="${randmem[*]} --size ${each}M"
        # The shell is one of the twelve.
        run_program it --cache $((each * 1024 / 4))K --replicas 2 --rebuild-rate "$rate"M \
            "${nodes[@]}" -- "$BASH" -c "trap '' TERM; pids= ; for i in 1 2 3 4 5 6 7 8 9 10; do
                $one & pids+=\" \$!\"; done; $one --timeline 20; all=\$?
                for i in \$pids; do wait \$i || all=\$?; done; exit \$all"
    fi
    watch "$WORK/it.err" "${program[it]}"
}
processes() { if [ -z "$tree" ]; then echo 1; else echo 11; fi; }
gone() { ! kill -0 "${program[it]}" 2>/dev/null; }
# await_it SECONDS COMMAND...: until it is true, or the program has ended.
await_it() {
    local seconds=$1
    shift
    await "$seconds" it_or_gone "$@" && "$@"
}
it_or_gone() { "$@" || gone; }
filled() { [ "$(grep -c 'randmem: fill' "$WORK/it.err")" -ge "$(processes)" ]; }
stop_one() {
    [ -n "$tree" ] || return 0
    # Not the process that says how far it is, which was the last to be started.
    stopped=$(pgrep -s "${program[it]}" | sed -n 4p)
    kill -STOP "$stopped"
}
resume() { [ -z "$stopped" ] || kill -CONT "$stopped"; stopped=''; }

# whole_since LINE: vmrun has noticed what happened since then, and says that all is there. Of a
# tree that is said once, while some of its processes may not have noticed yet.
whole_since() {
    local words='have their copies again'
    [ -z "$tree" ] || words='have the copies of all processes again'
    awk -v from="$1" -v words="$words" -v tree="$tree" 'NR <= from { next }
        /it answers again|new copies on other nodes/ { noticed = 1; whole = whole && tree }
        $0 ~ words { whole = noticed }
        END { exit !whole }' "$WORK/it.err"
}
# What each process knows of its nodes, and has copied, behind what was said.
ask_all() {
    local pid vmctl
    vmctl=$(dirname "$vmrun")/vmctl
    for pid in $(pgrep -s "${program[it]}"); do
        { timeout 5 "$vmctl" "$pid" nodes && timeout 5 "$vmctl" "$pid" stats --flat |
            grep -E '^(repair|node\.[0-9]+\.(missed|breaks))'; } 2>&1 |
            sed "s/^/process $pid: /" >>"$WORK/it.err"
    done
    echo 'not all copies are there'
}
lines() { wc -l <"$WORK/it.err"; }

one_run() {
    local fault=$1 line
    nodes_up "$fault" && begin "$2" && await_it 300 filled || return
    sleep 3
    stop_one
    line=$(lines) at_fault=$(monotonic)
    fault_begins "$fault"
    case $fault in stop | unplug)
        sleep "$stop"
        line=$(lines)
        fault_ends "$fault"
        ;;
    esac
    [ -z "$tree" ] || sleep 2
    resume
    await_it 120 whole_since "$line" || { ask_all; return 1; }
    sleep 1.5
    at_second=$(monotonic)
    second_loss
    sleep 3
    pkill -TERM -s "${program[it]}"
    wait_vm it 300 || return
    second_ends
    [ "${status_of[it]}" = 0 ] &&
        [ "$(grep -c ', 0 errors$' "$WORK/it.out")" -eq "$(processes)" ]
}

# figures: of the run, `KEY VALUE`. Time without progress is the longest that one access took.
# Copies may be made up for several times: the one with most pages counts. Each process says how
# many it has copied. Several begin and end together: what comes within `gap` seconds belongs to the
# same time.
figures() {
    awk -v fault="$at_fault" -v second="$at_second" -v rate="$rate" -v tree="${tree:+1}" \
        -v gap="$gap" '
        NR == FNR {                             # from when to when copies are made up for
            if (/ new copies on other nodes|it answers again/) {
                if (!began || (tree ? $1 - heard > gap : whole)) { began = $1; sum = 0 }
                heard = $1
                whole = 0
            }
            if (/ have their copies again/ && (!second || $1 < second)) {
                for (i = 1; i < NF; i++) if ($i == "again:") sum += $(i + 1)
                heard = last = $1
                whole = 1
                if (sum > most) { most = sum; from = began; to = $1 }
            }
            next
        }
        function in_part(name, t) {             # the first and last line of a part
            if (!(name in t0)) { t0[name] = t; n0[name] = n }
            t1[name] = t; n1[name] = n
        }
        $2 == "runnable" && $1 > fault - 2.5 { runnable += $3; looks++; next }
        $2 == "busy" && $1 > fault - 2.5 { busy = $3 > busy ? $3 : busy; next }
        / randmem: at / {
            t = $4; n = $6; took = $(NF - 1)
            if (t >= fault && t < second && took > stuck) { stuck = took; stuck_at = t }
            if (t >= second && took > stuck2) stuck2 = took
            if (t > fault - 2.5 && t < fault) in_part("before", t)
            else if (t > fault && t < from && stuck_at && t > stuck_at + 0.2) in_part("away", t)
            else if (t >= from && t < to) in_part("copying", t)
            else if (t > last && t < second) in_part("after", t)
        }
        END {
            for (p in t0) r[p] = t1[p] > t0[p] ? (n1[p] - n0[p]) / (t1[p] - t0[p]) : 0
            b = r["before"] ? r["before"] : 1
            printf "stuck %.0f\nsecond %.0f\nbefore %.0f\naway %.2f\ncopying %.2f\nafter %.2f\n",
                stuck, stuck2, r["before"], r["away"] / b, r["copying"] / b, r["after"] / b
            printf "pages %d\nwhole %.2f\nallowed %.2f\nbusy %d\nrunnable %.1f\n", most, to - from,
                most * 4096 / rate / 1e6, busy, looks ? runnable / looks : 0
        }' "$WORK/times" "$WORK/times"
}

keys='stuck second before away copying after pages whole allowed busy runnable'
# row WORD...: a row of the table.
row() { printf '%-8s %4s %8s %8s %9s %6s %8s %6s %7s %6s %8s %8s %8s  %s\n' "$@"; }
row fault run 'stuck ms' 2nd-loss before/s away copying after pages whole allowed gap-ms runnable \
    result

declare -A right
measure() {
    local fault=$1 i key result
    right[$fault]=0
    : >"$WORK/all.$fault"
    for ((i = 1; i <= runs; i++)); do
        rm -f "$WORK"/*.log "$WORK/times" "$WORK/it.err"
        at_fault=0 at_second=0 result=right
        one_run "$fault" "$i" >"$OUT" 2>&1 || result="WRONG: $(tail -n 1 "$OUT")"
        end_all
        [ "$result" != right ] || right[$fault]=$((right[$fault] + 1))
        figures >"$WORK/figures"
        # shellcheck disable=SC2046 # words
        row "$fault" $i $(cut -d ' ' -f 2 "$WORK/figures") "$result"
        if [ "$result" != right ] && [ -e "$WORK/it.err" ]; then
            grep -v 'randmem: at' "$WORK/it.err" | tail -n 300 | sed 's/^/# /'
        fi
        cat "$WORK/figures" >>"$WORK/all.$fault"
        # shellcheck disable=SC2046 # words
        record bench=replicas "fault=$fault" "tree=${tree:+yes}" "rdma=${rdma:+yes}" "run=$i" \
            $(tr ' ' = <"$WORK/figures") "result=$result"
    done
    for key in least median most; do
        # shellcheck disable=SC2046 # words
        row "$fault" $key $(for word in $keys; do of_all "$fault" "$word" $key; done) \
            "${right[$fault]} of $runs"
    done
}
# of_all FAULT KEY least|median|most
of_all() {
    awk -v k="$2" '$1 == k { print $2 }' "$WORK/all.$1" | sort -g >"$WORK/one"
    case $3 in
    least) head -n 1 "$WORK/one" ;;
    median) median <"$WORK/one" ;;
    most) tail -n 1 "$WORK/one" ;;
    esac
}

for fault in ${only//,/ }; do
    measure "$fault"
done
echo
echo "stuck: the longest that one access took after the fault; 2nd-loss: after the second one." \
    "away, copying, after: throughput as a share of before.  whole: seconds from when copies" \
    "could be made up for; allowed: pages by --rebuild-rate.  gap: the longest that the machine" \
    "did not run a loop that wanted to run; runnable: threads, in the mean."
for fault in ${only//,/ }; do
    verdict "$fault: runs that survived both losses, every word right" "${right[$fault]}" '>=' \
        "$runs"
    [ "${right[$fault]}" -gt 0 ] || continue        # of nothing there are no figures
    # That a node has ended is known at once; that a node is silent, after this.
    verdict "$fault: longest time without progress, ms" "$(of_all "$fault" stuck most)" '<=' \
        $((silent + 300))
    verdict "$fault: throughput while copies are made up for, median share" \
        "$(of_all "$fault" copying median)" '>=' 0.6
    verdict "$fault: whole again, median seconds / what the rate allows" \
        "$(calc "$(of_all "$fault" whole median) / ($(of_all "$fault" allowed median) + 0.2)")" \
        '<=' 1.2
done
finish
