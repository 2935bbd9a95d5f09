# The cases of run: each a function that is true or not, and prints why. Sourced by run.
# shellcheck shell=bash

RDMA=rdma://$here_address
NBD=nbd://127.0.0.1

# --- at start: status 125, and a sentence that names thing, cause and cure ---

tokens() {
    printf 'sesame\n' >"$WORK/token"
    printf 'simsim\n' >"$WORK/wrong"
    chmod 600 "$WORK/token"
    serve m --size 64M --token-file "$WORK/token" &&
        refused 'rdma.*token' 4 --node "$RDMA" &&
        refused 'rdma.*token' 4 --node "$RDMA?token-file=$WORK/wrong" &&
        refused 'nbd.*token' 4 --node "$NBD?size=16M" &&
        refused 'nbd.*token' 4 --node "$NBD?size=16M&token-file=$WORK/wrong" &&
        refused 'nonesuch.*No such file' 4 --node "$RDMA?token-file=/nonesuch" || return
    run_vm rdma 8M 500 --node "$RDMA?token-file=$WORK/token"
    run_vm nbd 8M 500 --node "$NBD?size=16M&token-file=$WORK/token"
    verified rdma 30 && verified nbd 30
}

false_nodes() {
    local fault
    while read -r fault pattern; do
        false_node "$fault" && refused "$pattern" 4 --connect-timeout 2 --node "$RDMA:7473" && end_false_node || return
    done <<'END'
version   speaks version 2 of the protocol, this vmrun version 1
stranger  no memnode: correct the address or the port
garbage   not memnode's protocol
mute      accepted the connection but does not answer
deaf      does not answer the connection request within 2.0 s
nodata    7473.*
token     refused: the token is wrong
END
}

beyond_capacity() {
    serve m --size 64M &&
        refused 'it has 64M, not the size=128M asked for' 4 --node "$RDMA?size=128M" &&
        refused 'refuses a lease of 128M' 4 --node "$NBD?size=128M"
}

# The first has leased most when the second comes.
second_client() {
    serve m --size 64M || return
    run_vm first 24M 1000000 --cache 2M --node "$RDMA"
    await 20 stat_has m 'holds 4[0-9]' || return
    refused 'it has 1[0-9][.0-9]*M, not the size=40M' 4 --node "$RDMA?size=40M" && refused 'refuses a lease' 4 --node "$NBD?size=40M" || return
    run_vm second 8M 1000 --node "$RDMA"
    run_vm third 2M 10 --cache 4M --node "$NBD?size=1M"
    verified second 30 && verified third 30 && running first
}

# Nobody answers: the host is there but its frames get lost, has no such address, or no such name.
unreachable() {
    local url
    fault mute:m2
    sleep 0.5
    # All at once: each takes the default of 5 s.
    for url in rdma://m2 'nbd://m2?size=16M'; do
        (
            refused "--node ${url%\?*}.*does not answer" 8 --node "$url" >"$WORK/unreachable.${url%%:*}" 2>&1
            echo $? >"$WORK/unreachable.${url%%:*}.status"
        ) &
    done
    wait %% %-
    fault unmute:m2
    cat "$WORK"/unreachable.{rdma,nbd}
    [ "$(cat "$WORK"/unreachable.{rdma,nbd}.status | sort -u)" = 0 ] || { echo 'see above'; return 1; }
    refused 'rdma://10.77.0.99.*10.77.0.99:7471 does not answer' 5 --connect-timeout 2 --node rdma://10.77.0.99 &&
        refused 'nbd://10.77.0.99.*' 5 --connect-timeout 2 --node nbd://10.77.0.99 &&
        refused 'rdma://203.0.113.7.*no route' 3 --node rdma://203.0.113.7 &&
        refused 'nbd://203.0.113.7.*Network is unreachable' 3 --node nbd://203.0.113.7 &&
        refused 'rdma://nosuchhost.invalid.*nosuchhost.invalid' 6 --node rdma://nosuchhost.invalid &&
        refused 'nbd://nosuchhost.invalid.*nosuchhost.invalid' 6 --node nbd://nosuchhost.invalid
}

