"""
Leases that outlive memnode (--resume): what is in them afterwards, which members get in, and which
files memnode does not take.

usage: resume.py CASE FOLDER MEMNODE
"""
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

from client import *
from client import client
from leases import create, cut, join

SIZE = 16 * MIB
PAGE = 4096
nodes = []


class Node:
    """A memnode of ours, ready to serve."""

    def __init__(self, *options, name="node", size=64, limits=None, listen=None):
        self.at = f"{folder}/{name}.sock"
        self.log = f"{folder}/{name}.log"
        self.process = subprocess.Popen(
            [memnode, "--size", f"{size}M", "--hugepages", "none", "--listen",
             listen or f"nbd+unix://{self.at}", "--resume", file, "--drain-timeout", "0", "-v", *options],
            stderr=open(self.log, "w"), preexec_fn=limits)
        nodes.append(self.process)
        end = time.monotonic() + 20
        while "serving" not in self.said() and self.process.poll() is None:
            assert time.monotonic() < end, "it does not start"
            time.sleep(0.01)

    def said(self):
        return open(self.log).read()

    def end(self, by=signal.SIGTERM):
        self.process.send_signal(by)
        killed = -by if by == signal.SIGKILL else 0
        assert self.process.wait(20) == killed, self.said()

    def refuses(self, *words):
        """It did not start, and says these words."""
        assert self.process.wait(20) == 1, "it started"
        for word in words:
            assert word in self.said(), self.said()


