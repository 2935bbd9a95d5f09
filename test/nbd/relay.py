"""
usage: relay.py FOLDER HOST:PORT KEYS CASE

Stands between a client with a key and memnode, which has the same key, as a host on the path may:
records all bytes, and plays with them. FOLDER is for files; KEYS has a line NAME:HEX.
"""
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading

from client import *

folder, at, keys, case = sys.argv[1:5]
server = (at.rsplit(":", 1)[0], int(at.rsplit(":", 1)[1]))
name, key = open(keys).readline().strip().split(":")
data = secrets.token_bytes(4096) * 256
LIMIT = 60


class Relay(threading.Thread):
    """Passes bytes on in both directions; recorded: [(from the client, bytes)]."""

    def __init__(self, meddle=lambda from_client, piece: piece):
        super().__init__(daemon=True)
        self.meddle, self.recorded = meddle, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            client_end, _ = self.listener.accept()
            server_end = socket.create_connection(server)
            for from_client, a, b in (True, client_end, server_end), (False, server_end,
                                                                      client_end):
                threading.Thread(target=self.pump, args=(from_client, a, b), daemon=True).start()

    def pump(self, from_client, a, b):
        try:
            while piece := a.recv(1 << 16):
                self.recorded.append((from_client, piece))
                b.sendall(self.meddle(from_client, piece))
            b.shutdown(socket.SHUT_WR)
        except OSError:
            a.close()
            b.close()

    def bytes(self, from_client=None):
        return b"".join(p for f, p in self.recorded if from_client in (None, f))


def copy(port, uri="nbds"):
    """Writes the data to the export, and reads it back; True if that worked."""
    there, back = os.path.join(folder, "there"), os.path.join(folder, "back")
    with open(there, "wb") as f:
        f.write(data)
    where = f"{uri}://{name}@127.0.0.1:{port}/disk?tls-psk-file={keys}" if uri == "nbds" else \
        f"{uri}://127.0.0.1:{port}/disk"
    for command in ["nbdcopy", there, where], ["nbdcopy", where, back]:
        if subprocess.run(command, capture_output=True, timeout=LIMIT).returncode:
            return False
    return open(back, "rb").read()[:len(data)] == data


def guests():
    """How many came in, by the log of --verbose."""
    with open(os.path.join(folder, "memnode.log")) as f:
        return f.read().count("uses an export")


def record():
    """No key, no page, no name of an export is among the bytes."""
    relay = Relay()
    assert copy(relay.port), "nbdcopy"
    seen = relay.bytes()
    assert len(seen) > 2 * len(data), "the pages went another way"
    for what in (bytes.fromhex(key), key.encode(), data[:16], data[2048:2064], b"disk",
                 b"\x25\x60\x95\x13"):
        assert what not in seen, f"{what} was sent"
    assert name.encode() in seen        # which is no secret; and shows that we look well


def plain():
    """The control: with --insecure the pages are there."""
    relay = Relay()
    assert copy(relay.port, "nbd"), "nbdcopy"
    assert data[:16] in relay.bytes() and b"disk" in relay.bytes()


def changed():
    """A byte that is changed anywhere ends the connection, or changes nothing that is read."""
    for at_byte in 3, 30, 60, 150, 400, 5000, 100000, 1000000:
        seen = 0

        def meddle(from_client, piece, at_byte=at_byte):
            nonlocal seen
            begin, seen = seen, seen + len(piece) * from_client
            if not from_client or not begin <= at_byte < seen:
                return piece
            i = at_byte - begin
            return piece[:i] + bytes([piece[i] ^ 1]) + piece[i + 1:]

        assert not copy(Relay(meddle).port), f"byte {at_byte} was changed unseen"
    assert copy(Relay().port)


def stripped():
    """A relay that says there is no TLS is not believed; nor one that begins it and goes on bare."""
    refusal = struct.pack(">QIII", REPLY, STARTTLS, UNSUP, 0)

    def deny(from_client, piece):
        return refusal if not from_client and struct.pack(">QII", REPLY, STARTTLS, 1) in piece \
            else piece

    assert not copy(Relay(deny).port)


def replayed():
    """What was recorded of a client lets nobody in: again, cut, out of order, or mixed."""
    runs = []
    for _ in range(2):
        relay = Relay()
        assert copy(relay.port)
        runs.append([p for from_client, p in relay.recorded if from_client])
    before = guests()
    first, second = runs
    tries = [first, first[:3], first[:2] + second[2:], first[:1] + first[2:] + first[1:2],
             first[2:], second[:2] + first[:2]]
    whole = b"".join(first)[:2000]
    tries += [[whole[:n]] for n in range(0, len(whole), 97)]
    for pieces in tries:
        s = socket.create_connection(server, timeout=LIMIT)
        answer = bytearray()
        try:
            for piece in pieces[:20]:
                s.sendall(piece)
                s.settimeout(0.05)
                try:
                    answer += s.recv(1 << 16)
                except socket.timeout:
                    pass
            s.shutdown(socket.SHUT_WR)
            s.settimeout(LIMIT)
            while piece := s.recv(1 << 16):
                answer += piece
        except OSError:
            pass
        s.close()
        assert len(answer) < 3000, f"{len(answer)} bytes were answered"
    assert guests() == before, "somebody came in"
    assert copy(server[1])
    assert guests() > before            # so it does count


globals()[case]()
