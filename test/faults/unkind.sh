# Memnodes behind unix sockets, and the proxy in front of one. Sourced after common.sh and words.sh.
# shellcheck shell=bash disable=SC2034,SC2154

flags=(--no-config --cache 1M --connect-timeout 30)

# Nodes for vmrun: a lease of so much of memnode NAME; of memnode m through the proxy.
at() { echo "nbd+unix:///?socket=$WORK/$1.sock&size=$2"; }
through() {
    if [[ $proxy_at = /* ]]; then
        at proxy "$1"
    else
        echo "nbd://$(sed -n 's/.*listens at //p' "$WORK/proxy.err")?size=$1"
    fi
}
proxy_at=$WORK/proxy.sock      # where it listens

serve() {
    local name=$1
    shift
    start_memnode "$name" --listen "nbd+unix://$WORK/$name.sock" "$@"
}

# serve_all NAME...: memnodes with $node_options; vmrun's options for them are in $nodes.
node_options=(--size 64M) lease_size=48M
serve_all() {
    local n
    nodes=()
    for n; do
        serve "$n" "${node_options[@]}" || return
        nodes+=(--node "$(at "$n" $lease_size)")
    done
}

# serve_foreign PLUGIN ARGUMENT...: node m is an nbdkit, which knows nothing of members and cuts.
# One thread for a connection: of several, nbdkit 1.32 may abort when it is reset while they answer
# ("raw_send_socket: Assertion `sock >= 0' failed").
serve_foreign() {
    rm -f "$WORK/m.sock" "$WORK/m.pid"
    nbdkit --foreground --threads 1 --pidfile "$WORK/m.pid" --unix "$WORK/m.sock" "$@" \
        2>>"$WORK/m.log" &
    node[m]=$!
    await 20 test -s "$WORK/m.pid"
}

# proxy_of NAME PROXY LISTEN SEED OPTION...: in front of memnode NAME, with PROXY as its own name.
# proxy SEED OPTION...: in front of memnode m.
proxy_of() {
    local to=$1 name=$2 listen=$3 seed=$4
    shift 4
    : >"$WORK/$name.err"
    PYTHONDONTWRITEBYTECODE=1 python3 "$here/proxy.py" --seed "$seed" --log "$WORK/$name.log" \
        "$@" "$listen" "$WORK/$to.sock" 2>"$WORK/$name.err" &
    node[$name]=$!
    await 20 grep -q listens "$WORK/$name.err" || { cat "$WORK/$name.err"; return 1; }
}
proxy() { proxy_of m proxy "$proxy_at" "$@"; }
proxy_said() { grep -c -- "$1" "$WORK/proxy.log"; }

# over_tcp COMMAND...: with the proxy at a port of this host.
over_tcp() {
    local proxy_at=127.0.0.1:0
    "$@"
}
