"""
usage: notify.py SOCKET COMMAND [ARGUMENT...]

Runs COMMAND as systemd would, with NOTIFY_SOCKET, and goes through its life: start, SIGHUP,
SIGTERM, end.  Fails if it does not say what a unit of Type=notify must say, in that order.
"""
import os
import signal
import socket
import subprocess
import sys
import time

path, command = sys.argv[1], sys.argv[2:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(path)
listener.settimeout(10)


def told():
    """The next message: its variables."""
    return dict(line.split("=", 1) for line in listener.recv(4096).decode().splitlines())


def expect(key):
    message = told()
    assert message.get(key) == "1", f"{key} was expected, and {message} came"
    return message


server = subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": path})
try:
    assert expect("READY")["STATUS"].startswith("serving 1M at nbd://"), "what is served"
    server.send_signal(signal.SIGHUP)
    at = int(expect("RELOADING")["MONOTONIC_USEC"])
    assert abs(time.monotonic_ns() // 1000 - at) < 10_000_000, "not this clock's time"
    assert expect("READY")["STATUS"].startswith("serving 1M"), "what is served after reading again"
    server.send_signal(signal.SIGTERM)
    assert expect("STOPPING")["STATUS"].startswith("ending"), "what it is doing"
    assert server.wait(10) == 0, "not a clean end"
    listener.setblocking(False)
    try:
        raise AssertionError(f"after the end it said {told()}")
    except BlockingIOError:
        pass
finally:
    server.kill()
    os.unlink(path)
