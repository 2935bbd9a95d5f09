#!/usr/bin/env python3
"""
Checks files that --stats wrote.

usage: stats.py json FILE...       JSON as it must be
       stats.py prom FILE          Prometheus's text format; by promtool too, where it is installed
       stats.py prom-of-vmctl FILE    the same, which vmctl printed
       stats.py agree FLAT JSON PROM    one snapshot in three formats

Prints each error, and exits with 1 if there is one.
"""
import json
import os
import re
import shutil
import subprocess
import sys

faults = []
POINTS = ("p50", "p90", "p99", "p99.9", "max")


def wrong(text):
    faults.append(text)


# --- JSON ---

def no_twins(pairs):
    """json.load() takes the last of two members with the same name."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            wrong(f"the member {name} is there more than once")
    return dict(pairs)


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file, object_pairs_hook=no_twins, parse_constant=wrong)


def leaves(value, key=""):
    """The keys of the flat format, with their values; a latency as one."""
    if isinstance(value, dict) and "buckets" not in value:
        for name, inner in value.items():
            yield from leaves(inner, f"{key}.{name}" if key else name)
    else:
        yield key, value


def check_latency(key, h):
    points = [h[point] for point in POINTS]
    if points != sorted(points):
        wrong(f"{key}: its points do not rise: {points}")
    if sum(n for _, n in h["buckets"]) != h["count"]:
        wrong(f"{key}: its buckets hold {sum(n for _, n in h['buckets'])} samples, "
              f"not {h['count']}")
    ends = [end for end, _ in h["buckets"]]
    if ends != sorted(set(ends)) and key:
        wrong(f"{key}: its buckets do not rise")
    if not h["count"] or not 0 < h["mean"] <= h["max"]:
        wrong(f"{key}: mean {h['mean']}, max {h['max']}, {h['count']} samples")
    if abs(h["mean"] * h["count"] - h["sum"]) > 2 * h["count"] + 1000:
        wrong(f"{key}: the sum is {h['sum']}, mean times count {h['mean'] * h['count']}")
    if h["buckets"][-1][0] != h["max"]:
        wrong(f"{key}: the last bucket ends at {h['buckets'][-1][0]}, max is {h['max']}")


def check_json(path):
    tree = read_json(path)
    for key, value in leaves(tree):
        if isinstance(value, dict):
            check_latency(key, value)
        elif isinstance(value, bool) or not isinstance(value, (int, float, str)):
            wrong(f"{key} is {value!r}")
        elif isinstance(value, (int, float)) and value < 0:
            wrong(f"{key} is negative: {value}")
    for group in ("faults", "fault_exits", "exits", "syscalls"):
        parts = tree.get(group)
        if parts and parts["total"] != sum(n for name, n in parts.items() if name != "total"):
            wrong(f"{group}.total is not the sum of its parts")
    return tree


# --- Prometheus ---

# Those of all hosts: 100 ns to 10 s.
BOUNDS = [float(f"{step}e{power}") for power in range(-7, 1) for step in (1, 2, 5)] + [10.0]

NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
LABEL = rf'({NAME})="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{((?:{LABEL})(?:,(?:{LABEL}))*)\}})? (\S+)")


def check_histogram(name, series):
    """series: by labels, {suffix: value or [(le, value)]}"""
    for labels, parts in series.items():
        buckets = parts.get("_bucket", [])
        bounds = [float(le) for le, _ in buckets]
        counts = [n for _, n in buckets]
        if bounds[:-1] != BOUNDS:
            wrong(f"{name}{labels}: bounds are {bounds}, not those of all hosts")
        if bounds != sorted(set(bounds)) or counts != sorted(counts):
            wrong(f"{name}{labels}: buckets do not rise")
        if not bounds or bounds[-1] != float("inf") or counts[-1] != parts.get("_count"):
            wrong(f"{name}{labels}: the last bucket is not +Inf with _count")
        if "_sum" not in parts:
            wrong(f"{name}{labels}: no _sum")


def check_prom(path, named=True):
    """Returns the samples: {(name, labels): value}.  named: they have the name of the file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not text.endswith("\n"):
        wrong("the last line does not end")
    samples, types, helped, histograms, current = {}, {}, set(), {}, None
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line)
        if comment and comment[1] == "HELP":
            if comment[2] in helped:
                wrong(f"line {number}: a second HELP of {comment[2]}")
            helped.add(comment[2])
            current = comment[2]
        elif comment:
            if comment[2] != current or current in types:
                wrong(f"line {number}: TYPE does not follow its HELP")
            types[current] = comment[3]
            if comment[3] not in ("counter", "gauge", "histogram"):
                wrong(f"line {number}: type {comment[3]}")
            if (comment[3] == "counter") != current.endswith("_total"):
                wrong(f"{current}: _total is for counters, and they have it")
            if re.search(r"_(ns|us|ms|nanoseconds|microseconds|milliseconds|kib|mib|pages)$",
                         current.removesuffix("_total")) and "_pages" not in current:
                wrong(f"{current}: no base unit")
        else:
            sample = SAMPLE.fullmatch(line)
            if not sample:
                wrong(f"line {number} is no sample: {line}")
                continue
            name, value = sample[1], float(sample[sample.lastindex])
            labels = re.findall(LABEL, sample[2] or "")
            if len({label for label, _ in labels}) != len(labels):
                wrong(f"line {number}: a label twice")
            if labels[:1] != [("vmrun", os.path.basename(path).removesuffix(".prom"))] and named:
                wrong(f"line {number}: not the file's name")
            if (name, tuple(labels)) in samples:
                wrong(f"line {number}: the series is there twice")
            samples[name, tuple(labels)] = value
            if types.get(current) == "histogram":
                suffix = name.removeprefix(current)
                key = tuple(pair for pair in labels if pair[0] != "le")
                parts = histograms.setdefault(current, {}).setdefault(key, {})
                if suffix == "_bucket":
                    parts.setdefault(suffix, []).append((dict(labels)["le"], value))
                elif suffix in ("_sum", "_count"):
                    parts[suffix] = value
                else:
                    wrong(f"line {number}: {name} is not of {current}")
            elif name != current:
                wrong(f"line {number}: {name} does not follow its HELP and TYPE")
            if value < 0 or value != value:
                wrong(f"line {number}: {value}")
    for name, series in histograms.items():
        check_histogram(name, series)
    if shutil.which("promtool"):
        with open(path, encoding="utf-8") as file:
            done = subprocess.run(("promtool", "check", "metrics"), stdin=file, text=True,
                                  capture_output=True, check=False)
        if done.returncode or done.stdout or done.stderr:
            wrong(f"promtool: {done.stdout}{done.stderr}")
    return samples


