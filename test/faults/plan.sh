# The plans of random, made from a seed. A plan is lines of a word and its values:
#
#   run N                 its name
#   kind memory|disk|rdma|file    node m is a memnode, a foreign server that keeps its data if it is
#                         restarted, a memnode over RDMA without a proxy, or a disk that may hang
#   listen unix|tcp       where the proxy in front of it listens
#   second yes|no         whether there is a second node, without faults
#   replicas 2|3          copies of each page, on nodes m, n and o
#   fault KIND=...        of proxy.py
#   vmrun OPTION...       and those of words
#   words OPTION...
#   at MS EVENT [NODE]    so long after the start (random: event); `whole`: waits until vmrun has
#                         said that all copies are there, and the events after it are counted from
#                         then; if it does not say so, they are left out
#
# Sourced by random. Uses $rdma, $copies and $hanging, its options, and $spoiling, a pattern of
# faults.
# shellcheck shell=bash disable=SC2034

# pick N: a number below N, in $picked. (A subshell would have random numbers of its own.)
pick() { picked=$((RANDOM % $1)); }
# one_of WORD...: one of them, in $picked.
one_of() {
    pick $#
    shift $picked
    picked=$1
}
line() { plan+=$'\n'"$*"; }

# Faults of the network that are fenced or repaired; with disk, those that a foreign server bears.
network=(delay=0.01:0.2 reorder=0.02 close=0.003 truncate=0.002 reset=0.003 outage=1:0.7
    flip-down=0.01 stale=0.01 torn=0.01 swap=0.01)
late=(hold=0.002:1 late=0.003:1 flip-up=0.01 misplace=0.005 deaf=3:0.3)

plan_faults() {
    local kind=$1 n i
    pick 4
    for ((n = picked, i = 0; i < n; i++)); do
        if [ "$kind" = memory ]; then
            one_of "${network[@]}" "${late[@]}"
        else
            one_of "${network[@]}"
        fi
        line fault "$picked"
    done
    # The network is gone for good, for a run that ends early, unless there are copies.
    pick 12
    [ $picked -gt 0 ] || line fault outage=60:1
}

# Pairs of events that begin and end something, and single ones.
plan_events() {
    local kind=$1 n i at=0 length what
    pick 4
    for ((n = picked, i = 0; i < n; i++)); do
        pick 1000
        at=$((at + 200 + picked)) length=$((50 + picked))
        one_of node process root kill-child kill-child kill-root restart-node end-node lie
        what=$picked
        case $what in
        node | process | root)
            line at $at stop-"$what"
            at=$((at + length))
            line at $at cont-"$what"
            ;;
        end-node | lie) [ "$kind" = disk ] || line at $at "$what" ;;
        *) line at $at "$what" ;;
        esac
        # After these there is nothing left to happen.
        case $what in kill-root | end-node) break ;; esac
    done
}

# One node fails again and again; with three copies two nodes do. The plan expects nothing of a node
# that fails, and every page on the others.
plan_bad_nodes() {
    local bad=(m) n i at=0 length what who
    [ "$1" -eq 2 ] || bad=(m n)
    pick 4
    for ((n = 1 + picked, i = 0; i < n; i++)); do
        pick 1000
        at=$((at + 200 + picked))
        pick 2200
        length=$((50 + picked))
        one_of node node process root kill-child kill-child kill-root restart-node restart-node \
            kill-node end-node lie
        what=$picked
        one_of "${bad[@]}"
        who=$picked
        # A disk only hangs, for longer than --timeout too.
        if [[ $hanging$who = yesm && $what =~ -node|lie|^node ]]; then
            what=node length=$((3 * length))
        fi
        case $what in
        node)
            line at $at stop-node "$who"
            at=$((at + length))
            line at $at cont-node "$who"
            ;;
        process | root)
            line at $at stop-"$what"
            at=$((at + length))
            line at $at cont-"$what"
            ;;
        kill-child | kill-root) line at $at "$what" ;;
        *) line at $at "$what" "$who" ;;
        esac
        [ "$what" != kill-root ] || break
    done
}

