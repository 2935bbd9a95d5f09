"""The report of bench/run: tables, limits and pictures from figures, JSON lines that it measured.

A figure is an object. `table` says which table it is of, `tier` and `system` what was measured,
`what`, `unit` and `value` the result, `command` what was run, `reason` why there is no value.
`stats` holds the statistics of vmrun for that run, which settings and machine are taken from.
"""

import datetime

import plots

ORDERS = "sequential", "reverse", "stride", "streams", "random", "zipf"
TIER_NAMES = {
    "mem": "memory of the host (`mem:`)",
    "wire": "a wire by the clock (`mem:`, 2.4 us, 12.5 GB/s)",
    "rdma": "RDMA (soft-RoCE to the same machine)",
    "nbd": "NBD over TCP to the same machine",
    "disk": "a virtio disk",
}


# --- figures ---

def pick(figures, **keys):
    return [f for f in figures if all(f.get(key) == value for key, value in keys.items())]


def values_of(figures, key):
    """In the order in which they first come, without None."""
    return list(dict.fromkeys(f[key] for f in figures if f.get(key) is not None))


def value(figures, **keys):
    """Of the one figure that has all the keys, or None."""
    found = [f["value"] for f in pick(figures, **keys) if "value" in f]
    return found[0] if found else None


def label(figure):
    """The column of a figure, without what a table is made over."""
    system = figure.get("system", "?")
    if system == "vmrun":
        words = ["vmrun", figure.get("io"), figure.get("policy")]
        return " ".join(word for word in words if word)
    if system == "swap":
        return f"swap {figure.get('device')}"
    if system == "reference":
        return f"bare loop, {figure.get('depth')} in flight"
    return system


def plain_label(figure):
    """As in a picture for people who do not know our options; None if it is left to tables."""
    system, policy = figure.get("system"), figure.get("policy")
    thread = ", I/O thread" if figure.get("io") == "thread" else ""
    if system == "vmrun":
        return {"none": f"vmrun, no prefetching{thread}", "auto": f"vmrun{thread}"}.get(policy)
    if system == "reference":
        return f"bare reads, {figure.get('depth')} at once"
    if system == "swap":
        return "zram" if figure.get("device") == "zram" else "Linux swap"
    return None


def best_swaps(figures, by):
    """Of figures that differ in page-cluster alone, the lowest; `by` are the keys of a cell."""
    best = {}
    for f in figures:
        if f.get("system") == "swap" and "value" in f:
            key = (f.get("device"), *(f.get(k) for k in by))
            if key not in best or f["value"] < best[key]["value"]:
                best[key] = f
    return [f for f in figures if f.get("system") != "swap"] + list(best.values())


def ratio(a, b):
    return a / b if a is not None and b else None


# --- text ---

def number(v):
    if v is None:
        return ""
    if isinstance(v, str):
        return v
    if abs(v) >= 100:
        return f"{v:,.0f}"
    return f"{v:.3g}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(number(cell) for cell in row) + " |" for row in rows]
    return lines + [""]


def unit_of(figures, what):
    if any(f.get("clock") == "clock" for f in figures):
        return f"ns by the clock {what}"
    return f"instructions {what}"


def conditions(figures):
    """Where and when: one paragraph, from what the figures say of themselves."""
    lines = []
    for boot in values_of(figures, "boot"):
        some = pick(figures, boot=boot)
        first = some[0]
        about = next((f["stats"].get("about", {}) for f in some if "stats" in f), {}) or \
            first.get("about", {})
        machine = ", ".join(f"{about[key]}" for key in ("cpu", "kernel", "kvm", "rdma")
                            if about.get(key))
        cpus = f"{about['cpus']} CPU" + "s" * (about["cpus"] != 1) if "cpus" in about else ""
        count = "counted instructions (lab --icount)" if first.get("clock") == "icount" \
            else f"by the clock, load {first.get('load')}"
        version = f"vmrun {about['version']}" if "version" in about else ""
        lines.append("; ".join(part for part in (
            f"Measured {boot}, {count}{', quick sizes' * bool(first.get('quick'))}",
            ", ".join(part for part in (machine, cpus) if part), version) if part) + ".")
    return lines + [""]


