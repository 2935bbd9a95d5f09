"""
usage: cases.py SOCKET CASE [ARGUMENT...]

Runs one case against the memnode at SOCKET, a path or HOST:PORT; fails with a traceback.  It has an
export `disk` of 64 MiB, and `small` of 10000 bytes rounded up to pages.
"""
import os
import random
import struct
import sys
import threading
import time

from client import *
from client import client
from leases import *


def served(at):
    """Another client is still served."""
    with client(at, "disk") as c:
        assert c.call(FLUSH) == 0


# --- handshake ---

def options(at):
    with Client(at).greet() as c:
        refused = ((STARTTLS, POLICY), (LIST_META, UNSUP), (SET_META, UNSUP), (4, UNSUP),
                   (11, UNSUP), (999, UNSUP))
        for number, error in refused:
            c.option(number)
            expect(error, c.answers, number)
        c.option(LIST, b"x")
        expect(INVALID, c.answers, LIST)
        c.option(GO, b"abc")
        expect(INVALID, c.answers, GO)
        c.option(INFO, b"\0" * (MIB + 1))
        expect(TOO_BIG, c.answers, INFO)
        expect(UNKNOWN, c.go, "no-such-disk")
        expect(UNKNOWN, c.go, "no-such-disk", INFO)
        assert c.go("disk", INFO) == 64 * MIB
        assert c.go("") == 64 * MIB             # the first is the default
        assert c.call(FLUSH) == 0


def abort(at):
    with Client(at).greet() as c:
        c.option(ABORT)
        assert c.answers(ABORT) == []
        ended(c)


def export_name(at):
    """The old way in, without fixed newstyle, with and without the 124 zeroes."""
    for flags in (0, 1, 2, 3):
        with Client(at).greet(flags) as c:
            c.option(EXPORT_NAME, b"disk")
            size, _ = c.unpack(">QH")
            assert size == 64 * MIB
            if not flags & 2:
                assert c.get(124) == b"\0" * 124
            assert c.call(FLUSH) == 0
    with Client(at).greet() as c:
        c.option(EXPORT_NAME, b"no-such-disk")
        ended(c)


# --- commands ---

def pipelined(at, structured):
    """Many requests in one send, reads and writes of all sizes mixed.

    Every reply must be the right one.
    """
    rng = random.Random(7)
    with client(at, "disk", structured == "structured") as c:
        image = bytearray(rng.randbytes(4 * MIB))
        c.write(0, bytes(image))
        for _ in range(6):
            batch, wanted = [], {}
            # Places differ between writes and reads of a batch, since their order is not defined.
            for i in range(150):
                length = rng.choice((1, 13, 512, 4096, 4096, 8192, 70000, 300000))
                half = 2 * MIB
                c.cookie += 1
                if rng.random() < 0.4:
                    offset = rng.randrange(half - length)
                    data = rng.randbytes(length)
                    image[offset:offset + length] = data
                    head = struct.pack(">IHHQQI", 0x25609513, 0, WRITE, c.cookie, offset, length)
                    batch.append(head + data)
                    wanted[c.cookie] = b""
                else:
                    offset = half + rng.randrange(half - length)
                    batch.append(
                        struct.pack(">IHHQQI", 0x25609513, 0, READ, c.cookie, offset, length))
                    wanted[c.cookie] = bytes(image[offset:offset + length])
            stream = b"".join(batch)

            def talk():
                at_ = 0
                while at_ < len(stream):        # cut where it pleases
                    n = rng.choice((1, 27, 28, 29, 5000, 65536, 1000000))
                    c.send(stream[at_:at_ + n])
                    at_ += n

            talker = threading.Thread(target=talk)
            talker.start()
            lengths = {k: len(v) for k, v in wanted.items()}
            while wanted:
                cookie, error, data = c.reply(lengths)
                assert error == 0 and data == wanted.pop(cookie), f"reply to {cookie}"
            talker.join()
        assert c.read(0, 4 * MIB) == image


