#!/usr/bin/env python3
"""
Writes docs/pages.svg: cache, far tiers, and the threads that move pages between them.

usage: docs/pages.py [--check]

--check writes nothing, and fails if the file is not what it would write.
"""
import pathlib
import sys

output = pathlib.Path(__file__).resolve().parent / "pages.svg"
WIDTH, HEIGHT = 980, 590

# Each mover of pages has a colour, and its arrows have it too.
VCPU, CLEANER, IO, FILE = "#1f5fa8", "#b8560f", "#2c7a3f", "#666666"
# The states of a frame in the drawing of the cache.
FRAMES = {"hot": "#8fb4dc", "cold, clean": "#dbe7f4", "cold, dirty": "#f0b27a",
          "on its way": "#9fd0ab", "free": "#ffffff"}
parts = []


def add(text):
    parts.append("  " + text)


def text(x, y, words, size=13, colour="#222222", anchor="start", weight="normal"):
    add(f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{words}</text>')


def region(x, y, width, height, name, name_y):
    """A part of the world, with its name."""
    add(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="#f6f6f4" '
        'stroke="#c4c4c0"/>')
    text(x + 12, name_y, name, 12, "#777777")


def box(x, y, width, height, colour, title, *lines):
    add(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="#ffffff" '
        f'stroke="{colour}" stroke-width="2"/>')
    text(x + 12, y + 23, title, 14, colour, weight="bold")
    for n, line in enumerate(lines):
        text(x + 12, y + 43 + 17 * n, line, 12)


def arrow(path, colour, dashed=False):
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    add(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2.5"{dashes} '
        f'marker-end="url(#head{colour[1:]})"/>')


def cache(x, y, columns, rows, side):
    """Frames in the states of `pattern`, which the hand of CLOCK goes round."""
    pattern = "hhdhcch.hbhdchhc..hhbcdh.hhchhdc"
    colours = dict(zip("hcdb.", FRAMES.values()))
    for n in range(columns * rows):
        column, row = n % columns, n // columns
        add(f'<rect x="{x + column * side}" y="{y + row * side}" width="{side - 4}" '
            f'height="{side - 4}" fill="{colours[pattern[n % len(pattern)]]}" stroke="#888888"/>')


def document():
    for colour in (VCPU, CLEANER, IO, FILE):
        add(f'<marker id="head{colour[1:]}" viewBox="0 0 10 10" refX="9" refY="5" '
            'markerWidth="5" markerHeight="5" orient="auto">'
            f'<path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>')
    add(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>')

    region(10, 10, 550, 375, "the virtual machine of one process", 33)
    region(10, 400, 550, 180, "the vmrun process", 568)
    region(740, 10, 230, 375, "this host", 33)
    region(740, 400, 230, 180, "other hosts, or this one", 568)

    box(50, 50, 215, 125, VCPU, "vCPU of a thread", "program: touches a page",
        "kern: page fault,", "takes a free frame,", "copies, or asks and waits")
    box(50, 225, 215, 125, CLEANER, "cleaner (service vCPU)", "moves the hand of CLOCK,",
        "writes dirty pages back,", "evicts what stayed cold:", "keeps a reserve of free frames")
    box(50, 435, 215, 105, IO, "I/O thread", "takes requests from the rings,",
        "hands them to the driver", "of the node, marks entries", "when a read is complete")
    box(325, 50, 215, 300, "#444444", "cache: frames")
    cache(340, 88, 6, 4, 32)
    for n, (name, colour) in enumerate(FRAMES.items()):
        add(f'<rect x="340" y="{229 + 21 * n}" width="14" height="14" fill="{colour}" '
            'stroke="#888888"/>')
        text(364, 241 + 21 * n, name, 12)

    box(755, 50, 200, 145, "#444444", "memory tiers", "mem: memory of this host",
        "dax: a mapped file or device", "slabs are mapped in the", "guest: no exit, no I/O")
    box(755, 250, 200, 100, "#444444", "files", "private mappings: what was",
        "not changed is dropped", "and read again")
    box(755, 435, 200, 105, "#444444", "remote nodes", "rdma:// memnode",
        "nbd:// memnode or another", "NBD server", "slabs are leased")

    arrow("M755,105 H542", VCPU)
    text(572, 97, "fetch: a copy", 12, VCPU)
    arrow("M540,170 H753", CLEANER)
    text(572, 162, "write back: a copy", 12, CLEANER)
    arrow("M755,300 H542", FILE)
    text(572, 275, "first touch: an exit,", 12, FILE)
    text(572, 291, "up to 16 pages", 12, FILE)
    arrow("M755,470 H490 V352", IO)
    text(572, 462, "fetch: READ", 12, IO)
    arrow("M410,350 V520 H753", IO)
    text(572, 512, "write back: WRITE", 12, IO)
    arrow("M265,495 H405", IO, dashed=True)
    text(300, 487, "posts", 12, IO)

    arrow("M50,110 H30 V495 H48", VCPU, dashed=True)
    text(40, 420, "demand ring", 12, VCPU)
    arrow("M180,350 V433", CLEANER, dashed=True)
    text(190, 420, "bulk ring", 12, CLEANER)
    arrow("M120,175 V223", VCPU, dashed=True)
    text(130, 204, "doorbell at the low mark", 12, VCPU)

    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="DejaVu Sans, Verdana, sans-serif">')
    made = "  <!-- Made by docs/pages.py: change that, not this. -->"
    return "\n".join([head, made, *parts, "</svg>"]) + "\n"


def main():
    svg = document()
    if sys.argv[1:] == ["--check"]:
        if not output.exists() or output.read_text() != svg:
            sys.exit("docs/pages.svg is not what docs/pages.py makes: run it")
    elif sys.argv[1:]:
        sys.exit(__doc__.strip())
    else:
        output.write_text(svg)


main()
