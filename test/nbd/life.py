"""
How memnode lives with what starts it: a command that it runs, a file with its number, sockets that
it inherits, a watchdog.

usage: life.py CASE FOLDER MEMNODE
"""
import atexit
import ctypes
import glob
import os
import select
import signal
import socket
import subprocess
import sys
import time

from client import *
from client import client
from leases import lease

case, folder, memnode = sys.argv[1:4]
at = f"{folder}/life.sock"
base = [memnode, "--size", "16M", "--hugepages", "none"]


def start(*options, **more):
    p = subprocess.Popen([*base, *options], stderr=open(f"{folder}/life.log", "w"), **more)
    atexit.register(p.kill)
    return p


def until(true, what):
    end = time.monotonic() + 15
    while not true():
        assert time.monotonic() < end, (what, said())
        time.sleep(0.02)


def said():
    return open(f"{folder}/life.log").read()


def run():
    """The command has the URL, and memnode its status and its end."""
    command = 'echo "$uri $unixsocket $port $LISTEN_FDS"; test -S "$unixsocket" && exit 7'
    p = start("--run", command, stdout=subprocess.PIPE, text=True)
    words = p.communicate(timeout=20)[0].split()
    assert p.returncode == 7, (p.returncode, said())
    assert words == [f"nbd+unix:///?socket={words[1]}", words[1]], words
    assert not os.path.exists(os.path.dirname(words[1])), "its folder stays"

    port = socket.create_server(("127.0.0.1", 0)).getsockname()[1]
    for host in "0.0.0.0", "127.0.0.1":
        p = start("--insecure", "--listen", f"nbd://{host}:{port}", "--run", 'echo "$uri $port"',
                  stdout=subprocess.PIPE, text=True)
        assert p.communicate(timeout=20)[0].split() == [f"nbd://127.0.0.1:{port}", str(port)]
        assert p.returncode == 0, said()

    assert start("--run", "kill -KILL $$").wait(20) == 128 + signal.SIGKILL
    # A signal is the command's, which has none blocked.
    for by in signal.SIGTERM, signal.SIGINT:
        p = start("--run", f"trap 'exit 5' {by.name[3:]}; touch '{folder}/runs'; "
                  "while :; do sleep 0.05; done")
        until(lambda: os.path.exists(f"{folder}/runs"), "it does not run")
        os.unlink(f"{folder}/runs")
        p.send_signal(by)
        assert p.wait(20) == 5, said()
    # Ctrl-C is for both: the end is clean all the same.
    for _ in range(5):
        p = start("--run", f"echo $unixsocket >'{folder}/runs'; exec sleep 60",
                  start_new_session=True)
        until(lambda: os.path.exists(f"{folder}/runs") and open(f"{folder}/runs").read(),
              "it does not run")
        place = os.path.dirname(open(f"{folder}/runs").read())
        os.unlink(f"{folder}/runs")
        os.killpg(p.pid, signal.SIGINT)
        assert p.wait(20) == 128 + signal.SIGINT and not os.path.exists(place), said()
    # A start that fails leaves nothing, and runs nothing.
    before = set(glob.glob("/tmp/memnode.*"))
    p = start("--run", f"touch '{folder}/runs'", "--pidfile", f"{folder}/none/pid")
    assert p.wait(20) == 1 and "make its folder first" in said()
    assert not os.path.exists(f"{folder}/runs")
    assert set(glob.glob("/tmp/memnode.*")) <= before, "its folder stays"
    # Who starts memnode may ignore the ends of children.
    assert start("--run", "exit 6", preexec_fn=lambda: signal.signal(
        signal.SIGCHLD, signal.SIG_IGN)).wait(20) == 6, said()
    with open(f"{folder}/life.keys", "w") as f:
        f.write(f"alice:{'1a' * 32}\n")
    os.chmod(f.name, 0o600)
    p = start("--keys", f.name, "--listen", f"nbd://127.0.0.1:{port}", "--run", "echo $uri",
              stdout=subprocess.PIPE, text=True)
    assert p.communicate(timeout=20)[0] == f"nbds://127.0.0.1:{port}\n", "clients need TLS"


