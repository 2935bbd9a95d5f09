# RDMA nodes with words, which has more ways to be wrong than randmem: trees whose processes are
# killed, memory that changes, a network that loses frames. Sourced by run.
# shellcheck shell=bash disable=SC2154

tree=(-- "$words" --size 2M --accesses 150 --children 2)

# memnode's own memory changes; see lied_to in nbd.
rdma_lies() {
    local options=(-- "$words" --size 2M --seconds 4)
    serve m --size 64M || return
    lied_words 1 it --node "$RDMA" "${options[@]}" && right it || return
    echo "measured $(count it lost) pages lost, $(stat_of it node.0.damaged) given up," \
        "$(lies_told) lies"
    [ "$(count it lost)" -gt 0 ] && [ "$(count it lost)" -eq "$(stat_of it node.0.damaged)" ] ||
        return
    lied_words 1 blind --no-verify --node "$RDMA" "${options[@]}" && misled blind
}

# Children are killed while they write; others get their slots, of which there are hardly enough.
rdma_victims() {
    serve m --size 64M || return
    run_words it --no-verify --node "$RDMA?size=8M" -- \
        "$words" --size 2M --seconds 8 --accesses 400 --children 3 --victims || return
    echo "measured $(count it killed) killed, $(count it wrong) wrong words"
    [ "$(count it killed)" -gt 0 ] && intact it
}

# memnode is replaced by another one at its address, without its memory.
rdma_restarted() {
    local moments=2 i ms status
    [ "$long" = no ] || moments=20
    for ((i = 0; i < moments; i++)); do
        ms=$((1000 + 6000 * i / moments))
        serve m --size 64M || return
        start_words it --node "$RDMA" -- "$words" --seconds 4 --size 2M --children $((i % 2 * 2))
        sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
        kill_node m
        serve m --size 64M && wait_vm it "$LIMIT" || return
        status=${status_of[it]}
        echo "measured after $ms ms: status $status: $(grep -m 1 '^vmrun: --node' "$WORK/it.err")"
        if [ "$status" = 125 ]; then
            ended_with it 125 '^vmrun: --node rdma' || return
        else
            intact it || return
        fi
        kill_node m
    done
}

# Copies here and on another machine, of which this one ends. Its memory is its own, so it is lost.
rdma_replicas() {
    serve m --size 64M || return
    start_words it --replicas 2 --timeout 20 --node "$RDMA" --node rdma://m1 -- \
        "$words" --size 2M "${told[@]}" --accesses 4000 --children 2
    begun it 60 && sleep 1 && kill_node m && said_soon it 'are read from other nodes' &&
        finish it && intact it
}

# With copies on another machine memnode is killed and started again: then it is used again.
rdma_anew() {
    serve m --size 64M || return
    start_words it --replicas 2 --timeout 20 --node "$RDMA" --node rdma://m1 -- \
        "$words" --size 2M "${told[@]}"
    begun it 60 && sleep 1 && kill_node m &&
        serve m --size 64M && await 30 grep -q 'the node is served again' "$WORK/it.err" &&
        finish it && intact it && said it 'new copies on other nodes'
}

# The other machine is out of reach for a while, and then gets the pages that it missed.
rdma_unplugged() {
    serve m --size 64M || return
    start_words it "$@" --replicas 2 --timeout 20 --rebuild-rate 0 --node "$RDMA" \
        --node rdma://m1 -- "$words" --size 2M "${told[@]}"
    begun it 60 && modprobe sch_netem &&
        tc qdisc add dev eth0 root netem loss 100% || return
    sleep 3
    tc qdisc del dev eth0 root
    said_soon it 'it answers again' 60 && finish it && intact it || return
    echo "measured $(stat_of it repair.pages) pages copied, $(stat_of it node.1.breaks) breaks"
}

