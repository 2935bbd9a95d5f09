# Programs of the distribution and our examples, natively and then under vmrun: standard output, the
# files they write, standard error and exit status must be the same.
# shellcheck shell=bash disable=SC2016,SC2034,SC2154

# Tiny: hardly more than the smallest there is. Small: less than most programs' data. Ample: no
# evictions.
default_caches=1M,8M,256M

# compare [OPTION...] NAME PROGRAM [ARGUMENT...]: one case, a test for each cache size.
#   --cache LIST   cache sizes of this case
#   --least SIZE   the least size of a cache, in MiB, also where the caller names sizes
#   --stdin FILE   standard input, in the data folder
#   --copy FILE    the program finds a copy of this file of the data folder where it runs
#   --no-stderr    its standard error is not compared
#   --quick        is part of a quick run too
#   --long         is part of a long run only
#   --slow         not with --small, for it takes half a minute in an emulated machine
#   --costly       not with --brief: takes long in an emulated machine, and shows no more there
#   --elsewhere    hardly touches far memory: no part of a run with --memory
# The program runs in a folder that is otherwise empty; the data is in ../data.
compare() {
    local sizes=$default_caches least=0 input='' copy=''
    local check_stderr=yes is_quick=no is_long=no elsewhere=no slow=no costly=no
    while true; do
        case $1 in
        --cache) sizes=$2 && shift 2 ;;
        --least) least=${2%M} && shift 2 ;;
        --stdin) input=$2 && shift 2 ;;
        --copy) copy=$2 && shift 2 ;;
        --no-stderr) check_stderr=no && shift ;;
        --quick) is_quick=yes && shift ;;
        --long) is_long=yes && shift ;;
        --elsewhere) elsewhere=yes && shift ;;
        --slow) slow=yes && shift ;;
        --costly) costly=yes && shift ;;
        *) break ;;
        esac
    done
    local name=$1
    shift
    [ "$quick" = no ] || [ "$is_quick" = yes ] || return 0
    [ "$few" = no ] || [ "$is_quick" = yes ] || [[ $1 = "$build"/* ]] || return 0
    [ "$is_long" = no ] || [ "$long" = yes ] || return 0
    [ "$slow" = no ] || [ "$sizing" != small ] || return 0
    [ "$elsewhere" = no ] || [ "$memory" = no ] || return 0
    [ "$costly$brief" != yesyes ] || return 0
    selected "$name" || return 0
    if [ -n "$caches" ]; then
        sizes=$caches
    elif [ "$sizing" = small ]; then
        sizes=${sizes%%,*}
        if [[ $sizes == *M ]] && [ "${sizes%M}" -gt 8 ]; then
            sizes=8M
        fi
        # With less, these read the pages of their own files again and again: half a minute of
        # emulation for each start.
        [[ $1 != */script && $1 != *python3 && $1 != gawk ]] || [ "$least" -ge 4 ] || least=4
    elif [ "$quick" = yes ]; then
        sizes=${sizes%%,*}
    fi
    if [[ $1 != */* ]] && ! command -v "$1" >/dev/null; then
        skip "$name" "$1 is not installed"
        return
    fi

    local STDIN=${input:+$data/$input}
    : "${STDIN:=/dev/null}"
    run_in_scratch native "$limit" "$@"
    local native_status=$status size round
    if [ "$native_status" = timeout ]; then
        not_ok "$name" "takes longer than $limit s natively"
        return
    fi
    for size in ${sizes//,/ }; do
        if [ "$least" -gt 0 ] && { [[ $size != *M ]] || [ "${size%M}" -lt "$least" ]; }; then
            size=${least}M
        fi
        for ((round = 1; round <= repeat; round++)); do
            run_in_scratch guest "$limit" "$vmrun" --cache "$size" "${vmrun_flags[@]}" -- "$@"
            judge "$name, cache $size$([ "$repeat" -eq 1 ] || echo ", round $round")" \
                "$native_status"
        done
    done
}

# A process that the tests themselves start takes a tenth of a second in an emulated machine, and
# there are hundreds of cases: so a folder is seen to be empty without a process.
is_empty_folder() {
    local inside
    shopt -s nullglob dotglob
    inside=("$1"/*)
    shopt -u nullglob dotglob
    [ ${#inside[@]} -eq 0 ]
}
has() { [ -s "$2" ] && grep -aq "$1" "$2"; }
same_files() { { [ ! -s "$1" ] && [ ! -s "$2" ]; } || cmp "$1" "$2" >"$WORK/cmp" 2>&1; }

# run_in_scratch WHERE LIMIT COMMAND...: in an empty folder, whose files afterwards are part of the
# result.
run_in_scratch() {
    local where=$1 LIMIT=$2 scratch=$WORK/scratch
    shift 2
    [ ! -d "$scratch" ] || is_empty_folder "$scratch" || rm -rf "$scratch"
    [ -d "$scratch" ] || mkdir "$scratch"
    cd "$scratch" || exit 1
    if [ -n "$copy" ]; then
        cp -p "$data/$copy" .
    fi
    OUT=$WORK/$where.out ERR=$WORK/$where.err
    run_limited "${environment[@]}" "$@"
    : >"$WORK/$where.files"
    is_empty_folder . ||
        find . -type f -print0 | sort -z | xargs -0r sha256sum >"$WORK/$where.files"
    cd "$WORK" || exit 1
}

# Compares the result under vmrun with the native one. vmrun's own remarks are not the program's.
judge() {
    local name=$1 native_status=$2 why='' said=$WORK/guest.err
    if has '^vmrun: ' "$said"; then
        said=$said.program
        grep -av '^vmrun: ' "$WORK/guest.err" >"$said"
    fi
    if [ "$status" = timeout ]; then
        why="takes longer than $limit s"
    elif has '^FAILED ' "$WORK/native.out"; then
        why="a check fails natively: $(grep -am 1 '^FAILED ' "$WORK/native.out")"
    elif [ "$status" != "$native_status" ]; then
        why="exit status $status, natively $native_status"
    elif ! same_files "$WORK/native.out" "$WORK/guest.out"; then
        why="standard output differs: $(tail -n 1 "$WORK/cmp" | sed 's/.*out[: ]*//')"
    elif ! same_files "$WORK/native.files" "$WORK/guest.files"; then
        why="the files it wrote differ"
    elif [ "$check_stderr" = yes ] && ! same_files "$WORK/native.err" "$said"; then
        why="standard error differs"
    fi
    if [ -z "$why" ]; then
        ok "$name"
        return
    fi
    not_ok "$name" "$why"
    diff -a "$WORK/native.out" "$WORK/guest.out" | head -n 40 >>"$WORK/guest.err"
    show "$WORK/guest.err" 40
    if [ "$keep" = yes ]; then
        local kept
        kept=$(mktemp -d "${TMPDIR:-/tmp}/vmrun-failed.XXXXXX")
        cp -r "$WORK"/native.* "$WORK"/guest.* "$WORK/scratch" "$kept"
        echo "#   see $kept"
    fi
}

# A vCPU for each thread needs 64 pages of the cache: a case with many threads gets 20M.
threads() {
    local t=$build/test/system/t_threads way
    compare --quick --elsewhere --least 20M --cache 20M,64M 't_threads, basic' \
        "$t" "${short[@]}" basic
    compare --quick --elsewhere --least 4M --cache 4M,64M 't_threads, futex' \
        "$t" "${short[@]}" futex
    compare --least 4M --cache 4M,64M 't_threads, locks' "$t" "${short[@]}" lock
    compare --quick --elsewhere --least 4M --cache 4M,64M 't_threads, what each has' \
        "$t" "${short[@]}" own
    no_own_threads
    compare --least 8M --cache 8M,64M 't_threads, signals' "$t" "${short[@]}" signal
    compare --quick --least 4M --cache 4M,64M 't_threads, memory' "$t" "${short[@]}" memory
    compare --quick --least 4M --cache 4M,64M 't_threads, vfork' "$t" "${short[@]}" vfork
    compare --long --least 20M --cache 20M 't_threads, long' "$t" long
    for way in {1..22}; do
        compare --least 4M --cache 4M --no-stderr "t_threads, end $way" "$t" end "$way"
    done

    compare --quick --least 4M --cache 4M,64M 'sort, in parallel' \
        sort --parallel=2 -S 16M ../data/text
    compare --least 16M --cache 16M,256M 'xz, two threads' \
        xz -T2 -1 --block-size=256KiB -c ../data/text
    compare --quick --costly --least 8M --cache 8M,64M 'python3, threads' \
        python3 -c "$python_threads"
    if [ -x "$build/test/system/t_openmp" ]; then
        compare --costly --least 2M --cache 2M,64M t_openmp "$build/test/system/t_openmp" 1000000
    elif selected t_openmp; then
        skip t_openmp 'the compiler has no OpenMP'
    fi
    threads_of_examples
}

# A program whose threads come before vmrun has made any: one that listens to vmctl is the first.
no_own_threads() {
    local vmrun_flags=("${vmrun_flags[@]}" --no-control)
    compare --quick --elsewhere --cache 64M 't_threads, what each has, --no-control' \
        "$build/test/system/t_threads" "${short[@]}" own
}

# Examples with threads, and memory of 2 to 3 times the smaller cache.
threads_of_examples() {
    local ycsb=("$build/examples/ycsb" --keys 10K --operations 20000) name
    compare --quick --costly --least 4M --cache 4M,64M 'ycsb A, uniform' "${ycsb[@]}" --workload A
    compare --costly --least 4M --cache 4M 'ycsb A, Zipf' "${ycsb[@]}" --workload A --zipf
    compare --costly --least 4M --cache 4M 'ycsb C, Zipf' "${ycsb[@]}" --workload C --zipf=0.8
    compare --costly --least 4M --cache 4M,64M 'ycsb D, Zipf' "${ycsb[@]}" --workload D --zipf
    compare --costly --least 8M --cache 8M 'ycsb D, 20 threads' \
        "${ycsb[@]}" --workload D --threads 20 --keys 100K --value-size 128
    for name in graph taxi; do
        if [ ! -x "$build/examples/$name" ] && selected "$name"; then
            skip "$name" 'the compiler has no OpenMP'
        fi
    done
    [ -x "$build/examples/taxi" ] || return 0
    compare --slow --least 2M --cache 2M,64M graph \
        "$build/examples/graph" --scale 14 --sources 4
    compare --quick --costly --least 4M --cache 4M,64M taxi "$build/examples/taxi" --rows 500K
}

# Programs that put themselves into namespaces, where the tester may do so. Their VM is made again
# on the way.
namespaces() {
    local t=$build/test/system/t_ns what='what needs namespaces'
    if ! unshare -Ur true 2>/dev/null; then
        selected "$what" && skip "$what" 'unshare cannot make a user namespace here'
        return
    fi
    # A program that leaves its network leaves its nodes there.
    if [[ ${nodes[*]-} != *nbd://* && ${nodes[*]-} != *rdma://* ]]; then
        compare --quick --elsewhere 'unshare -Urn' unshare -Urn sh -c 'wc -l </proc/net/dev'
        compare --quick --costly --elsewhere --cache 1M,64M t_ns "$t" net
    elif [[ ${nodes[*]} != *rdma://* ]]; then
        compare --cache 1M,64M t_ns "$t"
    fi                                  # in a user namespace /dev/infiniband cannot be opened
    if [[ ${nodes[*]-} != *nbd://* && ${nodes[*]-} != *rdma://* ]]; then
        compare --quick --costly --elsewhere --cache 4M t_ring \
            unshare -Urn "$build/test/system/t_ring"
    fi
    compare --quick --elsewhere 'unshare -Ur' unshare -Ur id -u
    compare 'unshare -Urm' \
        unshare -Urm sh -c 'mount -t tmpfs none /mnt && echo here >/mnt/file && cat /mnt/file'
    compare --quick --elsewhere 'unshare -Urp' unshare -Urp --fork --mount-proc \
        sh -c 'echo $$; ls -d /proc/1; exec readlink /proc/self/exe'
    compare --quick --cache 8M bubblewrap bwrap --ro-bind / / --dev /dev --proc /proc \
        --tmpfs /mnt --unshare-all --share-net --die-with-parent \
        sh -c 'echo x >/mnt/x && cat /mnt/x; touch /usr/x; ls /dev'
}

# Two programs, each in a VM of its own, at the same time.
two_sorts() {
    local name='two quicksorts at once' copy='' check_stderr=yes size=1M
    [ "$quick" = no ] && selected "$name" || return 0
    [ -z "$caches" ] || size=${caches%%,*}
    if [[ ${nodes[*]-} == *dax:* ]]; then
        skip "$name" 'a file is the node of one VM'
        return
    fi
    local sorts=(env QUICKSORT="$build/examples/quicksort" "$root/examples/two-sorts.sh")
    run_in_scratch native "$limit" "${sorts[@]}" -- 4M
    local native_status=$status
    run_in_scratch guest "$limit" "${sorts[@]}" "$vmrun" --cache $size "${vmrun_flags[@]}" -- 4M
    judge "$name, cache $size each" "$native_status"
}

python_threads='import threading, queue, hashlib, zlib, time
from concurrent.futures import ThreadPoolExecutor
tasks, results = queue.Queue(8), queue.Queue()
def work():
    while True:
        n = tasks.get()
        if n is None: return
        results.put((n, hashlib.sha256(bytes([n]) * 100000).hexdigest()[:8]))
workers = [threading.Thread(target=work) for _ in range(4)]
for w in workers: w.start()
for n in range(60): tasks.put(n)
for w in workers: tasks.put(None)
for w in workers: w.join()
print(sorted(results.get() for _ in range(60)))
with ThreadPoolExecutor(4) as pool:
    data = [bytes(range(256)) * (200 + n) for n in range(20)]
    print(list(pool.map(lambda d: zlib.crc32(zlib.compress(d)), data)))
    print(pool.submit(lambda: {}["missing"]).exception())
lock, total, here, event = threading.Lock(), 0, threading.local(), threading.Event()
def add():
    global total
    here.n = 0
    event.wait()
    for _ in range(2000):
        here.n += 1
        with lock: total += 1
    assert here.n == 2000
adders = [threading.Thread(target=add) for _ in range(5)]
for a in adders: a.start()
timer = threading.Timer(0.05, event.set)
timer.start()
for a in adders: a.join()
print(total, threading.active_count() <= 2, event.wait(0.01),
      threading.Condition().acquire(timeout=0.01))
slow = threading.Thread(target=time.sleep, args=(60,), daemon=True)
slow.start()
slow.join(0.05)
print(slow.is_alive())'

# How all of them are run.
prepare_programs() {
    # One environment for the native run and vmrun, without the tester's own.
    environment=(env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin HOME="$WORK" LC_ALL=C TZ=UTC
        PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1)
    # A wrong count of frames, slots or pins at the end makes vmrun fail.
    vmrun_flags=(--debug)
}

programs() {
    prepare_programs
    # Emulated, threads and children take minutes.
    local in=../data short=()
    [ "$sizing" != small ] || short=(short)
    compare --quick true true
    if [ -x "$build/test/system/t_vsyscall" ]; then
        compare --quick --elsewhere --cache 1M t_vsyscall "$build/test/system/t_vsyscall"
    elif selected t_vsyscall; then
        skip t_vsyscall 'the compiler has no static libc'
    fi
    compare --quick --elsewhere false false
    compare --quick --elsewhere echo echo 'two  words' '' -n
    compare --quick --elsewhere cat cat $in/text $in/small $in/empty
    compare --stdin text 'cat of stdin' cat
    compare 'cat of no file' cat $in/missing
    compare ls ls -lR --full-time $in
    compare --quick --elsewhere 'ls in columns' ls -aC -w 100 / $in/tree
    compare 'ls of nothing' ls nowhere
    compare --quick sort sort --parallel=1 -S 64M $in/text
    compare 'sort by number' sort --parallel=1 -S 64M -k1,1n -o sorted $in/numbers
    compare 'sort, merging' sort --parallel=1 -S 256K -T . $in/text
    compare sha256sum sha256sum $in/text $in/binary $in/empty
    compare --stdin binary md5sum md5sum
    compare 'sha256sum, checking' sha256sum -c /dev/null
    compare --quick gzip gzip -9nc $in/text
    compare --copy text 'gzip in place' gzip -n text
    compare --copy binary.gz 'gzip, unpacking' gzip -d binary.gz
    compare --cache 4M,16M,256M xz xz -T1 -1 -c $in/text
    compare --slow --cache 8M,64M 'xz, all it can' xz -T1 -9 -c $in/numbers
    compare --quick --elsewhere --cache 2M,8M,256M gawk gawk '
        { for (i = 1; i <= NF; i++) n[$i]++ }
        END { for (w in n) if (n[w] > 8) print w, n[w] }' $in/text
    compare mawk mawk '
        { s += $1; t[$3] = t[$3] $2 }
        END { printf "%.3f\n", s; for (w in t) c += length(t[w]); print c }' $in/numbers
    compare sed sed -E -n 's/([a-z]+) ([a-z]+)$/\2 \1/p' $in/text
    compare --copy numbers 'sed in place' sed -i -e '/7/d' -e 's/^-//' numbers
    compare --quick --elsewhere grep grep -rnE 'ba(ne|zo)+$' $in/tree $in/text
    compare 'grep, no match' grep -c QQQ $in/text
    compare find find $in -type f -size +1k -newermt 2019-01-01 -printf '%p %s %m %TY\n'
    compare --stdin pi.bc bc bc -lq
    compare --quick --cache 4M,16M,256M perl perl -e '
        my %h; while (<>) { $h{$_}++ for split }
        my @k = sort { $h{$b} <=> $h{$a} || $a cmp $b } keys %h;
        print "$_ $h{$_}\n" for @k[0 .. 99]' $in/text
    compare 'perl, dying' perl -e 'die "at last\n"'
    compare --quick --elsewhere --cache 8M,24M,256M python3 \
        python3 -c 'import sys, json, hashlib, zlib, decimal
words = open("../data/text").read().split()
index = {}
for n, w in enumerate(words):
    index.setdefault(w, []).append(n)
s = json.dumps(index, sort_keys=True)
print(len(words), len(index), hashlib.sha256(s.encode()).hexdigest(),
      len(zlib.compress(s.encode())))
decimal.getcontext().prec = 500
print(decimal.Decimal(2).sqrt())
assert json.loads(s) == index
sys.exit(7)'
    compare --slow --cache 4M,16M 'python3, a class tree and gc' python3 -c 'import gc
class Node:
    def __init__(self, depth):
        self.kids = [Node(depth - 1) for _ in range(3)] if depth else []
        self.me = self
def count(n): return 1 + sum(map(count, n.kids))
for turn in range(3):
    print(count(Node(7)), gc.collect() >= 0)'
    compare 'python3, an exception' python3 -c 'print(1, flush=True); {}["missing"]'
    compare --quick sqlite3 sqlite3 :memory: ".read $in/table.sql"
    compare 'sqlite3 on a file' sqlite3 -batch base.db ".read $in/table.sql"
    compare --quick --elsewhere 'busybox (static)' busybox sort -u $in/text
    compare 'busybox sha1sum' busybox sha1sum $in/binary
    compare 'busybox awk' busybox awk '
        { n[length($0)]++ }
        END { for (i = 0; i < 200; i++) if (n[i]) print i, n[i] }' $in/text
    compare 'busybox ls' busybox ls -la $in/tree
    compare --quick --elsewhere 'a script' $in/script one 'two three'
    compare --quick --elsewhere 'a shell script' $in/shell-script one two
    compare 'the shell' sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo $i; exit 3'
    compare 'dates and clocks' python3 -c 'import time
def both():
    for _ in range(100):        # until nothing came in between
        a = time.monotonic(), time.time(), time.monotonic()
        if a[2] - a[0] < 0.01: break
    return a[0], a[1]
a, b = both()
time.sleep(0.2)
c, d = both()
print(abs((d - b) - (c - a)) < 0.05, 0.2 <= c - a < 60)'
    compare '/proc/self/exe and maps' python3 -c 'import os
print(os.readlink("/proc/self/exe"))
maps = [l.split() for l in open("/proc/self/maps")]
names = [l[-1] for l in maps]
print(any("libc.so" in name for name in names), "[stack]" in names, "[heap]" in names)'
    compare 'environment and arguments' \
        python3 -c 'import os, sys; print(sorted(os.environ.items()), sys.argv)' '' $'\n' x

    # How programs die.
    compare --quick --elsewhere --no-stderr SIGSEGV \
        python3 -c 'import ctypes; print("before", flush=True); ctypes.string_at(16)'
    compare --no-stderr 'SIGSEGV in perl' \
        perl -e '$| = 1; print "before\n"; print unpack "p", pack "Q", 8'
    compare --no-stderr 'SIGABRT by itself' python3 -c 'import os; os.abort()'
    compare --no-stderr 'SIGTERM by itself' sh -c 'echo before; kill -TERM $$; echo after'
    compare 'standard output full' sh -c 'echo before; echo lost >/dev/full; echo $?'

    compare --quick --cache 1M,8M,64M 'quicksort' "$build/examples/quicksort" 8M
    compare --cache 1M,8M 'quicksort (static), 32 bits' \
        "$build/examples/quicksort-static" --bits 32 --mmap 8M
    compare --quick --cache 2M hints "$build/examples/hints" --size 8M
    compare --quick --cache 2M 'list, guide' "$build/examples/list" --guide --size 8M
    compare --quick --costly --cache 2M tree "$build/examples/tree" --size 8M
    compare --quick --cache 1M,64M t_hints "$build/test/system/t_hints"
    compare --quick --cache 2M t_guides "$build/test/system/t_guides"
    compare --quick --costly --cache 2M,64M t_hints_read "$build/test/system/t_hints_read"
    compare --quick --cache 3M t_hints_counted "$build/test/system/t_hints_counted"
    compare --quick --cache 2M 'randmem, 8 times its cache' \
        "$build/examples/randmem" --size 16M --accesses 20000
    compare --costly --cache 2M,64M 'randmem (static), Zipf' \
        "$build/examples/randmem-static" --size 16M --accesses 50000 --zipf
    compare --costly --cache 2M 'randmem, reading in turn' \
        "$build/examples/randmem" --size 16M --accesses 50000 --sequential --write-percent 0
    compare --long --cache 64M 'randmem, 8 times its cache, 10 million accesses' \
        "$build/examples/randmem" --size 512M --accesses 10000000
    compare --long --cache 64M 'quicksort, 8 times its cache' "$build/examples/quicksort" 512M

    compare --quick --costly --cache 1M,64M 'barnes, two threads' \
        "$build/examples/barnes" --size 2M --steps 1 --theta 0.9 --threads 2
    compare --costly --cache 512K 'barnes, exact' \
        "$build/examples/barnes" --size 200K --steps 2 --theta 0
    compare --quick --cache 2M 'scan, reverse' \
        "$build/examples/scan" --size 8M --passes 2 --reverse
    compare --costly --cache 2M 'scan, writing with a stride' \
        "$build/examples/scan" --size 8M --passes 2 --stride 7 --write
    compare --costly --cache 2M,64M 'scan, streams that write a line of each page' \
        "$build/examples/scan" --size 8M --passes 3 --streams 4 --write --touch line
    compare --costly --cache 2M 'scan, at random' \
        "$build/examples/scan" --size 8M --random --touch line
    compare --costly --cache 2M 'scan, writing by Zipf' \
        "$build/examples/scan" --size 8M --zipf --write
    compare --quick --costly --least 4M --cache 4M,64M 'kmeans, four threads' \
        "$build/examples/kmeans" --size 16M --iterations 3 --threads 4
    compare --costly --cache 2M 'kmeans, many clusters' \
        "$build/examples/kmeans" --size 8M --iterations 2 --dims 50 --clusters 30 --seed 2
    two_sorts

    # Programs of our own that look into corners.
    compare --quick --elsewhere --cache 1M,64M 't_syscalls' "$build/test/system/t_syscalls"
    compare --quick --costly --elsewhere --cache 1M,64M 't_sys_ioctl' \
        "$build/test/system/t_sys_ioctl"
    compare --quick --costly --elsewhere --cache 1M,64M 't_sys_net' "$build/test/system/t_sys_net"
    compare --quick --costly --elsewhere --cache 1M,64M 't_sys_pointers' \
        "$build/test/system/t_sys_pointers"
    compare --quick --costly --elsewhere --cache 1M,64M 't_sys_shapes' \
        "$build/test/system/t_sys_shapes"
    compare --quick --costly --elsewhere --cache 1M,64M 't_self' "$build/test/system/t_self" 1 40
    compare --long --cache 64M 't_self, long' "$build/test/system/t_self" 41 200
    local part
    for part in memory clone; do
        compare --quick --costly --elsewhere --cache 1M,64M "t_odd, $part" \
            "$build/test/system/t_odd" "$part" 1 600
        compare --long --cache 64M "t_odd, $part, long" \
            "$build/test/system/t_odd" "$part" 601 3000
    done
    for part in vmsplice requeue mmap mincore robust arch_prctl keys busy memlock; do
        compare --quick --elsewhere --cache 1M,64M "t_calls, $part" \
        "$build/test/system/t_calls" . "$part"
    done
    compare --quick --costly --elsewhere --cache 64M 't_calls_signals, by default' \
        "$build/test/system/t_calls_signals" 9 20 defaults
    compare --quick --costly --elsewhere --cache 4M,64M 't_calls_signals' \
        "$build/test/system/t_calls_signals" 15 17
    compare --costly --cache 64M 't_calls_signals, all 64' \
        "$build/test/system/t_calls_signals" 1 64 defaults
    compare --quick --costly --elsewhere --cache 1M,64M 't_proc' "$build/test/system/t_proc"
    compare --quick --elsewhere --cache 1M,64M 't_signals' "$build/test/system/t_signals"
    compare --cache 1M,64M 't_ends' "$build/test/system/t_ends"
    namespaces
    compare --quick --elsewhere --cache 64M 't_entry, flags' \
        "$build/test/system/t_entry" flags $(at_level3 && echo level3)
    local kicks=2000
    [ "$brief" = no ] || kicks=700
    compare --quick --elsewhere --cache 64M 't_entry, kicks' \
        "$build/test/system/t_entry" kicks $kicks
    compare --long --cache 64M 't_entry, kicks, long' "$build/test/system/t_entry" kicks 30000
    local way
    for way in {1..11}; do
        compare --cache 64M --no-stderr "t_signals, death $way" \
            "$build/test/system/t_signals" die "$way"
    done
    threads
    local t_memory=(--cache 512K --size 4)
    [ "$sizing" != small ] || t_memory=(--cache 256K --size 2)
    # The hardest case for each kind of paging.
    compare --quick "${t_memory[@]:0:2}" 't_memory, 8 times its cache' \
        "$build/test/system/t_memory" "${t_memory[@]:2}"
    local t_fork=("$build/test/system/t_fork" "${short[@]}") children=40
    [ "$sizing" != small ] || children=10
    compare --cache 256K 't_fork, 16 times its cache' "${t_fork[@]}" --size 4 memory
    compare --quick --least 2M --cache 2M,64M 't_fork' "${t_fork[@]}" --size 2
    compare --quick --cache 1M,64M 't_shm' "$build/test/system/t_shm"
    compare --cache 1M 't_fork, children killed' "${t_fork[@]}" --bomb 1 $children

    # Children of shells, which execute nothing.
    compare --quick --elsewhere --cache 1M,64M 'sh, pipes and substitution' sh -c \
        'echo a | while read -r x; do echo "got $x"; done; (echo sub; exit 3); echo $?
         y=$(echo one; echo two); echo "$y"; : & wait; echo $?'
    compare --cache 1M,64M 'bash, jobs and here-documents' bash -c \
        'for i in {1..10}; do n=$(echo $((i * i))); echo -n "$n "; done
         while read -r l; do echo "$l"; done <<<"$n"; trap "echo bye" EXIT
         (trap "echo term; exit 7" TERM; kill $BASHPID; :) & wait $!; echo $?
         { echo x; echo y; } | { read -r a; read -r b; echo "$b$a"; }
         mapfile -t z < <(echo p; echo q); echo "${z[@]}" "${PIPESTATUS[@]}"; (exit 5) || echo $?'
    compare --slow --least 2M --cache 2M,64M 'python, fork and multiprocessing' python3 -c \
        'import os, multiprocessing as m
c = os.fork()
if c == 0: os._exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]))
if __name__ == "__main__":
    with m.get_context("fork").Pool(2) as p: print(sum(p.map(abs, range(-500, 500))))'
}
