#!/usr/bin/python3
"""
Makes what the system tests work on, from a seed: nothing depends on the machine. Made when vmrun is
built, for it takes half a minute in an emulated machine.

usage: fixtures.py PROGRAM FOLDER
  FOLDER/data   what programs read. Sizes such that a sort or a dictionary of the text is a multiple
                of the smaller caches.
  FOLDER/bad    files that are no programs, or damaged ones: variations of PROGRAM, a
                good static program
"""
import gzip, os, random, shutil, struct, sys

program, to = map(os.path.abspath, sys.argv[1:])


def begin(name):
    shutil.rmtree(f"{to}/{name}", ignore_errors=True)
    os.makedirs(f"{to}/{name}")
    os.chdir(f"{to}/{name}")


def executable(name, content):
    with open(name, "wb") as f:
        f.write(content)
    os.chmod(name, 0o755)


# --- data ---

begin("data")
r = random.Random(42)
syllables = [a + b for a in "bcdfghklmnprstvz" for b in "aeiou"]
words = ["".join(r.choices(syllables, k=r.randint(1, 4))) for _ in range(20000)]
with open("text", "w") as f:
    for n in range(12000):
        f.write(" ".join(r.choices(words, k=r.randint(1, 12))) + "\n")
with open("numbers", "w") as f:
    for n in range(20000):
        f.write(f"{r.randint(-10**9, 10**9)}\t{r.random():.6f}\t{r.choice(words)}\n")
with open("binary", "wb") as f:
    f.write(r.randbytes(1 << 20) + bytes(1 << 20))
    f.write(b"".join(struct.pack("<I", n) for n in range(1 << 18)))
with open("table.sql", "w") as f:
    f.write("create table t(id integer primary key, word text, value real);\nbegin;\n")
    for n in range(8000):
        f.write(f"insert into t values({n}, '{r.choice(words)}', {r.random():.9f});\n")
    f.write("commit;\ncreate index i on t(word);\n"
            "select word, count(*), round(sum(value), 6) from t"
            " group by word order by 2 desc, 1 limit 20;\n"
            "select a.word, count(*) from t a join t b on a.word = b.word"
            " group by 1 order by 1 limit 20;\n"
            "pragma integrity_check;\n")
for n in range(60):
    folder = "tree/" + "/".join(r.choices(["a", "b", "c", "d"], k=r.randint(1, 3)))
    os.makedirs(folder, exist_ok=True)
    name = f"{folder}/{r.choice(words)}-{n}"
    with open(name, "w") as f:
        f.write("\n".join(r.choices(words, k=r.randint(0, 400))))
os.symlink("../text", "tree/link")
os.symlink("nowhere", "tree/dangling")
with open("small", "w") as f:
    f.write("four\nscore\nand\n")
open("empty", "w").close()
with open("binary", "rb") as f, open("binary.gz", "wb") as g:
    g.write(gzip.compress(f.read(), mtime=0))
with open("pi.bc", "w") as f:
    f.write("scale = 100\n4 * a(1)\nfor (i = 0; i < 40; i++) s += e(-i / 7)\ns\n")
executable("script", b"#!/usr/bin/python3 -I\nimport sys\n"
           b"print(sys.argv[1:], len(open(sys.argv[0]).read()))\n")
executable("shell-script", b'#! /bin/sh -e\necho "$0" "$#" "$2"\nfalse\necho not reached\n')
executable("plain-script", b'echo "$0 $1, by a shell"\n')
executable("lost-script", b"#!/no/such/interpreter\n")
with open("hello.c", "w") as f:
    f.write("#include <stdio.h>\nint two(void);\n"
            'int main(void) { printf("%d\\n", two()); return 0; }\n')
with open("two.c", "w") as f:
    f.write("int two(void) { return 2; }\n")
with open("makefile", "w") as f:
    f.write("run: hello\n\t./hello\nhello: hello.o two.o\n\tgcc -o $@ $^\n"
            "%.o: ../data/%.c\n\tgcc -c -o $@ $<\n")
# exit(42), where the machine runs 32-bit programs.
code = bytes([0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80])
base, size = 0x8048000, 52 + 32 + len(code)
executable("i386", b"\x7fELF\1\1\1" + bytes(9)
           + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
           + struct.pack("<8I", 1, 0, base, base, size, size, 5, 4096) + code)
# One date for all files, so that ls's output can be compared.
for path, folders, files in os.walk(".", topdown=False):
    for name in files + folders + ["."]:
        os.utime(os.path.join(path, name), (1580608922, 1580608922), follow_symlinks=False)

# --- bad ---

begin("bad")
good = open(program, "rb").read()
PT_LOAD, PT_INTERP = 1, 3
phoff, = struct.unpack_from("<Q", good, 32)
phentsize, phnum = struct.unpack_from("<HH", good, 54)


def patched(*changes):
    b = bytearray(good)
    for offset, format, value in changes:
        struct.pack_into("<" + format, b, offset, value)
    return bytes(b)


def headers(content, kind):
    offset, = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    all_headers = range(offset, offset + size * count, size)
    return [h for h in all_headers if struct.unpack_from("<I", content, h)[0] == kind]


loads = headers(good, PT_LOAD)
executable("text", b"just some words\n")
executable("empty", b"")
executable("magic-only", good[:4])
executable("half-header", good[:40])
executable("no-program-headers", good[:64])
executable("cut-program-headers", good[:phoff + phentsize + 20])
executable("cut-segments", good[:4096])
executable("wrong-machine", patched((18, "H", 183)))
executable("an-object", patched((16, "H", 1)))
executable("phnum-0", patched((56, "H", 0)))
executable("phnum-65535", patched((56, "H", 65535)))
executable("phentsize-1", patched((54, "H", 1)))
executable("phoff-huge", patched((32, "Q", 2**64 - 8)))
executable("filesz-above-memsz", patched((loads[1] + 40, "Q", 1)))
executable("vaddr-wraps", patched((loads[1] + 16, "Q", 2**64 - 4096), (loads[1] + 40, "Q", 2**63)))
executable("kernel-address", patched((loads[0] + 16, "Q", 0xffff800000000000)))
offset = struct.unpack_from("<Q", good, loads[1] + 8)[0]
executable("misaligned", patched((loads[1] + 8, "Q", offset + 8)))

dynamic = bytearray(open("/bin/true", "rb").read())
h = headers(dynamic, PT_INTERP)[0]
offset, = struct.unpack_from("<Q", dynamic, h + 8)
size, = struct.unpack_from("<Q", dynamic, h + 32)
dynamic[offset:offset + size] = b"/no/ld.so".ljust(size, b"\0")
executable("no-interpreter", bytes(dynamic))
executable("script-no-interpreter", b"#!/no/such/interpreter -x\n")
executable("script-empty", b"#!\n")
executable("script-of-itself", b"#!" + os.fsencode(os.path.abspath("script-of-itself")) + b"\n")
executable("good", good)
