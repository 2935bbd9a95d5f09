#!/bin/bash
# memnode as an NBD server beside nbdkit's memory plugin: both on this machine, with equal clients
# and one kind of socket.
#
#   bench/nbd.sh [--runs N] [--seconds S] [--size MIB] [--tcp] [--json FILE]
#
#   --runs N      interleaved runs of each server, of which the median counts (default 5)
#   --seconds S   length of each fio run (default 2)
#   --size MIB    size of the export (default 256)
#   --tcp         over loopback TCP instead of unix sockets
# MEMNODE: the memnode to measure (default build/memnode/memnode). Needs nbdkit, nbdcopy and fio
# with its nbd engine.
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

MEMNODE=$(realpath "${MEMNODE:-build/memnode/memnode}")
runs=5 seconds=2 size=256 tcp=
options "runs seconds size tcp!" "$@"
for program in nbdkit nbdcopy nbdinfo fio; do
    command -v $program >/dev/null ||
        die "there is no $program: install it (Debian: nbdkit libnbd-bin fio)"
done

work=$(mktemp -d "${TMPDIR:-/tmp}/vmrun-nbd.XXXXXX")
servers=()
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

# --- the servers ---

# serve NAME COMMAND...: in the background, as a child of this script, so that its number is in $!.
serve() {
    local name=$1
    shift
    printf '+ %s\n' "$*" >&2
    "$@" 2>"$work/$name.log" &
    servers+=($!)
}

declare -A uri
serve memnode "$MEMNODE" --size $((size + 2))M --hugepages none --export disk="$size"M \
    --listen nbd+unix://"$work"/memnode --listen nbd://127.0.0.1:10871
if [ -n "$tcp" ]; then
    uri=([memnode]=nbd://127.0.0.1:10871 [nbdkit]=nbd://127.0.0.1:10872)
    serve nbdkit nbdkit --foreground --ipaddr 127.0.0.1 --port 10872 memory "$size"M
else
    uri=([memnode]="nbd+unix:///?socket=$work/memnode" [nbdkit]="nbd+unix:///?socket=$work/nbdkit")
    serve nbdkit nbdkit --foreground --unix "$work/nbdkit" memory "$size"M
fi

for server in memnode nbdkit; do
    for _ in {1..50}; do
        nbdinfo --size "${uri[$server]}" >/dev/null 2>&1 && break
        sleep 0.1
    done
    [ "$(nbdinfo --size "${uri[$server]}")" = $((size << 20)) ] ||
        die "$server does not serve: $(cat "$work/$server.log")"
done

# --- the measurements; each prints one number, of which more is better ---

# MB a second of a command.
rate() {
    local from=$EPOCHREALTIME
    "$@" || die "failed: $*"
    calc "$size * 1.048576 / (${EPOCHREALTIME/,/.} - ${from/,/.})"
    echo
}
copy_in() { rate nbdcopy "$work/data" "$1"; }
copy_out() { rate nbdcopy "$1" null:; }

# fio_ URI KIND DEPTH BLOCK: operations a second.
fio_() {
    fio --name=nbd --ioengine=nbd --uri="$1" --rw="$2" --iodepth="$3" --bs="$4" \
        --size="$size"M --time_based --runtime="$seconds" --randrepeat=1 \
        --output-format=terse --terse-version=3 | awk -F';' '/^3;/ { print $8 + $49 }'
}
read_1() { fio_ "$1" randread 1 4k; }
read_64() { fio_ "$1" randread 64 4k; }
write_1() { fio_ "$1" randwrite 1 4k; }
write_64() { fio_ "$1" randwrite 64 4k; }

head -c "$size"M /dev/urandom >"$work/data"
for server in memnode nbdkit; do        # all pages exist before anything is measured
    ran nbdcopy "$work/data" "${uri[$server]}"
done

printf '%-44s %12s %12s %8s %8s\n' 'median of '"$runs"', more is better' memnode nbdkit ratio spread
while IFS=: read -r what unit name; do
    : >"$work/memnode.v"
    : >"$work/nbdkit.v"
    for ((run = 0; run < runs; run++)); do
        for server in memnode nbdkit; do
            "$what" "${uri[$server]}" >>"$work/$server.v"
        done
    done
    ours=$(median <"$work/memnode.v")
    theirs=$(median <"$work/nbdkit.v")
    ratio=$(calc "$ours / $theirs")
    spread=$(sort -g "$work/memnode.v" |
        awk '{ v[NR] = $1 } END { printf "%.2f", v[NR] / v[1] }')
    printf '%-44s %12.0f %12.0f %8.2f %8s\n' "$name, $unit" "$ours" "$theirs" "$ratio" "$spread"
    record "what=$name" "unit=$unit" "memnode=$ours" "nbdkit=$theirs" "ratio=$ratio"
    ratios+=("$ratio $name")
done <<'TABLE'
copy_in:MB/s:nbdcopy to the server
copy_out:MB/s:nbdcopy from the server
read_1:ops/s:fio random reads of 4 KiB, depth 1
read_64:ops/s:fio random reads of 4 KiB, depth 64
write_1:ops/s:fio random writes of 4 KiB, depth 1
write_64:ops/s:fio random writes of 4 KiB, depth 64
TABLE
for pair in "${ratios[@]}"; do
    verdict "memnode / nbdkit: ${pair#* }" "${pair%% *}" '>=' 1
done
finish