def wrong_requests(at, structured):
    with client(at, "disk", structured == "structured") as c:
        end = c.size
        c.write(end - 4096, b"\x11" * 4096)
        beyond = ((end, 1), (end - 1, 2), (end - 4096, 8192), (2**64 - 1, 1), (2**64 - 4096, 8192),
                  (2**63, 4096))
        for offset, length in beyond:
            assert c.call(READ, offset, length) == EINVAL, (offset, length)
            assert c.call(WRITE, offset, length, b"x" * length) == ENOSPC, (offset, length)
            assert c.call(ZEROES, offset, length) == ENOSPC
            assert c.call(TRIM, offset, length) == EINVAL
            assert c.call(CACHE, offset, length) == EINVAL
        # Oversized: READ and WRITE have a limit, commands without data have none.
        assert len(c.read(0, 32 * MIB)) == 32 * MIB
        assert c.call(READ, 0, 32 * MIB + 1) == EINVAL
        assert c.call(READ, 0, 2**32 - 1) == EINVAL
        assert c.call(WRITE, 0, 33 * MIB, b"x" * (33 * MIB)) == EINVAL
        assert c.call(ZEROES, 0, 2**32 - 1) == ENOSPC
        assert c.call(CACHE, 0, end) == 0
        # Flags and commands that are not defined.
        for kind in (BLOCK_STATUS, 8, 77, 65535):
            assert c.call(kind) == EINVAL, kind
        assert c.call(WRITE, 0, 5, b"hello", flags=0x8000) == EINVAL
        assert c.call(WRITE, 0, 5, b"hello", flags=FAST_ZERO) == EINVAL
        assert c.call(READ, 0, 5, flags=NO_HOLE) == EINVAL
        assert c.call(READ, 0, 5, flags=REQ_ONE) == EINVAL
        # Nothing at all is something that can be asked for.
        assert c.call(READ, 0, 0) in (0, b"")
        assert c.call(WRITE, end, 0) == 0
        assert c.call(READ, end, 0) in (0, b"")
        # And the stream is still in step, with nothing changed.
        assert c.read(end - 4096, 4096) == b"\x11" * 4096
        assert c.call(FLUSH) == 0


def wrong_magic(at):
    with client(at, "disk") as c:
        c.request(FLUSH)
        c.request(FLUSH, magic=0x25609514)
        assert c.reply()[1] == 0                # what came before is answered
        ended(c)
    served(at)


def zeroes(at):
    """WRITE_ZEROES and TRIM of all sizes, also of memory that memnode gives back to the host.

    All is zero inside, and untouched outside.
    """
    with client(at, "disk") as c:
        kinds = ((ZEROES, 0), (ZEROES, NO_HOLE), (ZEROES, FAST_ZERO),
                 (ZEROES, NO_HOLE | FAST_ZERO | FUA), (TRIM, 0), (TRIM, FUA))
        places = ((0, 1), (5, 4090), (4096, 4096), (4095, 4098), (1, MIB), (MIB, MIB),
                  (100, 3 * MIB + 17), (0, 8 * MIB))
        for kind, flags in kinds:
            for offset, length in places:
                c.write(0, b"\xa5" * (8 * MIB))
                assert c.call(kind, offset, length, flags=flags) == 0, (kind, flags, offset, length)
                got = c.read(0, 8 * MIB)
                want = b"\xa5" * offset + b"\0" * length + b"\xa5" * (8 * MIB - offset - length)
                assert got == want, (kind, flags, offset, length)
        c.write(MIB, b"\x5a" * MIB, FUA)        # memory that was given back is written again
        assert c.read(MIB, MIB) == b"\x5a" * MIB


def multi_conn(at):
    """All connections see a write that was answered to one, also before a FLUSH of theirs."""
    with client(at, "disk") as a, client(at, "disk", False) as b, client(at, "disk") as d:
        assert a.flags & 0x100
        for i in range(200):
            data = struct.pack(">Q", i) * 512
            (a, b, d)[i % 3].write(i * 4096, data)
            assert (a, b, d)[(i + 1) % 3].read(i * 4096, 4096) == data


