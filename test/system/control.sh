# vmctl and the control socket; control.py has the cases.
# shellcheck shell=bash disable=SC2034,SC2154

control() {
    control_case list 'vmctl list; sockets of the dead are removed'
    control_case stats 'vmctl stats in each format, and reset'
    control_case watch 'vmctl watch: lines, JSON, a screen; how it ends'
    control_case screens 'vmctl top and watch on a screen of 80 columns'
    control_case mistakes 'mistakes with vmctl, and programs without a socket'
    control_case strangers 'vmctl is not for other users'
    control_case second 'a second user, without XDG_RUNTIME_DIR'
    control_case peers 'what else may connect to the control socket'
    control_case remote 'a remote node added while the program runs'
    control_case fewer 'pages with fewer copies than --replicas'
    control_case families 'vmctl with fork and execve'
    control_case nodes 'vmctl nodes; a node added while the program runs'
    control_case settings 'vmctl get and set'
    control_case far 'far memory off, and on again'
    services nbd
    services nbds
}

# Nodes by a name in DNS, in namespaces of their own; over RDMA: test/rdma/run.
services() {
    local name="nodes by a name in DNS, $1" LIMIT=$limit
    selected "$name" || return 0
    run_limited unshare -rmn python3 "$here/services.py" "$vmrun" "$build" "$1"
    if [ "$status" = 77 ] || grep -q '^unshare: ' "$ERR"; then
        skip "$name" "no namespaces can be made here: $(head -qn 1 "$OUT" "$ERR")"
        return
    fi
    [ "$status" = 0 ] || status="status $status: $(head -n 1 "$OUT")"
    verdict "$name" "${status#0}"
}

# control_case CASE NAME
control_case() {
    local name=$2 LIMIT=$((limit * 5)) why=''
    selected "$name" || return 0
    run_limited env BUILD="$build" python3 "$here/control.py" "$1" "$vmrun" "${vmrun_flags[@]}"
    if [ "$status" = 77 ]; then
        skip "$name" "$(head -n 1 "$OUT")"
        return
    fi
    [ "$status" = 0 ] || why="status $status: $(head -n 1 "$OUT")"
    verdict "$name" "$why"
}