def settings(figures):
    """Settings of vmrun that are the same in all runs."""
    all_settings = [f["stats"]["setting"] for f in figures if f.get("stats", {}).get("setting")]
    if not all_settings:
        return []
    same = {key: v for key, v in all_settings[0].items()
            if key != "stats" and all(other.get(key) == v for other in all_settings)}
    return ["Settings of vmrun alike in all runs: " +
            ", ".join(f"`{key} = {v}`" for key, v in same.items()) + ".", ""]


def commands(figures):
    """What was run for each figure, and which could not be measured."""
    lines = [f"- {reason_key(f)}: {f['reason']}" for f in figures if "reason" in f]
    if lines:
        lines = ["Not measured:", "", *lines, ""]
    lines += ["<details><summary>Commands</summary>", ""]
    for how in values_of(figures, "how"):
        lines += [f"    {how}", ""]
    seen = values_of(figures, "command")
    lines += ["```", *seen, "```", "", "</details>", ""]
    return lines


def reason_key(f):
    keys = "tier", "program", "order", "share", "system", "io", "policy", "device", "cluster", \
        "what", "bytes", "nodes"
    return ", ".join(f"{key} {f[key]}" for key in keys if key in f) or f.get("table", "?")


def picture(path, out, caption, drawn):
    if not drawn:
        return []
    return [f"![{caption}]({path.relative_to(out)})", ""]


# --- section 1: orders of access ---

def budgets(some):
    if any(f.get("place") == "here" for f in some):
        return "vmrun's cache is the local share less 3 MiB for itself; nothing enforces that."
    text = "Both sides have the same `memory.max`; vmrun's holds all it needs beside its cache."
    if {"mem", "wire"} & set(values_of(some, "tier")):
        text += " The memory of the tier itself is not counted."
    return text


def waits(f):
    """Of 64 accesses, how many waited for a page; and the share of wasted prefetches, %."""
    stats = f.get("stats")
    if not stats or "count" not in stats:
        return None, None
    accesses = 2 * f["size_mib"] * 256
    faults, count = stats["faults"], stats["count"]
    fetched = count["fetched"] + count.get("prefetched", 0)
    return (64 * (faults["fetch"] + faults["wait"]) / accesses,
            100 * count.get("prefetch_wasted", 0) / fetched if fetched else 0)


def scans(figures, out):
    figures = pick(figures, table="scan")
    for tier in values_of(figures, "tier"):
        some = pick(figures, tier=tier)
        yield f"### Orders of access: {TIER_NAMES.get(tier, tier)}"
        yield ""
        yield from conditions(some)
        sizes = values_of(some, "size_mib")
        yield (f"`examples/scan`, {'/'.join(map(str, sizes))} MiB, two passes over all pages"
               f"{', of each a cache line' * ('line' in values_of(some, 'touch'))}; "
               f"{unit_of(some, 'a page')} of the second, the program's own work included. Both "
               "sides have the same `memory.max`; vmrun's holds all it needs beside its cache. "
               "Of swap the best page-cluster, in parentheses.")
        yield ""
        bare = [f for f in some if "share" not in f]
        native = pick(some, system="native")
        for share in sorted(values_of(some, "share"), reverse=True):
            if share != 100:
                yield from scan_share(native + pick(some, share=share) + bare, tier, share, out)
        yield from settings(some)
        yield from commands(some)


