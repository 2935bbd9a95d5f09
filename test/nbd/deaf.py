"""
usage: deaf.py SOCKET MEMNODE

A memnode whose standard error no process reads, be it a pipe or a stopped terminal, still serves
and ends, and counts the messages that it dropped.
"""
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
import tty

from client import *
from client import client

path, memnode = sys.argv[1:3]


def start(stderr):
    p = subprocess.Popen([memnode, "-v", "--hugepages", "none", "--size", "1M",
                          "--export", "disk=64K", "--listen", "nbd+unix://" + path], stderr=stderr)
    for _ in range(200):
        try:
            with Client(path):
                return p
        except OSError:
            time.sleep(0.05)
    p.kill()
    raise AssertionError("it does not listen")


def serve_and_end(p):
    """Each of these clients makes it say several things."""
    try:
        for _ in range(20):
            with client(path, "disk") as c:
                assert c.call(FLUSH) == 0
        p.send_signal(signal.SIGUSR1)
        yield
        p.send_signal(signal.SIGTERM)
        assert p.wait(10) == 0, "not a clean end"
    finally:
        p.kill()


def count(text):
    """The number in the line that tells of dropped ones."""
    line = next(s for s in text.splitlines() if "dropped" in s)
    _, name, number = line.split()[:3]
    assert name == "memnode:", line
    assert line.endswith(" dropped before this one: the reader took none"), line
    return int(number)


r, w = os.pipe()
fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
os.write(w, b"x" * 4096)
for _ in serve_and_end(start(w)):
    assert os.read(r, 8192) == b"x" * 4096
    with client(path, "disk") as c:
        assert c.call(FLUSH) == 0
assert not fcntl.fcntl(w, fcntl.F_GETFL) & os.O_NONBLOCK, "everybody's mode was changed"
text = os.read(r, 8192).decode()
assert count(text) >= 20, text

master, slave = os.openpty()
tty.setraw(slave)
termios.tcflow(slave, termios.TCOOFF)
for _ in serve_and_end(start(slave)):
    termios.tcflow(slave, termios.TCOON)
text = os.read(master, 65536).decode()
assert count(text) >= 20, text
