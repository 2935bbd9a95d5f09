"""
What memnode writes for Prometheus (--stats): that it counts what happened, and is written whole.

usage: figures.py FOLDER MEMNODE
"""
import atexit
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from client import *
from client import client
from leases import create, lease

SAMPLE = re.compile(r'memnode_(\w+)\{memnode="([^"]*)"((?:,\w+="(?:[^"\\]|\\.)*")*)\} (\d+)')


def read(path):
    """{name or (name, value of each label): number} of a file, which must be whole."""
    text = open(path).read()
    assert text.endswith("\n"), "half a file"
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        labels = re.findall(r'="((?:[^"\\]|\\.)*)"', sample[3])
        key = (sample[1], *labels) if labels else sample[1]
        assert key not in found, f"twice: {key}"
        assert sample[2] == os.path.basename(path).removesuffix(".prom"), line
        found[key] = int(sample[4])
    return found


def until(path, wanted, seconds=10):
    """Waits for these figures."""
    end = time.monotonic() + seconds
    while True:
        now = read(path) if os.path.exists(path) else {}
        if all(now.get(k) == v for k, v in wanted.items()):
            return now
        assert time.monotonic() < end, {k: (now.get(k), v) for k, v in wanted.items()
                                        if now.get(k) != v}
        time.sleep(0.05)


def start(*options):
    p = subprocess.Popen(
        [memnode, "--size", "64M", "--hugepages", "none", "--listen", f"nbd+unix://{at}",
         "--stats", path, "--stats-interval", "1", "--grace", "1", *options],
        stderr=open(f"{folder}/figures.log", "a"), preexec_fn=lambda: os.umask(0o077))
    atexit.register(p.kill)
    return p


def end(p, by=signal.SIGTERM):
    p.send_signal(by)
    assert p.wait(20) == (-by if by == signal.SIGKILL else 0)


def works():
    """Traffic, leases, connections and refusals are counted."""
    until(path, {"up": 1, "starts_total": 1, "drains_total": 0, "pool_size_bytes": 64 * MIB,
                 "pool_used_bytes": 4 * MIB, "accounts": 1})
    assert os.stat(path).st_mode & 0o777 == 0o644, "another user reads it"
    me = f"user {os.getuid()}"
    with client(at, lease("a", MIB)) as a, client(at, lease("b", 2 * MIB)) as b:
        for _ in range(5):
            a.write(0, b"x" * 4096)
        b.read(0, MIB)
        with Client(at).greet() as c:
            expect(UNKNOWN, c.go, "nonsense")
            c.send(b"no option of NBD" * 4)
        until(path, {"writes_total": 5, "written_bytes_total": 5 * 4096, "reads_total": 1,
                     "read_bytes_total": MIB, ("leases", "nbd"): 2, ("connections", "nbd"): 2,
                     "accounts": 3, "pool_used_bytes": 7 * MIB,
                     ("refusals_total", "request"): 1, ("refusals_total", "protocol"): 1,
                     ("refusals_total", "key"): 0, ("client_held_bytes", me, "origin"): 3 * MIB,
                     ("client_leases", me, "origin"): 2,
                     ("client_connections", me, "origin"): 2})
        b.request(DISC)
        assert b.s.recv(1) == b""
    # What a lease had counted stays when the lease is over.
    until(path, {("leases", "nbd"): 0, ("connections", "nbd"): 0, ("abandoned_total", "nbd"): 1,
                 "pool_used_bytes": 4 * MIB, "writes_total": 5, "read_bytes_total": MIB})


def is_valid():
    if not shutil.which("promtool"):
        print("promtool is not installed")
        return
    done = subprocess.run(["promtool", "check", "metrics"], stdin=open(path), text=True,
                          capture_output=True, timeout=30)
    assert (done.returncode, done.stdout + done.stderr) == (0, ""), done


if __name__ == "__main__":
    folder, memnode = sys.argv[1:3]
    at, path, kept = f"{folder}/figures.sock", f"{folder}/figures.prom", f"{folder}/figures.leases"

    p = start("--export", "disk=4M", "--insecure")
    works()
    is_valid()
    end(p, signal.SIGKILL)
    assert read(path)["up"] == 1
    p = start("--resume", kept, "--drain-timeout", "0")
    until(path, {"starts_total": 2, "drains_total": 0, "writes_total": 0, "resumed_leases": 0})
    c, incarnation = create(at, MIB)
    c.write(0, b"mine")
    end(p)
    last = read(path)
    assert (last["up"], last["drains_total"], last["draining"]) == (0, 1, 0), last
    p = start("--resume", kept)
    until(path, {"starts_total": 3, "resumed_leases": 1, ("leases", "nbd"): 1})
    end(p)
