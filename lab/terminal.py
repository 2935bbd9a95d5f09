#!/usr/bin/python3 -sEB
"""A terminal for COMMAND in the lab's machine: the ends that the caller and the guest have of it.

The caller's end, Terminal, makes the caller's own terminal raw: each key goes to the guest as it
is, Ctrl-C too. The guest's end, which this file is when it is run, gives COMMAND a terminal, where
the keys mean what they mean on any. It writes what appears there to its own output. When the
caller's window changes, its new size comes by the control port; init writes it to SIZE and sends
SIGWINCH.

usage: terminal.py COMMAND...     its exit status is COMMAND's, 128 + n for a death by signal n
"""

import fcntl
import os
import pty
import selectors
import signal
import struct
import sys
import termios
import tty

SIZE = "/run/lab/size"  # rows and columns


class Terminal:
    """The caller's terminal, on standard input, raw from begin() to end()."""

    def __init__(self):
        self.before = None

    def begin(self, tell_size):
        """tell_size(ROWS, COLUMNS) is called now and whenever the window changes."""
        self.before = termios.tcgetattr(0)
        signal.signal(signal.SIGWINCH, lambda number, frame: tell_size(*self.size()))
        tty.setraw(0)
        tell_size(*self.size())

    @staticmethod
    def size():
        size = os.get_terminal_size(0)
        return size.lines, size.columns

    def end(self):
        """As it was before begin(); once more does nothing."""
        if self.before:
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
            # Keys that were typed and not read are for the caller's shell: no TCSAFLUSH.
            termios.tcsetattr(0, termios.TCSADRAIN, self.before)
            self.before = None


def take_size(terminal):
    """Give COMMAND's terminal the size of the caller's; the kernel tells COMMAND."""
    try:
        with open(SIZE) as file:
            rows, columns = map(int, file.read().split())
    except (OSError, ValueError):
        return  # it has not come yet: SIGWINCH will
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data) :]


def carry(terminal):
    """Keys to the terminal and its output to ours, until no process has the terminal open."""
    with selectors.DefaultSelector() as selector:
        selector.register(terminal, selectors.EVENT_READ, 1)
        selector.register(0, selectors.EVENT_READ, terminal)
        while True:
            for key, _ in selector.select():
                try:
                    data = os.read(key.fd, 65536)
                except OSError:  # EIO: COMMAND and its children have closed it
                    return
                if data:
                    write_all(key.data, data)
                elif key.fd == terminal:
                    return
                else:
                    selector.unregister(0)


def main():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(sys.argv[1], sys.argv[1:])
    # The handler first: a size that comes between the two is taken twice.
    signal.signal(signal.SIGWINCH, lambda number, frame: take_size(terminal))
    take_size(terminal)
    carry(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    status = main()
    sys.exit(status if status >= 0 else 128 - status)
