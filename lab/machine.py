"""One virtual machine: QEMU's command line, the job for init, the streams to both.

All that QEMU is given is an inherited descriptor, so there is nothing to name and nothing to
remember.
"""

import dataclasses
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import threading
import time

import switch

KEPT = 16384  # bytes of a log that are shown or kept
TERMINAL = f"{os.path.dirname(os.path.realpath(__file__))}/terminal.py"
NETWORK = "10.77.0"  # its first three bytes, all machines' netmask is 24


class LabError(Exception):
    """The lab itself failed: not COMMAND."""


@dataclasses.dataclass
class Plan:
    """The parts of a machine and its job."""

    name: str
    number: int  # of its network card
    command: list
    accel: str  # tcg or kvm
    mem: int  # MiB
    cpus: int = 1
    one_thread: bool = True
    icount: bool = False
    npt: str = ""  # 0 or 1, or empty: without KVM
    address: str = ""  # with an RDMA device at this one
    hosts: str = ""  # lines for /etc/hosts
    held: bool = False  # its command waits for release(), and may ask for faults
    service: bool = False  # its command says by sd_notify when it is ready, and takes signals
    stdin: bool = False
    terminal: bool = False  # the command gets a terminal, of which stdin has the keys
    rw: list = dataclasses.field(default_factory=list)
    environment: dict = dataclasses.field(default_factory=dict)
    qemu: list = dataclasses.field(default_factory=list)
    files: list = dataclasses.field(default_factory=list)  # with VMX: files to bring along


def address(number):
    """The lab's own machine is 0, at .1; node mI is I, at .(10 + I)."""
    return f"{NETWORK}.{10 + number if number else 1}"


def job(plan, kernel, release, end):
    """The job of init, in shell."""

    def run(*words):
        return " ".join(shlex.quote(word) for word in words)

    variables = {
        "npt": plan.npt,
        "hostname": plan.name,
        "release": release,
        "modules": f"{kernel}/lib/modules/{release}",
        "cwd": os.getcwd(),
        "stdin": str(int(plan.stdin)),
        "end": end,
        "address": plan.address,
        "hosts": plan.hosts,
        "held": str(int(plan.held)),
        "service": str(int(plan.service)),
        "terminal": str(int(plan.terminal)),
    }
    assignments = [f"{name}={value}" for name, value in plan.environment.items()]
    if plan.service:
        assignments += ["NOTIFY_SOCKET=/run/lab/notify"]  # which init listens at
    lines = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    lines += ["mount_shares() {", "    :"]
    lines += ["    " + run("share", f"rw{i}", path) for i, path in enumerate(plan.rw)]
    lines += ["}", "unmount_shares() {", "    :"]
    lines += ["    " + run("unshare", path) for path in reversed(plan.rw)]
    lines += ["}", "run_command() {"]
    # By full path: busybox would run its own idea of env and of COMMAND.
    command = [TERMINAL] * plan.terminal + plan.command
    lines += ["    exec setsid " + run("/usr/bin/env", "-i", *assignments, *command)]
    lines += ["}", ""]
    text = os.fsencode("\n".join(lines))
    return b"%d\n%b" % (len(text), text)


