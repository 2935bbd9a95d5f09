"""The command line of the lab, checked."""

import argparse
import difflib
import math
import os
import re
import shlex
import shutil
import sys

import faults

HERE = os.path.dirname(os.path.realpath(__file__))
STATUS_LAB_FAILED = 125  # as env, timeout and chroot have it
MEMNODES_MOST = 16


def fail(message):
    print(f"lab: {message}", file=sys.stderr)
    sys.exit(STATUS_LAB_FAILED)


def cure(parser, message):
    """argparse's message, with what to do about it."""
    message = re.sub(r"^argument (--\S+):( \S*: give )", r"\1\2", message)
    message = re.sub("^argument ", "", message)
    unknown = re.match(r"unrecognized arguments: (\S+)", message)
    if unknown:
        near = difflib.get_close_matches(unknown[1].partition("=")[0], parser.names, 1, 0.8)
        message = f"{unknown[1]}: no such option" + (f": did you mean {near[0]}?" if near else "")
    message = re.sub("expected one argument$", "a value is missing", message)
    return message + "; lab --help tells the options"


def seconds(text):
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: give seconds above 0, as in 60")
    return number


def number(text):
    if not re.fullmatch("[0-9]{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text}: give a whole number")
    return int(text)


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="lab",
        allow_abbrev=False,
        usage="lab [OPTION...] -- COMMAND [ARGUMENT...]\n       lab [OPTION...]\n"
              "       lab --prepare",
        description="Run COMMAND in a fresh virtual machine with a hardware-style KVM inside; "
                    "without COMMAND, a shell on this terminal.",
    )
    # argparse's own status, 2, could be COMMAND's.
    parser.error = lambda message: fail(cure(parser, message))
    add_machine_options(parser)
    add_memnode_options(parser)
    parser.names = [name for action in parser._actions for name in action.option_strings]
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    options = parser.parse_args()
    if options.command[:1] == ["--"]:
        del options.command[0]
    options.terminal = not options.command and not options.prepare
    if options.terminal:
        check_terminal(parser, options)
    if options.timeout is None:
        options.timeout = 600
    if options.vmx:
        check_vmx(parser, options)
    check_machine(parser, options)
    check_memnodes(parser, options)
    return options


def add_machine_options(parser):
    parser.add_argument("--icount", action="store_true",
                        help="one vCPU whose clock advances 1 ns an instruction")
    parser.add_argument("--mem", type=number, metavar="MB",
                        help="memory of the guest (default 4096; 1024 with --vmx)")
    parser.add_argument("--cpus", type=number, metavar="N",
                        help="vCPUs of the guest (default 2; 1 with --icount)")
    parser.add_argument("--timeout", type=seconds, metavar="S",
                        help="seconds for all of it (default 600; of a shell there is no limit)")
    parser.add_argument("--boot-limit", type=seconds, metavar="S",
                        help="boot again if the guest is not up by then, with twice the time "
                             "(default 40)")
    parser.add_argument("--accel", choices=["tcg", "kvm"],
                        help="default: kvm where the host's can nest, else tcg")
    parser.add_argument("--vmx", action="store_true",
                        help="VMX and EPT, emulated by Bochs; arguments that are files come along")
    parser.add_argument("--file", action="append", default=[], metavar="PATH",
                        help="with --vmx: a file or folder that comes along too")
    parser.add_argument("--rw", action="append", default=[], metavar="DIR",
                        help="COMMAND may write to DIR for good")
    parser.add_argument("--one-thread", action="store_true",
                        help="emulate the vCPUs in turns, so that races inside QEMU cannot happen")
    parser.add_argument("--npt", choices=["0", "1"], default="1",
                        help="nested paging in the guest's KVM (default 1)")
    parser.add_argument("--rdma", action="store_true",
                        help="with an RDMA device, rxe0, at 10.77.0.1")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="for COMMAND")
    parser.add_argument("--stdin", action="store_true",
                        help="COMMAND reads our standard input, not /dev/null")
    parser.add_argument("--console", metavar="FILE", help="write the guest's kernel log to FILE")
    parser.add_argument("--qemu", action="append", default=[], metavar="ARG",
                        help="one more argument for QEMU, as --qemu=ARG")
    parser.add_argument("--verbose", action="store_true",
                        help="tell on standard error what took how long, and what memory nodes say")
    parser.add_argument("--prepare", action="store_true", help="only make the cache")


def add_memnode_options(parser):
    parser.add_argument("--memnodes", type=number, default=0, metavar="N",
                        help="boot N memory nodes too, m1 to mN, reachable as rdma://m1 and "
                             "nbd://m1; implies --rdma")
    parser.add_argument("--memnode-size", default="1G", metavar="SIZE[,SIZE...]",
                        help="what each serves, the last for all further ones (default 1G)")
    parser.add_argument("--memnode-args", default="", metavar="WORDS",
                        help="more arguments for memnode, as --memnode-args=WORDS")
    parser.add_argument("--memnode", metavar="PATH",
                        help="the server to run (default $MEMNODE, else build/memnode/memnode)")
    parser.add_argument("--memnode-log", metavar="PREFIX",
                        help="write what the nodes say to the files PREFIXm1, PREFIXm2, ...")
    parser.add_argument("--at", action="append", default=[], metavar="SECONDS:VERB:NODE",
                        help="a fault so long after COMMAND's start: " + ", ".join(faults.VERBS))


def check_terminal(parser, options):
    """A shell needs a caller at a terminal."""
    if options.vmx:
        parser.error("no COMMAND is given, and with --vmx there is no terminal for a shell")
    if options.stdin:
        parser.error("no COMMAND is given, and a shell reads the terminal: leave --stdin out")
    if not (os.isatty(0) and os.isatty(1)):
        parser.error("no COMMAND is given, and a shell needs a terminal for its input and output")
    options.command = ["/bin/bash", "-i"]
    options.stdin = True
    options.one_thread = options.one_thread or not options.icount
    if options.timeout is None:
        options.timeout = float("inf")


