#!/usr/bin/python3
"""
A network that is unkind to NBD: passes connections on to a server, and makes faults on the way.

usage: proxy.py [--seed N] [--log FILE] [--spare N] [--fault KIND=CHANCE[:SECONDS]]... LISTEN TO

LISTEN and TO are HOST:PORT or the path of a unix socket. The faults of a command or an answer
follow from the seed, the number of its connection and its own number there: one seed always makes
the same faults for the same commands. The first N connections of --spare have no faults by chance.
SIGUSR1 ends all faults by chance; at SIGUSR2 all connections get a reset. FILE has a line for each
fault, and one for each page that the client read and that differed from its last write there.
KIND, with its chance for one command:

  delay      it is passed on after at most SECONDS
  late       a WRITE, with all commands behind it, is passed on SECONDS later, also if its client
             is dead by then
  hold       the connection breaks for the client; this command and all that the client has sent
             after it are passed on to the server SECONDS later
  reorder    the next command overtakes this one
  close      both sides are closed
  reset      both sides get a reset
  truncate   half of the command is passed on, then both sides are closed
  flip       one bit of a page is changed: of a WRITE or of the answer to a READ
  stale      the answer to a READ has the page as it was before the last WRITE
  torn       half of the answer to a READ has the bytes from before the last WRITE
  part       one bit is changed in the answer to a READ of less than a page
  swap       the answer to a READ has the page of another place
  misplace   a WRITE goes to another place that was written before

and KIND=WHICH:SECONDS for faults that begin at a time:

  deaf       SECONDS after the first connection of member WHICH of a lease of memnode, all that this
             member sends is discarded, on its connections of then and of later; vmrun says the
             member in the name of an export
  outage     SECONDS after the first connection of all, nothing passes for WHICH seconds

"flip", "delay" and others may be made in one direction only: flip-up (to the server), flip-down.
"""
import argparse
import os
import random
import re
import signal
import socket
import struct
import sys
import threading
import time

READ, WRITE, DISC = 0, 1, 2
PAGE = 4096
OPTION_MAGIC = b"IHAVEOPT"
REQUEST_MAGIC = b"\x25\x60\x95\x13"
GO, ACK = 7, 1
INTERRUPTIONS = "delay", "close", "reset", "truncate"
UP = "delay", "late", "hold", "reorder", "close", "reset", "truncate", "flip", "misplace"
DOWN = "delay", "close", "reset", "truncate", "flip", "part", "stale", "torn", "swap"
MEMBER = re.compile(rb"(?:create|join)-[0-9a-f]+-[0-9a-f]+-([0-9]+)-([0-9]+)-[0-9]+")


class Ended(Exception):
    """One of the sides is closed."""


def address(text):
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else text


def connect(to):
    s = socket.socket(socket.AF_UNIX if isinstance(to, str) else socket.AF_INET)
    s.connect(to)
    return s


class Reader:
    """Takes a given number of bytes from a socket."""

    def __init__(self, s):
        self.s, self.ahead = s, bytearray()

    def more(self):
        part = self.s.recv(1 << 18)
        if not part:
            raise Ended
        self.ahead += part

    def get(self, n):
        while len(self.ahead) < n:
            self.more()
        data = bytes(self.ahead[:n])
        del self.ahead[:n]
        return data

    def peek(self, n):
        while len(self.ahead) < n:
            self.more()
        return bytes(self.ahead[:n])


class Memory:
    """The last page that a client wrote at each place, and the page before it; all connections."""

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

    def another(self, offset, length, r):
        """A place that was written, as long as this one and apart from it; None: there is none."""
        with self.lock:
            places = list(self.now) if length <= len(self.now) * PAGE else []
        for _ in range(20 if places else 0):
            place = r.choice(places)
            if abs(place - offset) >= length and place + length - PAGE in self.now:
                return place
        return None

    def of(self, pages, offset, data):
        """The bytes that pages, now or before, has at this place; data if it has none."""
        at = offset % PAGE
        with self.lock:
            page = pages.get(offset - at)
        return page[at:at + len(data)] if page else data

    def differs(self, offset, data):
        """Whether a page, or its part, differs from the one written; False if none was written."""
        return self.of(self.now, offset, data) != data


