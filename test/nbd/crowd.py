"""
usage: crowd.py FOLDER MEMNODE

A memnode whose descriptors are all used up while clients wait at each of its sockets: it sleeps,
says so once, and serves them as soon as it can.
"""
import os
import resource
import socket
import subprocess
import sys
import time

from client import *
from client import client

folder, memnode = sys.argv[1:3]
nbd, control, log = (os.path.join(folder, "crowd." + name) for name in ("nbd", "control", "log"))


def waiting(path):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(path)
    return s


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def lines(words):
    with open(log) as f:
        return sum(words in line for line in f)


with open(log, "w") as f:
    p = subprocess.Popen([memnode, "--hugepages", "none", "--size", "1M", "--export", "disk=64K",
                          "--listen", "nbd+unix://" + nbd, "--control", control], stderr=f,
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32)))
try:
    for _ in range(200):
        if lines("serving"):
            break
        time.sleep(0.05)
    crowd = [waiting(nbd) for _ in range(40)]
    for _ in range(200):
        if lines("NBD clients must wait: Too many open files"):
            break
        time.sleep(0.05)
    statistics = waiting(control)
    time.sleep(0.5)
    began = cpu_seconds(p.pid)
    time.sleep(2)
    used = cpu_seconds(p.pid) - began
    assert used < 0.5, f"{used} s of CPU time within 2 s"
    for words in ("NBD clients must wait: Too many open files",
                  "clients of the control socket must wait: Too many open files: raise"):
        assert lines(words) == 1, f"{lines(words)} times: {words}"
    for s in crowd:
        s.close()
    assert statistics.recv(100).startswith(b"pool 1M "), "statistics"
    with client(nbd, "disk") as c:
        assert c.call(FLUSH) == 0
    p.terminate()
    assert p.wait(10) == 0, "not a clean end"
finally:
    p.kill()
