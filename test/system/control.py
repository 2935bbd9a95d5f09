#!/usr/bin/env python3
"""
vmctl and the control socket, from outside.

usage: control.py CASE VMRUN [FLAG...]     FLAG: for vmrun

Prints why, and exits with 1, if the case fails; with 77 if it cannot be tried.  XDG_RUNTIME_DIR is
a folder of the caller's.
"""
import fcntl
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time

case, vmrun, *flags = sys.argv[1:]
build = os.path.dirname(os.path.dirname(os.path.realpath(vmrun)))
if not os.path.exists(f"{build}/examples/randmem"):     # a copy of vmrun alone
    build = os.environ["BUILD"]
vmctl = f"{build}/runtime/vmctl"
folder = os.environ["XDG_RUNTIME_DIR"] + "/vmrun"
# A case names its far memory, or has this host's.
os.environ["XDG_CONFIG_HOME"] = os.environ["XDG_RUNTIME_DIR"]
LIMIT = 60
started = []


def fail(reason):
    raise AssertionError(reason)


def check(what, reason):
    if not what:
        fail(reason)


def start(*words, options=(), flags=tuple(flags), **more):
    """A program under vmrun, which has its socket."""
    p = subprocess.Popen([vmrun, *options, *flags, "--", *words], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    started.append(p)
    until(lambda: os.path.exists(f"{folder}/{p.pid}") or p.poll(), f"no socket for {words}")
    check(not p.poll(), f"{words}: {p.poll() and p.stderr.read()}")
    return p


def until(condition, reason, seconds=LIMIT):
    end = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < end, f"{reason}, after {seconds} s")
        time.sleep(0.02)


def ctl(*words, status=0, text=None, **more):
    """What vmctl prints; text: part of its message."""
    r = subprocess.run([vmctl, *map(str, words)], capture_output=True, text=True, timeout=LIMIT,
                       **more)
    check(r.returncode == status,
          f"vmctl {words}: status {r.returncode}: {r.stdout[:200]}{r.stderr[:300]}")
    if status or text:
        check(r.stderr.startswith("vmctl: ") and r.stderr.count("\n") == 1,
              f"vmctl {words}: the message is not one line: {r.stderr[:300]}")
    if text:
        check(text in r.stderr, f"vmctl {words}: says {r.stderr!r}, not {text!r}")
    return r.stdout


def fits(screen, columns):
    for line in screen.splitlines():
        check(len(line) <= columns, f"more than {columns} columns: {line!r}")


def interrupted(lines, *words):
    """The first lines that vmctl prints; then Ctrl-C is pressed."""
    p = subprocess.Popen([vmctl, *map(str, words)], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    said = [p.stdout.readline() for _ in range(lines)]
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=LIMIT)
    check(p.returncode == 0 and not err, f"vmctl {words}: status {p.returncode}, {err!r}")
    return said


def listed_here():
    """Others of this user may run too, with their sockets elsewhere."""
    return [row for row in json.loads(ctl("list", "--json"))
            if os.path.exists(f"{folder}/{row['pid']}")]


def program(pid):
    """None: process pid has just ended, or is executing another program."""
    return next((row["program"] for row in listed_here() if row["pid"] == pid), None)


def number(pid, key):
    """Of the statistics."""
    found = re.search(rf"^{re.escape(key)} (\d+)$", ctl(pid, "stats", "--flat"), re.M)
    return int(found[1]) if found else 0


def ends(p, status=0, say="", seconds=LIMIT):
    try:
        out, err = p.communicate(say, timeout=seconds)
    except subprocess.TimeoutExpired:
        fail(f"{p.args} does not end")
    check(p.returncode == status, f"status {p.returncode} instead of {status}: {err[-5000:]}")
    return out, err


def randmem(size="16M", accesses=1000000000):
    return [f"{build}/examples/randmem", "--size", size, "--accesses", str(accesses)]


# Obeys its commands: grow MIB, check, child, exec WORD..., end.
PUPPET = """
import os, sys
have = []
def fill(n, at):
    return b''.join((at * 1000 + i).to_bytes(8, 'little') * 512 for i in range(n * 256))
for line in sys.stdin:
    what, *words = line.split()
    if what == 'grow':
        have.append(fill(int(words[0]), len(have)))
    elif what == 'check':
        if any(h != fill(len(h) >> 20, i) for i, h in enumerate(have)):
            print('wrong', flush=True)
    elif what == 'child':
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(w)
            os.read(r, 1)
            os._exit(any(h != fill(len(h) >> 20, i) for i, h in enumerate(have)))
        os.close(r)
        print(pid, flush=True)
    elif what == 'end-child':
        os.close(w)
        print(os.wait()[1], flush=True)
        continue
    elif what == 'exec':
        print('done', flush=True)
        os.execvp(words[0], words)
    print('done', flush=True)
"""


class Puppet:
    def __init__(self, *options, **more):
        self.p = start(sys.executable, "-ISc", PUPPET, options=options, **more)
        self.pid = self.p.pid

    def do(self, line):
        """The words that it prints before "done"."""
        said = []
        print(line, file=self.p.stdin, flush=True)
        while not said or not (said[-1] == "done" or line == "end-child"):
            answer = self.p.stdout.readline()
            if not answer:
                fail(f"it ended at {line!r}: {self.p.stderr.read()}")
            said.append(answer.strip())
        check("wrong" not in said, f"wrong memory at {line!r}")
        return said[0]

    def end(self):
        return ends(self.p)


