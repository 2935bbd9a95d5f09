"""
usage: strangers.py MEMNODE VMRUN SCAN SECONDS [ATTACK...]

Strangers attack a memnode with keys over NBD, each attack for that long and at a bounded rate,
while a program uses it and newcomers with a key come. Shown for each: no member was refused, the
program ended right, how long newcomers took, and what memnode used. The strangers come from
127.0.0.2 and on; those with a key, from 127.0.0.1.

Prints TAP, then `N passed, N failed, N skipped`.
"""
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

from client import *
from client import client

memnode, vmrun, scan = sys.argv[1:4]
seconds, only = float(sys.argv[4]), sys.argv[5:]
folder = tempfile.mkdtemp(prefix="vmrun-test.")
keys, log = os.path.join(folder, "keys"), os.path.join(folder, "log")
port = 20000 + secrets.randbelow(10000)

# What memnode may use beside its pool while it is attacked.
THREADS, DESCRIPTORS, KIB = 20, 120, 24 << 10
# A newcomer is served within that time; on a machine with other work, in a short run, more.
NEWCOMER_S = 2.0 if seconds >= 30 else 10.0
RATE = 500                              # attempts a second of an attacker


def stranger(number=0):
    """A socket of a stranger, connected."""
    s = socket.socket()
    s.settimeout(5)
    s.bind((f"127.0.{number // 200}.{2 + number % 200}", 0))
    s.connect(("127.0.0.1", port))
    return s


def paced(rate=RATE):
    """Yields numbers at a bounded rate until the attack is over."""
    begin, n = time.monotonic(), 0
    while (now := time.monotonic()) < begin + seconds:
        if n > (now - begin) * rate:
            time.sleep(0.005)
            continue
        yield n
        n += 1


def close(s):
    try:
        s.close()
    except OSError:
        pass


def quietly(call):
    try:
        return call()
    except (OSError, Closed, Refused):
        return None


# --- attacks: each goes on for as long as paced() says ---

def hold(connect, most):
    """Connections that stay, the newest of them."""
    held = []
    for n in paced():
        s = quietly(lambda n=n: connect(n))
        if s:
            held.append(s)
        if len(held) > most:
            close(held.pop(0))
    for s in held:
        close(s)


def silent():
    """Connections that say nothing, as many as there can be."""
    hold(lambda n: stranger(), 700)


def silent_many():
    """The same, from many addresses."""
    hold(lambda n: stranger(n % 4000), 700)


def begin_tls(number=0):
    s = stranger(number)
    s.sendall(struct.pack(">I", 3) + struct.pack(">QII", IHAVEOPT, STARTTLS, 0))
    return s


def half_done():
    """Connections that begin TLS, and say no more."""
    hold(lambda n: begin_tls(), 300)


def half_done_many():
    """The same, from many addresses."""
    hold(lambda n: begin_tls(n % 4000), 300)


def leases():
    """Leases, and named exports, without a key; each is dropped at once."""
    for n in paced():
        s = quietly(stranger)
        if not s:
            continue
        name = b"create-%032x-1048576-1-1-1" % n if n % 2 else b"disk"
        quietly(lambda: s.sendall(struct.pack(">I", 3) + struct.pack(
            ">QII", IHAVEOPT, GO, len(name) + 6) + struct.pack(">I", len(name)) + name + b"\0\0"))
        close(s)


