#!/usr/bin/env python3
"""
Writes docs/syscalls.md: how vmrun serves each of Linux's system calls, from the tables that decide
it.

usage: docs/syscalls.py [--check]

Reads runtime/syscalls/table.c (rows, and why a call is refused), the handlers beside it, kern's
syscall.c (what needs no exit) and the numbers of <asm/unistd_64.h>.  Ends with status 1 and a
sentence where they do not agree: a call without a row, a row that says kern where kern has nothing.
--check writes nothing, and fails if the file is not what it would write.
"""
import collections
import pathlib
import re
import sys
import textwrap

root = pathlib.Path(__file__).resolve().parents[1]
output = root / "docs/syscalls.md"
kern = next(root.glob("kern/**/syscall.c")).relative_to(root).as_posix()
LAST = 450  # of Linux 6.1; later headers have more

# Remarks, where a row cannot say it in a word: by handler, or by the name of a call in kern or of
# one that is forwarded.
NOTES = {
    "sys_ioctl":
        "known commands and families of terminals, sockets, files, block devices and namespaces; "
        "ENOTTY for others, whose arguments may be or hold pointers; SIOCETHTOOL is EOPNOTSUPP, as "
        "of a driver without ethtool",
    "sys_prctl":
        "options known by name; PR_SET_SECCOMP, PR_SET_TSC, PR_SCHED_CORE, "
        "PR_SET_SYSCALL_USER_DISPATCH and those since Linux 6.3 are EINVAL, PR_SET_MM is EPERM",
    "sys_setsockopt":
        "SO_ZEROCOPY, netfilter tables, SOL_XDP and SOL_RDS are ENOPROTOOPT: the kernel would"
        " keep or follow addresses",
    "sys_getsockopt": "SO_GET_FILTER, TCP_ZEROCOPY_RECEIVE and netfilter tables are ENOPROTOOPT",
    "sys_vmsplice": "copies, so that the pipe holds no page of the program",
    "sys_fsconfig": "FSCONFIG_SET_BINARY is EOPNOTSUPP",
    "sys_close_range":
        "passes over vmrun's own descriptors; CLOSE_RANGE_UNSHARE closes without unsharing",
    "sys_unshare":
        "CLONE_FILES has no effect; for a user namespace, vmrun's threads end and are made "
        "again",
    "sys_setns": "for a user or time namespace, vmrun's threads end and are made again",
    "sys_process_vm":
        "on the program itself, and on processes that do not run under vmrun; EPERM for "
        "others that do",
    "sys_shmget": "SHM_HUGETLB makes none: ENOMEM, as on a system without huge pages",
    "sys_rt_sigaction":
        "vmrun uses SIGSTKFLT too, to reach its own threads: where the program ignores it, a "
        "wait that no handler restarts ends with EINTR",
    "sys_getrlimit": "limits of memory are kern's, those of descriptors as if vmrun had none",
    "sys_clone":
        "a process in its parent's memory that does not suspend it is ENOSYS, a thread of unusual "
        "make EINVAL",
    "sys_clone3":
        "as clone; set_tid and CLONE_INTO_CGROUP are EPERM; CLONE_NEWTIME is EINVAL, as without "
        "CONFIG_TIME_NS, and so is CLONE_PIDFD of a thread, as before Linux 6.9",
    "arch_prctl":
        "ARCH_GET_XCOMP_SUPP, ARCH_REQ_XCOMP_PERM and their like are EINVAL, as before Linux 5.16; "
        "ARCH_SET_CPUID is ENODEV",
    "mmap":
        "MAP_HUGETLB without a file is ENOMEM, as on a system without huge pages; MAP_DROPPABLE is "
        "EINVAL, as before Linux 6.11; below vm.mmap_min_addr it is EPERM for root too; where the "
        "file's own code refuses MAP_FIXED, what was mapped there stays",
    "mremap":
        "MREMAP_DONTUNMAP of a shared mapping is EINVAL, as before Linux 5.13, and a move of "
        "several mappings EFAULT, as before Linux 6.17",
    "madvise":
        "MADV_COLLAPSE and MADV_GUARD_INSTALL are EINVAL, as before Linux 6.1 and 6.13; "
        "MADV_REMOVE of a shared mapping is EOPNOTSUPP",
    "getpriority":
        "of a process group and of a user, vmrun's own threads count, as for setpriority",
    "personality": "flags about memory, as READ_IMPLIES_EXEC, have no effect",
    "sys_open": "files of /proc/self that tell of memory are written by vmrun",
}


class Wrong(Exception):
    pass


def read(path):
    return (root / path).read_text()


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def numbers():
    """{name: number} of the C library's header."""
    for header in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"):
        if pathlib.Path(header).exists():
            text = pathlib.Path(header).read_text()
            found = re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.M)
            return {name: int(number) for name, number in found if int(number) <= LAST}
    raise Wrong("there is no <asm/unistd_64.h>: install the kernel's headers "
                "(Debian: linux-libc-dev)")


def strings(text):
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', text))


Row = collections.namedtuple("Row", "macro arguments")


