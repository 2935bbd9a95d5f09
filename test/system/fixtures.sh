# The data that the programs of the system tests work on. Made again for each run, from a seed:
# nothing depends on the machine.
# shellcheck shell=bash disable=SC2016,SC2154

# In the folder $data. Sizes such that a sort or a dictionary of the text is a multiple of the
# smaller caches.
make_fixtures() {
    mkdir -p "$data/tree" && cd "$data" || return
    python3 - <<'PYTHON' || return
import random, os, struct
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
PYTHON
    printf 'four\nscore\nand\n' >small
    : >empty
    gzip -nk binary
    printf 'scale = 100\n4 * a(1)\nfor (i = 0; i < 40; i++) s += e(-i / 7)\ns\n' >pi.bc
    printf '#!/usr/bin/python3 -I\nimport sys\n' >script
    printf 'print(sys.argv[1:], len(open(sys.argv[0]).read()))\n' >>script
    printf '#! /bin/sh -e\necho "$0" "$#" "$2"\nfalse\necho not reached\n' >shell-script
    chmod 755 script shell-script
    # The same dates everywhere, so that ls's output can be compared.
    find . -exec touch -h -d '2020-02-02 02:02:02 UTC' {} +
}
