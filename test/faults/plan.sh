# The plans of random, made from a seed. A plan is lines of a word and its values:
#
#   run N                 its name
#   kind memory|disk|rdma node m is a memnode, a foreign server that keeps its data if it is
#                         restarted, or a memnode over RDMA without a proxy
#   listen unix|tcp       where the proxy in front of it listens
#   second yes|no         whether there is a second node, which nothing happens to
#   fault KIND=...        of proxy.py
#   vmrun OPTION...       and those of words
#   words OPTION...
#   at MS EVENT           so long after the start (random: event)
#
# Sourced by random. Uses $rdma, its option.
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
    # The network is gone for good, for a run that ends early.
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

# make_plan SEED: sets $plan.
make_plan() {
    local kind=memory
    RANDOM=$1
    plan="run $1"
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
    line vmrun "$picked"
    one_of '' '--threads 3' '--children 3 --accesses 2000' '--children 5 --accesses 1000'
    words+=" $picked"
    one_of 2M 3M 4M
    line words "$words --size $picked"
    plan_events $kind
}