def scan_share(some, tier, share, out):
    best = best_swaps(some, ["order"])
    columns = list(dict.fromkeys(label(f) for f in best if "value" in f and "order" in f))
    constant = [f for f in best if "order" not in f and "value" in f]
    if not columns:
        return
    cells = {(f["order"], label(f)): f for f in best if "value" in f and "order" in f}

    def cell(order, column):
        f = cells.get((order, column))
        if f is None:
            return None
        return number(f["value"]) + (f" ({f['cluster']})" if "cluster" in f else "")

    orders = [order for order in ORDERS if any((order, c) in cells for c in columns)]
    yield f"{share} % local:"
    yield ""
    yield from table(["", *columns], [[order] + [cell(order, c) for c in columns]
                                      for order in orders])
    for f in constant:
        yield f"{label(f).capitalize()}: {number(f['value'])}."
    if constant:
        yield ""
    rows = []
    for f in best:
        waited, wasted = waits(f)
        if waited is not None and "value" in f:
            rows.append([f["order"], label(f), f"{waited:.2f}", f"{wasted:.2f}"])
    if rows:
        yield from table(["order", "", "waits in 64 accesses", "wasted prefetches, %"], rows)
    plain = {plain_label(f): label(f) for f in best if "order" in f and plain_label(f)}
    series = [(name, [cells[o, c]["value"] if (o, c) in cells else None for o in orders])
              for name, c in plain.items()]
    path = out / "pictures" / f"scan-{name_of(tier)}-{share}.svg"
    drawn = plots.bars(path, f"Reading in six orders, {tier}, {share} % local",
                       unit_of(some, "a page"), orders, series,
                       [(plain_label(f), f["value"]) for f in constant])
    yield from picture(path, out, f"Orders of access, {tier}, {share} % local", drawn)


def name_of(tier):
    return "".join(c if c.isalnum() else "-" for c in tier)


# --- section 2: programs ---

def programs(figures, out, which="programs", title="Programs by local share"):
    figures = pick(figures, table=which)
    for tier in values_of(figures, "tier"):
        some = pick(figures, tier=tier)
        yield f"### {title}: {TIER_NAMES.get(tier, tier)}"
        yield ""
        yield from conditions(some)
        yield (f"Run time, {unit_of(some, 'divided by those of the native run without a limit')}. "
               "100 % is the peak of the native run's memory control group; a share of it is the "
               "`memory.max` of either side, vmrun's with all it needs beside its cache, but at "
               "100 % vmrun has room for that. Starting is part of a run. Instructions are all "
               "that the CPU did meanwhile.")
        yield ""
        yield from program_table(some)
        yield from program_picture(some, which, tier, title, out)
        yield from settings(some)
        yield from commands(some)


def program_cells(some):
    """{(program, label, share): time by that of the native run}, and the labels."""
    native = {f["program"]: f for f in pick(some, system="native") if "value" in f}
    cells = {}
    for f in best_swaps(some, ["program", "share"]):
        if "value" in f and f.get("program") in native and f["system"] != "native":
            cells[f["program"], label(f), f["share"]] = f["value"] / native[f["program"]]["value"]
    return native, cells


def program_table(some):
    native, cells = program_cells(some)
    shares = sorted({share for _, _, share in cells}, reverse=True)
    rows = []
    for program, base in native.items():
        for column in dict.fromkeys(c for p, c, _ in cells if p == program):
            rows.append([program, f"{base['all_local'] / 2**20:.0f}",
                         f"{base['value'] / 1e6:,.0f}", column] +
                        [cells.get((program, column, share)) for share in shares])
    return table(["program", "MiB", "native, 10^6", ""] + [f"{share} %" for share in shares], rows)


def program_picture(some, which, tier, title, out):
    native, cells = program_cells(some)
    all_panels = []
    for program in native:
        series = []
        for column in dict.fromkeys(c for p, c, _ in cells if p == program):
            points = [(share, v) for (p, c, share), v in cells.items()
                      if p == program and c == column]
            series.append((column, points))
        if series:
            all_panels.append((program, series))
    if not all_panels:
        return
    path = out / "pictures" / f"{which}-{name_of(tier)}.svg"
    drawn = plots.panels(path, f"{title}, {tier}", "time / native", all_panels, "local, %")
    yield from picture(path, out, f"{title}, {tier}", drawn)


def ycsb(figures, out):
    yield from programs(figures, out, "ycsb", "YCSB by local share")


# --- section 3: one fetch ---

PARTS = "handler", "queue", "wire", "install"