# --- the cases ---

def listed():
    a = start("sleep", "1000", options=["--cache", "3M"])
    b = start("sh", "-c", "read x; exec sleep 1000", options=["--cache", "2M"])
    mode = os.stat(folder).st_mode
    check(stat.S_IMODE(mode) == 0o700, f"the folder has mode {mode:o}")
    mode = os.stat(f"{folder}/{a.pid}").st_mode
    check(stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600, f"the socket has mode {mode:o}")
    lines = ctl("list").splitlines()
    check(lines[0].split() == ["pid", "since", "cache", "in", "use", "far", "program"], lines[0])
    rows = {int(line.split()[0]): line.split() for line in lines[1:]}
    check(rows[a.pid][3] == "3M" and rows[a.pid][-1] == "sleep", rows[a.pid])
    check(rows[b.pid][3] == "2M" and rows[b.pid][-1] == "sh", rows[b.pid])
    by_pid = {row["pid"]: row for row in json.loads(ctl("list", "--json"))}
    check(by_pid[a.pid]["cache_bytes"] == 3 << 20 and by_pid[a.pid]["program"] == "sleep",
          by_pid[a.pid])
    check(abs(by_pid[a.pid]["since"] - time.time()) < 60, "since when it is not")
    b.stdin.write("\n")
    b.stdin.flush()
    until(lambda: f" {b.pid} " in ctl("list") and
          re.search(rf"^ *{b.pid} .* sleep$", ctl("list"), re.M), "not listed after execve")
    # The socket of a process that was killed is removed; a process that ends otherwise leaves none.
    a.kill()
    a.wait()
    check(os.path.exists(f"{folder}/{a.pid}"), "the socket of the killed process is gone too early")
    check(str(a.pid) not in ctl("list"), "listed after its end")
    check(not os.path.exists(f"{folder}/{a.pid}"), "a dead socket was not removed")
    # So does the next program, whatever the others died of.
    b.kill()
    b.wait()
    start("sleep", "1000").terminate()
    until(lambda: not os.path.exists(f"{folder}/{b.pid}"), "a dead socket was not removed")
    c = start("cat")
    ends(c)
    check(not os.path.exists(f"{folder}/{c.pid}"), "a socket is left after exit")
    check(listed_here() == [], "somebody is left")


def statistics():
    p = start(*randmem(), options=["--cache", "2M", "--stats=/dev/null"])
    until(lambda: number(p.pid, "faults.fetch") > 1000, "no fetches")
    here = os.path.dirname(os.path.realpath(__file__))
    for form in ("json", "prom"):
        with tempfile.NamedTemporaryFile("w", suffix="." + form) as f:
            f.write(ctl(p.pid, "stats", "--" + form))
            f.flush()
            r = subprocess.run([sys.executable, f"{here}/stats.py",
                                form + "-of-vmctl" * (form == "prom"), f.name],
                               capture_output=True, text=True)
            check(r.returncode == 0, r.stdout[:300])
    check(json.loads(ctl(p.pid, "stats", "--json"))["pid"] == p.pid, "of another process")
    table = ctl(p.pid, "stats")
    check(re.search(r"^fault: fetch ", table, re.M) and re.search(r"^node ", table, re.M), table)
    # It opens no more files.
    check(number(p.pid, "syscalls.openat") > 0, "it opened nothing")
    ctl(p.pid, "stats", "--reset")
    check(number(p.pid, "syscalls.openat") == 0 and number(p.pid, "elapsed_ns") > 0, "no reset")
    p.kill()
    # Without --stats vmrun measures no latencies until a client watches.
    p = start(*randmem(), options=["--cache", "2M"])
    until(lambda: number(p.pid, "faults.fetch") > 0, "no counts")
    said = ctl(p.pid, "stats", "--flat")
    check("latency_ns" not in said, "it measures without being asked to")
    check(re.search(r"^about.kernel \d", said, re.M), "no facts")
    interrupted(3, p.pid, "watch", "--json", "0.1")
    check(number(p.pid, "latency_ns.fetch.count") > 0, "nothing was measured for watch")
    time.sleep(0.3)
    n = number(p.pid, "latency_ns.fetch.count")
    time.sleep(0.5)
    check(n == number(p.pid, "latency_ns.fetch.count"), "vmrun still measures")


