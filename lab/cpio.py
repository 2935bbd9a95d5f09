"""An archive that the kernel unpacks as its initramfs, of files of this machine at their paths."""

import os
import stat
import subprocess

TRAILER = "TRAILER!!!"


class Archive:
    """In cpio's newc format. Folders and symbolic links on the way to a file come along."""

    def __init__(self):
        self.parts = []
        self.paths = set()

    def add_tree(self, path):
        """A file, or a folder with all that is below it."""
        path = self.add(path)
        if os.path.isdir(path) and not os.path.islink(path):
            for name in sorted(os.listdir(path)):
                self.add_tree(os.path.join(path, name))

    def add_program(self, path):
        """A file with the shared libraries, or the interpreter, that running it needs."""
        path = self.add(path)
        with open(path, "rb") as file:
            begin = file.read(256)
        if begin.startswith(b"#!"):
            words = os.fsdecode(begin[2:].split(b"\n")[0]).split()
            if words and os.path.isfile(words[0]) and words[0] not in self.paths:
                self.add_program(words[0])
        elif begin.startswith(b"\x7fELF"):
            for library in libraries(path):
                self.add(library)

    def add(self, path):
        """One file or folder; returns its path without symbolic links."""
        path = os.path.abspath(path)
        if path == "/":
            return path
        path = os.path.join(self.add(os.path.dirname(path)), os.path.basename(path))
        if path in self.paths:
            return os.path.realpath(path)
        self.paths.add(path)
        info = os.lstat(path)
        if stat.S_ISLNK(info.st_mode):
            target = os.readlink(path)
            self.add_entry(path, info.st_mode, os.fsencode(target))
            target = os.path.join(os.path.dirname(path), target)
            return self.add(target) if os.path.exists(target) else path
        data = b""
        if stat.S_ISREG(info.st_mode):
            with open(path, "rb") as file:
                data = file.read()
        elif not stat.S_ISDIR(info.st_mode):
            raise OSError(f"{path} is neither a file nor a folder")
        self.add_entry(path, info.st_mode, data, info.st_uid, info.st_gid, int(info.st_mtime))
        return path

    def add_entry(self, path, mode, data, uid=0, gid=0, mtime=0):
        name = os.fsencode(path).lstrip(b"/") + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        number = len(self.parts) + 1
        fields = (number, mode, uid, gid, links, mtime, len(data), 0, 0, 0, 0, len(name), 0)
        header = b"070701" + b"".join(b"%08x" % (field & 0xFFFFFFFF) for field in fields)
        self.parts.append(padded(header + name) + padded(data))

    def finish(self):
        self.add_entry(TRAILER, 0, b"")
        return b"".join(self.parts)


def padded(data):
    return data + bytes(-len(data) % 4)


def libraries(path):
    """The files that the dynamic linker loads for a program or library; none if it is static."""
    # Each line: NAME => PATH (ADDRESS), or PATH (ADDRESS) for the dynamic linker itself.
    ldd = subprocess.run(
        ["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    words = (word for line in ldd.stdout.splitlines() for word in line.split())
    return [word for word in words if word.startswith("/")]