def qemu_arguments(plan, kernel, initramfs, fds):
    kernel_arguments = (
        "console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off"
        " tsc=reliable no_timer_check random.trust_cpu=on i8042.noaux i8042.nokbd i8042.nopnp"
    )
    if plan.icount:
        # Alone, an idle machine's clock need not wait for anything. With others it must, or every
        # time-out would be over before their answer is there.
        sleep = "on" if "net" in fds else "off"
        machine = ["-accel", "tcg,thread=single", "-icount", f"shift=0,sleep={sleep}"]
        machine += ["-cpu", "max,+svm,+npt"]
        # Calibrating the local APIC's timer takes 2 s of wall time here, for every look at the
        # clock leaves the translated code; the HPET's needs no calibration, and the TSC's rate is
        # known.
        kernel_arguments += " noapictimer tsc_early_khz=1000000 lpj=4000000"
    elif plan.accel == "tcg":
        thread = "single" if plan.one_thread else "multi"
        machine = ["-accel", f"tcg,thread={thread}", "-cpu", "max,+svm,+npt"]
    else:
        machine = ["-accel", "kvm", "-cpu", "host"]

    def path(name):  # a comma ends a value, two are one
        return name.replace(",", ",,")

    arguments = ["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"]
    arguments += ["-machine", "q35"]
    # qboot and an uncompressed kernel: SeaBIOS and a bzImage come up 3 s later under
    # emulation.
    arguments += [*machine, "-smp", str(plan.cpus), "-m", str(plan.mem), "-bios", "qboot.rom"]
    arguments += ["-kernel", f"{kernel}/vmlinux", "-initrd", initramfs]
    arguments += ["-append", kernel_arguments]
    arguments += ["-chardev", f"socket,id=console,fd={fds['console']}"]
    arguments += ["-serial", "chardev:console"]
    arguments += ["-chardev", f"socket,id=qmp,fd={fds['qmp']}", "-mon", "chardev=qmp,mode=control"]
    arguments += ["-device", "virtio-serial-pci"]
    for number, name in enumerate(("control", "out", "err", "in", "fault"), 1):
        arguments += ["-chardev", f"socket,id={name},fd={fds[name]}"]
        arguments += ["-device", f"virtserialport,chardev={name},name={name},nr={number}"]
    if "net" in fds:
        card = switch.mac(plan.number).hex(":")
        arguments += ["-netdev", f"socket,id=net,fd={fds['net']}"]
        arguments += ["-device", f"virtio-net-pci,id=card,netdev=net,mac={card},romfile="]
    root = "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"
    arguments += ["-virtfs", root]
    # Only root can give files away.
    model = "passthrough" if os.geteuid() == 0 else "none"
    for i, share in enumerate(plan.rw):
        share = f"local,path={path(share)},mount_tag=rw{i},security_model={model},multidevs=remap"
        arguments += ["-virtfs", share]
    return arguments + plan.qemu


class Output:
    """One of the command's two output streams, which ends with a word that no command can guess."""

    def __init__(self, write, end):
        self.write = write
        self.end = end
        self.ended = False
        self.held = b""  # bytes that may begin the end word

    def receive(self, data):
        """Write out the command's bytes, which are all but the end word."""
        data = self.held + data
        found = data.find(self.end)
        if found >= 0:
            self.ended = True
            keep = len(data) - found
        else:
            # A zero byte is rare, so that next to nothing is held back.
            begun = data.rfind(b"\0", -len(self.end))
            keep = len(data) - begun if begun >= 0 and self.end.startswith(data[begun:]) else 0
        own = len(data) - keep
        self.held = data[own:]
        if own:
            self.write(data[:own])


