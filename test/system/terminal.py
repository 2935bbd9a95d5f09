#!/usr/bin/env python3
"""
usage: terminal.py [--interrupt TEXT] COMMAND...

Runs a command on a terminal of its own, of 80 columns, and prints what appears there.  With --interrupt, types
Ctrl-C a second after TEXT has appeared.  Its exit status is the command's, 128 and the number if a
signal ended it.
"""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time

command = sys.argv[1:]
text = None
if command[0] == "--interrupt":
    text, command = command[1].encode(), command[2:]

pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    # Shells start background commands with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(command[0], command)
seen, due = b"", None
while True:
    ready, _, _ = select.select([terminal], [], [], 0.1)
    if due and time.monotonic() >= due:
        os.write(terminal, b"\x03")
        due = text = None
    if not ready:
        continue
    try:
        new = os.read(terminal, 65536)
    except OSError:                     # the other side is closed
        break
    seen += new
    if text is not None and text in seen and not due:
        due = time.monotonic() + 1
_, status = os.waitpid(pid, 0)
sys.stdout.write(seen.decode().replace("\r\n", "\n"))
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