# --- the three of one snapshot ---

def flat_of(path):
    with open(path, encoding="utf-8") as file:
        return dict(line.split(" ", 1) for line in file.read().splitlines())


def agree(flat_path, json_path, prom_path):
    flat, tree, samples = flat_of(flat_path), check_json(json_path), check_prom(prom_path, named=False)
    expected = {}
    for key, value in leaves(tree):
        if isinstance(value, dict):
            expected.update({f"{key}.{point}": value[point]
                             for point in POINTS + ("mean", "count")})
        else:
            expected[key] = value
    for key in sorted(set(flat) ^ set(expected)):
        wrong(f"{key} is in one format only")
    for key in set(flat) & set(expected):
        value = expected[key]
        if isinstance(value, str) and flat[key] != value or \
                not isinstance(value, str) and float(flat[key]) != float(value):
            wrong(f"{key}: {flat[key]} and {value}")
    values = sorted(samples.values())
    for kind, count in tree.get("faults", {}).items():
        if kind != "total" and count not in [
                value for (name, labels), value in samples.items()
                if name == "vmrun_faults_total" and ("kind", kind) in labels]:
            wrong(f"faults.{kind} is {count}, not so for Prometheus")
    for kind, h in tree.get("latency_ns", {}).items():
        both = [value for (name, labels), value in samples.items()
                if name == "vmrun_fault_latency_seconds_count" and ("kind", kind) in labels]
        total = [value for (name, labels), value in samples.items()
                 if name == "vmrun_fault_latency_seconds_sum" and ("kind", kind) in labels]
        if both != [h["count"]] or not total or abs(total[0] * 1e9 - h["sum"]) > 1:
            wrong(f"latency of {kind}: {h['count']}, {h['sum']} and {both}, {total}")
    if not values:
        wrong("no samples")


def main():
    what, *paths = sys.argv[1:]
    try:
        {"json": lambda *files: [check_json(file) for file in files],
         "prom": check_prom, "agree": agree,
         "prom-of-vmctl": lambda file: check_prom(file, named=False)}[what](*paths)
    except (ValueError, KeyError, IndexError, OSError) as error:
        wrong(f"{type(error).__name__}: {error}")
    for fault in faults[:20]:
        print(fault)
    sys.exit(bool(faults))


main()
