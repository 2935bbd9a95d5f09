"""The machines that serve memory: their jobs, and the way of their words."""

import os
import sys

from machine import KEPT, Plan, address
from options import fail

MEMNODE_LIMIT = 120  # seconds for all nodes to be ready; a busy host needs a good part of it
BESIDES = 400  # MiB of a node's machine for all but the memory it serves


def memnode_plan(options, number, hosts):
    size, mebibytes = options.memnode_size[number - 1]
    command = [options.memnode, "--size", size]
    command += ["--listen", "rdma://0.0.0.0:7471", "--listen", "nbd://0.0.0.0:10809",
                "--insecure"]
    return Plan(
        name=f"m{number}", number=number, command=command + options.memnode_args,
        accel=options.accel, mem=mebibytes + BESIDES,
        address=address(number), hosts=hosts, service=True,
        environment={"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )  # fmt: skip


class Log:
    """The output of a node's memnode.

    Kept in part, and written to a file or to standard error if asked.
    """

    def __init__(self, name, prefix, verbose):
        self.name = name
        self.verbose = verbose
        self.kept = b""
        self.begun = b""  # a line that has not ended
        self.file = None
        if prefix is not None:
            try:
                self.file = open(prefix + name, "wb", buffering=0)
            except OSError as error:
                fail(f"--memnode-log {prefix}: {prefix}{name} cannot be written: {error.strerror}")

    def write(self, data):
        self.kept = (self.kept + data)[-KEPT:]
        if self.file:
            self.file.write(data)
        if self.verbose:
            *lines, self.begun = (self.begun + data).split(b"\n")
            for line in lines:
                print(f"{self.name}: {os.fsdecode(line)}", file=sys.stderr)

    def last(self):
        return self.kept.decode("utf-8", "backslashreplace")