# memnode is drained while a tree of processes uses it, and used again when it is back. The other
# one is on this machine, too. rdma_drained REPLICAS
rdma_drained() {
    local begin
    serve m --size 64M --drain-timeout "$patience" && serve n --size 64M --listen "$RDMA:7472" ||
        return
    start_words it --replicas "$1" --timeout 20 --rebuild-rate 0 --node "$RDMA?size=24M" \
        --node "$RDMA:7472?size=48M" -- "$words" --size 2M "${told[@]}" --accesses 4000 --children 2
    begun it 60 && sleep 2 || return
    begin=$(now)
    end_node m || return
    echo "measured memnode ended after $(($(now) - begin)) ms"
    unset 'node[m]'
    all_moved m || return
    serve m --size 64M && finish it && intact it && said it 'the node is drained: ' || return
    [ "$(count it failed)" -eq 0 ] || { echo "$(count it failed) children failed"; return 1; }
}

# kept NAME PORT: a memnode of this machine, with the leases that an earlier memnode NAME kept. A
# program that is stopped comes back in time also where restarts take half a minute each.
kept() {
    serve "$1" --size 64M --listen "$RDMA:$2" --drain-timeout 2 --grace 180 \
        --resume "$WORK/$1.leases"
}
# kept_over NAME PORT: memnode is restarted with its leases, and had some.
kept_over() {
    await 20 has_leases "$1" && over "$1" "$2" || return
    grep -q 'taken over' "$WORK/$1.log" || { echo "memnode $1 kept nothing"; return 1; }
}
has_leases() { [ "$(held "$1")" -gt 0 ]; }
over() { end_node "$1" && unset "node[$1]" && kept "$1" "$2"; }

# The only node is restarted, twice, while the program runs, or is stopped.
rdma_only_restarted() {
    local stops=$1 i
    kept m 7472 || return
    start_words it --node "$RDMA:7472" -- "$words" --size 2M "${told[@]}"
    begun it 60 && sleep 1 || return
    for i in 1 2; do
        [ "$stops" = no ] || halt "${program[it]}" || return
        kept_over m 7472 || return
        [ "$stops" = no ] || kill -CONT "${program[it]}"
        sleep 1
    done
    finish it && intact it
}

# The only node is restarted under a tree, whose processes fork and execute programs meanwhile.
rdma_tree_restarted() {
    local i turns=1
    [ "$long" = no ] || turns=3
    kept m 7472 || return
    start_words it --node "$RDMA:7472" -- \
        "$words" --size 1M "${told[@]}" --children 3 --accesses 4000
    begun it 60 || return
    for ((i = 0; i < turns; i++)); do
        sleep 1
        kept_over m 7472 || return
    done
    finish it && intact it || return
    [ "$(count it failed)" -eq 0 ] || { echo "$(count it failed) children failed"; return 1; }
}

# Three nodes are restarted one after the other under three programs. One does its I/O itself. One
# is stopped all the time: its pages are on as many nodes as there are copies. rdma_rolling REPLICAS
rdma_rolling() {
    local n port=7472 taken=0 nodes=(--replicas "$1" --timeout 20 --rebuild-rate 0)
    local -A ports
    for n in m n o; do
        ports[$n]=$((++port))
        kept $n $port || return
        nodes+=(--node "$RDMA:$port?size=20M")
    done
    start_words one "${nodes[@]}" -- "$words" --size 1M "${told[@]}"
    start_words inline --io inline "${nodes[@]}" -- "$words" --size 1M "${told[@]}"
    start_words still "${nodes[@]}" -- "$words" --size 1M "${told[@]}"
    for n in one inline still; do
        begun $n 60 || return
    done
    sleep 1
    halt "${program[still]}" || return
    for n in m n o; do
        over $n "${ports[$n]}" || return
        taken=$((taken + $(grep -c 'taken over' "$WORK/$n.log")))
        sleep 1
    done
    # Pages of the program that is stopped. On a busy machine also pages that the others have not
    # moved in the two seconds that memnode gives them.
    echo "measured $taken nodes kept something"
    [ $taken -ge "$1" ] || return
    kill -CONT "${program[still]}"
    finish one inline still || return
    for n in one inline still; do
        intact $n || return
    done
    said one 'the node is drained' && said inline 'the node is drained'
}