def check_vmx(parser, options):
    """Refuse options that Bochs has no means for. Add the files that COMMAND names to --file."""
    if shutil.which("bochs-bin", path="/usr/bin") is None:
        parser.error("--vmx: there is no Bochs: install the packages that lab/packages lists")
    no_means = "icount", "cpus", "accel", "boot_limit", "rw", "rdma", "stdin", "qemu", "memnodes"
    for name in no_means:
        if getattr(options, name):
            parser.error(f"--{name.replace('_', '-')} cannot be had with --vmx, see lab/README.md")
    options.accel = "tcg"
    for path in options.file:
        if not os.path.exists(path):
            parser.error(f"--file {path}: there is no such file")
    words = [shutil.which(word) or word for word in options.command[:1]] + options.command[1:]
    options.file += [word for word in words if os.path.isfile(word)]


def check_machine(parser, options):
    if options.mem is None:
        options.mem = 1024 if options.vmx else 4096
    if options.boot_limit is None:
        # A Bochs that comes up late is slow, but does not hang.
        options.boot_limit = 2 * options.timeout if options.vmx else 40
    if options.mem < 256:
        parser.error(f"--mem {options.mem}: the guest needs 256 MB at least")
    if options.cpus is None:
        options.cpus = 1 if options.icount else 2
    if options.cpus < 1 or (options.icount and options.cpus != 1):
        parser.error(f"--cpus {options.cpus}: must be 1 with --icount, and at least 1 without")
    if options.file and not options.vmx:
        parser.error("--file is for --vmx, elsewhere COMMAND sees this machine's files: leave it "
                     "out")
    if options.console and not os.path.isdir(os.path.dirname(options.console) or "."):
        parser.error(f"--console {options.console}: there is no such folder: make it")
    if options.icount and options.accel == "kvm":
        parser.error("--icount counts emulated instructions, --accel kvm has none: leave one out")
    if options.icount:
        options.accel = "tcg"
    elif options.accel != "tcg":
        why = why_no_host_kvm()
        if why and options.accel == "kvm":
            parser.error(f"--accel kvm: {why}, so the guest would have no KVM; use --accel tcg")
        options.accel = "tcg" if why else "kvm"
    for assignment in options.env:
        if not re.match(r"[A-Za-z_][A-Za-z0-9_]*=", assignment):
            parser.error(f"--env {assignment}: must be NAME=VALUE")
    for i, path in enumerate(options.rw):
        if not os.path.isdir(path):
            parser.error(f"--rw {path}: not a folder: name one, or make it")
        options.rw[i] = os.path.realpath(path)
        if options.rw[i] == "/":
            parser.error("--rw /: the root itself stays read-only, name a folder below it")


def check_memnodes(parser, options):
    """Parse the options of memory nodes.

    Replace --memnode-size by a list of (text, MiB), one a node, --memnode-args by words, --at by
    faults.
    """
    if not 0 <= options.memnodes <= MEMNODES_MOST:
        parser.error(f"--memnodes {options.memnodes}: must be from 0 to {MEMNODES_MOST}")
    sizes = []
    for text in options.memnode_size.split(","):
        match = re.fullmatch(r"([1-9][0-9]*)([MG])", text)
        if not match:
            parser.error(f"--memnode-size {text}: must be a number with M or G behind it")
        sizes.append((text, int(match[1]) * {"M": 1, "G": 1024}[match[2]]))
    sizes += sizes[-1:] * (options.memnodes - len(sizes))
    options.memnode_size = sizes[: options.memnodes]
    try:
        options.memnode_args = shlex.split(options.memnode_args)
    except ValueError as error:
        parser.error(f"--memnode-args {options.memnode_args}: {error}")
    names = [f"m{i}" for i in range(1, options.memnodes + 1)]
    try:
        options.at = [faults.parse(text, names) for text in options.at]
    except ValueError as error:
        parser.error(f"--at {error}")
    if options.memnode and re.fullmatch("[0-9]+", options.memnode):
        parser.error(f"--memnode {options.memnode}: this names the server to run: for a number of "
                     f"nodes give --memnodes {options.memnode}")
    for name in "memnode", "memnode_log":
        if getattr(options, name) and not options.memnodes:
            parser.error(f"--{name.replace('_', '-')}: there are no memory nodes: give --memnodes "
                         "N too")
    if not options.memnodes:
        return
    options.rdma = True
    path = options.memnode or os.environ.get("MEMNODE") or f"{HERE}/../build/memnode/memnode"
    options.memnode = os.path.realpath(path)
    if not os.access(options.memnode, os.X_OK) or os.path.isdir(options.memnode):
        parser.error(
            f"{path} is no program to run on the memory nodes: build it, or name another with "
            "--memnode"
        )


def why_no_host_kvm():
    """Why the host's KVM cannot give a guest VMX or SVM, or None if it can.

    (The KVM of some clouds has neither.)
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "/dev/kvm is missing or not ours to open"
    with open("/proc/cpuinfo") as cpuinfo:
        flags = next((line.split() for line in cpuinfo if line.startswith("flags")), [])
    for flag, module in ("vmx", "kvm_intel"), ("svm", "kvm_amd"):
        if flag in flags:
            name = f"/sys/module/{module}/parameters/nested"
            try:
                with open(name) as nested:
                    return None if nested.read().strip() in ("1", "Y") else f"{name} is off"
            except OSError:
                return f"the module {module} is not loaded"
    return "the CPU shows neither VMX nor SVM"
