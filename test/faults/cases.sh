# The cases of run: each a function that is true or not, and prints why. Sourced by run.
# shellcheck shell=bash disable=SC2154


# --- at start: status 125, and a sentence that names thing, cause and cure ---

keys() {
    echo alice:000102030405060708090a0b0c0d0e0f >"$WORK/keys"
    echo alice:00000000000000000000000000000000 >"$WORK/wrong"
    chmod 600 "$WORK/keys" "$WORK/wrong"
    local tls=nbds${NBD#nbd}
    serve m --size 62M --keys "$WORK/keys" &&
        refused 'rdma.*give keys=FILE' fast --node "$RDMA" &&
        refused 'rdma.*give keys=FILE' fast --node "$RDMA?keys=$WORK/wrong" &&
        refused 'nbd.*give nbds://' fast --node "$NBD?size=16M" &&
        refused 'nbds.*does not take our key' fast --node "$tls?size=16M&keys=$WORK/wrong" &&
        refused 'nonesuch.*No such file' fast --node "$RDMA?keys=/nonesuch" || return
    run_vm rdma 2M --node "$RDMA?keys=$WORK/keys"
    run_vm nbd 2M --node "$tls?size=16M&keys=$WORK/keys"
    filled rdma && verified rdma && filled nbd && verified nbd
}

false_nodes() {
    local fault seconds pattern short
    while read -r fault seconds pattern; do
        short=(--connect-timeout 2)
        [ "$seconds" != fast ] || short=()
        false_node "$fault" &&
            refused "$pattern" "$seconds" "${short[@]}" --node "$RDMA:7473" &&
            end_false_node || return
    done <<END
version   fast speaks version [0-9]+ of the protocol, this vmrun version [0-9]+: \
install the same version on both
stranger  fast no memnode: correct the address or the port
garbage   fast not memnode's protocol: correct the address or the port
refuses   fast refused: it likes no clients
key       fast takes only clients with a key of its --keys: give keys=FILE
cookies   fast takes none of the cookies that it gives
impostor  fast does not prove that it is the memnode with this key: correct the address
mute      7 accepted the connection but does not answer: see what it is doing there
deaf      7 10.77.0.1:7473 does not answer the connection request within
nodata    7 does not answer the connection request( within|s for data in time)
END
}

beyond_capacity() {
    serve m --size 64M &&
        refused 'it has 64M, not the size=128M asked for' fast --node "$RDMA?size=128M" &&
        refused 'refuses a lease of 128M' fast --node "$NBD?size=128M"
}

# The first has leased most when the second comes.
second_client() {
    serve m --size 64M || return
    run_vm first 20M --node "$RDMA"
    await 150 stat_has m 'holds 4[0-9]' || return
    refused 'it has 1[0-9][.0-9]*M, not the size=40M' fast --node "$RDMA?size=40M" &&
        refused 'refuses a lease' fast --node "$NBD?size=40M" || return
    run_vm second 2M --node "$RDMA?size=12M"
    run_vm third 2M --node "$NBD?size=4M"
    filled second third && verified second third && running first
}

# No answer comes: the frames to the host get lost, or there is no such address, or no such name.
unreachable() {
    local url
    fault mute:m2
    sleep 0.5
    # Both at once.
    for url in rdma://m2 'nbd://m2?size=16M'; do
        (
            refused "--node ${url%\?*}.*(does not answer|No route to host)" 15 --node "$url" \
                --connect-timeout 5 >"$WORK/unreachable.${url%%:*}" 2>&1
            echo $? >"$WORK/unreachable.${url%%:*}.status"
        ) &
    done
    wait %% %-
    fault unmute:m2
    cat "$WORK"/unreachable.{rdma,nbd}
    [ "$(cat "$WORK"/unreachable.{rdma,nbd}.status | sort -u)" = 0 ] || {
        echo 'see above'
        return 1
    }
    local gone='(No route to host|does not answer)'
    refused 'rdma://10.77.0.99.*10.77.0.99:7471 does not answer' 10 \
        --connect-timeout 2 --node rdma://10.77.0.99 &&
        refused "nbd://10.77.0.99.*$gone" 10 \
            --connect-timeout 2 --node 'nbd://10.77.0.99?size=1M' &&
        refused 'rdma://203.0.113.7.*no route' fast --node rdma://203.0.113.7 &&
        refused 'nbd://203.0.113.7.*Network is unreachable' fast \
            --node 'nbd://203.0.113.7?size=1M' &&
        refused 'rdma://nosuchhost.invalid.*nosuchhost.invalid' fast \
            --node rdma://nosuchhost.invalid &&
        refused 'nbd://nosuchhost.invalid.*nosuchhost.invalid' fast \
            --node 'nbd://nosuchhost.invalid?size=1M'
}

nobody_listens() {
    refused 'nothing listens at 10.77.0.11:7999: start memnode there' fast \
        --node rdma://m1:7999 &&
        refused 'm1 port 7999 refuses connections: is an NBD server running there' fast \
            --node 'nbd://m1:7999?size=1M' &&
        refused "nothing listens at $here_address:7471" fast --node "$RDMA" &&
        refused 'no /run/nonesuch|socket /run/nonesuch' fast \
            --node 'nbd+unix:///?socket=/run/nonesuch&size=1M' &&
        # The one protocol at the other's port.
        refused 'rdma://m1:10809.*nothing listens' fast --node rdma://m1:10809
}

no_link() {
    ip link add cut0 type veth peer name cut1 && ip address add 10.98.7.1/24 dev cut0 &&
        rdma link add rxe7 type rxe netdev cut0 || return
    refused 'no link' fast --node 'rdma://m1?device=rxe7' &&
        refused 'no link' fast --node rdma://10.98.7.2 &&
        refused 'rxe9' fast --node 'rdma://m1?device=rxe9'
    local status=$?
    rdma link delete rxe7
    ip link delete cut0
    return $status
}

# Root may lock any amount of memory, so another user runs vmrun.
memlock() {
    local as=(setpriv --reuid 65534 --clear-groups --bounding-set -all --inh-caps -all)
    serve m --size 64M || return
    chmod 666 /dev/kvm /dev/infiniband/*
    ulimit -S -l 64 && ulimit -H -l 2048 || return
    refused 'limit of locked memory is 64K: raise it by .ulimit -l' fast --node "$RDMA" ||
        return
    ulimit -S -l 2048 && run_vm pool 8M --cache 4M --node "$RDMA" && filled pool &&
        verified pool &&
        said pool 'the frames cannot be registered, so pages are copied through 1024 KiB'
}

# --- while a program runs ---

# Three kinds of client at a time, with data under way. memnode is told by its end alone: 30 s of
# silence would be borne.
three() {
    run_vm rdma 2M --timeout 30 --node "$RDMA?size=16M"
    run_vm nbd 2M --timeout 30 --node "$NBD?size=16M"
    run_vm inline 2M --timeout 30 --io inline --node "$RDMA?size=16M"
    filled rdma nbd inline && sleep 1
}

goodbye() {
    local at
    serve m --size 64M && three || return
    at=$(now)
    end_node m || { echo "memnode ended with status $?"; return 1; }
    lost rdma "$at" 0 20000 "--node $RDMA.*: its memnode was stopped" &&
        lost inline "$at" 0 20000 "--node $RDMA.*: its memnode was stopped" &&
        lost nbd "$at" 0 20000 "--node $NBD.*its memnode (was stopped|has ended)"
}

killed_node() {
    local at
    serve m --size 64M && three || return
    at=$(now)
    kill -KILL "${node[m]}"
    lost rdma "$at" 0 20000 "--node $RDMA.*: its memnode has ended" &&
        lost inline "$at" 0 20000 "--node $RDMA.*: its memnode has ended" &&
        lost nbd "$at" 0 20000 "--node $NBD.*: its memnode has ended"
}

# A new memnode at the old memnode's address is another node, even with the same export.
replaced_node() {
    local at
    serve m --size 62M --export disk=16M &&
        run_vm rdma 2M --timeout 30 --node "$RDMA?size=16M" &&
        run_vm nbd 2M --timeout 30 --node "$NBD?size=16M" &&
        run_vm disk 2M --timeout 30 --node "$NBD/disk" && filled rdma nbd disk || return
    at=$(now)
    kill -KILL "${node[m]}"
    serve m --size 62M --export disk=16M || return
    lost rdma "$at" 0 20000 "--node $RDMA.*: its memnode (has ended|does not know)" &&
        lost nbd "$at" 0 20000 "--node $NBD.*(has ended|is gone)" &&
        lost disk "$at" 0 20000 "--node $NBD/disk.*is gone"
}

stopped_node() {
    serve m --size 64M && three || return
    kill -STOP "${node[m]}"
    sleep 3
    running nbd || return
    kill -CONT "${node[m]}"
    sleep 1
    verified rdma nbd inline
}

# It stands still while a program asks it for more.
stopped_while_growing() {
    serve m --size 128M && run_vm rdma 20M --node "$RDMA" &&
        await 150 stat_has m 'leases [1-9]' || return
    kill -STOP "${node[m]}"
    sleep 5
    running rdma || return
    kill -CONT "${node[m]}"
    filled rdma && stat_has m 'leases [2-9],' && verified rdma
}

# A drop of the link that is shorter than --timeout, and then another, for both kinds of driver.
link_drops() {
    local i
    run_vm rdma 2M --node 'rdma://m1?size=16M'
    run_vm nbd 2M --node 'nbd://m1?size=16M'
    filled rdma nbd || return
    for i in 1 2; do
        fault unplug:m1
        sleep 3
        fault plug:m1
        await 10 said rdma 'connected again' $i && running rdma && running nbd || return
        sleep 3
    done
    verified rdma nbd && echo "measured $(grep -h 'connected again' "$WORK/rdma.err" | tr '\n' ' ')"
}

# The link drops in the middle of leases.
drop_while_growing() {
    run_vm rdma 20M --node 'rdma://m1?size=64M'
    run_vm nbd 6M --node 'nbd://m1?size=32M'
    sleep 4
    fault mute:m1
    sleep 3
    running rdma && running nbd || return
    fault unmute:m1
    filled rdma nbd && verified rdma nbd && said rdma 'connected again'
}

# Many short drops of the link.
link_shakes() {
    local i
    run_vm rdma 2M --node 'rdma://m1?size=16M'
    run_vm nbd 2M --node 'nbd://m1?size=16M'
    filled rdma nbd || return
    for i in 1 2 3 4 5 6 7 8; do
        fault mute:m1
        sleep 0.$((i * 11))
        fault unmute:m1
        sleep 1.$((i * 7))
    done
    verified rdma nbd
}

# An idle program has nothing under way that could tell it that the link was down; still it must
# come back before its lease is over.
idle() {
    "$vmrun" "${flags[@]}" --node 'rdma://m1?size=16M' -- perl -e '
        my $have = "";
        $have .= pack "N", $_ * 2654435761 % 4294967296 for 0 .. 500000;
        print STDERR "randmem: fill\n";
        sleep 45;
        for (0 .. 500000) {
            unpack("N", substr $have, 4 * $_, 4) == $_ * 2654435761 % 4294967296
                or die "wrong at $_"
        }
        print "perl: all there, 0 errors\n"' >"$WORK/idle.out" 2>"$WORK/idle.err" &
    program[idle]=$!
    filled idle || return
    sleep 2
    fault mute:m1
    sleep 4
    fault unmute:m1
    wait_vm idle 90 && [ "${status_of[idle]}" -eq 0 ] &&
        grep -q ', 0 errors$' "$WORK/idle.out" && said idle 'connected again'
}

# The machine of a node stands still for a moment.
machine_stops() {
    run_vm rdma 2M --node 'rdma://m1?size=16M'
    run_vm nbd 2M --node 'nbd://m1?size=16M'
    filled rdma nbd || return
    fault stop:m1
    sleep 4
    fault cont:m1
    sleep 5
    verified rdma nbd
}

# For longer than --timeout, which is 10 s for one of them.
silence() {
    local at verb=$1
    run_vm rdma 2M --timeout 3 --node 'rdma://m2?size=16M'
    run_vm nbd 2M --timeout 3 --node 'nbd://m2?size=16M'
    run_vm ten 2M --node 'rdma://m2?size=16M'
    filled rdma nbd ten || return
    at=$(now)
    fault "$verb:m2"
    lost rdma "$at" 2900 20000 '--node rdma://m2.*: nothing came through for 3.0 s' &&
        lost nbd "$at" 2900 20000 '--node nbd://m2.* 3 s' &&
        lost ten "$at" 9900 30000 '--node rdma://m2.*: nothing came through for 10.0 s'
}
muted() { silence mute; }
machine_dies() { silence kill; }

# --- leases of clients that vanish or stand still ---

holds() { [ "$(held "$1")" -eq "$2" ]; }
grace() {
    local before
    serve m --size 62M --grace 12 || return
    run_vm rdma 2M --node "$RDMA?size=16M"
    run_vm nbd 2M --node "$NBD?size=16M"
    run_vm still_rdma 2M --node "$RDMA?size=16M"
    run_vm still_nbd 2M --node "$NBD?size=12M"
    filled rdma nbd still_rdma still_nbd || return
    kill -STOP "${program[still_rdma]}" "${program[still_nbd]}"
    kill -KILL "${program[rdma]}" "${program[nbd]}"
    sleep 3
    before=$(held m)
    [ "$before" -eq 60 ] || { echo "$before MiB are held after 3 s, not 60"; return 1; }
    # Memory that is still held belongs to the two stopped programs.
    await 15 holds m 28 || return
    kill -CONT "${program[still_rdma]}" "${program[still_nbd]}"
    verified still_rdma still_nbd && await 3 all_free m && end_node m
}

# A program that ends by itself gives back its memory at once.
gives_back() {
    serve m --size 62M --grace 60 || return
    run_vm rdma 2M --node "$RDMA?size=16M"
    run_vm inline 2M --io inline --node "$RDMA?size=16M"
    run_vm nbd 2M --node "$NBD?size=16M"
    filled rdma inline nbd && verified rdma inline nbd && await 2 all_free m || return
    # So does a program that ends because it lost another node.
    serve other --size 62M --listen "rdma://$here_address:7472" || return
    run_vm both 22M --timeout 30 --node "$RDMA" --node "$RDMA:7472"
    await 150 stat_has m 'leases 1,' && await 150 stat_has other 'leases 1,' &&
        kill -KILL "${node[other]}" && lost both "$(now)" 0 20000 'has ended' &&
        await 3 all_free m && end_node m
}

# --- many nodes ---

pair() {
    serve a --size 256M &&
        serve b --size "$1" --listen "rdma://$here_address:7472" --listen nbd://127.0.0.1:10810
}

# shares NAME WORD...: a program that fills 60 MiB over nodes a and b; sets share_a and share_b to
# the MiB that each gave.
shares() {
    local name=$1
    shift
    "$vmrun" "${flags[@]}" "$@" -- perl -e '
        my $size = 60 << 20;
        my $all = "x" x $size;
        print STDERR "randmem: fill\n";
        sleep 1000' >"$WORK/$name.out" 2>"$WORK/$name.err" &
    program[$name]=$!
    filled "$name" || return
    share_a=$(held a) share_b=$(held b)
    echo "measured $name: a $share_a MiB, b $share_b MiB"
    kill -KILL "${program[$name]}"
    { wait "${program[$name]}"; } 2>/dev/null
    return 0
}

# One slab is 16 MiB here: shares are exact but for the next one of each.
weighted() {
    pair 256M &&
        shares weighted --placement weighted --node "$RDMA?weight=1" --node "$RDMA:7472?weight=3" &&
        [ "$share_a" -gt 0 ] && [ "$share_b" -ge $((share_a * 3 - 48)) ] &&
        [ "$share_b" -le $((share_a * 3 + 48)) ]
}

linear() {
    pair 256M && shares linear --placement linear --node "$RDMA?size=32M" --node "$RDMA:7472" &&
        [ "$share_a" -eq 32 ] && [ "$share_b" -ge 28 ]
}

# The node with more free memory gives first.
free() {
    pair 512M && shares free --placement free --node "$RDMA" --node "$RDMA:7472" &&
        [ "$share_a" -eq 0 ] && [ "$share_b" -ge 60 ]
}

mixed() {
    pair 256M && truncate -s 16M "$WORK/dax" || return
    run_vm mixed 36M --node "$RDMA?size=16M" --node "$NBD:10810?size=16M" --node mem:16M \
        --node "dax:$WORK/dax"
    filled mixed && stat_has a 'holds [1-9]' &&
        stat_has b 'NBD lease.*, [1-9][0-9]* writes' && verified mixed &&
        await 3 all_free a && all_free b
}

try 'a wrong key is refused, the right one is taken' keys
try 'a node of another version, or that is none, or that does not answer' false_nodes
try 'a size beyond the capacity' beyond_capacity
try_long 'a second client gets the rest' second_client
try 'no node answers' unreachable
try 'no memnode listens' nobody_listens
try 'a device without link' no_link
try 'hardly any memory may be locked' memlock
try_long 'memnode ends: so does the program, at once' goodbye
try 'memnode is killed' killed_node
try_long 'memnode is killed and started again' replaced_node
try 'memnode stands still for 3 s' stopped_node
try_long 'memnode stands still while programs grow' stopped_while_growing
try 'a killed program loses its memory after the grace time, a stopped one keeps it' grace
try_long 'a program that ends gives back its memory at once' gives_back
try_long 'placement by weight' weighted
try_long 'placement of one after the other' linear
try_long 'placement by free memory' free
try_long 'nodes of all kinds at once' mixed
try 'the link drops for 3 s, twice' link_drops
try_long 'the link drops while programs grow' drop_while_growing
try_long 'the link drops for moments' link_shakes
try_long 'the link drops while the program sleeps, for longer than the grace time' idle
try_long 'the machine of a node stands still for 4 s' machine_stops
try_long 'silence for longer than --timeout' muted
try 'the machine of a node dies' machine_dies          # m2 is gone from here on
