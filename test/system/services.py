#!/usr/bin/env python3
"""Nodes by the name of a service in DNS.

  unshare -rmn services.py VMRUN BUILD [SCHEME [ADDRESS]]

Runs in namespaces of its own, with a DNS server on port 53 and three memnodes at ADDRESS (default
127.0.0.1), for nodes SCHEME+srv:// (nbd, nbds or rdma).  Prints why, and exits with 1, if it fails;
with 77 if it cannot be tried.
"""
import json
import os
import re
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

vmrun, build, scheme, address = [*sys.argv[1:], *["nbd", "127.0.0.1"][len(sys.argv) - 3:]]
vmctl = f"{build}/runtime/vmctl"
work = tempfile.mkdtemp(dir=os.environ.get("XDG_RUNTIME_DIR"))
os.environ["XDG_RUNTIME_DIR"] = work
SRV, A = 33, 1
PORTS = (7001, 7002, 7003)
NAME = "_memnode._tcp.cluster.test"
KEYS = f"{work}/keys" if scheme == "nbds" else None
SERVICE = f"{scheme}+srv://{NAME}?size=48M" + (f"&keys={KEYS}" if KEYS else "")
records = []                            # priority, weight, port, host
started = []


def check(what, reason):
    if not what:
        raise AssertionError(reason)


def encode(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"


def answer(query):
    """Of one question: SRV records of NAME, the address of every m<N>.cluster.test."""
    at, parts = 12, []
    while query[at]:
        parts.append(query[at + 1:at + 1 + query[at]].decode())
        at += 1 + query[at]
    kind, = struct.unpack(">H", query[at + 1:at + 3])
    name, data = ".".join(parts).lower(), []
    if kind == SRV and name == NAME:
        data = [struct.pack(">HHH", *r[:3]) + encode(r[3]) for r in records]
    elif kind == A and name.startswith("m"):
        data = [socket.inet_aton(address)]
    known = name == NAME or name.startswith("m")
    return (query[:2] + struct.pack(">HHHHH", 0x8580 | (0 if known else 3), 1, len(data), 0, 0) +
            query[12:at + 5] + b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(d)) + d
                                        for d in data))


def serve(s):
    while True:
        query, peer = s.recvfrom(512)
        s.sendto(answer(query), peer)


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def start(*words):
    p = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    started.append(p)
    return p


def nodes(p):
    return [(row["name"], row["leased"] > 0)
            for row in json.loads(run(vmctl, str(p.pid), "nodes", "--json").stdout)]


def url(n):
    return f"{scheme}://m{n}.cluster.test:{PORTS[n]}"


def prepare():
    with open(f"{work}/resolv.conf", "w", encoding="ascii") as f:
        f.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    for words in (["ip", "link", "set", "lo", "up"],
                  ["mount", "--bind", f"{work}/resolv.conf", "/etc/resolv.conf"]):
        if run(*words).returncode:
            print(f"{' '.join(words)}: not here")
            sys.exit(77)
    if KEYS:
        with open(KEYS, "w", encoding="ascii") as f:
            os.chmod(KEYS, 0o600)
            f.write(f"alice:{secrets.token_hex(32)}\n")
    options = ["--keys", KEYS] if KEYS else ["--insecure"]
    for port in PORTS:
        p = start(f"{build}/memnode/memnode", "--size", "64M", "--hugepages", "none", *options,
                  "--listen", f"{'rdma' if scheme == 'rdma' else 'nbd'}://{address}:{port}")
        while "serving" not in p.stderr.readline():
            check(p.poll() is None, "memnode does not start")


def cases():
    # No server answers yet.
    r = run(vmrun, "--node", SERVICE, "--", "true")
    check(r.returncode == 125 and f"no DNS server answers for {NAME}" in r.stderr, r.stderr)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("127.0.0.1", 53))
    threading.Thread(target=serve, args=(s,), daemon=True).start()

    r = run(vmrun, "--node", SERVICE.replace("cluster", "other"), "--", "true")
    check(r.returncode == 125 and "DNS has no SRV record of _memnode._tcp.other.test" in r.stderr,
          r.stderr)
    r = run(vmrun, "--node", f"{SERVICE}&weight=2", "--", "true")
    check(r.returncode == 125 and "weight and priority come from DNS" in r.stderr, r.stderr)
    records[:] = [(0, 0, 1, ".")]       # there is no such service, by RFC 2782
    r = run(vmrun, "--node", SERVICE, "--", "true")
    check(r.returncode == 125 and "DNS has no SRV record" in r.stderr, r.stderr)

    # The lowest number is used first, whatever the order of the answer.
    records[:] = [(20, 5, PORTS[0], "m0.cluster.test"), (10, 65535, PORTS[1], "m1.cluster.test")]
    r = run(vmrun, "--check", "--node", SERVICE)
    works = re.findall(r"^(?:nodes)? +(\S+) works", r.stdout, re.M)
    check(works == [url(1), url(0)], r.stdout)
    p = start(vmrun, "--cache", "2M", "--node", SERVICE, "--",
              f"{build}/examples/randmem", "--size", "8M", "--accesses", "1000000000")
    end = time.monotonic() + 60
    while not os.path.exists(f"{work}/vmrun/{p.pid}") or not any(used for _, used in nodes(p)):
        check(p.poll() is None and time.monotonic() < end, "the program does not use its nodes")
        time.sleep(0.05)
    check(nodes(p) == [(url(1), True), (url(0), False)], nodes(p))
    # One more, later; and then no more.
    records.append((10, 0, PORTS[2], "m2.cluster.test"))
    for _ in range(2):
        r = run(vmctl, str(p.pid), "nodes", "add", SERVICE)
        check(r.returncode == 0, r.stderr)
        check([name for name, _ in nodes(p)] == [url(1), url(0), url(2)], nodes(p))


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
try:
    prepare()
    cases()
except AssertionError as e:
    print(e)
    sys.exit(1)
finally:
    for process in started:
        process.kill()
