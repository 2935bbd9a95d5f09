#!/bin/bash
# The rdma:// driver over soft-RoCE, in the lab:
#
#   lab/lab -- test/rdma/driver.sh [BUILD [WORD]]
#
# Sets up a soft-RoCE device and runs BUILD/test/rdma/driver (default: build) against a node of its
# own and against BUILD's memnode; only the cases whose name has WORD. Speaks TAP.
set -uo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$root/build}

skip() {
    echo "1..0 # SKIP $*"
    exit 77
}

[ "$(id -u)" -eq 0 ] || skip "soft-RoCE needs root: run it in the lab"
modprobe -a rdma_rxe rdma_ucm ib_uverbs 2>/dev/null ||
    skip "this kernel has no soft-RoCE: run it in the lab"
ip link add veth0 type veth peer name veth1 &&
    ip address add 10.98.0.1/24 dev veth0 &&
    ip link set veth0 up &&
    ip link set veth1 up &&
    rdma link add rxe0 type rxe netdev veth0 || skip "no soft-RoCE device can be made"
# A network without RDMA.
ip link add plain0 type veth peer name plain1 && ip address add 10.99.0.1/24 dev plain0 &&
    ip link set plain0 up && ip link set plain1 up
ip neighbour add 10.99.0.2 lladdr 02:00:00:00:00:01 dev plain0
# As udev's rules have it: some cases run as nobody.
chmod 666 /dev/infiniband/*

exec "$build/test/rdma/driver" 10.98.0.1 "$build/memnode/memnode" "${2-}"
