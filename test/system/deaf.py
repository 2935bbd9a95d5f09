"""
usage: deaf.py VMRUN

vmrun's standard error has no reader: the program runs, ends and dies of signals nevertheless. Lines
that were dropped are counted once there is a reader.
"""
import fcntl
import os
import signal
import subprocess
import sys

vmrun = sys.argv[1]
LIMIT = 30


def full_pipe():
    """A pipe of one page, with that page in it."""
    r, w = os.pipe()
    fcntl.fcntl(w, fcntl.F_SETPIPE_SZ, 4096)
    os.write(w, b"x" * 4096)
    return r, w


def start(*command, options=()):
    r, w = full_pipe()
    p = subprocess.Popen([vmrun, "-v", "--cache", "4M", *options, "--", *command],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=w)
    return p, r, w


def ends(p, status):
    try:
        out, _ = p.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        p.kill()
        raise AssertionError(f"{p.args} does not end") from None
    assert p.returncode == status, f"{p.args}: status {p.returncode}"
    return out


p, r, w = start("echo", "hello", options=["--stats"])
assert ends(p, 0) == b"hello\n"
assert not fcntl.fcntl(w, fcntl.F_GETFL) & os.O_NONBLOCK, "everybody's mode was changed"

p, r, w = start("sh", "-c", "echo ready; exec sleep 100")
p.send_signal(signal.SIGTERM)
ends(p, -signal.SIGTERM)

p, r, w = start("perl", "-e", "$| = 1; print qq(ready\n); <STDIN>; syscall(157, 12345)")
assert p.stdout.readline() == b"ready\n"
assert os.read(r, 8192) == b"x" * 4096
ends(p, 0)
text = os.read(r, 8192).decode()
first, second = text.splitlines()[:2]
assert first.startswith("vmrun: "), text
assert first.endswith(" lines were dropped before this one: the reader took none"), text
assert int(first.split()[1]) >= 3, text
assert second == "vmrun: prctl option 12345 is unknown: EINVAL", text