def fetches(figures, out):
    figures = pick(figures, table="fetch")
    for tier in values_of(pick(figures, what="latency"), "tier"):
        some = pick(figures, what="latency", tier=tier)
        yield f"### One fetch: {TIER_NAMES.get(tier, tier)}"
        yield ""
        yield from conditions(some)
        sizes = values_of(some, "size_mib")
        yield (f"`bench/touch.c`, {'/'.join(map(str, sizes))} MiB, each page once a pass in random "
               f"order, 25 % local. Figures are {unit_of(some, 'of an access that faults')}, less "
               "those of an access that does not; the program measures them on either side.")
        yield ""
        rows = []
        swaps = [f for f in pick(some, system="swap") if "value" in f]
        base = min(swaps, key=lambda f: f["p50"], default=None)
        for f in some:
            if "value" in f:
                rows.append([label(f) + (f" ({f['cluster']})" if "cluster" in f else ""),
                             f["p50"], f["p99"], f["max"], f["value"],
                             ratio(base["p50"], f["p50"]) if base else None,
                             ratio(base["p99"], f["p99"]) if base else None])
        yield from table(["", "p50", "p99", "max", "all, an access", "best swap's p50 / this",
                          "p99"], rows)
        yield from part_table(some, tier, out)
        yield from settings(some)
        yield from commands(some)
    yield from exits(pick(figures, what="exits"))
    yield from transfer(pick(figures, what="size"), out)
    yield from nodes(pick(figures, what="nodes"))


def part_table(some, tier, out):
    with_parts = [f for f in some if f.get("stats", {}).get("part_ns")]
    if not with_parts:
        return
    yield ("Where the time of a fetch goes: medians of one fetch in 64. Handler: from the fault to "
           "the request or the copy; queue: until the node has it; wire: until its answer was "
           "seen; install: until the return to the program.")
    yield ""

    def median(f, part):
        return f["stats"]["part_ns"].get(part, {}).get("p50")

    yield from table(["", *PARTS, "fetches measured"],
                     [[label(f)] + [median(f, part) for part in PARTS] +
                      [f["stats"]["part_ns"].get("wire", {}).get("count")] for f in with_parts])
    path = out / "pictures" / f"parts-{name_of(tier)}.svg"
    drawn = plots.bars(path, f"a fetch, {tier}", unit_of(some, "a fetch"),
                       [label(f) for f in with_parts],
                       [(part, [median(f, part) for f in with_parts]) for part in PARTS],
                       stacked=True)
    yield from picture(path, out, f"Parts of a fetch, {tier}", drawn)


def exits(figures):
    """What differs between two runs that differ in passes, over the fetches that differ."""
    rows = []
    for tier in values_of(figures, "tier"):
        for clock in values_of(pick(figures, tier=tier), "clock"):
            for how in values_of(pick(figures, tier=tier, clock=clock), "io"):
                runs = [f for f in pick(figures, tier=tier, clock=clock, io=how) if "stats" in f]
                if len(runs) == 2:
                    rows.append(exit_row(tier, how, *sorted(runs, key=lambda f: f["passes"])))
    if not rows and not figures:
        return
    yield "### Exits of a fetch"
    yield ""
    yield from conditions(figures)
    yield ("Two runs of `bench/touch.c`, with one measured pass and with three: what the second "
           "has more, for 100 fetches that it has more. All exits count, also the cleaner's and "
           "those that sleep.")
    yield ""
    yield from table(["tier", "CPUs", "io", "fetches", "exits for 100", "of these", "doorbells of "
                      "the I/O thread"], rows)
    yield from commands(figures)


def exit_row(tier, how, few, many):
    a, b = few["stats"], many["stats"]
    fetches_more = b["faults"]["fetch"] - a["faults"]["fetch"]
    more = {kind: 100 * (v - a["exits"].get(kind, 0)) / fetches_more
            for kind, v in b["exits"].items()}
    total = more.pop("total")
    kinds = sorted((kind for kind in more if more[kind] >= 0.05), key=more.get, reverse=True)
    bells = 100 * (b["count"]["io_doorbells"] - a["count"]["io_doorbells"]) / fetches_more
    return [tier, str(few.get("cpus", "")), how, fetches_more, f"{total:.1f}",
            ", ".join(f"{kind} {more[kind]:.1f}" for kind in kinds), f"{bells:.1f}"]


