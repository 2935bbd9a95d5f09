"""
memnode's log: each line has its time, or its level where journald reads; and names what it is
about, also what a restart has cost.

usage: log.py FOLDER MEMNODE
"""
import atexit
import datetime
import os
import re
import signal
import socket
import subprocess
import sys
import time

from client import *
from client import client
from leases import SECRET, create, cut, join, lease

folder, memnode = sys.argv[1:3]
at, log = f"{folder}/log.sock", f"{folder}/log"
TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4}) memnode: (.*)")
ME = f"user {os.getuid()}"


def start(*options, stderr=None, **more):
    p = subprocess.Popen(
        [memnode, "--size", "16M", "--hugepages", "none", "--listen", f"nbd+unix://{at}",
         "--grace", "1", "--drain-timeout", "0", *options],
        stderr=stderr or open(log, "w"), **more)
    atexit.register(p.kill)
    return p


def said():
    return [TIME.fullmatch(line) for line in open(log).read().splitlines()]


def has(words, times=1):
    """Waits until so many lines have these words."""
    end = time.monotonic() + 10
    while sum(words in line[2] for line in said() if line) < times:
        assert time.monotonic() < end, (words, open(log).read())
        time.sleep(0.02)


def end(p, by=signal.SIGTERM):
    p.send_signal(by)
    assert p.wait(20) == (-by if by == signal.SIGKILL else 0)


def times():
    """In local time, with its distance from UTC."""
    p = start(env={**os.environ, "TZ": "IST-5:30"})
    has("serving")
    end(p)
    assert all(said()), open(log).read()
    for line in said():
        when = datetime.datetime.strptime(line[1], "%Y-%m-%dT%H:%M:%S.%f%z")
        assert when.utcoffset() == datetime.timedelta(hours=5, minutes=30), line[0]
        now = datetime.datetime.now(datetime.timezone.utc)
        assert abs((now - when).total_seconds()) < 60, line[0]
    words = [line[2] for line in said()]
    assert words[-2:] == ["ending", "ended"], words
    assert f"SIGTERM from process {os.getpid()} of {ME}" in words, words


def levels(right):
    """To a socket that JOURNAL_STREAM names, or not."""
    ours, its = socket.socketpair()
    stat = os.fstat(its.fileno())
    env = {**os.environ, "JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino + (not right)}"}
    p = start("--export", "disk=1M", stderr=its, env=env)
    while b"serving" not in ours.recv(4096, socket.MSG_PEEK):
        time.sleep(0.02)
    with Client(at).greet() as c:
        expect(UNKNOWN, c.go, "nonsense")
    while b"refused" not in ours.recv(4096, socket.MSG_PEEK):
        time.sleep(0.02)
    end(p)
    failed = start("--listen", f"nbd+unix://{folder}/none/x", stderr=its, env=env)
    assert failed.wait(20) == 1
    mistake = start("--sise", stderr=its, env=env)
    assert mistake.wait(20) == 1
    its.close()
    lines = b"".join(iter(lambda: ours.recv(65536), b"")).decode().splitlines()
    if not right:
        assert all(map(TIME.fullmatch, lines[:-1])), lines
        assert lines[-1].startswith("memnode: --sise"), "a mistake in typing has no time"
        return
    for level, words in ("5", "serving 16M"), ("4", "refused"), ("5", "SIGTERM"), ("5", "ended"), \
            ("3", "cannot listen on"), ("3", "no such option"):
        assert any(re.match(f"<{level}>(?!memnode).*{words}", line) for line in lines), lines
    assert all(re.match("<[345]>", line) for line in lines), lines


def names():
    """Leases, their owners and programs are named; secrets are not."""
    p = start()
    has("serving")
    mark = f"NBD lease {'a' * 8}... of {ME}, 1M: "
    with client(at, lease("a", MIB)) as c:
        has(mark + "made")
        c.write(0, b"mine")
    has(mark + "its last client is gone; it may come back for 1 s")
    with client(at, lease("a", MIB)) as c:
        has(mark + "a client is back")
    has(mark + "over, as no client came back for the grace time")
    with client(at, lease("b", MIB)) as c:
        c.request(DISC)
        c.s.recv(1)
    has(f"NBD lease {'b' * 8}... of {ME}, 1M: over, as its client said goodbye")
    with Client(at).greet() as c:
        expect(UNKNOWN, c.go, f"join-{SECRET}-{'1' * 16}-1-1-1")
    c, incarnation = create(at, MIB)
    c.s.close()
    gone = f"NBD lease {SECRET[:8]}... of {ME}, 1M: its last client is gone"
    has(gone)
    cut(at, incarnation, "1.1")                 # a CUT is no client
    time.sleep(0.2)
    assert open(log).read().count(gone) == 1, "the last client is gone twice"
    has(f"NBD lease {SECRET[:8]}... of {ME}, 1M: over")
    comm = open("/proc/self/comm").read().strip()
    has(f"NBD client process {os.getpid()} ({comm}) of {ME}: refused: "
        f"NBD lease {SECRET[:8]}...: memnode does not know that lease")
    with client(at, lease("c", MIB)) as c:
        c.write(0, b"mine")
        end(p)
    has(f"NBD lease {'c' * 8}... of {ME}, 1M: lost, with all that was written there")
    text = open(log).read()
    assert SECRET[:9] not in text and "a" * 9 not in text, "a secret"


def restarts():
    """What is kept, what is lost, and by whom."""
    figures, kept = f"{folder}/log.prom", f"{folder}/log.leases"
    p = start("--resume", kept, "--stats", figures, "--stats-interval", "1")
    has("serving")
    c, incarnation = create(at, MIB)
    c.write(0, b"mine")
    other = client(at, lease("d", MIB))         # of no members: not kept
    other.write(0, b"mine")
    end(p)
    has(f"NBD lease {'d' * 8}... of {ME}, 1M: lost")
    assert f"NBD lease {SECRET[:8]}... of {ME}, 1M: lost" not in open(log).read()
    p = start("--resume", kept, "--stats", figures, "--stats-interval", "1")
    has("serving")
    has(f"NBD lease {SECRET[:8]}... of {ME}, 1M: served again")
    has("1 lease of clients is taken over")
    assert "killed" not in open(log).read()
    with join(at, incarnation, 1, 1, 2):
        has(f"NBD lease {SECRET[:8]}... of {ME}, 1M: a client is back")
        end_of_interval = os.stat(figures).st_mtime_ns
        while os.stat(figures).st_mtime_ns == end_of_interval:
            time.sleep(0.05)
        end(p, signal.SIGKILL)
    p = start("--resume", kept, "--stats", figures, "--stats-interval", "1")
    has("serving")
    has("the memnode before did not write its end: it was killed")
    has(f"log.prom: 1M of {ME}")
    end(p)


times()
levels(True)
levels(False)
names()
restarts()