class Proxy:
    def __init__(self, arguments):
        self.seed, self.to, self.memory = arguments.seed, address(arguments.to), Memory()
        self.spare, self.numbers, self.began = arguments.spare, 0, None
        self.log = open(arguments.log, "w", buffering=1) if arguments.log else None
        self.faults, self.outages = {"up": [], "down": []}, []
        self.deaf, self.members, self.links = {}, {}, []
        for text in arguments.fault:
            self.add(text)
        # Pages are kept only if a fault spoils them.
        spoiled = "flip", "part", "stale", "torn", "swap", "misplace"
        self.remembers = any(f[0] in spoiled for way in self.faults.values() for f in way)

    def add(self, text):
        kind, _, rest = text.partition("=")
        first, _, seconds = rest.partition(":")
        kind, _, only = kind.partition("-")
        if kind == "deaf":
            self.deaf[int(first)] = float(seconds or 0)
            return
        if kind == "outage":
            self.outages.append((float(seconds or 0), float(first)))
            return
        ways = [w for w, kinds in (("up", UP), ("down", DOWN)) if kind in kinds and only in ("", w)]
        if not ways:
            raise SystemExit(f"proxy: no such fault: {text}")
        for way in ways:
            self.faults[way].append((kind, float(first), float(seconds or 0)))

    def decide(self, link, way, n):
        """The fault for command n of a direction: its kind, seconds, and a source of chance."""
        r = random.Random(f"{self.seed} {link} {way} {n}")
        p = r.random()
        for kind, chance, seconds in self.faults[way] if link > self.spare else ():
            if p < chance:
                return kind, seconds, r
            p -= chance
        return None, 0, r

    def heal(self, *_):
        self.faults = {"up": [], "down": []}

    def reset(self, *_):
        links, self.links = self.links, []
        for link in links:
            link.reset()

    def now(self):
        return time.monotonic() - self.began

    def wait_for_network(self):
        for start, seconds in self.outages:
            passed = self.now() - start
            if 0 <= passed < seconds:
                time.sleep(seconds - passed)

    def is_deaf(self, member):
        return member in self.deaf and self.now() - self.members[member] >= self.deaf[member]

    def say(self, link, way, n, what):
        if self.log:
            self.log.write(f"{self.now():.3f} connection {link} {way} {n} {what}\n")

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
        at = listen if isinstance(listen, str) else "%s:%d" % s.getsockname()
        print(f"proxy: seed {self.seed}, listens at {at}", file=sys.stderr, flush=True)
        while True:
            client, _ = s.accept()
            self.began = self.began or time.monotonic()
            try:
                server = connect(self.to)
            except OSError:
                client.close()
                continue
            self.numbers += 1
            self.links.append(Link(self, self.numbers, client, server))
            self.links[-1].start()