# One node after the other, each when the pages that the node before missed have been copied. A node
# that is gone stays so for its program: the last node after two losses may only be silent.
plan_in_turn() {
    local left=(m n o) n i length what at=300
    pick 3
    for ((n = 2 + picked, i = 0; i < n; i++)); do
        pick 1500
        length=$((1300 + picked))       # long enough to be noticed
        one_of stop stop restart-node kill-node end-node
        what=$picked
        [ ${#left[@]} -gt 1 ] || what=stop
        pick ${#left[@]}
        if [ "$what" = stop ]; then
            line at $at stop-node "${left[picked]}"
            line at $((at + length)) cont-node "${left[picked]}"
        else
            line at $at "$what" "${left[picked]}"
            unset "left[picked]"
            left=("${left[@]}")
        fi
        line at 0 whole
        at=100
    done
}

# plan_copies SEED
plan_copies() {
    local replicas=2 options shape kind=${rdma:+rdma}
    [ "$hanging" = no ] || kind=file
    : "${kind:=memory}"
    pick 5
    [ $picked -gt 0 ] || replicas=3
    line kind "$kind"
    one_of unix tcp
    line listen "$picked"
    line replicas $replicas
    one_of '--rebuild-rate 0' '--rebuild-rate 0' '' '--rebuild-rate 1M'
    options=$picked
    one_of '' '' --debug '--io inline' '--cache 2M' '--placement linear'
    options+=" $picked"
    if [ "$kind" = rdma ]; then
        one_of '' ' --direct on' ' --direct on'
        options+=$picked
    fi
    # A disk needs the I/O thread.
    [ "$hanging" = no ] || options=${options/--io inline/}
    pick 3
    # Pages that a disk has missed are not copied to it, so vmrun never says that they are.
    if [ $picked -eq 0 ] && [ "$hanging" = no ]; then
        one_of '' '--threads 3'
        shape="--seconds 8 $picked"
        plan_in_turn
    else
        pick 3
        shape="--seconds $((2 + picked))"
        one_of '' '--threads 3' '--children 3 --accesses 2000' '--children 5 --accesses 1000' \
            '--children 11 --accesses 1000'
        shape+=" $picked"
        plan_bad_nodes $replicas
        [ "$kind" != memory ] || plan_faults memory
    fi
    # Sums would hide that a copy was read that is not good.
    pick 2
    [[ $picked -eq 0 || $plan =~ $spoiling ]] || options+=' --no-verify'
    line vmrun "$options"
    one_of 2M 2M 3M
    line words "--seed $1 $shape --size $picked"
}

# make_plan SEED: sets $plan.
make_plan() {
    local kind=memory
    RANDOM=$1
    plan="run $1"
    if [ "$copies" = yes ]; then
        plan_copies "$1"
        return
    fi
    pick 5
    if [ -n "$rdma" ]; then
        kind=rdma
    elif [ $picked -eq 0 ] && command -v nbdkit >/dev/null; then
        kind=disk
    fi
    line kind $kind
    one_of unix tcp
    line listen "$picked"
    one_of no no yes
    line second "$picked"
    [ $kind = rdma ] || plan_faults $kind
    pick 3
    local words="--seed $1 --seconds $((2 + picked))"
    one_of '' --debug '--io inline' '--cache 2M'
    local options=$picked
    if [ $kind = rdma ]; then
        one_of '' ' --direct on' ' --direct on'
        options+=$picked
    fi
    line vmrun "$options"
    one_of '' '--threads 3' '--children 3 --accesses 2000' '--children 5 --accesses 1000'
    words+=" $picked"
    one_of 2M 3M 4M
    line words "$words --size $picked"
    plan_events $kind
}