# Any processes of a tree and of a program are stopped and go on, and any node is restarted.
rdma_stopped_at_random() {
    local i n pids port=7472 nodes=(--timeout 20)
    local -A ports
    RANDOM=$1
    for n in m n o; do
        ports[$n]=$((++port))
        kept $n $port || return
        nodes+=(--node "$RDMA:$port?size=20M")
    done
    start_words one "${nodes[@]}" -- "$words" --size 1M "${told[@]}" --seed "$1"
    start_words tree "${nodes[@]}" -- \
        "$words" --size 1M "${told[@]}" --children 3 --accesses 4000 --seed "$1"
    begun one 60 && begun tree 60 || return
    for ((i = 0; i < 8; i++)); do
        mapfile -t pids < <(pgrep -P "${program[tree]}")
        pids+=("${program[one]}" "${program[tree]}")
        for n in "${pids[@]}"; do
            kill -"$( ((RANDOM % 3)) && echo CONT || echo STOP)" "$n"
        done 2>/dev/null
        sleep 0.$((RANDOM % 10))
        n=$(cut -c $((1 + RANDOM % 3)) <<<mno)
        over "$n" "${ports[$n]}" || return
    done
    pkill -CONT -P "${program[tree]}"
    kill -CONT "${program[one]}" "${program[tree]}"
    finish one tree && intact one && intact tree || return
    [ "$(count tree failed)" -eq 0 ] || { echo "$(count tree failed) children failed"; return 1; }
}

# memnode is killed, or comes back without the leases that it kept: no word is wrong, and vmrun says
# why the program ends.
rdma_kept_lost() {
    kept m 7472 || return
    start_words it --timeout 30 --node "$RDMA:7472" -- "$words" --size 2M --seconds 20
    begun it 60 && sleep 1 && end_node m && rm "$WORK/m.leases" && kept m 7472 &&
        wait_vm it "$LIMIT" && ended_with it 125 'does not know this program any more' || return
    start_words it --timeout 5 --node "$RDMA:7472" -- "$words" --size 2M --seconds 20
    begun it 60 && sleep 1 && kill_node m && wait_vm it "$LIMIT" && ended_with it 125 '^vmrun: '
}

# Pages of this machine's memnode are spoiled while the program does nothing; on the other machine
# they are right.
rdma_scrub() {
    local -x XDG_RUNTIME_DIR=$WORK
    serve m --size 64M && rm -f "$WORK/it.out" || return
    run_program it --replicas 2 --node "$RDMA" --node rdma://m1 -- perl -e '$| = 1;
        my $s = join "", map { chr(65 + $_ % 26) x 4096 } 1 .. 800; print "filled\n"; sleep 300'
    await 60 grep -q filled "$WORK/it.out" && scrub_it &&
        "$liar" --every 1 --count 20 --kind flip --log "$WORK/liar.log" "${node[m]}" &&
        scrub_it && [ "$(scrubbed repaired)" -gt 5 ] &&
        [ "$(scrubbed repaired)" = "$(scrubbed wrong)" ] && scrub_it &&
        [ "$(scrubbed wrong)" = 0 ] && [ "$(scrubbed copies)" -gt 1000 ]
}
scrub_it() {
    "$build/runtime/vmctl" "${program[it]}" scrub --json >"$WORK/scrub.json" || return
    echo "measured $(scrubbed copies) copies, $(scrubbed wrong) wrong," \
        "$(grep -o '"seconds": [0-9.]*' "$WORK/scrub.json")"
}
scrubbed() { sed -nE "s/.*\"$1\": ([0-9]+).*/\1/p" "$WORK/scrub.json"; }