def rows():
    """{name: Row} of table.c, and its sentences."""
    text = without_comments(read("runtime/syscalls/table.c")).replace("\\\n", " ")
    head, body = text.split("sys_rows[SYS_ROWS] = {", 1)
    defines = re.findall(r'^#define (\w+)\s+(".*)$', head, re.M)
    reasons = {name: strings(value) for name, value in defines}
    found = {}
    arguments_of = r'\b(ROWF?|HAND|HROW|NOT|KERN)\(((?:[^()"]|"(?:[^"\\]|\\.)*"|\([^()]*\))*)\)'
    for macro, arguments in re.findall(arguments_of, body):
        parts = [part.strip() for part in re.findall(r'(?:[^,"]|"(?:[^"\\]|\\.)*")+', arguments)]
        if parts[0] in found:
            raise Wrong(f"table.c has two rows of {parts[0]}")
        found[parts[0]] = Row(macro, parts)
    return found, reasons


def handlers():
    """{function: file} of the handlers."""
    found = {}
    for file in sorted((root / "runtime/syscalls").glob("*.c")):
        for name in re.findall(r"^long (sys_\w+)\(struct thread \*", file.read_text(), re.M):
            found[name] = file.name
    return found


def by_kern():
    """Names of the calls of which kern has a function."""
    return set(re.findall(r"^\s*\[__NR_(\w+)\] = ", read(kern), re.M))


def describe(name, row, reasons, where, local):
    if row.macro == "NOT":
        if len(row.arguments) != 3:
            raise Wrong(f"table.c refuses {name} without a reason")
        reason = strings(row.arguments[2]) or reasons.get(row.arguments[2])
        if not reason:
            raise Wrong(f"table.c refuses {name} for a reason that is not there: "
                        f"{row.arguments[2]}")
        return f"refused: {row.arguments[1]}", reason
    if row.macro == "KERN":
        if name not in local:
            raise Wrong(f"table.c leaves {name} to kern, which has nothing in {kern}")
        return "in kern", NOTES.get(name, "")
    how, note = "forwarded", NOTES.get(name, "")
    if row.macro in ("HAND", "HROW"):
        handler = row.arguments[2]
        if handler not in where:
            raise Wrong(f"the handler {handler} of {name} is not in runtime/syscalls")
        how, note = f"by hand, `{where[handler]}`", NOTES.get(handler, "")
    if name in local:
        how = f"in kern; {how} where kern has no answer"
    return how, note


def document():
    table, reasons = rows()
    number, where, local = numbers(), handlers(), by_kern()
    for name in sorted(number, key=number.get):
        if name not in table:
            raise Wrong(f"table.c has no row of {name} ({number[name]})")
    for name in table:
        if name not in number:
            raise Wrong(f"table.c has a row of {name}, which this <asm/unistd_64.h> does not know")
    lines, tally = [], collections.Counter()
    for name in sorted(table, key=lambda n: number[n]):
        how, note = describe(name, table[name], reasons, where, local)
        tally[how.split()[0].rstrip(";:")] += 1
        remark = note[:1].upper() + note[1:] + "." if note else ""
        lines.append(f"| {number[name]} | {name} | {how} | {remark} |")
    text = [
        "# System calls",
        f"Each of the {len(table)} calls of Linux 6.1 on x86-64, and how vmrun serves it. Written"
        " by `docs/syscalls.py` from [table.c](../runtime/syscalls/table.c) and"
        f" [kern's syscall.c](../{kern}): `make syscalls-table` does it, and a test fails where"
        " that was forgotten.",
        f"* **in kern** ({tally['in']}): served inside the VM, without an exit.",
        f"* **forwarded** ({tally['forwarded']}): made by the host thread as it stands, with its"
        " pointers resolved as its row in the table says.",
        f"* **by hand** ({tally['by']}): forwarded by a function of its own in `runtime/syscalls/`,"
        " because a row cannot describe it.",
        f"* **refused** ({tally['refused']}): fails with the errno of a kernel without the feature,"
        " or of one that is locked down, as programs that can do without the call expect.",
        "Numbers that are not here are ENOSYS, and so are 335 to 423, which x86-64 does not use."
        " With `-v` vmrun names the first use of each call that it refuses.",
    ]
    head = ""
    for paragraph, after in zip(text, text[1:] + [""]):
        indent = "  " if paragraph.startswith("*") else ""
        head += textwrap.fill(paragraph, 100, subsequent_indent=indent, break_long_words=False,
                              break_on_hyphens=False)
        head += "\n" if paragraph.startswith("*") and after.startswith("*") else "\n\n"
    head += "| number | call | how | remark |\n|---|---|---|---|\n"
    return head + "\n".join(lines) + "\n"


def main():
    try:
        text = document()
    except Wrong as wrong:
        print(f"docs/syscalls.py: {wrong}", file=sys.stderr)
        return 1
    if sys.argv[1:] == ["--check"]:
        if not output.exists() or output.read_text() != text:
            print("docs/syscalls.py: docs/syscalls.md does not agree with the tables: "
                  "write it again by `make syscalls-table`", file=sys.stderr)
            return 1
    elif sys.argv[1:]:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    else:
        output.write_text(text)
    return 0


sys.exit(main())
