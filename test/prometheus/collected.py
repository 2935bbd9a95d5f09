"""
Files of vmrun and memnode, and a Prometheus that collects them.

usage: collected.py files BUILD FOLDER RULES      promtool takes them; RULES find their figures there
       collected.py collect BUILD FOLDER RULES    a Prometheus does, on loopback, and alerts
"""
import glob
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

# So that what was started ends, too, when a time limit strikes.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

what, build, folder, rules = sys.argv[1:]
figures = f"{folder}/figures"
started = []


def start(*words, stderr=subprocess.DEVNULL):
    started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=stderr))


def until(condition, reason, seconds=90):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{reason}, after {seconds} s"
        time.sleep(0.2)


def exists(name):
    return lambda: os.path.exists(f"{figures}/{name}.prom")


def programs():
    """Two memnodes, a program with two copies of its pages that goes on, and one that ends badly."""
    os.makedirs(figures, exist_ok=True)
    nodes = []
    for name in ("m1", "m2"):
        start(f"{build}/memnode/memnode", "--size", "64M", "--hugepages", "none", "--listen",
              f"nbd+unix://{folder}/{name}", "--stats", f"{figures}/{name}.prom",
              "--stats-interval", "1")
        until(exists(name), f"{name} writes no figures")
        nodes += ["--node", f"nbd+unix:///?socket={folder}/{name}&size=48M"]
    os.environ["XDG_RUNTIME_DIR"] = folder
    vmrun = [f"{build}/vmrun", "--no-config", "--cache", "2M", "--stats-interval", "1"]
    start(*vmrun, f"--stats={figures}/works.prom", "--replicas", "2", *nodes, "--",
          f"{build}/examples/randmem", "--size", "16M", "--accesses", "2000000000")
    bad = subprocess.run([*vmrun, f"--stats={figures}/bad.prom", "--node", "mem:64M", "--", "sh",
                          "-c", "exit 3"], capture_output=True, check=False)
    assert bad.returncode == 3, bad
    fetches = re.compile(r'^vmrun_faults_total\{vmrun="works",kind="fetch"\} [1-9]', re.M)
    until(lambda: exists("works")() and fetches.search(open(f"{figures}/works.prom").read()),
          "no fetches")


def names(text):
    """Of metrics in an expression of RULES."""
    return set(re.findall(r"\b(?:vmrun|memnode)_[a-z_]+\b(?=[{\[) ]|$)", text, re.M))


def check_files():
    there = set()
    for path in glob.glob(f"{figures}/*.prom"):
        text = open(path).read()
        there |= set(re.findall(r"^([a-z_]+)\{", text, re.M))
        if shutil.which("promtool"):
            said = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                                  capture_output=True, check=False)
            assert not (said.returncode or said.stdout or said.stderr), (path, said)
    wanted = set()
    for line in open(rules):
        if not line.lstrip().startswith(("#", "summary", "description", "-")):
            wanted |= names(line)
    wanted -= {"memnode_client_held_bytes"}     # in a text
    assert len(wanted) >= 8 and wanted <= there, f"no figures for {wanted - there}"


# --- a Prometheus ---

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, path, **query):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?"
                                    + urllib.parse.urlencode(query), timeout=10) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, ConnectionError):
        return {}


def collect():
    exporter, port = free_port(), free_port()
    log = open(f"{folder}/prometheus.log", "w")
    start("prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
          f"--collector.textfile.directory={figures}",
          f"--web.listen-address=127.0.0.1:{exporter}", stderr=log)
    with open(f"{folder}/prometheus.yml", "w") as f:
        f.write(f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{os.path.realpath(rules)}]
scrape_configs:
  - job_name: node
    static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]
""")
    start("prometheus", f"--config.file={folder}/prometheus.yml",
          f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}",
          stderr=log)

    def value(query):
        found = ask(port, "query", query=query).get("result", [])
        return float(found[0]["value"][1]) if found else None

    until(lambda: value('node_textfile_scrape_error') == 0, "the node exporter takes no files")
    until(lambda: value('memnode_up{memnode="m1"}') == 1, "no figures of memnode")
    until(lambda: (value('rate(vmrun_faults_total{vmrun="works",kind="fetch"}[10s])') or 0) > 0,
          "no rate of fetches")
    p99 = ('histogram_quantile(0.99, rate(vmrun_fault_latency_seconds_bucket'
           '{vmrun="works",kind="fetch"}[10s]))')
    until(lambda: 1e-7 < (value(p99) or 0) < 10, "no percentile")
    down = value('vmrun_node_down{node=~".*m1.*"} * on (vmrun) group_left (program) vmrun_info')
    assert down == 0, f"node and program do not join: {down}"
    firing = lambda: {(a["labels"]["alertname"], a["labels"].get("vmrun"))
                      for a in ask(port, "alerts").get("alerts", []) if a["state"] == "firing"}
    until(lambda: ("VmrunEndedBadly", "bad") in firing(), "no alert of the program that ended badly")
    groups = ask(port, "rules")["groups"]
    assert all(r["health"] == "ok" for g in groups for r in g["rules"]), groups
    assert firing() == {("VmrunEndedBadly", "bad")}, firing()
    series = value('count({__name__=~"(vmrun|memnode)_.*"})')
    print(f"p99 of a fetch {value(p99):.6f} s; {series:.0f} series")


try:
    programs()
    check_files()
    if what == "collect":
        collect()
finally:
    for p in started:
        p.kill()
        p.wait()