def halves(at):
    """Clients that vanish in the middle of anything."""
    whole = struct.pack(">IHHQQI", 0x25609513, 0, WRITE, 1, 0, 100000) + b"y" * 100000
    for n in (0, 1, 4, 5, 12, 20, 24, 30):
        with Client(at) as c:
            option = struct.pack(">IQII", 3, IHAVEOPT, GO, 10) + struct.pack(">I", 4) + b"disk\0\0"
            c.send(option[:n])
    with client(at, "disk") as c:
        c.write(0, b"\x33" * 100000)
    for n in (1, 27, 28, 29, 5000, 90000):
        with client(at, "disk") as c:
            c.send(whole[:n])
    time.sleep(0.2)
    # A WRITE that broke off may have come in part, and no more than that.
    with client(at, "disk") as c:
        got = c.read(0, 100000)
        assert got[90000:] == b"\x33" * 10000
        assert set(got[:90000]) <= {0x33, ord("y")}


def patience(at):
    """A client that waits for an answer in the middle of its next WRITE gets it."""
    with client(at, "disk") as c:
        c.request(FLUSH)
        c.send(struct.pack(">IHHQQI", 0x25609513, 0, WRITE, 99, 0, 100000) + b"z" * 50000)
        assert c.reply()[:2] == (1, 0)
        c.send(b"z" * 50000)
        assert c.reply()[:2] == (99, 0)
        c.send(struct.pack(">IHHQQI", 0x25609513, 0, FLUSH, 5, 0, 0) + b"\x25\x60")
        assert c.reply()[:2] == (5, 0)


def garbage(at, seconds):
    """Random bytes in the place of each part of the conversation."""
    rng = random.Random(1)
    until = time.monotonic() + float(seconds)
    count = 0
    while time.monotonic() < until:
        count += 1
        try:
            with Client(at) as c:
                where = rng.randrange(4)
                if where == 1:
                    c.greet()
                elif where == 2:
                    c.greet()
                    c.option(rng.randrange(12), rng.randbytes(rng.randrange(40)))
                    c.send(struct.pack(">QII", IHAVEOPT, rng.randrange(12), rng.randrange(2**32)))
                elif where == 3:
                    c.greet().ask_structured().go("disk")
                    c.request(rng.randrange(9), rng.randrange(2**64), rng.randrange(2**32),
                              flags=rng.randrange(65536))
                c.send(rng.randbytes(rng.choice((1, 4, 16, 100, 5000, 100000))))
        except (Closed, Refused):
            pass
    assert count > 20
    served(at)


def slow_reader(at, pid):
    """READs of 3 GiB in all whose replies no client takes.

    memnode must not keep them, and other clients are served.
    """
    def resident():
        with open(f"/proc/{pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon")) << 10

    with client(at, "disk") as c:
        c.read(0, MIB)
        before = resident()
        c.flood(100, 32 * MIB)
        time.sleep(0.5)
        served(at)
        assert resident() - before < 8 * MIB, "it keeps replies"
        for _ in range(2):
            assert len(c.reply()[2]) == 32 * MIB


def handshake_limit(at):
    """A client that asks for nothing is disconnected after 10 s, also if it keeps talking.

    A client that uses an export may be silent for longer.
    """
    with client(at, "disk") as user, Client(at) as silent, Client(at) as talker:
        begin = time.monotonic()
        talker.greet()
        try:
            while time.monotonic() - begin < 30:
                talker.option(LIST)
                talker.answers(LIST)
                time.sleep(0.2)
        except Closed:
            pass
        assert 8 < time.monotonic() - begin < 25, "the talker"
        silent.get(18)
        ended(silent)
        assert 8 < time.monotonic() - begin < 25, "the silent one"
        assert user.call(FLUSH) == 0