def transfer(figures, out):
    if not figures:
        return
    yield "### A read by its size"
    yield ""
    yield from conditions(figures)
    yield f"`bench/reference.c`, one READ at a time; {unit_of(figures, 'a read')}."
    yield ""
    measured = [f for f in figures if "value" in f]
    yield from table(["bytes", "p50", "p99"], [[f["bytes"], f["value"], f["p99"]]
                                               for f in measured])
    if measured:
        path = out / "pictures" / "sizes.svg"
        drawn = plots.panels(path, "an RDMA READ by its size", unit_of(figures, "a read"),
                             [("", [("p50", [(f["bytes"], f["value"]) for f in measured])])],
                             "bytes", log_x=True)
        yield from picture(path, out, "A read by its size", drawn)
    yield from commands(figures)


def nodes(figures):
    if not figures:
        return
    yield "### One, two and four nodes"
    yield ""
    yield from conditions(figures)
    yield ("As one fetch above, from nodes that are all of this machine: what more of them cost, "
           "not what they gain.")
    yield ""
    yield from table(["nodes", "p50", "p99", "all, an access"],
                     [[f["nodes"], f["p50"], f["p99"], f["value"]]
                      for f in figures if "value" in f])
    yield from commands(figures)


def faults(figures, out):
    """What bench/fault.sh measured."""
    some = [f for f in pick(figures, table="fault") if "system" in f]
    if not some:
        return
    yield "### A fault of a memory tier, beside swap and userfaultfd"
    yield ""
    yield from conditions(some)
    yield ("`bench/fault.sh`: each page once a pass in random order, no readahead; instructions of "
           "an access that faults, less an access that does not, and of an access with all that "
           "happens for it. The copy of a page is in all of them.")
    yield ""
    yield from table(["", "local", "access", "p50", "p90", "p99", "all, an access"],
                     [[f["system"], f["local"], f["access"], f["fault_p50"], f["fault_p90"],
                       f["fault_p99"], f["per_access"]] for f in some])
    shown = [f for f in some if (f["local"], f["access"]) == ("25%", "read")]
    path = out / "pictures" / "faults.svg"
    drawn = plots.bars(path, "a fault, 25 % local, reading", "instructions",
                       [f["system"] for f in shown],
                       [("p50", [f["fault_p50"] for f in shown]),
                        ("p99", [f["fault_p99"] for f in shown])])
    yield from picture(path, out, "A fault beside swap and userfaultfd", drawn)
    yield from commands(some)


# --- section 4: p = 3 ---

def small(figures, out):
    del out
    figures = pick(figures, table="small")
    if not figures:
        return
    yield "### First touches and small programs, here"
    yield ""
    yield from conditions(figures)
    yield ("First touches of pages of fresh memory (`bench/first.c`), and whole runs of programs. "
           f"Medians of {figures[0].get('runs')} runs by the clock, in turns.")
    yield ""
    rows = []
    for what in values_of(figures, "what"):
        by = {f["system"]: f["value"] for f in pick(figures, what=what) if "value" in f}
        run = what.startswith("run-")
        scale = 1e-3 if run else 1
        rows.append([what.removeprefix("run-").removeprefix("first-").replace("_", " "),
                     "us a run" if run else "ns a page"] +
                    [by[s] * scale if s in by else None for s in ("native", "before", "now")] +
                    [ratio(by.get("before"), by.get("now"))])
    yield from table(["", "", "native", "before", "now", "before / now"], rows)
    yield from commands(figures)


# --- limits ---

def limits(figures):
    """What the project wants, beside what was measured: (what, measured, operator, limit).

    Quick runs are too small to be judged.
    """
    figures = [f for f in figures if not f.get("quick")]
    scan = [f for f in pick(figures, table="scan") if "value" in f]
    for tier, how in ("wire", "inline"), ("rdma", "inline"), ("rdma", "thread"):
        yield from scan_limits(pick(scan, tier=tier), tier, how)
    yield from program_limits(figures)
    for what in values_of(pick(figures, table="small", system="now"), "what"):
        some = pick(figures, table="small", what=what)
        before, now = value(some, system="before"), value(some, system="now")
        if before and now and not what.startswith("first-store_after"):
            yield f"p = 3, {what}: before / now", before / now, ">=", 3