def watched():
    p = start(*randmem(), options=["--cache", "2M"])
    until(lambda: number(p.pid, "faults.fetch") > 1000, "no fetches")
    for line in interrupted(3, p.pid, "watch", "0.2"):
        check(re.fullmatch(r"\d\d:\d\d:\d\d [\d]+ faults/s \(zero \d+, file \d+, fetch \d+, shared "
                           r"\d+, wait \d+, marker \d+\), fetch p50, p99 [\d.]+ \w+, [\d.]+ \w+, "
                           r"pages in \d+/s, out \d+/s, cache \S+ of 2M, hot \S+, to be cold \S+, "
                           r"far \S+, prefetch hits -, "
                           r"node \S+ in \d+/s out \d+/s\n", line), line)
    for line in interrupted(3, p.pid, "watch", "0.2", "--json"):
        s = json.loads(line)
        check(0.15 < s["seconds"] < 10 and s["faults_per_second"]["fetch"] > 10 and
              s["pages_in_per_second"] > 10 and 0 < s["fetch_ns"]["p50"] <= s["fetch_ns"]["p99"] and
              s["nodes"][0]["pages_in_per_second"] > 10, line)
    # A screen, on a terminal.
    master, slave = os.openpty()
    w = subprocess.Popen([vmctl, str(p.pid), "watch", "0.1"], stdout=slave)
    text = b""
    while text.count(b"\x1b[H") < 3:
        text += os.read(master, 4096)
    check(b"fetch p50, p99" in text and b"randmem, process %d" % p.pid in text, text)
    w.send_signal(signal.SIGINT)
    check(w.wait(LIMIT) == 0, "Ctrl-C")
    # A watch whose output has no reader.
    w = subprocess.Popen([vmctl, str(p.pid), "watch", "0.1"], stdout=subprocess.PIPE)
    w.stdout.readline()
    w.stdout.close()
    check(w.wait(LIMIT) == 0, "it did not end with its reader")
    # The process ends.
    w = subprocess.Popen([vmctl, str(p.pid), "watch", "0.1"], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    w.stdout.readline()
    p.terminate()
    check("has ended" in w.communicate(timeout=LIMIT)[1] and w.returncode == 0, "the end")
    # An execve is not an end.
    p = start("sh", "-c", "read x; exec cat")
    w = subprocess.Popen([vmctl, str(p.pid), "watch", "0.1"], stdout=subprocess.PIPE, text=True)
    w.stdout.readline()
    p.stdin.write("\n")
    p.stdin.flush()
    until(lambda: program(p.pid) == "cat", "no execve")
    for _ in range(5):
        w.stdout.readline()
    check(w.poll() is None, "it ended with the execve")
    ends(p)
    check(w.wait(LIMIT) == 0, "it did not end")


class Screen:
    """A terminal of 80 columns and 24 rows, and the command on it."""

    def __init__(self, *words):
        self.seen = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvp(vmctl, [vmctl, *map(str, words)])
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))

    def take(self):
        """False: the command has ended."""
        if select.select([self.terminal], [], [], 0.1)[0]:
            try:
                self.seen += os.read(self.terminal, 65536)
            except OSError:
                return False
        return True

    def lines(self):
        """What a person sees; fails if a screen is erased before the next one."""
        first, *screens = self.seen.split(b"\x1b[H")
        check(first in (b"", b"\x1b[2J") and b"\x1b[2J" not in b"".join(screens), "it flickers")
        whole = [s for s in screens if s.endswith(b"\x1b[J")]
        if not whole:
            return []
        lines = whole[-1].removesuffix(b"\x1b[J").decode().split("\r\n")
        check(len(lines) <= 24 and all(line.endswith("\x1b[K") for line in lines[:-1]), lines)
        lines = [line.removesuffix("\x1b[K") for line in lines]
        fits("\n".join(lines), 80)
        return lines

    def until(self, pattern):
        end = time.monotonic() + LIMIT
        while not re.search(pattern, "\n".join(self.lines()), re.M):
            check(self.take() and time.monotonic() < end, f"no {pattern!r}: {self.lines()}")

    def ends_by(self, key):
        os.write(self.terminal, key)
        while self.take():
            pass
        check(os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]) == 0, f"the end by {key}")


def screens():
    busy = start(*randmem(), options=["--cache", "2M"])
    idle = start("sleep", "1000", options=["--cache", "3M"])
    row = rf"^ *{busy.pid} +2M +\S+ +\d\S+ +[1-9]\d* +[1-9]\d* +[\d.]+ \w+ +\d+%  randmem$"
    s = Screen("top", "0.2")
    # The one that waits comes first, whatever its number.
    s.until(row[:-1] + rf"\n(.*\n)* *{idle.pid} +3M .* 0%  sleep$")
    s.ends_by(b"q")
    s = Screen(busy.pid, "watch", "0.2")
    s.until(rf"^randmem, process {busy.pid}, the last [\d.]+ s; q or Ctrl-C ends this$")
    s.until(r"^node +in/s +out/s  read p50, p99\n\S+ +\d+ +\d+  ")
    s.ends_by(b"\x03")
    # Without a terminal a table; a process that is stopped is said to be.
    idle.send_signal(signal.SIGSTOP)
    table = ctl("top", "0.3")
    fits(table, 80)
    check(table.startswith("    pid  cache") and re.search(row, table, re.M), table)
    check(re.search(rf"^ *{idle.pid} +does not answer: it may be stopped  ", table, re.M), table)
    idle.send_signal(signal.SIGCONT)
    ctl("top", "0", status=2, text="seconds from 0.1")
    ctl("top", "1", "2", status=2, text="one argument too many")