class Link:
    def __init__(self, proxy, number, client, server):
        self.proxy, self.number, self.client, self.server = proxy, number, client, server
        self.member, self.held = None, False
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
        # Of a connection that is held back, the client's side has ended long before.
        if way == self.up or not self.held:
            self.end(socket.SHUT_RDWR)

    def end(self, how):
        for s in self.client, self.server:
            try:
                s.shutdown(how)
            except OSError:
                pass

    def reset(self):
        """Wakes the other thread without telling the peers; they get a reset when it has gone."""
        for s in self.client, self.server:
            if s.fileno() < 0:
                return                  # it has ended
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.end(socket.SHUT_RD)
        for s in self.client, self.server:
            s.close()

    def interrupt(self, fault, seconds, r, n, way, to, data):
        self.proxy.say(self.number, way, n, fault)
        if fault == "delay":
            time.sleep(seconds * r.random())
            return
        if fault == "truncate":
            to.sendall(data[:len(data) // 2])
        if fault == "reset":
            self.reset()
        raise Ended

    # --- from the client to the server ---

    def up(self):
        client = Reader(self.client)
        self.server.sendall(client.get(4))
        while client.peek(4) != REQUEST_MAGIC:
            head = client.get(16)
            option, length = struct.unpack(">II", head[8:])
            if head[:8] != OPTION_MAGIC:
                raise Ended
            data = client.get(length)
            name = MEMBER.match(data[4:]) if option == GO else None
            if name:
                self.member = int(name[1])
                self.proxy.members.setdefault(self.member, self.proxy.now())
                self.proxy.say(self.number, "up", 0, f"member {self.member} link {int(name[2])}")
            self.pass_on(head + data)
        self.commands(client)

    def pass_on(self, data):
        self.proxy.wait_for_network()
        if not self.proxy.is_deaf(self.member):
            self.server.sendall(data)

    def commands(self, client):
        n, overtaken = 0, b""
        while True:
            try:
                head = client.get(28)
            except TimeoutError:            # nothing came to overtake it
                self.client.settimeout(None)
                self.pass_on(overtaken)
                overtaken = b""
                continue
            self.client.settimeout(None)
            _, _, kind, cookie, offset, length = struct.unpack(">IHHQQI", head)
            data = client.get(length) if kind == WRITE else b""
            n += 1
            fault, seconds, r = self.proxy.decide(self.number, "up", n)
            if kind == DISC:
                fault = None
            if data and self.proxy.remembers:
                self.proxy.memory.write(offset, data)
            if fault == "hold":
                self.hold(seconds, overtaken + head + data + bytes(client.ahead), n)
                return
            head, data = self.spoil(fault, seconds, r, n, head, data)
            with self.lock:
                self.under_way[cookie] = kind, offset, length
            if fault == "reorder" and not overtaken:
                self.proxy.say(self.number, "up", n, "reorder")
                overtaken = head + data
                self.client.settimeout(0.02)
                continue
            self.pass_on(head + data + overtaken)
            overtaken = b""

    def spoil(self, fault, seconds, r, n, head, data):
        """The command as it is passed on; raises Ended if the connection ends here."""
        if fault in INTERRUPTIONS:
            self.interrupt(fault, seconds, r, n, "up", self.server, head + data)
        magic, flags, kind, cookie, offset, length = struct.unpack(">IHHQQI", head)
        if fault == "late" and data:
            self.proxy.say(self.number, "up", n, f"late: a WRITE at {offset:#x}")
            time.sleep(seconds)
        if fault == "flip" and data:
            self.proxy.say(self.number, "up", n, f"flip in a WRITE at {offset:#x}")
            data = flip(data, r)
        place = None
        if fault == "misplace" and data:
            place = self.proxy.memory.another(offset, length, r)
        if place is not None:
            self.proxy.say(self.number, "up", n, f"a WRITE for {offset:#x} goes to {place:#x}")
            head = struct.pack(">IHHQQI", magic, flags, kind, cookie, place, length)
        return head, data

    def hold(self, seconds, data, n):
        """The client sees its connection break; the server gets the client's commands late."""
        self.held = True
        self.proxy.say(self.number, "up", n, f"held back for {seconds} s")
        data = bytearray(data)
        try:
            self.client.setblocking(False)
            while True:
                more = self.client.recv(1 << 18)
                if not more:
                    break
                data += more
        except OSError:
            pass
        try:
            self.client.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        time.sleep(seconds)
        try:
            self.server.sendall(data)
            self.proxy.say(self.number, "up", n, f"{len(data)} bytes passed on")
            time.sleep(1)
        except OSError:
            self.proxy.say(self.number, "up", n, "the server has ended the connection")

    # --- from the server to the client ---

    def down(self):
        server = Reader(self.server)
        self.client.sendall(server.get(18))
        going = False
        while not going:
            head = server.get(20)
            _, option, kind, length = struct.unpack(">QIII", head)
            going = option == GO and kind == ACK
            self.client.sendall(head + server.get(length))
        n = 0
        while True:
            head = server.get(16)
            _, error, cookie = struct.unpack(">IIQ", head)
            with self.lock:
                kind, offset, length = self.under_way.pop(cookie, (None, 0, 0))
            data = server.get(length) if kind == READ and not error else b""
            n += 1
            if self.held or kind is None:           # the client is gone
                continue
            fault, seconds, r = self.proxy.decide(self.number, "down", n)
            if fault in INTERRUPTIONS:
                self.interrupt(fault, seconds, r, n, "down", self.client, head + data)
            if data:
                data = self.lie_in_one(fault, r, n, offset, data)
            self.proxy.wait_for_network()
            self.client.sendall(head + data)

    def lie_in_one(self, fault, r, n, offset, data):
        """Of the pages that an answer has, one is wrong; or the part of one."""
        if len(data) < PAGE:
            return self.lie(fault, r, n, offset, data)
        spoiled = r.randrange(len(data) // PAGE) * PAGE if fault else -1
        return b"".join(self.lie(fault if at == spoiled else None, r, n, offset + at,
                                 data[at:at + PAGE]) for at in range(0, len(data), PAGE))

    def lie(self, fault, r, n, offset, data):
        memory, told = self.proxy.memory, data
        if fault == "flip" or (fault == "part" and len(data) < PAGE):
            told = flip(data, r)
        elif fault == "stale":
            told = memory.of(memory.before, offset, data)
        elif fault == "torn":
            old, half = memory.of(memory.before, offset, data), len(data) // 2
            told = data[:half] + old[half:] if r.random() < 0.5 else old[:half] + data[half:]
        elif fault == "swap":
            other = memory.another(offset - offset % PAGE, PAGE, r)
            if other is not None:
                told = memory.of(memory.now, other + offset % PAGE, data)
        if told != data:
            self.proxy.say(self.number, "down", n, f"{fault} in a READ at {offset:#x}")
        if self.proxy.remembers and memory.differs(offset, told):
            self.proxy.say(self.number, "down", n, f"wrong page at {offset:#x}")
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
    p.add_argument("--spare", type=int, default=0)
    p.add_argument("--fault", action="append", default=[])
    p.add_argument("listen")
    p.add_argument("to")
    arguments = p.parse_args()
    proxy = Proxy(arguments)
    signal.signal(signal.SIGUSR1, proxy.heal)
    signal.signal(signal.SIGUSR2, proxy.reset)
    proxy.serve(address(arguments.listen))


if __name__ == "__main__":
    main()
