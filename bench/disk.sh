#!/bin/bash
# The file: driver beside fio's io_uring on the same device, at the same depth: random reads and
# writes of single pages, interleaved runs, of which the median counts.
#
#   bench/disk.sh [--runs N] [--seconds S] [--size MIB] [--depths WORDS] [--path PATH]
#
#   --depths  default 1,16,64
#   --path    a file or block device, which is OVERWRITTEN (default: a new file under TMPDIR)
#
# In the lab, on a disk of its own:
#   truncate -s 512M d; lab/lab --qemu=-drive --qemu=file=d,format=raw,if=none,id=d \
#       --qemu=-device --qemu=virtio-blk-pci,drive=d -- bench/disk.sh --path /dev/vda
set -euo pipefail
cd "$(dirname "$(realpath "$0")")/.."
# shellcheck source=bench/lib.sh
. bench/lib.sh

runs=3 seconds=2 size=256 depths=1,16,64 path=''
options "runs seconds size depths path" "$@"
command -v fio >/dev/null || die "there is no fio: install it (Debian: fio)"
made=''
[ -n "$path" ] || { path=$(mktemp "${TMPDIR:-/tmp}/vmrun-disk.XXXXXX") && made=$path; }
trap '[ -z "$made" ] || rm -f "$made"' EXIT
[[ $path != /dev/* ]] || modprobe virtio_blk 2>/dev/null || true
for _ in {1..20}; do
    [ ! -e "$path" ] || break
    sleep 0.1
done
[ -b "$path" ] || fallocate -l "${size}M" "$path"

# rate vmrun|fio DEPTH read|write: pages a second.
rate() {
    if [ "$1" = vmrun ]; then
        build/bench/disk --depth "$2" --seconds "$seconds" --pages $((size * 255)) "$3" "$path" |
            sed -n 's/^pages_per_s //p'
    else
        fio --name=x --filename="$path" --direct=1 --ioengine=io_uring --bs=4k --size="${size}M" \
            --time_based --runtime="$seconds" --rw="rand$3" --iodepth="$2" --minimal |
            cut -d ';' -f "$([ "$3" = read ] && echo 8 || echo 49)"
    fi
}

middle() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }

for depth in ${depths//,/ }; do
    for what in read write; do
        a=() b=()
        for ((i = 0; i < runs; i++)); do
            a+=("$(rate vmrun "$depth" $what)")
            b+=("$(rate fio "$depth" $what)")
        done
        x=$(middle "${a[@]}") y=$(middle "${b[@]}")
        echo "$what, $depth in flight: vmrun $x, fio $y pages a second:" \
            "$(awk "BEGIN { printf \"%.2f\", $x / $y }")"
    done
done
