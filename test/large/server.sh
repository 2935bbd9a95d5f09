# Shell functions for cases that need a server beside them. To be sourced by bash scripts of this
# folder, which run calls.
# shellcheck shell=bash

server=''

# start_server SIZE COMMAND...: in the background, with a cache of SIZE, its output in server.out.
# start_native COMMAND...: natively, with its output in server.out.
# A server that still runs when the script ends is killed.
start_server() {
    under "$@" >>server.out 2>&1 &
    started $!
}

start_native() {
    "$@" >>server.out 2>&1 &
    started $!
}

started() {
    server=$1
    # The job may be a shell that waits for the server.
    trap '{ pkill -KILL -P "$server"; kill -KILL "$server"; } 2>/dev/null' EXIT
}

# until_up COMMAND...: waits until COMMAND, which asks the server, succeeds; gives up when the
# server has ended, or after 120 s (in the lab: more).
until_up() {
    local i
    for ((i = 0; i < 600; i++)); do
        if "$@" >/dev/null 2>&1; then
            return
        fi
        if ! kill -0 "$server" 2>/dev/null; then
            break
        fi
        sleep 0.2
    done
    echo "the server does not answer to: $*" >&2
    cat server.out >&2
    return 1
}

# server_ended STATUS: waits for the server, which has been told to end and must do so with STATUS.
server_ended() {
    local status=0
    wait "$server" || status=$?
    trap - EXIT
    if [ "$status" -ne "$1" ]; then
        echo "the server ended with status $status, not $1" >&2
        tail -n 60 server.out >&2
        return 1
    fi
}