def scan_limits(some, tier, how):
    vmrun = pick(some, system="vmrun", io=how)
    bare = value(some, system="reference", depth=64)
    if tier == "wire":
        bare = 4096 / 12.5
    for share in sorted(values_of(vmrun, "share"), reverse=True):
        local = pick(vmrun, share=share)
        where = f"{tier} {how}, {share} % local"
        auto = {f["order"]: f for f in pick(local, policy="auto")}
        if "sequential" not in auto:
            continue
        first = auto["sequential"]["value"]
        if bare:
            own = value(some, system="native", order="sequential")
            limit = 0.95 if tier == "wire" else 0.9
            yield f"{where}: bare loop / sequential", bare / first, ">=", limit
            if own:
                yield f"{where}: bare loop / sequential without the program's own work", \
                    bare / (first - own), ">=", limit
        swap = [f["value"] for f in pick(some, system="swap", share=share, order="sequential")]
        if swap:
            yield f"{where}: best swap / sequential", min(swap) / first, ">=", 1.4
        waited, _ = waits(auto["sequential"])
        if waited is not None:
            yield f"{where}: waits in 64 accesses, sequential", waited, "<=", 1
        for order in "stride", "reverse", "streams":
            if order in auto:
                yield f"{where}: {order} / sequential", auto[order]["value"] / first, "<=", 1.05
        for order in "random", "zipf":
            none = value(local, policy="none", order=order)
            if order in auto and none:
                yield f"{where}: auto / none, {order}", auto[order]["value"] / none, "<=", 1.02
                yield f"{where}: wasted prefetches, {order}, %", waits(auto[order])[1] or 0, "<=", 1


def program_limits(figures):
    for tier in values_of(pick(figures, table="programs"), "tier"):
        _, cells = program_cells(pick(figures, table="programs", tier=tier))
        for program in dict.fromkeys(p for p, _, _ in cells):
            for share in 50, 25, 12.5:
                mine = [v for (p, c, s), v in cells.items()
                        if (p, s) == (program, share) and c.startswith("vmrun") and
                        c.endswith("auto")]
                swap = [v for (p, c, s), v in cells.items()
                        if (p, s) == (program, share) and c.startswith("swap")]
                if mine and swap:
                    yield f"{tier}, {program}, {share} %: swap / vmrun", swap[0] / mine[0], ">=", \
                        2 if share == 25 else 1
        mine = cells.get(("quicksort", "vmrun auto", 12.5))
        if tier == "wire" and mine:
            yield "wire, quicksort, 12.5 %: time / all local", mine, "<=", 1.12


def limit_table(figures):
    rows = []
    for what, measured, operator, limit in limits(figures):
        good = measured >= limit if operator == ">=" else measured <= limit
        rows.append([what, f"{measured:.3f}", f"{operator} {limit}", "PASS" if good else "FAIL"])
    if not rows:
        return []
    return ["### Limits", "", *table(["what", "measured", "limit", ""], rows)]


# --- all of it ---

def write(figures, out):
    """Writes out/report.md and its pictures. Returns its path."""
    lines = ["# What was measured", "",
             f"By `bench/run`, {datetime.date.today()}; the figures are JSON "
             "lines. With counted instructions a nanosecond is an instruction, so nothing depends "
             "on the load; by the clock all does. One boot a table.", ""]
    if not any("value" in f for f in figures):
        lines += ["Nothing could be measured.", ""]
    lines += limit_table(figures)
    for section in scans, programs, ycsb, faults, fetches, small:
        lines += section(figures, out)
    lost = [f for f in figures if "incomplete" in f]
    if lost:
        lines += ["### Not complete", "", *[f"- {f['measured']}: {f['reason']}" for f in lost], ""]
    out.mkdir(parents=True, exist_ok=True)
    path = out / "report.md"
    path.write_text("\n".join(lines))
    return path