def memnode(size="64M"):
    where = tempfile.mkdtemp(dir=os.environ["XDG_RUNTIME_DIR"])
    path = f"{where}/node"
    log = open(f"{where}/log", "w+")
    p = subprocess.Popen([f"{build}/memnode/memnode", "--size", size, "--grace", "0", "--hugepages",
                          "none", "--listen", f"nbd+unix://{path}"], stderr=log)
    started.append(p)
    until(lambda: "serving" in open(log.name).read(), "memnode does not start")
    return f"nbd+unix:///?socket={path}&size=48M"


def settings():
    p = start(f"{build}/examples/scan", "--size", "16M", "--passes", "1000000",
              options=["--cache", "4M", "--node", memnode()], flags=())
    check(ctl(p.pid, "get", "prefetch") == "prefetch=auto\n", ctl(p.pid, "get", "prefetch"))
    until(lambda: number(p.pid, "count.prefetched") > 100, "nothing is prefetched")
    ctl(p.pid, "set", "prefetch=none")
    time.sleep(0.1)
    before = number(p.pid, "count.prefetched"), number(p.pid, "count.fetched")
    until(lambda: number(p.pid, "count.fetched") > before[1] + 200, "nothing is fetched")
    check(number(p.pid, "count.prefetched") == before[0], "it prefetches after prefetch=none")
    check(json.loads(ctl(p.pid, "get", "--json"))["prefetch"] == "none", "get says otherwise")
    check(json.loads(ctl(p.pid, "stats", "--json"))["setting"]["prefetch"] == "none",
          "the statistics say otherwise")
    ctl(p.pid, "set", "prefetch=readahead", "prefetch-window=4", "prefetch-history=8")
    until(lambda: number(p.pid, "count.prefetched") > before[0] + 100, "nothing is prefetched")
    check(json.loads(ctl(p.pid, "get", "--json"))["prefetch-window"] == 4, "the window")
    # The answer to each mistake names it and its cure.
    for setting, text in (
            ("prefetch=always", "prefetch=always: give none, readahead, trend, auto or pointers"),
            ("prefetch-window=65", "prefetch-window=65: give a whole number from 1 to 64"),
            ("prefetc=none", "did you mean prefetch?"),
            ("colour=red", "colour: no such setting: give cache, "),
            ("cache=4M", "cannot be changed while the program runs, only at its start: with "
             "--cache"),
            ("stats=/tmp/x", "cannot be changed while the program runs"),
            ("stats-interval=1", "started without --stats"),
            ("far=maybe", "far=maybe: give off or on"),
            ("verbose", "give NAME=VALUE"), ("=1", "give NAME=VALUE"),
            ("x" * 5000, "")):
        ctl(p.pid, "set", setting, status=1, text=text)
    ctl(p.pid, "get", "colour", status=1, text="no such setting")
    ctl(p.pid, "get", "cahce", status=1, text="cahce: no such setting: did you mean cache?")
    check(ctl(p.pid, "get", "cache") == "cache=4M\n", "the cache was changed")
    check("\ntimeout=10 seconds\n" in ctl(p.pid, "get"), "no unit")
    ctl(p.pid, "set", "verbose=yes")
    ctl(p.pid, "nodes", "add", "mem:4K")
    p.terminate()
    out, err = p.communicate(timeout=LIMIT)
    check("vmrun: node 1: mem:4K" in err, f"verbose=yes: {err[-300:]}")
    # An interval needs a report.
    where = os.environ["XDG_RUNTIME_DIR"] + "/report"
    p = start("cat", options=["--stats=" + where])
    time.sleep(0.3)
    check(not os.path.exists(where), "a report before its time")
    ctl(p.pid, "set", "stats-interval=0.1")
    until(lambda: os.path.exists(where), "no reports")
    ends(p)
    os.unlink(where)