# Threads of the program have other credentials than those with which the node was opened, which
# the kernel compares at each of uverbs' writes.
rdma_other_user() {
    local status=0
    serve m --size 64M || return
    timeout -s KILL 200 "$vmrun" "${flags[@]}" --io inline "$@" --node "$RDMA" -- perl -e '
        $| = 1;
        $< = $> = 65534;
        vec(my $s, (20 << 20) - 1, 8) = 1;
        sub sum { my $n = 0;
            for (my $i = 0; $i < $_[0] << 20; $i += 4096) { $n += ord substr $s, $i, 1 } $n }
        for (my $i = 0; $i < length $s; $i += 4096) { substr $s, $i, 1, "x" }
        print "user $<, ", sum(20), ", ";
        if (!fork) { print "child ", sum(2), ", "; exit 0 }
        wait;
        print "end $?\n"' >"$WORK/user" || status=$?
    cat "$WORK/user"
    [ $status -eq 0 ] && grep -q '^user 65534, 614400, child 61440, end 0$' "$WORK/user"
}

# The fault handler reads pages by itself, and memnode is restarted with what it has.
rdma_direct() {
    kept m 7472 || return
    start_words it --direct on --cache 2M --node "$RDMA:7472" -- "$words" "${told[@]}" "$@"
    begun it 60 && sleep 1 && kept_over m 7472 && sleep 1 && finish it && intact it || return
    echo "measured $(stat_of it exits.direct_ring) READs of $(stat_of it count.fetched) fetches"
    [ "$(stat_of it exits.direct_ring)" -gt 500 ]
}

# It reads pages with copies, and one of their nodes is killed.
rdma_direct_copies() {
    serve m --size 64M && serve n --size 64M --listen "$RDMA:7472" || return
    start_words it --direct on --replicas 2 --timeout 20 --cache 2M --node "$RDMA" \
        --node "$RDMA:7472" -- "$words" --size 4M "${told[@]}"
    begun it 60 && sleep 2 && kill_node m && said_soon it 'are read from other nodes' || return
    sleep 2
    finish it && intact it || return
    echo "measured $(stat_of it exits.direct_ring) READs of $(stat_of it count.fetched) fetches"
    [ "$(stat_of it exits.direct_ring)" -gt $(($(stat_of it count.fetched) / 2)) ]
}

# Frames get lost, are late, and overtake others.
rdma_netem() {
    local status=0
    modprobe sch_netem &&
        tc qdisc add dev eth0 root netem delay 1ms loss 0.3% reorder 1% || return
    run_words it --timeout 60 --node rdma://m1 "${tree[@]}" && intact it || status=1
    tc -s qdisc show dev eth0 | sed -n 's/.*dropped/measured dropped/p'
    tc qdisc del dev eth0 root
    return $status
}

try "memnode's memory changes, over RDMA" rdma_lies
try 'children are killed while they write, over RDMA' rdma_victims
try 'memnode is restarted without its memory, over RDMA' rdma_restarted
try_long 'a node is killed, with copies on another' rdma_replicas
try 'a node is started again, with copies on another' rdma_anew
try 'a node is unplugged, with copies on another' rdma_unplugged
try 'a node that the fault handler reads is unplugged' rdma_unplugged --direct on
try 'a node is drained over RDMA, one copy' rdma_drained 1
try_long 'a node is drained over RDMA, two copies' rdma_drained 2
try_long 'the only node is restarted with what it has' rdma_only_restarted no
try_long 'the only node is restarted while the program is stopped' rdma_only_restarted yes
try 'the only node of a tree is restarted with what it has' rdma_tree_restarted
try 'three nodes are restarted over RDMA, one copy' rdma_rolling 1
try_long 'three nodes are restarted over RDMA, two copies' rdma_rolling 2
try_long 'nodes are restarted over RDMA, processes stopped at random' rdma_stopped_at_random 1
try 'what a node kept is lost' rdma_kept_lost
try_long 'spoiled copies are found, and made right' rdma_scrub
try 'a program becomes another user, inline' rdma_other_user
try 'a program becomes another user, and its fault handler reads' rdma_other_user --direct on
try 'the fault handler reads, and memnode is restarted' rdma_direct --size 8M --threads 3
try 'the fault handler of a tree reads, and memnode is restarted' rdma_direct \
    --size 4M --children 3 --accesses 4000
try 'the fault handler reads pages that have copies, and a node is killed' rdma_direct_copies
try 'a network that loses, delays and reorders frames' rdma_netem
