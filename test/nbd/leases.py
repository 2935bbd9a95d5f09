"""
The cases of cases.py that are about leases: the clients that have them, and what is in them.
"""
import os
import secrets
import subprocess
import time

from client import *
from client import client


def lease(digit, size):
    return f"lease-{digit * 32}-{size}"


def leases(at):
    """Zero at first, one for all clients that name it, unlisted, of one size."""
    name = lease("a", 8 * MIB)
    with client(at, name) as a, client(at, name, False) as b, client(at, lease("b", MIB)) as other:
        assert a.size == 8 * MIB and a.flags & 0x100
        assert a.read(0, 8 * MIB) == b"\0" * (8 * MIB)
        a.write(4096, b"mine" * 1024)
        assert b.read(4096, 4096) == b"mine" * 1024
        assert other.read(0, MIB) == b"\0" * MIB
        with Client(at).greet() as c:
            assert c.list() == ["disk", "small"]
            expect(INVALID, c.go, lease("a", 4 * MIB))
            expect(INVALID, c.go, lease("a", 4 * MIB), INFO)
            expect(UNKNOWN, c.go, "a" * 32)
            for bad in ("lease-", "lease-" + "a" * 31 + "-4096", "lease-" + "g" * 32 + "-4096",
                        lease("c", 4095), lease("c", 0), lease("c", "1M")):
                expect(INVALID, c.go, bad)


def turnover(at, grace):
    """The pool has room for one such lease only.

    So the second gets the bytes of the first: all zero.
    """
    size = 40 * MIB
    with client(at, lease("d", size)) as c:
        for offset in range(0, size, 8 * MIB):
            c.write(offset, b"secret!!" * MIB)
    with client(at, lease("d", size)) as c:     # within the grace time: all there
        assert c.read(8 * MIB, 8 * MIB) == b"secret!!" * MIB
        with Client(at).greet() as d:
            assert "left" in expect(POLICY, d.go, lease("e", size))
        begin = time.monotonic()
    while True:
        try:
            c = client(at, lease("e", size))
            break
        except Refused:
            assert time.monotonic() - begin < float(grace) + 20, "never given back"
            time.sleep(0.1)
    assert time.monotonic() - begin > float(grace) * 0.9, "given back too early"
    with c:
        for offset in range(0, size, 8 * MIB):
            assert c.read(offset, 8 * MIB) == b"\0" * (8 * MIB), "another's bytes"


def goodbye(at):
    """The last of its clients says goodbye.

    The lease is free at once, and before the connection is closed.
    """
    size = 40 * MIB
    a, b = client(at, lease("f", size)), client(at, lease("f", size))
    a.write(0, b"secret!!" * MIB)
    for c in a, b:
        c.request(DISC)
        assert c.s.recv(1) == b"", "an answer to a goodbye"
        if c is a:
            with Client(at).greet() as d:
                assert "left" in expect(POLICY, d.go, lease("e", size))
    with client(at, lease("f", size)) as c:
        assert c.read(0, 8 * MIB) == b"\0" * (8 * MIB), "another's bytes"
        c.request(DISC)
        c.s.recv(1)


def copied(at, data, back, uri):
    """nbdcopy to and from a lease, which lives as long as we are there."""
    with client(at, uri.rsplit("/", 1)[1]):
        subprocess.run(["nbdcopy", data, uri], check=True)
        subprocess.run(["nbdcopy", uri, back], check=True)
    assert open(data, "rb").read() == open(back, "rb").read(), "the copies differ"