def many(at, limit):
    """As many connections as there may be, and one more; there is room to cut members off."""
    limit = int(limit)
    lease, incarnation = create(at, MIB)
    clients = [lease, join(at, incarnation, 2, 1, 1)]
    clients += [client(at, "disk") for _ in range(limit - 2)]
    expect(POLICY, client, at, "disk")
    cut(at, incarnation, "2.2")
    clients.append(join(at, incarnation, 3, 1, 1))
    expect(POLICY, client, at, "disk")
    silent = [Client(at).greet() for _ in range(32)]
    assert clients[-1].call(FLUSH) == 0
    for c in clients + silent:
        c.s.close()
    for _ in range(50):
        try:
            return served(at)
        except (Closed, Refused):           # their threads have not left yet
            time.sleep(0.1)
    served(at)


def gone(at, pid):
    """Clients that ask for long work, and go: nobody works for them any more."""
    def threads():
        with open(f"/proc/{pid}/status") as f:
            return int(next(line for line in f if line.startswith("Threads:")).split()[1])

    before = threads()
    crowd = [client(at, "disk") for _ in range(4)]
    size = crowd[0].size
    for c in crowd:
        c.send(b"".join(struct.pack(">IHHQQI", 0x25609513, NO_HOLE, ZEROES, i, 0, size)
                        for i in range(2000)))
    assert threads() >= before + 4
    for c in crowd:
        c.s.close()
    begin = time.monotonic()
    while threads() > before:
        assert time.monotonic() < begin + 10, f"{threads() - before} threads are still at work"
        time.sleep(0.05)


# --- keys ---

def before_tls(at):
    """A client without TLS is told that TLS is wanted, and nothing else."""
    for option in INFO, GO:
        with Client(at).greet() as c:
            expect(TLS_REQD, c.go, "disk", option)
            expect(TLS_REQD, c.go, "none", option)
            expect(TLS_REQD, c.go, f"lease-{'0' * 32}-4096", option)
    with Client(at).greet() as c:
        expect(TLS_REQD, c.list)
        expect(TLS_REQD, c.ask_structured)
    with Client(at).greet() as c:
        c.option(EXPORT_NAME, b"disk")
        ended(c)


def words_behind_starttls(at):
    """What comes in one piece with STARTTLS may be another's words: the connection ends."""
    with Client(at).greet() as c:
        c.send(struct.pack(">QII", IHAVEOPT, STARTTLS, 0)
               + struct.pack(">QII", IHAVEOPT, LIST, 0))
        try:
            assert c.answers(STARTTLS) == []
        except Closed:
            return
        ended(c)


# --- the end ---

def shutdown(at, pid):
    """SIGTERM while requests are in flight.

    Each is answered, new ones with ESHUTDOWN, and then the connection ends.
    """
    with client(at, "disk") as c, client(at, "disk") as idle:
        answers = {0: 0, ESHUTDOWN: 0}
        began = 0
        try:
            while True:
                for _ in range(16):
                    c.request(READ, 0, 65536)
                for _ in range(16):
                    _, error, data = c.reply()
                    answers[error] += 1
                    if error == 0:
                        assert len(data) == 65536
                        assert not answers[ESHUTDOWN], "served after the end"
                if answers[0] == 160 and not began:
                    os.kill(int(pid), 15)
                    began = time.monotonic()
                assert not began or time.monotonic() - began < 10, "it never ends"
        except Closed:
            pass
        assert began, "it ended before it was told to"
        assert answers[ESHUTDOWN], "ended without a word"
        ended(idle)


def busy(at, pid, size):
    """SIGTERM while many connections have long work in the pool, others read: all end."""
    size = int(size)
    clients = [client(at, "disk") for _ in range(240)]
    work = b"".join(struct.pack(">IHHQQI", 0x25609513, flags, ZEROES, i, 0, size)
                    for i in range(20) for flags in (0, NO_HOLE))
    for c in clients[:220]:
        c.send(work)
    for c in clients[220:239]:
        c.flood(100, MIB)
    time.sleep(0.1)
    os.kill(int(pid), 15)
    for c in clients:
        try:
            while c.s.recv(1 << 20):
                pass
        except ConnectionResetError:
            pass


def main():
    at, case = sys.argv[1:3]
    if not at.startswith("/"):
        host, port = at.rsplit(":", 1)
        at = (host.strip("[]"), int(port))
    globals()[case](at, *sys.argv[3:])


main()
