"""
A client of NBD on a bare socket, for what a well-behaved client never does.  Written from the
protocol's description, and sharing nothing with memnode's own header, so that an error there shows.
"""
import socket
import struct

NBDMAGIC, IHAVEOPT, REPLY = 0x4E42444D41474943, 0x49484156454F5054, 0x3E889045565A9
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED = 1, 2, 3, 5, 6, 7, 8
LIST_META, SET_META = 9, 10
ACK, SERVER, REP_INFO = 1, 2, 3
UNSUP, POLICY, INVALID, TLS_REQD, UNKNOWN, SHUTDOWN, TOO_BIG = (
    0x80000000 + n for n in (1, 2, 3, 5, 6, 7, 9))
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, BLOCK_STATUS = range(8)
FUA, NO_HOLE, DF, REQ_ONE, FAST_ZERO = 1, 2, 4, 8, 16
EINVAL, ENOSPC, ESHUTDOWN = 22, 28, 108
MIB = 1 << 20


class Closed(Exception):
    """The server ended the connection."""


class Refused(Exception):
    """An option was refused: its error, and the sentence."""

    def __init__(self, error, text):
        super().__init__(f"{error:#x}: {text}")
        self.error, self.text = error, text


class Client:
    def __init__(self, address, timeout=60):
        """address: the path of a unix socket, or (host, port)."""
        if isinstance(address, str):
            self.s = socket.socket(socket.AF_UNIX)
            self.s.settimeout(timeout)
            self.s.connect(address)
        else:
            self.s = socket.create_connection(address, timeout=timeout)
        self.structured, self.cookie = False, 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def send(self, data):
        try:
            self.s.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Closed from e

    def get(self, n):
        data = bytearray()
        while len(data) < n:
            try:
                part = self.s.recv(min(n - len(data), 1 << 20))
            except ConnectionResetError as e:
                raise Closed from e
            if not part:
                raise Closed
            data += part
        return bytes(data)

    def unpack(self, form):
        return struct.unpack(form, self.get(struct.calcsize(form)))

    # --- handshake ---

    def greet(self, flags=3):
        magic, option, offered = self.unpack(">QQH")
        assert (magic, option, offered) == (NBDMAGIC, IHAVEOPT, 3), "greeting"
        self.send(struct.pack(">I", flags))
        return self

    def option(self, number, data=b""):
        self.send(struct.pack(">QII", IHAVEOPT, number, len(data)) + data)

    def answer(self, number):
        """One reply to an option: (type, data); raises Refused."""
        magic, option, kind, length = self.unpack(">QIII")
        data = self.get(length)
        assert (magic, option) == (REPLY, number), "option reply"
        if kind & 0x80000000:
            raise Refused(kind, data.decode())
        return kind, data

    def answers(self, number):
        """The data of all replies up to the ACK."""
        found = []
        while True:
            kind, data = self.answer(number)
            if kind == ACK:
                return found
            found.append(data)

    def ask_structured(self):
        self.option(STRUCTURED)
        self.answers(STRUCTURED)
        self.structured = True
        return self

    def go(self, name, option=GO, infos=()):
        """INFO or GO; returns the size."""
        raw = name.encode()
        self.option(option, struct.pack(">I", len(raw)) + raw + struct.pack(">H", len(infos))
                    + b"".join(struct.pack(">H", i) for i in infos))
        self.description = ""
        for data in self.answers(option):
            if data[:2] == b"\0\0":
                self.size, self.flags = struct.unpack(">QH", data[2:])
            if data[:2] == b"\0\2":
                self.description = data[2:].decode()
        return self.size

    def list(self):
        self.option(LIST)
        return [d[4:4 + struct.unpack(">I", d[:4])[0]].decode() for d in self.answers(LIST)]

    # --- commands ---

    def request(self, kind, offset=0, length=0, data=b"", flags=0, magic=0x25609513):
        self.cookie += 1
        self.send(struct.pack(">IHHQQI", magic, flags, kind, self.cookie, offset, length) + data)
        return self.cookie

    def flood(self, count, length):
        """That many READs from the beginning, in one send."""
        self.send(b"".join(
            struct.pack(">IHHQQI", 0x25609513, 0, READ, self.cookie + i + 1, 0, length)
            for i in range(count)))
        self.cookie += count

    def reply(self, lengths=None):
        """The next reply: (cookie, error, data).

        lengths: cookie -> bytes of the READs, for simple replies.
        """
        (magic,) = self.unpack(">I")
        if magic == 0x67446698:
            error, cookie = self.unpack(">IQ")
            n = (lengths or {}).get(cookie, 0)
            assert not (self.structured and n), "a simple reply to a READ"
            return cookie, error, self.get(n) if not error else b""
        assert magic == 0x668E33EF and self.structured, f"reply magic {magic:#x}"
        flags, kind, cookie, length = self.unpack(">HHQI")
        assert flags == 1, "one chunk"
        data = self.get(length)
        if kind == 0x8001:
            error, n = struct.unpack(">IH", data[:6])
            assert n == len(data) - 6 and n > 0, "error chunk"
            return cookie, error, b""
        if kind == 1:
            return cookie, 0, data[8:]
        assert (kind, length) == (0, 0), "kind of chunk"
        return cookie, 0, b""

    def call(self, kind, offset=0, length=0, data=b"", flags=0):
        """A request and its reply; returns the error, or the data of a successful READ."""
        cookie = self.request(kind, offset, length, data, flags)
        back, error, got = self.reply({cookie: length} if kind == READ else {})
        assert back == cookie, "cookie"
        return error or (got if kind == READ else 0)

    def read(self, offset, length):
        got = self.call(READ, offset, length)
        assert isinstance(got, bytes), f"READ failed with {got}"
        return got

    def write(self, offset, data, flags=0):
        error = self.call(WRITE, offset, len(data), data, flags)
        assert error == 0, f"WRITE failed with {error}"


def client(address, name, structured=True):
    """Connected to an export."""
    c = Client(address).greet()
    if structured:
        c.ask_structured()
    c.go(name)
    return c


def ended(c):
    """The server has ended this connection, or does so now."""
    try:
        c.get(1)
    except Closed:
        return
    raise AssertionError("the connection did not end")


def expect(error, call, *args, **kw):
    """call() is refused with that error of the handshake."""
    try:
        call(*args, **kw)
    except Refused as e:
        assert e.error == error, f"refused, but with {e}"
        assert e.text, "refused without a word"
        return e.text
    raise AssertionError("not refused")
