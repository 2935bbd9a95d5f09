"""
An hour of an operator, shortened: a memnode is killed, drained, restarted, has a full disk, and
somebody comes with a wrong key. Then a reader who has only the log and the figures, as Prometheus
collects them, tells what happened and when; and that is compared with what was done.

usage: hour.py FOLDER SMALL MEMNODE        SMALL: a file system of a megabyte or so, to be filled
"""
import atexit
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime

import leases
from client import *
from client import client
from figures import read

folder, small, memnode = sys.argv[1:4]
at, log, path = f"{folder}/hour.sock", f"{folder}/hour.log", f"{small}/hour.prom"
with socket.create_server(("127.0.0.1", 0)) as s:
    tcp = s.getsockname()

# ---- what is done ----

to_log, to_figures = [], []     # what each must tell: (what, began, ended)


class Doing:
    """Notes what is done, and from when to when."""

    def __init__(self, *what, log=True, figures=True):
        self.what, self.log, self.figures = what, log, figures

    def __enter__(self):
        self.began = time.time()

    def __exit__(self, *_):
        if self.log:
            to_log.append((self.what, self.began, time.time()))
        if self.figures:
            to_figures.append((self.what[:1], self.began, time.time()))


def until(true, what):
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end, (what, open(log).read())
        time.sleep(0.05)


def said(words):
    """How often the log has these words."""
    return open(log).read().count(words)


def figure(name, least):
    until(lambda: scrapes and scrapes[-1][1].get(name, 0) >= least, (name, least))


starts = 0


def start():
    global starts
    p = subprocess.Popen(
        [memnode, "--size", "64M", "--hugepages", "none", "--listen", f"nbd+unix://{at}",
         "--listen", f"nbd://127.0.0.1:{tcp[1]}", "--keys", f"{folder}/keys", "--stats", path,
         "--stats-interval", "1", "--resume", f"{small}/leases", "--grace", "1",
         "--drain-timeout", "1", "--control", f"{folder}/control"], stderr=open(log, "a"))
    atexit.register(p.kill)
    starts += 1
    figure("starts_total", starts)
    until(lambda: said("memnode: serving") == starts, "serving")
    return p


def ends(p):
    """And its last figures were read."""
    assert p.wait(30) == 0
    until(lambda: not scrapes[-1][1]["up"], "its end")


def a_lease():
    """A client with a page, and the digits that the log shows."""
    leases.SECRET = secrets.token_hex(16)
    c, incarnation = leases.create(at, MIB)
    c.write(0, b"mine")
    figure(("leases", "nbd"), 1)
    return c, leases.SECRET[:8]


def stranger():
    """With alice's name and another key; where there is no nbdinfo, without any."""
    open(f"{folder}/wrong", "w").write(f"alice:{secrets.token_hex(32)}\n")
    if shutil.which("nbdinfo"):
        assert subprocess.run(["nbdinfo", "--size", f"nbds://alice@127.0.0.1:{tcp[1]}/?"
                               f"tls-psk-file={folder}/wrong"], capture_output=True,
                              timeout=30).returncode
    else:
        with Client(tcp).greet() as c:
            expect(TLS_REQD, c.go, "disk")
            c.s.shutdown(socket.SHUT_WR)


def fill_up(times):
    """memnode must say so, for the second time perhaps."""
    with open(f"{small}/filler", "wb", buffering=0) as f:
        try:
            while True:
                f.write(b"x" * 4096)
        except OSError:
            pass
    until(lambda: said(f"{path}: could not be written: No space left on device") == times, "full")


def work():
    open(f"{folder}/keys", "w").write(f"alice:{secrets.token_hex(32)}\n")
    os.chmod(f"{folder}/keys", 0o600)
    with Doing("start"):
        p = start()
    with Doing("wrong key"):
        stranger()
        figure(("refusals_total", "key"), 1)
    c, mark = a_lease()
    with Doing("abandoned", mark):
        c.s.close()
        figure(("abandoned_total", "nbd"), 1)
    c, mark = a_lease()
    with Doing("drain"):
        p.terminate()
        until(lambda: said("draining: clients are asked"), "draining")
    with Doing("end"):
        ends(p)
    with Doing("abandoned", mark):
        with Doing("start"), Doing("kept", mark):
            p = start()
        figure(("abandoned_total", "nbd"), 1)
    c, _ = a_lease()
    figure(("client_held_bytes", f"user {os.getuid()}", "origin"), MIB)
    with Doing("killed", "1M"), Doing("start"):
        p.kill()
        p.wait(30)
        p = start()
    with Doing("disk full", figures=False):
        fill_up(1)
        time.sleep(4)
    with Doing("disk has room", figures=False):
        os.unlink(f"{small}/filler")
        until(lambda: said("is written again"), "room")
    c, mark = a_lease()
    with Doing("disk full", figures=False):
        fill_up(2)
    with Doing("drain", figures=False):
        p.terminate()
        until(lambda: said("draining: clients are asked") == 2, "draining")
    with Doing("not kept", figures=False), Doing("lost", mark, figures=False), \
            Doing("end", figures=False):
        assert p.wait(30) == 0
    os.unlink(f"{small}/filler")
    # Its last figures found no room: as far as they tell, it was killed.
    with Doing("start"), Doing("killed", log=False):
        p = start()
    with Doing("drain"), Doing("end"):
        told = subprocess.run([memnode, "--drain", f"{folder}/control"], capture_output=True,
                              timeout=30, text=True)
        assert (told.returncode, told.stdout) == (0, "drained\n"), told
        ends(p)