def mistakes():
    p = start("sleep", "1000", options=["--no-verbose"])
    none = subprocess.Popen(["sleep", "1000"])
    started.append(none)
    for words, status, text in (
            ((none.pid, "stats"), 1, f"runs process {none.pid}"),
            ((999999999, "stats"), 1, "vmctl list shows"),
            ((0, "stats"), 2, "number of a process"), (("lsit",), 2, "lsit: give list"),
            ((), 2, "give list"), ((p.pid,), 2, "command is missing: give stats, watch"),
            ((p.pid, "status"), 2, "status: give stats"),
            ((p.pid, "stats", "now"), 2, "now: one argument too many"),
            ((p.pid, "stats", "--json", "--flat"), 2, "--json and --flat exclude"),
            ((p.pid, "set", "--json", "far=on"), 2, "set: it does not have --json"),
            ((p.pid, "set"), 2, "argument is missing"),
            ((p.pid, "nodes", "remove", "x"), 2, "nodes remove"),
            ((p.pid, "nodes", "add"), 2, "argument is missing"),
            ((p.pid, "watch", "0"), 2, "seconds from 0.1"),
            ((p.pid, "--frob"), 2, "no such option"),
            ((p.pid, "nodes", "add", "tape:1"), 1, "unknown scheme 'tape'"),
            ((p.pid, "nodes", "add", "mem:1G?weight=0"), 1, "weight=0"),
            ((p.pid, "nodes", "add", "mem:1G?device=x"), 1, "for rdma:// only"),
            ((p.pid, "nodes", "add", "nbd+unix:///?socket=/nowhere"), 1, "/nowhere")):
        ctl(*words, status=status, text=text)
    check(len(json.loads(ctl(p.pid, "nodes", "--json"))) == 1, "a refused node was added")
    # It is stopped: it does not answer.
    p.send_signal(signal.SIGSTOP)
    os.waitpid(p.pid, os.WUNTRACED)     # all its threads have stopped
    ctl(p.pid, "get", status=1, text="may be stopped")
    p.send_signal(signal.SIGCONT)
    ctl(p.pid, "get")
    # No socket at all.
    q = subprocess.Popen([vmrun, "--no-control", "--", "sleep", "1000"])
    started.append(q)
    time.sleep(1)
    check(not os.path.exists(f"{folder}/{q.pid}"), "a socket with --no-control")
    ctl(q.pid, "stats", status=1, text="--no-control")
    # No folder, for its mode is wrong, and /run cannot be written: the program runs, and -v says
    # why there is no socket.
    if os.getuid() or not shutil.which("unshare"):
        return
    os.chmod(folder, 0o755)
    r = subprocess.run(["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o ro tmpfs /run && exec "$@"',
                        "-", vmrun, "-v", "--", "true"], capture_output=True, text=True)
    os.chmod(folder, 0o700)
    if not re.search("^(mount|unshare):", r.stderr, re.M):
        check(r.returncode == 0 and "no control socket" in r.stderr, r.stderr[-300:])


def strangers():
    if os.getuid():
        print("needs root, to become another user")
        sys.exit(77)
    p = start("sleep", "1000")
    ctl(p.pid, "stats", status=1, text="no vmrun of this user",
        env=dict(os.environ, XDG_RUNTIME_DIR="/nowhere"))
    # Even if the folder is opened for all by mistake, only this user and root are answered.
    path = f"{folder}/{p.pid}"
    reachable = tempfile.mkdtemp(dir="/tmp")
    os.chmod(reachable, 0o755)
    os.link(path, f"{reachable}/s")
    os.chmod(path, 0o666)
    said = subprocess.run([sys.executable, "-c", f"""
import os, socket
s = socket.socket(socket.AF_UNIX)
os.setuid(65534)
s.connect({reachable + "/s"!r})
try:
    s.sendall(b'about text\\n')
    print(len(s.recv(100)))
except (BrokenPipeError, ConnectionResetError):
    print(0)
"""], capture_output=True, text=True, timeout=LIMIT)
    os.unlink(f"{reachable}/s")
    os.rmdir(reachable)
    check(said.stdout == "0\n", f"another user was answered: {said.stdout}{said.stderr}")
    ctl(p.pid, "get")
    if shutil.which("setpriv"):
        r = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "sh", "-c",
                            '"$@"', "-", vmctl, str(p.pid), "stats"], capture_output=True,
                           text=True)
        check(r.returncode and not r.stdout, "another user reads statistics")


def second_user():
    """A user without XDG_RUNTIME_DIR, on a host where root has /run/vmrun."""
    if os.getuid() or not shutil.which("unshare") or not shutil.which("setpriv"):
        print("needs root, unshare and setpriv, to become another user")
        sys.exit(77)
    user = 65534
    become = ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups"]
    if subprocess.run([*become, "sh", "-c", '[ -x "$1" ] && [ -x "$2" ]', "-", vmrun, vmctl],
                      check=False).returncode:
        print("another user may not enter the folder of the build")
        sys.exit(77)
    place = f"/tmp/vmrun-{user}"

    def run(*words):
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /run && mkdir -m 700 /run/vmrun && "
             'mknod -m 666 /run/kvm c 10 232 && mount --bind /run/kvm /dev/kvm && exec "$@"', "-",
             *become, "env", "-u", "XDG_RUNTIME_DIR", vmrun, *flags, "--no-follow", "-v", "--",
             *words], capture_output=True, text=True, timeout=LIMIT, check=False, cwd="/")

    r = run("sh", "-c", '"$1" list && "$1" $$ get cache && ls -ld "$2"', "-", vmctl, place)
    if re.search("^(mount|unshare|mknod):", r.stderr, re.M):
        print(r.stderr)
        sys.exit(77)
    check(r.returncode == 0 and re.search("^cache=[0-9]+([KMGT]| bytes)?$", r.stdout, re.M) and
          re.search("^drwx------ ", r.stdout, re.M), r.stdout + r.stderr)
    check(re.search("^ *[0-9]+ .* sh$", r.stdout, re.M), f"list: {r.stdout}")
    check(os.listdir(place) == [], "a socket is left")
    # Somebody else was there first: the program runs, and the message has a cure.
    os.chown(place, 1, 1)
    try:
        r = run("true")
        check(r.returncode == 0 and f"{place}: it is another user's: set XDG_RUNTIME_DIR" in
              r.stderr, r.stderr)
    finally:
        os.rmdir(place)