def pidfile():
    """It is there while memnode serves, whole, and for all users."""
    path = f"{folder}/life.pid"
    p = start("--listen", f"nbd+unix://{at}", "--pidfile", path, preexec_fn=lambda: os.umask(0o77))
    until(lambda: os.path.exists(path), "no file")
    assert open(path).read() == f"{p.pid}\n"
    assert os.stat(path).st_mode & 0o777 == 0o644
    with Client(at).greet():
        pass
    p.terminate()
    assert p.wait(20) == 0 and not os.path.exists(path), "it stays"


def activated(sockets, *options):
    """A memnode that inherits these sockets as systemd hands them over."""
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(f"{folder}/life.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        for i, s in enumerate(sockets):     # first out of the way
            sockets[i] = os.dup(s.fileno())
            os.dup2(sockets[i], 20 + i)
        for i in range(len(sockets)):
            os.dup2(20 + i, 3 + i)
            os.close(20 + i)
        os.execve(memnode, [*base, *options], {
            **os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(sockets))})
    atexit.register(lambda: os.kill(pid, signal.SIGKILL) if pid not in ended else None)
    return pid


ended = set()


def wait(pid):
    ended.add(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def sockets():
    """Of a path and of TCP; those that others reach need keys, as with --listen."""
    path, tcp = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))
    path.bind(at)
    path.listen(8)
    address = tcp.getsockname()
    # The configuration may name one of them, too.
    pid = activated([path, tcp], "--export", "disk=1M", "--listen", f"nbd+unix://{at}")
    until(lambda: "serving" in said(), "it does not serve")
    for where in at, address:
        with client(where, "disk") as c:
            c.write(0, b"mine")
            assert c.read(0, 4) == b"mine"
    os.kill(pid, signal.SIGHUP)
    until(lambda: "limits read again" in said(), "it cannot read settings again")
    with client(address, "disk"):
        pass
    os.kill(pid, signal.SIGTERM)
    assert wait(pid) == 0, said()
    assert os.path.exists(at), "systemd's socket is gone"
    with socket.socket(socket.AF_UNIX) as later:
        later.connect(at)                   # waits for the next memnode

    everywhere = socket.create_server(("0.0.0.0", 0))
    assert wait(activated([everywhere])) == 1 and "give --keys FILE" in said(), said()
    datagrams = socket.socket(type=socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    assert wait(activated([datagrams])) == 1 and "see ListenStream=" in said(), said()
    idle = socket.socket()
    idle.bind(("127.0.0.1", 0))
    assert wait(activated([idle])) == 1 and "see ListenStream=" in said(), said()


def watchdog():
    """Fed while the threads that serve go on, busy or idle; not while one of them stands still."""
    limit = 0.8
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(f"{folder}/notify")
    p = start("--listen", f"nbd+unix://{at}", "--export", "disk=1M", env={
        **os.environ, "NOTIFY_SOCKET": f"{folder}/notify",
        "WATCHDOG_USEC": str(int(limit * 1e6))})

    def fed(seconds):
        """How often within that time."""
        times, end = 0, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([listener], [], [], left)[0]:
                times += listener.recv(4096) == b"WATCHDOG=1"
        return times

    until(lambda: "serving" in said(), "it does not serve")
    assert fed(3) >= 2, said()
    threads = {open(f"/proc/{p.pid}/task/{t}/comm").read().strip(): int(t)
               for t in os.listdir(f"/proc/{p.pid}/task")}
    libc = ctypes.CDLL(None, use_errno=True)
    ATTACH, CONT, INTERRUPT, SEIZE = 16, 7, 0x4207, 0x4206
    for tid in threads["memnode-nbd"], p.pid:
        assert libc.ptrace(SEIZE, tid, 0, 0) == 0, os.strerror(ctypes.get_errno())
        assert libc.ptrace(INTERRUPT, tid, 0, 0) == 0
        os.waitpid(tid, 0x40000000)         # __WALL
        fed(limit)                          # what was under way
        assert fed(2 * limit) == 0, "it only shows that the process lives"
        assert "thread has stood still" in said(), said()
        assert libc.ptrace(CONT, tid, 0, 0) == 0
        assert fed(3) >= 1, "it is not fed again"
        libc.ptrace(INTERRUPT, tid, 0, 0)
        os.waitpid(tid, 0x40000000)
        libc.ptrace(17, tid, 0, 0)          # PTRACE_DETACH
    p.terminate()
    assert p.wait(20) == 0
    assert fed(1) <= 1, "after its end"


globals()[case]()
