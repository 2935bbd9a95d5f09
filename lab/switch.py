"""The network of the lab's machines: an Ethernet switch, in a thread of its own.

Each machine has one port, a socket on which QEMU sends and takes frames, each behind its length.
Nothing has a name on the host.
"""

import selectors
import socket
import struct
import threading

# Bytes waiting for a machine that does not take them, such as a stopped one. Beyond that frames are
# dropped, as by any switch. Enough for the frames that RDMA has in flight, so that no frame is lost
# only because a machine is slow.
QUEUE_MOST = 8 << 20


def mac(number):
    """The address of the machine with this number. The switch knows all of them beforehand."""
    return bytes([0x52, 0x54, 0x00, 0x4C, 0x41, number])


class Port:
    def __init__(self, end):
        self.end = end
        # Set by the main thread, read by the switch's; no other state depends on it.
        self.muted = False
        self.received = b""  # may end within a frame
        self.waiting = bytearray()


class Switch:
    def __init__(self):
        self.ports = {}  # by machine name
        self.by_mac = {}

    def add(self, name, number):
        """A port for machine `name`: the socket to give to QEMU. Only before start().

        The caller closes the socket.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.ports[name] = self.by_mac[mac(number)] = Port(ours)
        return theirs

    def mute(self, name, yes):
        """From now on, lose all frames from and to a machine; or no longer."""
        self.ports[name].muted = yes

    def start(self):
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with selectors.DefaultSelector() as selector:
            for port in self.ports.values():
                selector.register(port.end, selectors.EVENT_READ, port)
            while selector.get_map():
                touched = set()
                for key, events in selector.select():
                    port = key.data
                    if events & selectors.EVENT_WRITE:
                        touched.add(port)
                    if events & selectors.EVENT_READ:
                        if self.take(port):
                            touched |= self.forward(port)
                        else:
                            selector.unregister(port.end)
                            self.by_mac = {
                                mac: other
                                for mac, other in self.by_mac.items()
                                if other is not port
                            }
                for port in touched & set(self.by_mac.values()):
                    events = selectors.EVENT_READ
                    if self.give(port):
                        events |= selectors.EVENT_WRITE
                    selector.modify(port.end, events, port)

    @staticmethod
    def take(port):
        """Receive all frames that are there; False if the machine is gone."""
        try:
            data = port.end.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            return False
        port.received += data
        return bool(data)

    def forward(self, port):
        """Queue a port's complete frames where they go to; return the ports that have got some."""
        data, at, touched = port.received, 0, set()
        while len(data) - at >= 4:
            end = at + 4 + struct.unpack_from(">I", data, at)[0]
            if len(data) < end:
                break
            destination = data[at + 4 : at + 10]
            if len(destination) == 6 and destination[0] & 1:  # for a group or for all
                targets = [other for other in self.by_mac.values() if other is not port]
            else:
                targets = [self.by_mac[destination]] if destination in self.by_mac else []
            for target in targets:
                if not port.muted and not target.muted and len(target.waiting) < QUEUE_MOST:
                    target.waiting += data[at:end]
                    touched.add(target)
            at = end
        port.received = data[at:]
        return touched

    @staticmethod
    def give(port):
        """Send the frames that a port's machine takes now; True if some are left."""
        try:
            del port.waiting[: port.end.send(port.waiting)]
        except BlockingIOError:
            pass
        except OSError:
            port.waiting.clear()  # gone: take() notices
        return bool(port.waiting)
