"""A machine whose KVM runs on VMX with EPT: Bochs emulates a Haswell processor.

It boots from one disk, made here: a boot sector, and behind it what that loads into memory. The
kernel finds all files in its initramfs, for Bochs has nothing to share a folder by; what comes
back comes by serial ports. As with QEMU, all that Bochs is given is an inherited descriptor.
"""

import os
import pty
import struct
import subprocess

from cpio import Archive, padded
from machine import LabError, Machine, job

SHARE = "/usr/share/bochs"
SECTOR = 512
TRACK = 16 * 63 * SECTOR  # of all heads: a disk has a whole number of them
# Of the guest's clock. Bochs emulates about as many a second as the wall's clock shows, or fewer.
INSTRUCTIONS_PER_SECOND = 50_000_000

# Where vmx_boot.S and this file agree that things are.
BOOT_ENTRY = 248  # in the boot sector: the kernel's entry, then address and sectors of each load
BOOT_SIGNATURE = 510
START_INFO = 0x8000
MODULES = START_INFO + 64
COMMAND_LINE = START_INFO + 128
MEMORY_MAP = 0x9000
COMMAND_LINE_MOST = 2047  # bytes, by the kernel
INITRAMFS = 0x8000000

PT_LOAD, PT_NOTE = 1, 4
XEN_ELFNOTE_PHYS32_ENTRY = 18

# Left out are the kernel's own tests, and its preparations for programs that are not here: most of
# the instructions of a start. A triple fault ends Bochs.
SKIPPED = """load_system_certificate_list init_kprobe_trace blake2s_mod_init crypto_kdf108_init
    cubictcp_register bpf_rstat_kfunc_init bpf_prog_test_run_init kfunc_init bpf_tcp_ca_kfunc_init
    bpf_key_sig_kfuncs_init"""
KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=4 panic=-1 reboot=t mitigations=off tsc=reliable no_timer_check"
    " random.trust_cpu=on i8042.noaux i8042.nokbd i8042.nopnp cryptomgr.notests=1 init_on_alloc=0"
    f" apparmor=0 audit=0 rodata=off initcall_blacklist={','.join(SKIPPED.split())}"
    " rdinit=/lab/busybox -- sh /lab/init vmx"
)


class Pipe:
    """The reading end of a pipe or a terminal, in a socket's place."""

    def __init__(self, fd):
        self.fd = fd

    def fileno(self):
        return self.fd

    def recv(self, size):
        try:
            return os.read(self.fd, size)
        except OSError:  # a terminal that no process has open any more
            return b""