def guesses():
    """Guessed keys: TLS by one who has none of them."""
    wrong = os.path.join(folder, "wrong")
    with open(wrong, "w") as f:
        f.write(f"alice:{secrets.token_hex(32)}\n")
    for _ in paced(8):                  # a process each
        subprocess.Popen(["nbdinfo", "--size",
                          f"nbds://alice@127.0.0.1:{port}/disk?tls-psk-file={wrong}"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


def garbage():
    """What is no NBD, and what is no TLS."""
    for n in paced():
        s = quietly(stranger)
        if not s:
            continue
        head = struct.pack(">I", 3) + struct.pack(">QII", IHAVEOPT, STARTTLS, 0) if n % 2 else b""
        quietly(lambda: s.sendall(head))
        if head:
            quietly(lambda: s.recv(100))
        quietly(lambda: s.sendall(secrets.token_bytes(300)))
        close(s)


def churn():
    """Connections that come and go."""
    for n in paced(2 * RATE):
        s = quietly(lambda: stranger(n % 50))
        if s:
            close(s)


ATTACKS = [silent, silent_many, half_done, half_done_many, leases, guesses, garbage, churn]


# --- what is looked at meanwhile ---

class Usage(threading.Thread):
    """The most that memnode uses, and the most that a newcomer with a key waits."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.over = pid, threading.Event()
        self.threads = self.descriptors = self.kib = 0
        self.waits, self.refused, self.again = [], 0, 0

    def look(self):
        with open(f"/proc/{self.pid}/status") as f:
            status = f.read()
        self.threads = max(self.threads, int(re.search(r"Threads:\s+(\d+)", status)[1]))
        self.kib = max(self.kib, int(re.search(r"RssAnon:\s+(\d+)", status)[1]))
        self.descriptors = max(self.descriptors, len(os.listdir(f"/proc/{self.pid}/fd")))

    def newcomer(self):
        """As vmrun does, it comes again if it was closed among too many others."""
        begin = time.monotonic()
        for _ in range(5):
            done = subprocess.run(
                ["nbdinfo", "--size", f"nbds://bob@127.0.0.1:{port}/disk?tls-psk-file={keys}"],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            if done.returncode == 0:
                break
            self.again += 1
            time.sleep(0.1)
        self.waits.append(time.monotonic() - begin)
        self.refused += done.returncode != 0

    def run(self):
        while not self.over.is_set():
            self.look()
            self.newcomer()
            self.over.wait(0.2)


def attack(number, call, pid):
    name = f"{call.__name__}: {call.__doc__.splitlines()[0]}"
    with open(log) as f:
        lines = len(f.readlines())
    program = subprocess.Popen(
        [vmrun, "--no-config", "--cache", "2M", "--timeout", "10", "--node",
         f"nbds://127.0.0.1:{port}?size=32M&keys={keys}&client=alice", "--", scan, "--size", "16M",
         "--random", "--write", "--passes", str(max(2, int(seconds * 4)))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) if vmrun else None
    time.sleep(1)
    usage = Usage(pid)
    usage.start()
    call()
    usage.over.set()
    usage.join()
    said = program.communicate(timeout=600)[0] if program else ""
    with open(log) as f:
        lines = len(f.readlines()) - lines
    wrong = []
    if program and (program.returncode != 0 or " 0 errors" not in said):
        wrong.append(f"the program ended with {program.returncode}: {said}")
    if usage.refused:
        wrong.append(f"{usage.refused} of {len(usage.waits)} newcomers were refused")
    if max(usage.waits) > NEWCOMER_S:
        wrong.append(f"a newcomer waited {max(usage.waits):.1f} s")
    for what, most in ("threads", THREADS), ("descriptors", DESCRIPTORS), ("kib", KIB):
        if getattr(usage, what) > most:
            wrong.append(f"{getattr(usage, what)} {what}, and {most} are the most")
    if lines > 70 + seconds:
        wrong.append(f"{lines} lines of log")
    print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
    print(f"#   newcomers: {len(usage.waits)}, the slowest {max(usage.waits):.2f} s, {usage.again} "
          f"came again; memnode: "
          f"{usage.threads} threads, {usage.descriptors} descriptors, {usage.kib} KiB; {lines} "
          f"lines of log")
    for line in wrong:
        print(f"#   {line}")
    sys.stdout.flush()
    return bool(wrong)


def main():
    with open(keys, "w") as f:
        for name in "alice", "bob":
            f.write(f"{name}:{secrets.token_hex(32)}\n")
    os.chmod(keys, 0o600)
    with open(log, "w") as f:
        p = subprocess.Popen([memnode, "--hugepages", "none", "--size", "256M", "--export",
                              "disk=1M", "--keys", keys, "--listen", f"nbd://127.0.0.1:{port}"],
                             stderr=f)
    for _ in range(200):
        if "serving" in open(log).read():
            break
        time.sleep(0.05)
    chosen = [a for a in ATTACKS if not only or a.__name__ in only]
    failed = 0
    try:
        for i, call in enumerate(chosen):
            failed += attack(i + 1, call, p.pid)
        p.send_signal(signal.SIGTERM)
        if p.wait(40) != 0:
            print("#   memnode did not end well")
            failed += 1
    finally:
        p.kill()
        subprocess.run(["rm", "-rf", folder])
    print(f"1..{len(chosen)}\n{len(chosen) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed != 0)


main()
