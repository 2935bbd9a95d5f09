#!/bin/bash
# The system call test programs of ../system, natively and with their calls sent through vmrun's
# forwarding code, without a VM: one TAP line a program. Runs in the build folder of test/unit.
set -u

set -- ../system/t_sys*[!.o]

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
echo "1..$#"
number=0
for program; do
    number=$((number + 1))
    timeout -k 5 "${UNIT_LIMIT:-60}" ./test_syscalls ./forwarded.so "$program" "$work" \
        >"$work/log" 2>&1
    status=$?
    sed 's/^/# /' "$work/log"
    case $status in
    0) echo "ok $number - ${program##*/}" ;;
    77) echo "ok $number - ${program##*/} # SKIP this kernel has no syscall user dispatch" ;;
    *) echo "not ok $number - ${program##*/} # exit status $status" ;;
    esac
done