# ---- what Prometheus would have ----

scrapes = []            # (when the file was written, its figures)
over = threading.Event()


def scrape():
    last = 0
    while not over.wait(0.05):
        if os.path.exists(path) and os.stat(path).st_mtime_ns != last:
            last = os.stat(path).st_mtime_ns
            scrapes.append((last / 1e9, read(path)))


# ---- what a reader tells ----

TALE = (                # the words of a line, and what they mean
    (r"serving ", "start"),
    (r"--stats .*: (\S+) of ", "killed"),
    (r"refused: .*(?:no valid key|no TLS)", "wrong key"),
    (r"NBD lease (\w+)\.\.\..* no client came back", "abandoned"),
    (r"NBD lease (\w+)\.\.\..*: served again", "kept"),
    (r"NBD lease (\w+)\.\.\..*: lost", "lost"),
    (r"leases are not kept.*: No space left", "not kept"),
    (r"SIGTERM from|drain asked for", "drain"),
    (r"ended$", "end"),
    (r"--stats .*: could not be written: No space left", "disk full"),
    (r"is written again", "disk has room"),
)


def from_log():
    tale, serves, full = [], False, False
    for line in open(log):
        when, words = line.rstrip("\n").split(" memnode: ", 1)
        when = datetime.strptime(when, "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
        for form, what in TALE:
            found = re.search(form, words)
            # What has ended was not killed, though its last figures may be missing. A full disk
            # is said once more at the end.
            if found and (what != "killed" or serves) and (what != "disk full" or not full):
                tale.append(((what, *found.groups()), when))
            if found and what in ("start", "end"):
                serves = what == "start"
            if found and what in ("start", "disk has room", "disk full"):
                full = what == "disk full"
    return tale


def from_figures():
    """What counters and gauges tell, from one file to the next."""
    tale, before = [], {"drains_total": 0, "starts_total": 0}
    counters = (("drains_total", "drain"), (("refusals_total", "key"), "wrong key"),
                (("abandoned_total", "nbd"), "abandoned"))
    for when, now in scrapes:
        if now["starts_total"] > before["starts_total"]:
            tale += [((what,), when) for what, is_so in (
                ("killed", before.get("up")), ("start", True), ("kept", now["resumed_leases"]))
                if is_so]
            before = {**dict.fromkeys(now, 0), "drains_total": before["drains_total"]}
        tale += [((what,), when) for name, what in counters if now[name] > before[name]]
        if not now["up"]:
            tale.append((("end",), when))
        before = now
    return tale


def compare(tale, wanted, late):
    """All that was done is told, and nothing else; not before, and at most so much later."""
    assert sorted(what for what, _ in tale) == sorted(what for what, _, _ in wanted), tale
    for (what, when), (same, began, ended) in zip(
            sorted(tale, key=lambda t: t[0]), sorted(wanted, key=lambda w: w[0])):
        assert what == same and began - 0.01 <= when <= ended + late, (what, when, began, ended)


threading.Thread(target=scrape, daemon=True).start()
try:
    work()
    time.sleep(0.2)
finally:
    over.set()
for when, what in sorted((when, " ".join(what)) for what, when in from_log()):
    print(f"{datetime.fromtimestamp(when):%T} {what}")
compare(from_log(), to_log, 0.01)
# An interval, and what a busy host makes of it.
compare(from_figures(), to_figures, 5)
# While the disk was full, there were no figures: no pause was longer.
pause, begins = max((b[0] - a[0], a[0]) for a, b in zip(scrapes, scrapes[1:]))
full = next(began for what, began, _ in to_log if what == ("disk full",))
assert begins <= full + 2 and begins + pause >= full + 4, (pause, begins, full)
