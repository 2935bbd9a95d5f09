#!/bin/bash
# The main job: the distribution's own sort over a text, natively and under vmrun with a cache of a
# quarter of what it needs. The two results must be the same.
#
# usage: sort.sh VMRUN TEXT [OPTION-OF-VMRUN...]
#
# Its need is measured: the peak resident set of the native run. --parallel=1 keeps sort from
# making threads, and the buffer (-S) is large enough for all of the text, so that it sorts in
# memory instead of merging files.
set -euo pipefail

vmrun=$1
text=$2
shift 2
export LC_ALL=C
sort=(sort --parallel=1 -S 512M)

work=$(mktemp -d "${TMPDIR:-/tmp}/vmrun-sort.XXXXXX")
trap 'rm -rf "$work"' EXIT

# timed FILE COMMAND...: runs it; FILE then holds its seconds and its peak resident set in KiB.
timed() {
    local file=$1
    shift
    /usr/bin/time -q -o "$file" -f '%e %M' "$@"
}

printf 'sorting %s: %d KiB, %d lines\n' "${text##*/}" $(($(stat -Lc %s "$text") / 1024)) \
    "$(wc -l <"$text")"

timed "$work/native.time" "${sort[@]}" -o "$work/native" "$text"
read -r seconds footprint <"$work/native.time"
printf '  natively:    %6.2f s, %d KiB of memory\n' "$seconds" "$footprint"

cache=$((footprint / 4))
status=0
timed "$work/vmrun.time" "$vmrun" --cache "${cache}K" --stats="$work/stats" "$@" -- \
    "${sort[@]}" -o "$work/vmrun" "$text" || status=$?
if [ $status -ne 0 ]; then
    echo "  under vmrun: failed with exit status $status" >&2
    exit 1
fi
read -r seconds _ <"$work/vmrun.time"
printf '  under vmrun: %6.2f s, %d KiB of cache\n' "$seconds" "$cache"
# The full statistics are many lines: --stats gives them.
shown='privilege|faults\.(total|zero|file|fetch)|fault_exits\.fetch|latency_ns\.fetch\..*'
shown+='|evicted|exits\.total|syscalls\.total|rss_bytes\..*'
grep -E "^($shown) " "$work/stats" | sed 's/^/    /'

if cmp "$work/native" "$work/vmrun"; then
    echo "  the results are the same ($(sha256sum <"$work/vmrun" | cut -c 1-16))"
else
    echo "  the results DIFFER" >&2
    exit 1
fi