nobody_listens() {
    refused 'nothing listens at 10.77.0.11:7999: start memnode there' 4 --node rdma://m1:7999 &&
        refused 'm1 port 7999 refuses connections: is an NBD server running there' 4 --node nbd://m1:7999 &&
        refused "nothing listens at $here_address:7471" 4 --node "$RDMA" &&
        refused 'no /run/nonesuch|socket /run/nonesuch' 4 --node 'nbd+unix:///?socket=/run/nonesuch' &&
        # The one protocol at the other's port.
        refused 'rdma://m1:10809.*nothing listens' 4 --node rdma://m1:10809
}

no_link() {
    ip link add cut0 type veth peer name cut1 && ip address add 10.98.7.1/24 dev cut0 && rdma link add rxe7 type rxe netdev cut0 || return
    refused 'no link' 4 --node 'rdma://m1?device=rxe7' && refused 'no link' 4 --node rdma://10.98.7.2 && refused 'rxe9' 4 --node 'rdma://m1?device=rxe9'
    local status=$?
    rdma link delete rxe7
    ip link delete cut0
    return $status
}

# Root may lock what it likes, so it is another user.
memlock() {
    local as=(setpriv --reuid 65534 --clear-groups --bounding-set -all --inh-caps -all)
    serve m --size 64M || return
    chmod 666 /dev/kvm /dev/infiniband/*
    ulimit -S -l 64 && ulimit -H -l 2048 || return
    refused 'limit of locked memory is 64K: raise it by .ulimit -l' 4 --node "$RDMA" || return
    ulimit -S -l 2048 || return
    local begin
    begin=$(now)
    "${as[@]}" "$vmrun" "${flags[@]}" --node "$RDMA" -- "$build/examples/randmem" --size 8M --accesses 1000 >"$WORK/pool.out" 2>"$WORK/pool.err"
    local status=$?
    sed 's/^/[pool] /' "$WORK/pool.out" "$WORK/pool.err"
    [ $status -eq 0 ] && grep -q ', 0 errors$' "$WORK/pool.out" && grep -q 'pages are copied through 1024 KiB' "$WORK/pool.err"
}

# --- while a program runs ---

# Three kinds of connection at a time, with data under way.
three() {
    run_vm rdma 8M "${1-1000000}" --node "$RDMA?size=16M"
    run_vm nbd 8M "${1-1000000}" --node "$NBD?size=16M"
    run_vm inline 8M "${1-1000000}" --io inline --node "$RDMA?size=16M"
    await 20 stat_has m 'leases 2,' && sleep "${2-3}" && running rdma && running nbd && running inline
}

goodbye() {
    local at
    serve m --size 64M && three || return
    at=$(now)
    end_node m || { echo "memnode ended with status $?"; return 1; }
    lost rdma "$at" 0 3000 "--node $RDMA: its memnode was stopped" && lost inline "$at" 0 3000 "--node $RDMA: its memnode was stopped" &&
        lost nbd "$at" 0 3000 "--node $NBD.*(about to end|has ended)"
}

killed_node() {
    local at
    serve m --size 64M && three || return
    at=$(now)
    kill -KILL "${node[m]}"
    lost rdma "$at" 0 4000 "--node $RDMA: its memnode has ended" && lost inline "$at" 0 4000 "--node $RDMA: its memnode has ended" &&
        lost nbd "$at" 0 4000 "--node $NBD.*has ended"
}

# A new memnode at the same place is not the old one, even with the same export.
replaced_node() {
    local at
    serve m --size 64M --export disk=16M && run_vm rdma 8M 1000000 --node "$RDMA?size=16M" && run_vm nbd 8M 1000000 --node "$NBD?size=16M" &&
        run_vm disk 8M 1000000 --node "$NBD/disk" && await 20 stat_has m 'leases 1,' && sleep 2 && running rdma && running nbd && running disk || return
    at=$(now)
    kill -KILL "${node[m]}"
    serve m --size 64M --export disk=16M || return
    lost rdma "$at" 0 8000 "--node $RDMA: its memnode (has ended|does not know)" && lost nbd "$at" 0 8000 "--node $NBD.*(has ended|is gone)" &&
        lost disk "$at" 0 8000 "--node $NBD/disk.*is gone"
}

stopped_node() {
    serve m --size 64M && three 4000 1 || return
    kill -STOP "${node[m]}"
    sleep 3
    running nbd || return
    kill -CONT "${node[m]}"
    verified rdma 60 && verified nbd 60 && verified inline 60
}

# It stands still while programs ask it for more.
stopped_while_growing() {
    serve m --size 256M || return
    run_vm rdma 96M 200 --node "$RDMA"
    await 20 stat_has m 'leases 2,' || return
    kill -STOP "${node[m]}"
    sleep 3
    running rdma || return
    kill -CONT "${node[m]}"
    verified rdma 60 && statistics m
}

# A drop of the link that is shorter than --timeout, and then another, for both kinds of driver.
link_drops() {
    run_vm rdma 8M 6000 --node 'rdma://m1?size=16M'
    run_vm nbd 8M 6000 --node 'nbd://m1?size=16M'
    sleep 5
    for _ in 1 2; do
        running rdma && running nbd || return
        fault unplug:m1
        sleep 3
        fault plug:m1
        sleep 6
    done
    verified rdma 90 && verified nbd 90 && said rdma 'connected again' 2 && echo "measured $(grep -h 'connected again' "$WORK/rdma.err" | tr '\n' ' ')"
}

# The same in the middle of leases.
drop_while_growing() {
    run_vm rdma 64M 500 --node 'rdma://m1?size=128M'
    run_vm nbd 32M 500 --node 'nbd://m1?size=128M'
    sleep 3
    fault mute:m1
    sleep 3
    running rdma && running nbd || return
    fault unmute:m1
    verified rdma 120 && verified nbd 120 && said rdma 'connected again'
}

# The machine of a node stands still for a moment.
machine_stops() {
    run_vm rdma 8M 3000 --node 'rdma://m1?size=16M'
    run_vm nbd 8M 3000 --node 'nbd://m1?size=16M'
    sleep 5
    running rdma && running nbd || return
    fault stop:m1
    sleep 4
    fault cont:m1
    verified rdma 90 && verified nbd 90
}

# Shorter than the silence: --timeout says how long that may be.
silence() {
    local at
    run_vm rdma 8M 1000000 --timeout 3 --node 'rdma://m1?size=16M'
    run_vm nbd 8M 1000000 --timeout 3 --node 'nbd://m1?size=16M'
    sleep 5
    running rdma && running nbd || return
    at=$(now)
    fault mute:m1
    lost rdma "$at" 2900 6500 '--node rdma://m1: nothing came through for 3.0 s' && lost nbd "$at" 2900 6500 '--node nbd://m1.* 3 s'
    local status=$?
    fault unmute:m1
    return $status
}

# --- leases of clients that vanish or stand still ---

grace() {
    serve m --size 64M --grace 3 || return
    run_vm rdma 8M 1000000 --node "$RDMA?size=16M"
    run_vm nbd 8M 1000000 --node "$NBD?size=16M"
    run_vm still_rdma 8M 3000 --node "$RDMA?size=16M"
    run_vm still_nbd 8M 3000 --node "$NBD?size=12M"
    await 20 stat_has m 'leases 2,' && sleep 2 && running rdma && running nbd && running still_rdma && running still_nbd || return
    kill -STOP "${program[still_rdma]}" "${program[still_nbd]}"
    kill -KILL "${program[rdma]}" "${program[nbd]}"
    local before after
    before=$(held m)
    [ "$before" -ge 60 ] || { echo "$before MiB are held"; return 1; }
    sleep 1
    [ "$(held m)" -eq "$before" ] || { echo 'no grace'; return 1; }
    sleep 8
    # What is left is that of those who stand still.
    after=$(held m)
    [ "$after" -eq $((before - 32)) ] || { echo "$before MiB were held, $after are"; return 1; }
    kill -CONT "${program[still_rdma]}" "${program[still_nbd]}"
    verified still_rdma 60 && verified still_nbd 60 && await 6 all_free m && end_node m
}

# Who ends by itself gives back at once what it had.
gives_back() {
    serve m --size 64M --grace 60 || return
    run_vm rdma 8M 500 --node "$RDMA"
    run_vm inline 8M 500 --io inline --node "$RDMA"
    verified rdma 30 && verified inline 30 && await 2 all_free m || return
    # Also one that ends because it lost another node.
    serve other --size 64M --listen "rdma://$here_address:7472" || return
    run_vm both 32M 1000000 --node "$RDMA" --node "$RDMA:7472"
    await 20 stat_has m 'leases 1,' && await 20 stat_has other 'leases 1,' && kill -KILL "${node[other]}" && lost both "$(now)" 0 4000 'has ended' &&
        await 2 all_free m && end_node m
}

# --- many nodes ---

pair() { serve a --size 256M && serve b --size "$1" --listen "rdma://$here_address:7472" --listen nbd://127.0.0.1:10810; }

# shares NAME WORD...: program NAME over nodes a and b; prints MiB that each gave.
shares() {
    local name=$1
    shift
    run_vm "$name" 96M 1000000 "$@"
    await 60 enough 94 || return
    share_a=$(held a) share_b=$(held b)
    echo "measured $name: a $share_a MiB, b $share_b MiB"
    kill -KILL "${program[$name]}"
    { wait "${program[$name]}"; } 2>/dev/null
}
enough() { [ $(($(held a) + $(held b))) -ge "$1" ]; }

weighted() {
    pair 256M && shares weighted --placement weighted --node "$RDMA?weight=1" --node "$RDMA:7472?weight=3" &&
        [ "$share_a" -gt 0 ] && [ "$share_b" -ge $((share_a * 2)) ] && [ "$share_b" -le $((share_a * 4)) ]
}

linear() {
    pair 256M && shares linear --placement linear --node "$RDMA?size=64M" --node "$RDMA:7472" && [ "$share_a" -eq 64 ] && [ "$share_b" -ge 32 ]
}

# The one with more left gives first.
free() {
    pair 512M && shares free --placement free --node "$RDMA" --node "$RDMA:7472" && [ "$share_a" -eq 0 ] && [ "$share_b" -ge 94 ]
}

mixed() {
    pair 256M && truncate -s 32M "$WORK/dax" || return
    run_vm mixed 96M 2000 --node "$RDMA?size=32M" --node "$NBD:10810?size=32M" --node mem:32M --node "dax:$WORK/dax"
    await 60 stat_has a 'holds [1-9]' && await 60 stat_has b 'NBD lease.*holds [1-9]' && verified mixed 120 && statistics b
}

try 'a wrong token is refused, the right one is taken' tokens
try 'a node of another version, or that is none, or that does not answer' false_nodes
try 'a size beyond the capacity' beyond_capacity
try 'a second client gets the rest' second_client
try 'nobody answers' unreachable
try 'nobody listens' nobody_listens
try 'a device without link' no_link
try 'hardly any memory may be locked' memlock
try 'memnode ends: so does the program, at once' goodbye
try 'memnode is killed' killed_node
try 'memnode is killed and started anew' replaced_node
try 'memnode stands still for 3 s' stopped_node
try 'memnode stands still while programs grow' stopped_while_growing
try 'a killed program loses its memory after the grace time, a stopped one keeps it' grace
try 'a program that ends gives back its memory at once' gives_back
try 'placement by weight' weighted
try 'placement of one after the other' linear
try 'placement by free memory' free
try 'nodes of all kinds at once' mixed
try 'the link drops for 3 s, twice' link_drops
try 'the link drops while programs grow' drop_while_growing
try_long 'the machine of a node stands still for 4 s' machine_stops
try 'silence for longer than --timeout' silence
