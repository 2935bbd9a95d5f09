#!/usr/bin/env python3
"""The results of instructions natively and under vmrun.

Compares two runs of `t_entry instructions`, or makes docs/instructions.md of several.

usage: instructions.py compare NATIVE GUEST
           a line for each difference that instructions.known does not list
       instructions.py table NATIVE NAME=GUEST...  the document
"""
import os
import re
import sys
import textwrap

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "instructions.known")


def read(path):
    """Name -> result."""
    with open(path, encoding="ascii") as f:
        return dict(line.rstrip("\n").split(": ", 1) for line in f if ": " in line)


def known():
    """(name, level, result, why): the first and third are regular expressions."""
    with open(KNOWN, encoding="ascii") as f:
        for line in f:
            if line.strip() and not line.startswith("#"):
                yield [word.strip() for word in line.split(" | ", 3)]


def level(results):
    """p of the program: its CS says it."""
    return "p0" if "rax 0x10 " in results["mov eax, cs"] else "p3"


def same(name, native, guest):
    """Whether the results agree, but for the parts that depend on the emulator.

    These are RF in a frame; the error code of INT n (QEMU says 16 n + 2 for 8 n + 2); and a null
    selector in DS or ES, whose low bits an interrupt clears when it returns to ring 3.
    """
    def plain(result):
        result = re.sub(r"flags 0x([0-9a-f]+)",
                        lambda m: f"flags {int(m[1], 16) & ~0x10000:#x}", result)
        if name.startswith("int 0x"):
            n = int(name[4:], 16)
            result = re.sub(rf"trap 13 err ({16 * n + 2:#x}|{8 * n + 2:#x}) ",
                            "trap 13 err of its gate ", result)
        if name in ("mov ds, 3", "mov es, 3"):
            result = result.replace("rax 0x3 ", "rax 0x0 ")
        return result
    return plain(native) == plain(guest)


def listed(name, at, result, entries):
    """Why this result may differ, or None."""
    for names, where, what, why in entries:
        if where in (at, "any") and re.fullmatch(names, name) and re.fullmatch(what, result):
            return why
    return None


def compare(native_path, guest_path):
    native, guest, entries = read(native_path), read(guest_path), list(known())
    at, wrong, differ = level(guest), 0, 0
    for name, result in native.items():
        got = guest.get(name, "nothing")
        if same(name, result, got):
            continue
        if listed(name, at, got, entries):
            differ += 1
            continue
        wrong += 1
        print(f"{name}: natively {result}; under vmrun {got}")
    print(f"{len(native)} instructions at {at}: {len(native) - differ - wrong} as natively, "
          f"{differ} as listed, {wrong} wrong")
    return 0 if native and not wrong else 1


def short(result):
    m = re.fullmatch(
        r"SIG(\w+) code (\d+) addr (\S+) rip (\S+) trap (\d+) err (\S+) flags (\S+)", result)
    if not m:
        return result
    vectors = {"0": "#DE", "1": "#DB", "3": "#BP", "4": "#OF", "6": "#UD", "11": "#NP",
               "12": "#SS", "13": "#GP", "14": "#PF", "16": "#MF", "17": "#AC", "19": "#XM"}
    vector = vectors.get(m[5], "trap " + m[5])
    return f"SIG{m[1]} ({vector}{'' if m[6] == '0x0' else ', ' + m[6]}) at {m[4]}"


def table(native_path, columns):
    native = read(native_path)
    guests = [(name, read(path)) for name, path in (c.rsplit("=", 1) for c in columns)]
    entries = list(known())
    alike = []
    print("| instruction | Linux | " + " | ".join(name for name, _ in guests) + " | why |")
    print("|---" * (len(guests) + 3) + "|")
    for name, result in native.items():
        row, whys = [], []
        for _, guest in guests:
            if name not in guest:
                row.append("not run")
                continue
            got = guest[name]
            alike_here = same(name, result, got)
            row.append("same" if alike_here else short(got))
            why = None if alike_here else listed(name, level(guest), got, entries)
            if why and why not in whys:
                whys.append(why)
        if all(r in ("same", "not run") for r in row):
            alike.append(name)
        else:
            columns = [f"`{name}`", short(result), *row, "; ".join(whys)]
            print("| " + " | ".join(columns) + " |")
    text = f"The same everywhere, {len(alike)} of {len(native)}: "
    text += ", ".join(f"`{n}`" for n in alike) + "."
    print("\n" + textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False))
    return 0


def main(args):
    if len(args) == 3 and args[0] == "compare":
        return compare(args[1], args[2])
    if len(args) >= 3 and args[0] == "table":
        return table(args[1], args[2:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