def page(n):
    return struct.pack(">I", n) * (PAGE // 4)


def fill(c, pages):
    for n in pages:
        c.write(n * PAGE, page(n))


def is_filled(c, pages):
    """These have what fill() wrote, and all others are zero."""
    have = c.read(0, SIZE)
    want = bytearray(SIZE)
    for n in pages:
        want[n * PAGE:(n + 1) * PAGE] = page(n)
    assert have == want, "other pages"


def broken(c):
    """The server ended the connection without a word."""
    try:
        assert c.s.recv(1) == b"", "a word"
    except ConnectionResetError:
        pass


def kept():
    """A file of a lease with some pages, and its incarnation.

    However short the grace time is, it does not pass while memnode ends.
    """
    node = Node("--grace", "0")
    c, incarnation = create(node.at, SIZE)
    fill(c, (3, 5, 100))
    node.end()
    broken(c)
    return incarnation


def keeps():
    """Pages, incarnation, generations and cut members are as before."""
    node = Node()
    a, incarnation = create(node.at, SIZE, generation=7)
    b = join(node.at, incarnation, 2, 3, 4)
    other = client(node.at, f"lease-{'c' * 32}-{MIB}")      # of no members: not kept
    fill(a, range(0, 4096, 7))
    b.call(ZEROES, 14 * PAGE, PAGE)
    a.write(49 * PAGE, b"\0" * PAGE)
    cut(node.at, incarnation, "3.4,9.9")
    assert a.read(SIZE, 3) == b"\0\1\0", "it does not say that it keeps leases"
    other.write(0, b"gone")
    node.end()
    broken(a), broken(b)
    assert os.stat(file).st_mode & 0o7777 == 0o600
    node = Node()
    assert not os.path.exists(file), "it could be resumed twice"
    expect(UNKNOWN, join, node.at, "1" * 16, 1, 1, 9)
    expect(POLICY, join, node.at, incarnation, 1, 1, 7)
    expect(POLICY, join, node.at, incarnation, 2, 3, 4)
    for member in 3, 4, 9:
        expect(INVALID, join, node.at, incarnation, member, 1, 100)
    expect(INVALID, create, node.at, SIZE)
    pages = set(range(0, 4096, 7)) - {14, 49}
    with join(node.at, incarnation, 1, 1, 8) as a, join(node.at, incarnation, 2, 3, 5) as b:
        is_filled(a, pages)
        fill(b, (14,))
        is_filled(a, pages | {14})
        with client(node.at, f"lease-{'c' * 32}-{MIB}") as other:
            assert other.read(0, 4) == b"\0" * 4
        node.end()
        broken(a)
    node = Node()                           # and once more
    with join(node.at, incarnation, 1, 1, 9) as a:
        is_filled(a, pages | {14})
        expect(INVALID, join, node.at, incarnation, 9, 1, 100)
    node.end(signal.SIGKILL)


def sparse():
    """Only pages that are not zero are in the file, which is there only if there are leases.

    Pages that were never written do not become memory by that.
    """
    node = Node(size=600)
    c, incarnation = create(node.at, 512 * MIB)
    fill(c, (1, 100000))
    for at in range(64 * MIB, 128 * MIB, MIB):
        c.write(at, b"\0" * MIB)
    node.process.send_signal(signal.SIGTERM)
    _, status, usage = os.wait4(node.process.pid, 0)
    assert status == 0 and usage.ru_maxrss < 200 * 1024, usage
    assert 8 * 1024 < os.stat(file).st_size < MIB, os.stat(file).st_size
    node = Node(size=600)
    with join(node.at, incarnation, 1, 1, 2) as c:
        assert c.read(PAGE, PAGE) == page(1)
        c.request(DISC)
        broken(c)
    node.end()
    assert not os.path.exists(file), "a file of no leases"


def awaited():
    """The goodbye of one member does not end a lease to which another has not come back."""
    node = Node("--grace", "2")
    a, incarnation = create(node.at, SIZE)
    b = join(node.at, incarnation, 2, 1, 1)
    fill(a, (1, 2))
    node.end()
    broken(b)
    for times in range(2):                  # it stays awaited
        node = Node("--grace", "2")
        with join(node.at, incarnation, 1, 1, 2 + times) as a:
            a.request(DISC)
            broken(a)
        if times == 0:
            node.end()
    with join(node.at, incarnation, 2, 1, 2) as b:
        is_filled(b, (1, 2))
        b.request(DISC)
        broken(b)
    expect(UNKNOWN, join, node.at, incarnation, 2, 1, 3)
    node.end()


def grace():
    """A lease to which no member comes back is given up after the grace time, and not before."""
    incarnation = kept()
    node = Node("--grace", "2")
    time.sleep(1)
    with join(node.at, incarnation, 1, 1, 2) as c:
        is_filled(c, (3, 5, 100))
    time.sleep(3)
    expect(UNKNOWN, join, node.at, incarnation, 1, 1, 3)
    node.end()
    incarnation = kept()
    node = Node("--grace", "1")
    time.sleep(2)                           # no member comes at all
    expect(UNKNOWN, join, node.at, incarnation, 1, 1, 2)
    node.end()


def write_all(at, incarnation, member, found):
    """Writes page after page, counted up, without waiting, until the connection breaks."""
    c = join(at, incarnation, member, 1, 1)
    first, asked, answered = member * 512, {}, {}
    found[member] = answered
    n = 0
    try:
        while True:
            for _ in range(16):
                n += 1
                at = first + n % 256
                asked[c.request(WRITE, at * PAGE, PAGE, page(n))] = (at, n)
            for _ in range(16):
                cookie, error, _ = c.reply({})
                assert not error, f"answered with {error}"
                answered[asked[cookie][0]] = asked[cookie][1]
    except Closed:
        pass
    except AssertionError as e:
        found["wrong"] = e


def busy():
    """Each WRITE that was answered is there, and none is answered with an error."""
    node = Node()
    c, incarnation = create(node.at, SIZE)
    found = {}
    threads = [threading.Thread(target=write_all, args=(node.at, incarnation, m, found))
               for m in range(2, 7)]
    for t in threads:
        t.start()
    time.sleep(0.5)
    node.end()
    for t in threads:
        t.join()
    assert "wrong" not in found, found["wrong"]
    node = Node()
    with join(node.at, incarnation, 1, 1, 2) as c:
        have = c.read(0, SIZE)
    for member in range(2, 7):
        assert len(found[member]) == 256, "it wrote too little"
        for at, n in found[member].items():
            there = struct.unpack_from(">I", have, at * PAGE)[0]
            # a write that was carried out, and not answered, may be there: it is sent again
            assert there in (n, n + 256), f"page {at}: {there}, not {n}"
    node.end()


def deaf():
    """A client that takes no answers, like a stopped one, does not keep memnode from ending."""
    node = Node()
    c, incarnation = create(node.at, SIZE)
    fill(c, (9,))
    c.flood(200, MIB)
    time.sleep(0.5)
    begin = time.monotonic()
    node.end(signal.SIGINT)
    assert time.monotonic() - begin < 3, "it took too long"
    node = Node()
    with join(node.at, incarnation, 1, 1, 2) as c:
        is_filled(c, (9,))
    node.end()


def files():
    """Files that it does not take, and leaves alone."""
    kept()
    good = open(file, "rb").read()
    remove = "remove"

    def refused(*words):
        Node().refuses(f"--resume {file}: ", *words)

    def written(data):
        with open(file, "wb") as f:
            f.write(data)
        return data

    for length in 0, 7, 39, 40, len(good) // 2, len(good) - 1:
        written(good[:length])
        refused("damaged", remove)
        assert open(file, "rb").read() == good[:length]
    written(good + b"\0")
    refused("damaged", remove)
    for at in 16, 60, len(good) - 3:
        written(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        refused("damaged", remove)
    assert good[8] == 3
    written(good[:8] + b"\1" + good[9:])
    refused("another version", remove)
    written(b"a text that is none of memnode's" * 100)
    refused("memnode did not write it", remove)
    written(good)
    os.chmod(file, 0o640)
    refused("chmod 600", remove)
    os.chmod(file, 0o600)
    if os.getuid() == 0:
        os.chown(file, 65534, 65534)
        refused("must belong to the user", remove)
        os.chown(file, 0, 0)
    os.rename(file, file + "x")
    os.symlink(file + "x", file)
    refused("symbolic link", remove)
    os.unlink(file)
    os.mkfifo(file)
    refused("it is no file", remove)
    os.unlink(file)
    os.mkdir(file)
    refused("it is no file", remove)
    os.rmdir(file)
    os.rename(file + "x", file)
    Node(size=8).refuses("does not fit", "raise its --size")
    Node("--max-per-client", "8M").refuses("does not fit", "--max-per-client")
    Node("--export", "big=60M").refuses("no memory for the export big")
    Node(listen="rdma://127.0.0.1").refuses("programs that come over NBD", "give one", remove)
    node = Node("--listen", "nbd+unix:///dev/null")
    node.refuses("cannot listen")
    assert open(file, "rb").read() == good, "it did not serve, and the file is gone"
    Node("--resume", folder + "/none/file").refuses("cannot be used: No such file or directory")


def one():
    """Two of them with one file; and a file is taken once."""
    incarnation = kept()
    first = Node()
    Node(name="second").refuses("another memnode uses it")
    c = join(first.at, incarnation, 1, 1, 2)
    fill(c, (1,))
    first.end(signal.SIGKILL)
    assert not os.path.exists(file)
    node = Node()                           # nor is its lock in the way
    expect(UNKNOWN, join, node.at, incarnation, 1, 1, 3)
    c, incarnation = create(node.at, SIZE)
    node.end(signal.SIGKILL)
    assert not os.path.exists(file)
    Node().end()


def full():
    """A file that cannot be written is none."""
    def limits():
        resource.setrlimit(resource.RLIMIT_FSIZE, (16 * MIB, 16 * MIB))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    node = Node(size=16, limits=limits)
    c, _ = create(node.at, SIZE)
    fill(c, range(SIZE // PAGE))
    c.write(0, b"\1" * MIB)
    node.end()
    assert "leases are not kept" in node.said() and "File too large" in node.said()
    assert not os.path.exists(file) and not os.path.exists(file + ".new")


def writes():
    """A memnode that ends, and is writing a large lease."""
    node = Node(size=600)
    c, _ = create(node.at, 512 * MIB)
    for at in range(0, 512 * MIB, 16 * MIB):
        c.write(at, b"\1" * (16 * MIB))
    node.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 10
    while not os.path.exists(file + ".new") and not os.path.exists(file):
        assert time.monotonic() < end, "it writes nothing"
        time.sleep(0.001)
    return node


def hurried():
    """No signal but SIGKILL ends it while it writes."""
    node = writes()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM):
        node.process.send_signal(number)
    assert not os.path.exists(file), "it was too fast"
    assert node.process.wait(60) == 0, node.said()
    assert os.path.getsize(file) > 512 * MIB and not os.path.exists(file + ".new")


def killed():
    """memnode is killed while it writes: the half-written file is removed by the next memnode."""
    node = writes()
    node.process.kill()
    node.process.wait()
    assert os.path.exists(file + ".new") and not os.path.exists(file), "it was too fast"
    node = Node()
    assert not os.path.exists(file + ".new")
    node.end()
    incarnation = kept()
    node = Node()
    with join(node.at, incarnation, 1, 1, 2) as c:
        is_filled(c, (3, 5, 100))
    node.end(signal.SIGKILL)


if __name__ == "__main__":
    case, above, memnode = sys.argv[1:4]
    folder = f"{above}/resume"
    os.mkdir(folder)
    file = f"{folder}/leases"
    try:
        globals()[case]()
    finally:
        for process in nodes:
            process.kill()
            process.wait()
        shutil.rmtree(folder)