class VmxMachine(Machine):
    emulator = "Bochs"

    def start(self, kernel, initramfs, net=None):
        with open(f"{kernel}/release") as release:
            text = job(self.plan, kernel, release.read().strip(), self.end[1:].decode())
        try:
            disk = self.make_disk(kernel, initramfs, text.split(b"\n", 1)[1])
        except OSError as error:
            raise LabError(f"{error.filename} cannot come along: {error.strerror}") from None
        theirs = {"disk": disk, "log": self.complaints}
        theirs["settings"] = os.memfd_create("bochsrc")
        theirs["debugger"] = os.memfd_create("commands")
        for name in "console", "control", "out", "err":
            ours, theirs[name] = os.pipe()
            self.sockets[name] = Pipe(ours)
        # The display: nothing is shown on it, but Bochs wants one.
        ours, theirs["screen"] = pty.openpty()
        self.sockets["screen"] = Pipe(ours)
        files = {name: f"/proc/self/fd/{fd}" for name, fd in theirs.items()}
        write(theirs["settings"], settings(self.plan, files, os.fstat(disk).st_size))
        # Debian's Bochs starts in its debugger: continue, and end with the machine.
        write(theirs["debugger"], "continue\nquit\n")
        command = ["bochs-bin", "-q", "-f", files["settings"], "-rc", files["debugger"]]
        try:
            # As QEMU: it dies with us.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=theirs["screen"],
                stdout=theirs["screen"],
                stderr=theirs["screen"],
                env={"PATH": "/usr/bin:/bin", "TERM": "vt100", "HOME": "/"},
                pass_fds=theirs.values(),
                start_new_session=True,
            )
        except OSError as error:
            raise LabError(
                f"setpriv cannot be run ({error.strerror}): install util-linux"
            ) from None
        for name, fd in theirs.items():
            if name != "log":
                os.close(fd)

    def receive(self, port, data):
        if port != "screen" or not data:
            super().receive(port, data)

    def make_disk(self, kernel, initramfs, text):
        """A file without a name: boot sector and loads."""
        with open(f"{kernel}/vmlinux", "rb") as file:
            entry, loads = kernel_loads(file.read())
        with open(initramfs, "rb") as file:
            data = padded(file.read()) + own_files(self.plan, text)
        if max(address + len(load) for address, load in loads) > INITRAMFS:
            raise LabError("the kernel is larger than expected: INITRAMFS in vmx.py is too low")
        if INITRAMFS + len(data) > self.plan.mem << 19:
            size = len(data) >> 20
            raise LabError(
                f"{size} MB of files do not fit the machine's memory: --mem sets its size"
            )
        loads = [(START_INFO, start_info(len(data))), *loads, (INITRAMFS, data)]
        with open(initramfs.removesuffix(".cpio") + ".boot", "rb") as file:
            boot = bytearray(file.read())
        struct.pack_into("<I", boot, BOOT_ENTRY, entry)
        disk = os.memfd_create("disk")
        with open(disk, "wb", closefd=False) as file:
            file.seek(SECTOR)
            place = BOOT_ENTRY + 4
            for address, load in loads:
                sectors = -(-len(load) // SECTOR)
                struct.pack_into("<II", boot, place, address, sectors)
                place += 8
                file.write(load.ljust(sectors * SECTOR, b"\0"))
            if place + 8 > BOOT_SIGNATURE:
                raise LabError(f"the boot sector has no room for {len(loads)} loads")
            size = -(-file.tell() // TRACK) * TRACK
            file.seek(0)
            file.write(boot)
        os.truncate(disk, size)
        return disk


def kernel_loads(image):
    """The address of an ELF kernel's PVH entry, and (address, bytes) of its parts.

    The addresses are physical.
    """
    table, = struct.unpack_from("<Q", image, 32)
    size, number = struct.unpack_from("<HH", image, 54)
    entry = None
    loads = []
    for i in range(number):
        kind, _, offset, _, address, length = struct.unpack_from("<IIQQQQ", image, table + i * size)
        if kind == PT_LOAD:
            loads.append((address, image[offset : offset + length].rstrip(b"\0")))
        elif kind == PT_NOTE:
            entry = find_entry(image[offset : offset + length]) or entry
    if entry is None:
        raise LabError(
            "the kernel cannot be started uncompressed: it has no PVH entry (CONFIG_PVH)"
        )
    return entry, loads


def find_entry(notes):
    place = 0
    while place < len(notes):
        name_length, length, kind = struct.unpack_from("<III", notes, place)
        name = notes[place + 12 : place + 12 + name_length]
        place += 12 + len(padded(name))
        if name == b"Xen\0" and kind == XEN_ELFNOTE_PHYS32_ENTRY:
            return struct.unpack_from("<I", notes, place)[0]
        place += -(-length // 4) * 4
    return None


def start_info(initramfs_size):
    """struct hvm_start_info, its one struct hvm_modlist_entry, and the command line.

    The boot sector adds the memory map.
    """
    arguments = KERNEL_ARGUMENTS.encode()
    assert len(arguments) <= COMMAND_LINE_MOST
    info = struct.pack("<4I4Q2I", 0x336EC578, 1, 0, 1, MODULES, COMMAND_LINE, 0, MEMORY_MAP, 0, 0)
    info = info.ljust(MODULES - START_INFO, b"\0")
    info += struct.pack("<4Q", INITRAMFS, initramfs_size, 0, 0)
    return info.ljust(COMMAND_LINE - START_INFO, b"\0") + arguments + b"\0"


def own_files(plan, text):
    """The files that COMMAND needs, and the job, as an archive."""
    archive = Archive()
    for path in "/usr/bin", "/bin", "/usr/sbin", "/sbin", os.getcwd():
        archive.add(path)
    for path in plan.files:
        if os.path.isdir(path):
            archive.add_tree(path)
        else:
            archive.add_program(path)
    archive.add_entry("/lab/job", 0o100644, text)
    return archive.finish()


def settings(plan, files, disk_size):
    cpu = "model=corei7_haswell_4770, reset_on_triple_fault=0, ignore_bad_msrs=1"
    disk = f"path={files['disk']}, cylinders={disk_size // TRACK}, heads=16, spt=63"
    lines = [
        "display_library: term",
        f"romimage: file={SHARE}/BIOS-bochs-latest, options=fastboot",
        f"vgaromimage: file={SHARE}/VGABIOS-lgpl-latest",
        f"memory: guest={plan.mem}, host={plan.mem}",
        # Its newer models have extensions with which Linux turns XSAVE off.
        f"cpu: {cpu}, ips={INSTRUCTIONS_PER_SECOND}",
        "clock: sync=none, time0=utc",
        "boot: disk",
        "floppy_bootsig_check: disabled=1",
        f"ata0-master: type=disk, mode=flat, translation=lba, {disk}",
        f"log: {files['log']}",
        "debugger_log: /dev/null",
        # Errors are performance counters that it does not have, at every tick.
        "panic: action=fatal",
        "error: action=ignore",
        "info: action=ignore",
        "debug: action=ignore",
        "sound: driver=dummy",
        "speaker: enabled=0",
    ]
    for number, name in enumerate(("console", "control", "out", "err"), 1):
        lines.append(f"com{number}: enabled=1, mode=file, dev={files[name]}")
    return "\n".join(lines) + "\n"


def write(fd, text):
    with open(fd, "w", closefd=False) as file:
        file.write(text)