class Machine:
    """A machine that runs one command.

    The caller waits for the sockets of ports() and hands what comes to receive().
    """

    emulator = "QEMU"

    def __init__(self, plan, write_out, write_err):
        self.plan = plan
        self.name = plan.name
        self.console = b""
        self.console_kept = KEPT
        self.up = False  # a held command waits for release()
        self.running = None  # when its command started
        self.ready = False  # a service's word
        self.status = None
        self.gone = False  # QEMU has ended
        self.expected_end = False  # if true, its end is not reported
        self.wishes = []  # for faults, lines VERB:NODE; the caller takes them
        self.lines = {"control": b"", "fault": b"", "qmp": b""}
        self.end = b"\0" + secrets.token_hex(16).encode()
        self.outputs = {"out": Output(write_out, self.end), "err": Output(write_err, self.end)}
        self.sockets = {}
        self.process = None
        self.complaints = os.memfd_create("qemu-stderr")

    def start(self, kernel, initramfs, net=None):
        """Boot. net: a socket of the switch, which is closed."""
        with open(f"{kernel}/release") as release:
            text = job(self.plan, kernel, release.read().strip(), self.end[1:].decode())
        theirs = {"net": net} if net else {}
        for name in "console", "control", "out", "err", "in", "fault", "qmp":
            self.sockets[name], theirs[name] = socket.socketpair()
        fds = {name: end.fileno() for name, end in theirs.items()}
        try:
            # It dies with us, even of SIGKILL. In a session of its own, so that Ctrl-C is ours to
            # handle.
            arguments = qemu_arguments(self.plan, kernel, initramfs, fds)
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self.complaints,
                stderr=self.complaints,
                pass_fds=fds.values(),
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(
                f"setpriv cannot be run ({error.strerror}): install the package util-linux"
            ) from None
        for end in theirs.values():
            end.close()
        self.ask({"execute": "qmp_capabilities"})
        # A thread, for the guest reads it only once it is up, and it may be longer than a socket
        # holds.
        threading.Thread(target=send, args=(self.sockets["control"], text), daemon=True).start()

    def feed(self):
        """Our standard input to the guest, to its end.

        Not before the command is there: what is read is lost if we boot again.
        """
        end = self.sockets["in"]
        try:
            while data := os.read(0, 65536):
                end.sendall(data)
            end.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def ports(self):
        """(name, socket) of each stream from the machine."""
        return [(name, end) for name, end in self.sockets.items() if name != "in"]

    def receive(self, port, data):
        """Take data of a port; no data says that QEMU has ended.

        LabError: the guest or QEMU failed.
        """
        if not data:
            self.gone = True
        elif port == "console":
            self.console = (self.console + data)[-self.console_kept :]
        elif port in self.outputs:
            self.outputs[port].receive(data)
        else:
            *lines, self.lines[port] = (self.lines[port] + data).split(b"\n")
            for line in lines:
                take = {"control": self.obey, "fault": self.wishes.append, "qmp": self.check}[port]
                take(os.fsdecode(line))

    def obey(self, line):
        verb, _, rest = line.partition(" ")
        if verb == "up":
            self.up = True
        elif verb == "start":
            self.running = time.monotonic()
            if self.plan.stdin:
                threading.Thread(target=self.feed, daemon=True).start()
        elif verb == "ready":
            self.ready = True
        elif verb == "exit":
            self.status = int(rest)
        elif verb == "fail":
            raise LabError(rest)

    @staticmethod
    def check(line):
        answer = json.loads(line)
        if "error" in answer:
            raise LabError("QEMU refuses: " + answer["error"]["desc"])

    def over(self):
        """The command has ended, and all it wrote has come."""
        return self.status is not None and all(output.ended for output in self.outputs.values())

    def ask(self, request):
        send(self.sockets["qmp"], json.dumps(request).encode() + b"\n")

    def release(self):
        send(self.sockets["control"], b"go\n")

    def signal(self, name):
        """Send a service's process a signal, by its name without SIG."""
        send(self.sockets["control"], name.encode() + b"\n")

    def tell_size(self, rows, columns):
        """Send a terminal's command the size of its window."""
        send(self.sockets["control"], b"WINCH %d %d\n" % (rows, columns))

    def set_link(self, up):
        self.ask({"execute": "set_link", "arguments": {"name": "card", "up": up}})

    def freeze(self, yes):
        if not self.gone:
            self.process.send_signal(signal.SIGSTOP if yes else signal.SIGCONT)

    def kill(self):
        """End QEMU.

        Nothing of it is worth keeping: what a command wrote below --rw is on the host already.
        """
        if self.process:
            self.process.kill()
            self.process.wait()

    def evidence(self):
        """The last words of the emulator and of the guest's kernel."""
        os.lseek(self.complaints, 0, os.SEEK_SET)
        text = os.read(self.complaints, 65536) + self.console[-KEPT:].replace(b"\r", b"")
        return text.decode("utf-8", "backslashreplace").strip()


def send(end, data):
    try:
        end.sendall(data)
    except OSError:
        pass  # QEMU is gone: receive() notices
