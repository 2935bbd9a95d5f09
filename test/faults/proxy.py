#!/usr/bin/python3
"""
A network that is unkind to NBD: passes connections on to a server, and makes faults on the way.

usage: proxy.py [--seed N] [--log FILE] [--fault KIND=CHANCE[:SECONDS]]... LISTEN TO

LISTEN and TO are HOST:PORT or the path of a unix socket. What happens to a command or an answer
follows from the seed, the number of its connection and its own number there: the same seed makes
the same faults. FILE has a line for each fault. KIND, each with its chance for one command:

  delay      it is passed on after at most SECONDS
  hold       the connection breaks for the client; this command and all that the client has sent
             after it are passed on to the server SECONDS later
  reorder    the next command overtakes it
  close      both sides are closed
  reset      both sides get a reset
  truncate   half of it is passed on, then both sides are closed
  flip       one bit of a page is another: of a WRITE or of the answer to a READ
  stale      the answer to a READ has what was there before the last WRITE
  torn       half of it has
  swap       the answer to a READ has the page of another place
  misplace   a WRITE goes to another place that was written before
"""
import argparse
import os
import random
import socket
import struct
import sys
import threading
import time

READ, WRITE, DISC = 0, 1, 2
PAGE = 4096
GO, ACK = 7, 1


class Ended(Exception):
    """One of the sides is closed."""


def address(text):
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else text


def connect(to):
    s = socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET)
    s.connect(to)
    return s


def get(s, n):
    data = bytearray()
    while len(data) < n:
        part = s.recv(n - len(data))
        if not part:
            raise Ended
        data += part
    return bytes(data)


class Memory:
    """What was written where, and what was there before that: pages of all connections."""

    def __init__(self):
        self.lock = threading.Lock()
        self.now, self.before = {}, {}

    def write(self, offset, data):
        with self.lock:
            for at in range(0, len(data), PAGE):
                place = offset + at
                if place in self.now:
                    self.before[place] = self.now[place]
                self.now[place] = data[at:at + PAGE]

    def old(self, offset):
        with self.lock:
            return self.before.get(offset)

    def another(self, offset, r):
        """A place that was written, other than this one."""
        with self.lock:
            places = [p for p in list(self.now)[:1000] if p != offset]
            return r.choice(places) if places else None


class Proxy:
    def __init__(self, arguments):
        self.seed, self.to, self.memory = arguments.seed, address(arguments.to), Memory()
        self.log = open(arguments.log, "w", buffering=1) if arguments.log else None
        self.faults, self.began, self.numbers = [], time.monotonic(), 0
        # Old contents are kept only if a fault needs them.
        self.remembers = False
        for text in arguments.fault:
            kind, _, rest = text.partition("=")
            chance, _, seconds = rest.partition(":")
            self.faults.append((kind, float(chance), float(seconds or 0)))
            self.remembers |= kind in ("stale", "torn", "swap", "misplace")

    def decide(self, link, way, n):
        """The fault for command n of a direction: its kind, seconds, and a source of chance."""
        r = random.Random(f"{self.seed} {link} {way} {n}")
        p = r.random()
        for kind, chance, seconds in self.faults:
            if p < chance:
                return kind, seconds, r
            p -= chance
        return None, 0, r

    def say(self, link, way, n, what):
        if self.log:
            self.log.write(f"{time.monotonic() - self.began:.3f} connection {link} {way} {n} {what}\n")

    def serve(self, listen):
        if isinstance(listen, str):
            s = socket.socket(socket.AF_UNIX)
            if os.path.exists(listen):
                os.unlink(listen)
        else:
            s = socket.socket(socket.AF_INET)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(listen)
        s.listen(64)
        while True:
            client, _ = s.accept()
            try:
                server = connect(self.to)
            except OSError:
                client.close()
                continue
            self.numbers += 1
            Link(self, self.numbers, client, server).start()


