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
    lied_words 1 blind --no-verify --node "$RDMA" "${options[@]}" || return
    echo "measured --no-verify: $(count blind wrong) wrong words"
    [ "$(count blind wrong)" -gt 0 ]
}

# Children are killed while they write; others get their slots, of which there are hardly enough.
rdma_victims() {
    serve m --size 64M || return
    run_words it --no-verify --node "$RDMA?size=8M" -- \
        "$words" --size 2M --seconds 8 --accesses 400 --children 3 --victims || return
    echo "measured $(count it killed) killed, $(count it wrong) wrong words"
    [ "$(count it killed)" -gt 0 ] && intact it
}

# A memnode without its memory at the same address.
rdma_restarted() {
    local moments=3 i ms status
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
        "$words" --size 2M --seconds 5 --accesses 4000 --children 2
    begun it 60 && sleep 1 && kill_node m &&
        wait_vm it "$LIMIT" && intact it && said it 'are read from other nodes'
}

# The same, and it is started anew: then it is used again.
rdma_anew() {
    serve m --size 64M || return
    start_words it --replicas 2 --timeout 20 --node "$RDMA" --node rdma://m1 -- \
        "$words" --size 2M --seconds 9
    begun it 60 && sleep 1 && kill_node m &&
        serve m --size 64M && await 30 grep -q 'it is served again' "$WORK/it.err" &&
        wait_vm it "$LIMIT" && intact it && said it 'new copies on other nodes'
}

# The other machine is out of reach for a while, and then has what it missed.
rdma_unplugged() {
    serve m --size 64M || return
    start_words it --replicas 2 --timeout 20 --rebuild-rate 0 --node "$RDMA" --node rdma://m1 -- \
        "$words" --size 2M --seconds 8
    begun it 60 && modprobe sch_netem &&
        tc qdisc add dev eth0 root netem loss 100% || return
    sleep 3
    tc qdisc del dev eth0 root
    wait_vm it "$LIMIT" && intact it || return
    echo "measured $(stat_of it repair.pages) pages copied, $(stat_of it node.1.breaks) breaks"
    said it 'it answers again'
}

# memnode is drained while a tree of processes uses it, and used again when it is back. The other
# one is on this machine, too. rdma_drained REPLICAS
rdma_drained() {
    local begin
    serve m --size 64M && serve n --size 64M --listen "$RDMA:7472" || return
    start_words it --replicas "$1" --timeout 20 --rebuild-rate 0 --node "$RDMA?size=24M" \
        --node "$RDMA:7472?size=48M" -- "$words" --size 2M --seconds 11 --accesses 4000 --children 2
    begun it 60 && sleep 2 || return
    begin=$(now)
    end_node m || return
    echo "measured memnode ended after $(($(now) - begin)) ms"
    unset 'node[m]'
    ! grep 'did not move away' "$WORK/m.log" || return
    serve m --size 64M && wait_vm it "$LIMIT" && intact it && said it 'it is left: ' || return
    [ "$(count it failed)" -eq 0 ] || { echo "$(count it failed) children failed"; return 1; }
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
try 'memnode is started anew without its memory, over RDMA' rdma_restarted
try 'a node is killed, with copies on another' rdma_replicas
try 'a node is started anew, with copies on another' rdma_anew
try 'a node is unplugged, with copies on another' rdma_unplugged
try 'a node is drained over RDMA, one copy' rdma_drained 1
try 'a node is drained over RDMA, two copies' rdma_drained 2
try 'spoiled copies are found, and made right' rdma_scrub
try 'a network that loses, delays and reorders frames' rdma_netem