def families():
    p = start("bash", "-c", "read x; for i in 1 2 3; do (read y; true) & done; "
              "(exec sleep 1000) & sleep 1000 & wait", options=["--cache", "2M"])
    p.stdin.write("\n")
    p.stdin.flush()
    children = lambda: [row for row in listed_here() if row["pid"] != p.pid]
    # Children of bash have no standard input: their read ends at once.
    until(lambda: sorted(row["program"] for row in children()) == ["sleep", "sleep"],
          f"children: {ctl('list')}")
    for row in children():
        parent = re.search(r"^PPid:\t(\d+)", open(f"/proc/{row['pid']}/status").read(), re.M)
        check(int(parent[1]) == p.pid, f"{row} is not a child")
        check(json.loads(ctl(row["pid"], "stats", "--json"))["pid"] == row["pid"], "its own socket")
        ctl(row["pid"], "set", "prefetch=trend")
    check(ctl(p.pid, "get", "prefetch") == "prefetch=auto\n", "a child's setting in its parent")
    for row in children():
        os.kill(row["pid"], signal.SIGTERM)
    until(lambda: p.poll() is not None, "bash does not end")
    ctl("list")                         # SIGTERM may leave a socket
    check(os.listdir(folder) == [], f"left: {os.listdir(folder)}")
    # Settings of a parent hold for its children, and for programs that it executes.
    q = Puppet("--cache", "4M")
    ctl(q.pid, "set", "prefetch=trend", "far=off")
    child = q.do("child")
    until(lambda: os.path.exists(f"{folder}/{child}"), "no socket of the child")
    check(ctl(child, "get", "prefetch") + ctl(child, "get", "far") == "prefetch=trend\nfar=off\n",
          "a child has other settings")
    check(q.do("end-child") == "0", "the child")
    q.do("exec cat")
    until(lambda: program(q.pid) == "cat", "no execve")
    check(ctl(q.pid, "get", "prefetch") + ctl(q.pid, "get", "far") == "prefetch=trend\nfar=off\n",
          "the next program has other settings")
    q.end()
    # In a storm of forks and programs, while a client asks all the time.
    s = start("bash", "-c", "read x; for ((i = 0; i < 20; i++)); do (: $((i * i))) & "
              "(exec true) & done; wait; echo done", options=["--cache", "4M"])
    asker = subprocess.Popen(["sh", "-c", f"while {vmctl} {s.pid} stats --json; do :; done"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    started.append(asker)
    check(ends(s, say="\n", seconds=2 * LIMIT)[0] == "done\n", "the storm")


def connect(pid):
    s = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(folder)
    s.connect(str(pid))                 # waits while the queue is full
    os.chdir(here)
    s.settimeout(LIMIT)
    return s


def is_dropped(s):
    try:
        while s.recv(65536):
            pass
        return True
    except (ConnectionResetError, BrokenPipeError):
        return True
    except socket.timeout:
        return False


def send(s, data):
    try:
        s.sendall(data)
    except (ConnectionResetError, BrokenPipeError):
        pass


def peers():
    p = start(*randmem(), options=["--cache", "2M"])
    fds = lambda: len(os.listdir(f"/proc/{p.pid}/fd"))
    until(lambda: number(p.pid, "faults.fetch") > 1000, "no fetches")
    time.sleep(0.2)                     # vmctl's connections are closed
    before = fds()
    for garbage in (b"\0" * 10000, b"\xff" * 5000, b"x" * 100000, b"get text\0\n", b"\n" * 10,
                    os.urandom(5000) + b"\n"):
        s = connect(p.pid)
        send(s, garbage)
        s.shutdown(socket.SHUT_WR)
        check(is_dropped(s), f"not dropped: {garbage[:10]}")
        s.close()
    # Wrong lines are answered, and the connection stays.
    s = connect(p.pid)
    s.sendall(b"bogus\nget text far\nabout")
    text = b""
    while b"far=on" not in text:
        text += s.recv(1000)
    check(re.fullmatch(rb"error \d+\n'bogus' is no request: .*ok 7\nfar=on\n", text, re.S), text)
    s.sendall(b" text\n")
    check(s.recv(3) == b"ok ", "a line in two parts")
    s.close()
    # A client that sends half a line is dropped after a while; so is a client that does not read.
    half, deaf = connect(p.pid), connect(p.pid)
    half.sendall(b"stats js")
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1000)
    deaf.setblocking(False)
    try:
        while True:
            deaf.send(b"stats json\n" * 100)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        pass
    begin = time.monotonic()
    check(is_dropped(half), "half a line is waited for")
    check(time.monotonic() - begin < 20, "half a line is waited for too long")
    until(lambda: fds() <= before, f"{fds()} descriptors, {before} before", 20)
    deaf.close()
    # More than there are places: those that are silent longest make room.
    many = [connect(p.pid) for _ in range(100)]
    check(ctl(p.pid, "get", "far") == "far=on\n", "no room")
    for s in many:
        s.close()
    p.terminate()
    # A flood, while the program works, forks or not.
    p = start(*randmem(accesses=40000), options=["--cache", "2M"])
    flood = [subprocess.Popen([sys.executable, "-c", f"""
import os, socket
os.chdir({folder!r})
s = socket.socket(socket.AF_UNIX)
s.connect({str(p.pid)!r})
while s.send(b'get text\\n' * 50):
    s.recv(100000)
"""], stderr=subprocess.DEVNULL) for _ in range(3)]
    started.extend(flood)
    out, _ = ends(p, seconds=4 * LIMIT)
    check(re.search(r" 40000 accesses .* 0 errors$", out.strip()), out)
    q = start("bash", "-c", "read x; for ((i = 0; i < 20; i++)); do (: $((i * i))); done; echo ok")
    flood = [subprocess.Popen([sys.executable, "-c", f"""
import os, socket
os.chdir({folder!r})
s = socket.socket(socket.AF_UNIX)
s.connect({str(q.pid)!r})
while s.send(b'stats json\\n'):
    s.recv(1000000)
"""], stderr=subprocess.DEVNULL) for _ in range(3)]
    started.extend(flood)
    check(ends(q, say="\n", seconds=2 * LIMIT)[0] == "ok\n", "forks in a flood")


def nodes():
    # More memory than there was at the start.
    q = Puppet("--cache", "6M", "--node", "mem:16M", flags=())
    ctl(q.pid, "nodes", "add", "mem:64M?weight=2")
    rows = json.loads(ctl(q.pid, "nodes", "--json"))
    check([row["url"] for row in rows] == ["mem:16M", "mem:64M"] and rows[1]["number"] == 1 and
          rows[1]["pages"] == 16384 and all(row["state"] == "works" for row in rows), rows)
    for _ in range(4):
        q.do("grow 8")
    q.do("check")
    rows = json.loads(ctl(q.pid, "nodes", "--json"))
    check(rows[0]["used"] + rows[1]["used"] > (32 - 6) * 256 and rows[1]["used"] > 1000, rows)
    check(number(q.pid, "far_used_bytes") >= 4096 * (rows[0]["used"] + rows[1]["used"]) * 9 // 10,
          "the sum of what is used")
    table = ctl(q.pid, "nodes").splitlines()
    check(len(table) == 3 and table[0].split()[0] == "node" and "mem:64M" in table[2], table)
    # Children have the node, too; but no client can add a node for all of them.
    child = q.do("child")
    until(lambda: os.path.exists(f"{folder}/{child}"), "no socket of the child")
    check(len(json.loads(ctl(child, "nodes", "--json"))) == 2, "a child without the node")
    for pid in (child, q.pid):
        ctl(pid, "nodes", "add", "mem:8M", status=1, text="share its far memory")
    check(q.do("end-child") == "0", "the child")
    # It is alone again.
    ctl(q.pid, "nodes", "add", "mem:8M")
    q.do("grow 8")
    q.do("check")
    q.do(f"exec {build}/examples/randmem --size 40M --accesses 20000")
    out, err = q.end()
    check(" 0 errors" in out, out + err)

    # A program that was executed, and has not joined the far memory of the one before yet.
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(PUPPET)
        f.flush()
        q = Puppet("--cache", "6M", "--node", "mem:24M", flags=())
        q.do("grow 8")
        q.do(f"exec python3 -IS {f.name}")
        until(lambda: program(q.pid) == "python3", "no execve")
        ctl(q.pid, "nodes", "add", "mem:64M")
        for _ in range(3):
            q.do("grow 8")
        q.do("check")
        q.end()


def remote_nodes():
    # The first remote node of a program whose far memory was all here, before and after it was
    # used.
    for grown in (0, 8):
        q = Puppet("--cache", "6M", "--node", "mem:16M", flags=())
        if grown:
            q.do(f"grow {grown}")
        ctl(q.pid, "nodes", "add", memnode())
        for _ in range(2):
            q.do("grow 8")
        q.do("check")
        row = json.loads(ctl(q.pid, "nodes", "--json"))[1]
        check(row["used"] > 200 and row["read"] > 0 and row["written"] > 200, row)
        child = q.do("child")
        status = q.do("end-child")
        check(status == "0", f"the child {child}: status {status}")
        q.end()
    # Adds a node beside a remote node in use, by a path relative to vmctl's folder.
    first, second = memnode(), memnode()
    q = Puppet("--cache", "6M", "--stats=/dev/null", "--io", "inline",
               "--node", first.replace("48M", "16M"), flags=())
    q.do("grow 8")
    path = re.search("=(.*)&", second)[1]
    ctl(q.pid, "nodes", "add", second.replace(path, os.path.basename(path)),
        cwd=os.path.dirname(path))
    for _ in range(2):
        q.do("grow 8")
    q.do("check")
    row = json.loads(ctl(q.pid, "nodes", "--json"))[1]
    check(row["used"] > 200 and row["read_ns"]["p50"] > 0, row)
    q.do(f"exec {build}/examples/randmem --size 24M --accesses 5000")
    out, err = q.end()
    check(" 0 errors" in out, out + err)
    # The state of a node that does not just work stands below it.
    first, drains, second = memnode(), started[-1], memnode()
    q = Puppet("--cache", "2M", "--rebuild-rate", "1M", "--node", first, "--node", second, flags=())
    q.do("grow 8")
    drains.terminate()
    moves = r"^ 0 nbd.*\n   draining: ([1-9][\d,]*) of ([\d,]+) pages are at other nodes\n"
    until(lambda: re.search(moves, ctl(q.pid, "nodes"), re.M), "it does not drain")
    fits(ctl(q.pid, "nodes"), 100)
    row = json.loads(ctl(q.pid, "nodes", "--json"))[0]
    check(row["state"] == "draining" and row["moved"] > 0 and row["to_move"] > 0, row)
    until(lambda: re.search(r"^ 0 nbd.*\n   drained\n", ctl(q.pid, "nodes"), re.M), "it drains on")
    q.end()


def fewer_copies():
    """Pages with fewer copies than --replicas: the gauge, and what is said."""
    replicas = ["--cache", "6M", "--timeout", "30", "--replicas", "2"]
    q = Puppet(*replicas, "--node", memnode(), "--node", memnode(), flags=())
    node = started[-2]
    q.do("grow 8")
    q.do("grow 8")
    until(lambda: number(q.pid, "node.1.written") > 500, "nothing is written")
    check(number(q.pid, "replicas.fewer") == 0, "pages have fewer copies, though both nodes answer")
    node.send_signal(signal.SIGSTOP)
    q.do("grow 8")
    until(lambda: number(q.pid, "replicas.fewer") > 500, "no page has fewer copies")
    s = Screen(q.pid, "watch", "0.2")
    s.until(r"^far memory +\S+ of \S+, [1-9]\S+ with few copies$")
    s.ends_by(b"q")
    prom = ctl(q.pid, "stats", "--prom")
    check(re.search("^vmrun_pages_with_fewer_copies[{ ].*[0-9]{3}$", prom, re.M), prom[:500])
    time.sleep(3)                       # a change is said when it has lasted for 2 s
    node.send_signal(signal.SIGCONT)
    until(lambda: number(q.pid, "replicas.fewer") == 0, "pages still have fewer copies")
    time.sleep(3)
    q.do("check")
    _, err = q.end()
    check([re.sub("^vmrun: |[0-9]+ pages|vmctl [0-9]+", "", line) for line in err.splitlines()
           if "fewer than" in line or "all pages have" in line] ==
          ["far memory:  have fewer than 2 copies, as too few nodes answer or have room: see  nodes;"
           "  nodes add URL adds one", "far memory: all pages have 2 copies again"], err)
    # With too few nodes that is said once, at the start.
    for nodes, words in ((["mem:64M"], "no remote node for 2 copies of a page"),
                         ([memnode()], "remote nodes of 1 domain for 2 copies")):
        q = Puppet(*replicas, *(f"--node={node}" for node in nodes), flags=())
        q.do("grow 8")
        if "of 1 domain" in words:
            until(lambda: number(q.pid, "replicas.fewer") > 200, "no page has fewer copies")
            time.sleep(3)
        _, err = q.end()
        check(words in err and "have fewer than" not in err and "all pages have" not in err, err)


def switched_off():
    """Pages that fill the cache up to the reserve: evicted with far memory on, and not without."""
    # 16,384 frames, of which the program fills all but a hundred or two; the low mark is 256.
    scan = [f"{build}/examples/scan", "--size", "63152K", "--passes", "100000000"]
    on, off = start(*scan, options=["--cache", "64M"]), start(*scan, options=["--cache", "64M",
                                                                              "--far", "off"])
    until(lambda: number(on.pid, "evicted") > 0, "nothing is evicted with far memory on")
    time.sleep(1)
    check(number(off.pid, "evicted") == 0, "pages are evicted although there is room")
    check(ctl(off.pid, "get", "far") == "far=off\n", "far")
    ctl(off.pid, "set", "far=on")
    until(lambda: number(off.pid, "evicted") > 0, "nothing is evicted after far=on")
    # And off again: far pages come back, and stay.
    ctl(on.pid, "set", "far=off")
    until(lambda: number(on.pid, "evicted") == (time.sleep(1), number(on.pid, "evicted"))[1],
          "pages are still evicted after far=off")
    on.terminate()
    off.terminate()
    # A program that does not fit into the cache still runs.
    p = start(*randmem(accesses=30000), options=["--cache", "2M", "--far", "off"])
    out, _ = ends(p, seconds=2 * LIMIT)
    check(" 0 errors" in out, out)
    # Switched to and fro meanwhile.
    p = start(*randmem(accesses=200000), options=["--cache", "2M"])
    for i in range(40):
        if p.poll() is not None:
            break
        subprocess.run([vmctl, str(p.pid), "set", f"far={('on', 'off')[i % 2]}"],
                       stderr=subprocess.DEVNULL)
    out, _ = ends(p, seconds=2 * LIMIT)
    check(" 0 errors" in out, out)


try:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    {"list": listed, "stats": statistics, "watch": watched, "screens": screens,
     "settings": settings, "mistakes": mistakes, "strangers": strangers, "second": second_user,
     "families": families, "peers": peers,
     "nodes": nodes, "remote": remote_nodes, "fewer": fewer_copies,
     "far": switched_off}[case]()
except AssertionError as e:
    print(e)
    sys.exit(1)
finally:
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
    if os.path.isdir(folder):
        subprocess.run([vmctl, "list"], capture_output=True)