class Link:
    def __init__(self, proxy, number, client, server):
        self.proxy, self.number, self.client, self.server = proxy, number, client, server
        self.transmits, self.held = False, False
        self.under_way, self.lock = {}, threading.Lock()
        for s in client, server:
            if s.family == socket.AF_INET:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self):
        for way in self.up, self.down:
            threading.Thread(target=self.run, args=(way,), daemon=True).start()

    def run(self, way):
        try:
            way()
        except (Ended, OSError):
            pass
        if not self.held:
            self.end()

    def end(self, reset=False):
        for s in self.client, self.server:
            if reset:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            if reset:
                s.close()

    # --- from the client to the server ---

    def up(self):
        while not self.transmits:
            data = self.client.recv(65536)
            if not data:
                raise Ended
            if self.transmits:                      # the first commands
                self.commands(data)
                return
            self.server.sendall(data)
        self.commands(b"")

    def commands(self, first):
        buffer, n, overtaken = bytearray(first), 0, b""

        def take(size):
            while len(buffer) < size:
                part = self.client.recv(65536)
                if not part:
                    raise Ended
                buffer.extend(part)
            data = bytes(buffer[:size])
            del buffer[:size]
            return data

        while True:
            head = take(28)
            _, _, kind, cookie, offset, length = struct.unpack(">IHHQQI", head)
            data = take(length) if kind == WRITE else b""
            n += 1
            fault, seconds, r = self.proxy.decide(self.number, "up", n)
            if kind == DISC:
                fault = None
            if fault == "hold":
                self.hold(seconds, head + data + bytes(buffer), n)
                return
            head, data = self.spoil(fault, seconds, r, n, head, data)
            with self.lock:
                self.under_way[cookie] = kind, offset, length
            if fault == "reorder" and not overtaken:
                self.proxy.say(self.number, "up", n, "reorder")
                overtaken = head + data
                threading.Timer(0.05, lambda: None).start()
                # If no other command follows, it goes on alone.
                if not buffer:
                    self.client.settimeout(0.02)
                    try:
                        buffer.extend(self.client.recv(65536))
                    except socket.timeout:
                        pass
                    self.client.settimeout(None)
                if buffer:
                    continue
                head, data, overtaken = overtaken, b"", b""
            self.server.sendall(head + data + overtaken)
            overtaken = b""

    def spoil(self, fault, seconds, r, n, head, data):
        """The command as it goes on, or the end of the connection."""
        if fault in ("delay", "close", "reset", "truncate"):
            self.interrupt(fault, seconds, r, n, "up", self.server, head + data)
        magic, flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", head)
        if fault == "flip" and data:
            self.proxy.say(self.number, "up", n, f"flip in a WRITE at {offset:#x}")
            data = flip(data, r)
        place = self.proxy.memory.another(offset, r) if fault == "misplace" and data else None
        if place is not None:
            self.proxy.say(self.number, "up", n, f"a WRITE for {offset:#x} goes to {place:#x}")
            head = struct.pack(">IHHQQI", magic, flags, kind, cookie, place, length)
        elif data and self.proxy.remembers:
            self.proxy.memory.write(offset, data)
        return head, data

    def interrupt(self, fault, seconds, r, n, way, to, data):
        self.proxy.say(self.number, way, n, fault)
        if fault == "delay":
            time.sleep(seconds * r.random())
            return
        if fault == "truncate":
            to.sendall(data[:len(data) // 2])
        self.end(fault == "reset")
        raise Ended

    def hold(self, seconds, data, n):
        """The client sees its connection break; the server sees what it sent, late."""
        self.held = True
        self.proxy.say(self.number, "up", n, f"held back for {seconds} s")
        self.client.setblocking(False)
        data = bytearray(data)
        try:
            while True:
                more = self.client.recv(65536)
                if not more:
                    break
                data.extend(more)
        except OSError:
            pass
        self.client.shutdown(socket.SHUT_RDWR)
        time.sleep(seconds)
        try:
            self.server.sendall(data)
            self.proxy.say(self.number, "up", n, f"{len(data)} bytes passed on")
            time.sleep(1)
        except OSError:
            self.proxy.say(self.number, "up", n, "the server has ended the connection")
        self.end()

    # --- from the server to the client ---

    def down(self):
        self.client.sendall(get(self.server, 18))
        while not self.transmits:
            head = get(self.server, 20)
            _, option, kind, length = struct.unpack(">QIII", head)
            body = get(self.server, length)
            self.transmits = option == GO and kind == ACK
            self.client.sendall(head + body)
        n = 0
        while True:
            head = get(self.server, 16)
            _, error, cookie = struct.unpack(">IIQ", head)
            with self.lock:
                kind, offset, length = self.under_way.pop(cookie)
            data = get(self.server, length) if kind == READ and not error else b""
            n += 1
            fault, seconds, r = self.proxy.decide(self.number, "down", n)
            if self.held:
                continue                            # the client is gone
            if fault in ("delay", "close", "reset", "truncate"):
                self.interrupt(fault, seconds, r, n, "down", self.client, head + data)
            if data:
                data = self.lie(fault, r, n, offset, data)
            self.client.sendall(head + data)

    def lie(self, fault, r, n, offset, data):
        memory, told = self.proxy.memory, None
        if fault == "flip":
            told = flip(data, r)
        elif fault in ("stale", "torn"):
            told = memory.old(offset)
            if told and fault == "torn":
                half = len(data) // 2
                told = data[:half] + told[half:] if r.random() < 0.5 else told[:half] + data[half:]
        elif fault == "swap":
            place = memory.another(offset, r)
            told = memory.now.get(place) if place is not None else None
        if not told or told == data:
            return data
        self.proxy.say(self.number, "down", n, f"{fault} in a READ at {offset:#x}")
        return told


def flip(data, r):
    data = bytearray(data)
    bit = r.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--log")
    p.add_argument("--fault", action="append", default=[])
    p.add_argument("listen")
    p.add_argument("to")
    arguments = p.parse_args()
    print(f"proxy: seed {arguments.seed}", file=sys.stderr)
    Proxy(arguments).serve(address(arguments.listen))


if __name__ == "__main__":
    main()