def guess(at):
    """A client that knows how leases are called finds no other's.

    Not in the list, nor by names that are almost it.
    """
    digits = "0123456789abcdef" * 2
    mine = f"lease-{digits}-{MIB}"
    with client(at, mine) as owner:
        owner.write(0, b"mine" * (MIB // 4))
        with Client(at).greet() as c:
            assert c.list() == ["disk"]
            # INFO repeats the name of a lease, whether the lease is there or not; GO makes a lease,
            # and it is empty.
            for i in (0, 1, 15, 16, 31):
                other = digits[:i] + ("f" if digits[i] != "f" else "0") + digits[i + 1:]
                assert c.go(f"lease-{other}-{MIB}", INFO) == MIB
            for bad in (digits[:31], digits + "0", digits.upper(), digits[:31] + "*",
                        digits[:31] + "?", digits[:31] + "\0", " " * 32, ""):
                expect(INVALID, c.go, f"lease-{bad}-{MIB}")
                expect(INVALID, c.go, f"lease-{bad}-{MIB}", INFO)
            for name in (digits, f"{digits}-{MIB}", f"LEASE-{digits}-{MIB}", f"/{mine}",
                         f"disk/{mine}", f"../{mine}", "*", "lease"):
                expect(UNKNOWN, c.go, name)
                expect(UNKNOWN, c.go, name, INFO)
            assert c.list() == ["disk"]
        for other in ("1" + digits[1:], digits[:31] + "e", "0" * 32):
            with client(at, f"lease-{other}-{MIB}") as stranger:
                assert stranger.read(0, MIB) == b"\0" * MIB, "another's bytes"
                stranger.write(0, b"evil" * (MIB // 4))
        assert owner.read(0, MIB) == b"mine" * (MIB // 4), "another's writes"


def limited(at, mebibytes):
    """A client may have that much, and not a page more."""
    most = int(mebibytes) * MIB
    with client(at, lease(str(int(mebibytes)), most)) as c:
        assert c.size == most
    with Client(at).greet() as c:
        assert "one client" in expect(POLICY, c.go, lease("9", most + 4096))


def too_much(at):
    """More than one client may have, and more than there is."""
    with Client(at).greet() as c:
        assert "one client" in expect(POLICY, c.go, lease("1", 101 * MIB))


SECRET = secrets.token_hex(16)


def create(at, size, member=1, link=1, generation=1):
    """A lease of members: its first connection, and its incarnation."""
    c = Client(at).greet()
    c.go(f"create-{SECRET}-{size}-{member}-{link}-{generation}", infos=(2,))
    word, incarnation = c.description.split()
    assert word == "incarnation" and len(incarnation) == 16
    return c, incarnation


def join(at, incarnation, member, link, generation):
    c = Client(at).greet()
    c.go(f"join-{SECRET}-{incarnation}-{member}-{link}-{generation}")
    return c


def cut(at, incarnation, ranges):
    with Client(at).greet() as c:
        c.go(f"cut-{SECRET}-{incarnation}-{ranges}", INFO)


def is_ended(c):
    """The server has closed the connection; bytes that are still sent go nowhere."""
    try:
        for _ in range(100):
            c.send(b"\0" * 4096)
            time.sleep(0.01)
            c.get(1)
    except Closed:
        return True
    return False


def fences(at):
    """Writes of an older connection do not arrive once a newer one is answered."""
    page, old, new = 4096, b"old!" * 1024, b"new!" * 1024
    c, incarnation = create(at, MIB)
    with c:
        expect(INVALID, create, at, MIB)                    # it exists
        expect(INVALID, client, at, f"lease-{SECRET}-{MIB}")
        expect(UNKNOWN, join, at, "1" * 16, 1, 1, 2)        # another incarnation
        expect(INVALID, join, at, "0" * 16, 1, 1, 2)        # none
        expect(POLICY, join, at, incarnation, 1, 1, 1)      # a generation that was here
        c.write(0, old)
        # A WRITE of which half is under way when its client connects again.
        c.request(WRITE, page, page, old[:2048])
        with join(at, incarnation, 1, 2, 1) as other:       # another link ends nothing
            other.write(2 * page, new)
            with join(at, incarnation, 1, 1, 2) as d:
                d.write(page, new)
                assert is_ended(c)
                assert d.read(page, page) == new, "a late WRITE arrived"
                expect(POLICY, join, at, incarnation, 1, 1, 2)
                expect(POLICY, join, at, incarnation, 1, 1, 1)
                # Many WRITEs, queued in the socket when the member is cut.
                with join(at, incarnation, 2, 1, 1) as dying:
                    for n in range(64):
                        dying.request(WRITE, 3 * page, page, old)
                    cut(at, incarnation, "2.2,4.9")
                    d.write(3 * page, new)
                    assert is_ended(dying)
                    assert d.read(3 * page, page) == new, "a WRITE of a dead member arrived"
                expect(INVALID, join, at, incarnation, 2, 1, 2)
                expect(INVALID, join, at, incarnation, 7, 3, 1)
                expect(UNKNOWN, cut, at, "1" * 16, "1.1")
                assert other.read(2 * page, page) == new and d.read(0, page) == old
                with join(at, incarnation, 3, 1, 1) as third:
                    assert third.read(0, page) == old


# --- draining ---

def status(c, size):
    """What memnode says of itself behind a lease."""
    data = c.read(size, 512)
    assert data[1:] == b"\0" * 511, "no status"
    return data[0]


def has_ended(pid):
    """A zombie has: its parent is the shell that waits for us."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def await_drain(c, size):
    end = time.monotonic() + 5
    while status(c, size) != 1:
        assert time.monotonic() < end, "it is not drained"
        time.sleep(0.01)


def lease_status(at):
    """It can be read and written, and nothing beside it; only leases with members have one."""
    c, incarnation = create(at, MIB)
    with c, client(at, lease("b", MIB)) as foreign, client(at, "disk") as disk:
        assert c.size == MIB + 4096 and foreign.size == MIB
        assert status(c, MIB) == 0
        for offset, length in ((MIB, 513), (MIB + 1, 1), (MIB - 1, 2), (MIB + 512, 512)):
            assert c.call(READ, offset, length) == EINVAL
        assert c.call(ZEROES, MIB, 512) == ENOSPC and c.call(TRIM, MIB, 512) == EINVAL
        c.write(MIB, b"x" * 512)
        assert status(c, MIB) == 0 and c.read(0, MIB) == b"\0" * MIB
        for other in foreign, disk:
            assert other.call(READ, other.size, 512) == EINVAL


def drain(at, pid):
    """Members are waited for until each has left, or has said that it stays; others are not."""
    a, incarnation = create(at, MIB)
    second = join(at, incarnation, 1, 2, 1)
    b = join(at, incarnation, 2, 1, 1)
    disk = client(at, "disk")
    a.write(0, b"mine" * 1024)
    assert status(b, MIB) == 0
    os.kill(int(pid), 15)
    await_drain(b, MIB)
    with Client(at).greet() as c:
        assert "drained" in expect(SHUTDOWN, c.go, lease("c", MIB))
        expect(SHUTDOWN, c.go, f"create-{'d' * 32}-{MIB}-1-1-1")
    join(at, incarnation, 3, 1, 1)          # known, and as much a member as the others
    cut(at, incarnation, "3.3")
    assert b.read(0, 4096) == b"mine" * 1024, "no longer served"
    b.write(4096, b"more" * 1024)
    time.sleep(1)
    for c in second, a:
        assert not has_ended(pid)
        assert status(b, MIB) == 1
        c.request(DISC)
        c.s.recv(1)
    time.sleep(0.5)
    assert not has_ended(pid), "member 2 was not waited for"
    begin = time.monotonic()
    b.write(MIB, b"\0" * 512)
    ended(b)
    assert time.monotonic() - begin < 3, "kept waiting"
    ended(disk)


def drain_shown(at, pid, log, command, terminal):
    """How far it is, on a terminal alone.  One member moves, the other says that it stays."""
    a, incarnation = create(at, MIB)
    b = join(at, incarnation, 2, 1, 1)
    a.write(0, b"mine" * 1024)
    asked = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
             for words in (command.split(), ["python3", terminal, *command.split()])]
    await_drain(a, MIB)
    end = time.monotonic() + 5
    while open(log).read().count("drain asked for over") < 2:
        assert time.monotonic() < end, "it is not asked"
        time.sleep(0.05)
    time.sleep(0.5)
    b.request(DISC)
    b.s.recv(1)
    time.sleep(0.5)
    a.write(MIB, b"\0" * 512)
    plain, shown = (p.communicate(timeout=10)[0].decode() for p in asked)
    assert [p.returncode for p in asked] == [0, 0], asked
    assert plain.splitlines()[-1] == "drained" and "answered" not in plain, plain
    shown = shown.split("\r\033[K")
    # whoever asks has the line repeated
    assert sorted({line for line in shown if "answered" in line}) == [
        f"answered: {n} of 2 processes of clients" for n in range(2)], shown
    assert shown[-1] == "drained\n", shown


def drain_silent(at, pid, seconds):
    """A member that says nothing is waited for as long as was said."""
    c, _ = create(at, MIB)
    c.write(0, b"mine")
    begin = time.monotonic()
    os.kill(int(pid), 15)
    ended(c)
    assert float(seconds) - 0.2 < time.monotonic() - begin < float(seconds) + 3


def drain_nobody(at, pid):
    """memnode does not wait for members without pages here, or which are long gone."""
    c, _ = create(at, MIB)
    begin = time.monotonic()
    os.kill(int(pid), 15)
    ended(c)
    assert time.monotonic() - begin < 2


def drain_gone(at, pid):
    """A member whose connection broke is waited for a moment."""
    c, incarnation = create(at, MIB)
    c.write(0, b"mine")
    os.kill(int(pid), 15)
    await_drain(c, MIB)
    c.s.close()
    time.sleep(0.5)
    with join(at, incarnation, 1, 1, 2) as back:
        assert status(back, MIB) == 1 and back.read(0, 4) == b"mine"
        back.s.close()
    begin = time.monotonic()
    while not has_ended(pid):
        assert time.monotonic() - begin < 5, "it waits for a member that has moved"
        time.sleep(0.05)
    assert time.monotonic() - begin > 1, "it did not wait"
