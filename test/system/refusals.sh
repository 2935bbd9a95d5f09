# Requests that vmrun must refuse, with one clear sentence and the right exit status, and those that
# it must survive: those that need files, limits or a program that runs. test/messages has those
# that are wrong words.
# shellcheck shell=bash disable=SC2034,SC2154

# refuse NAME STATUS REGEX COMMAND...: COMMAND, a vmrun, says nothing on standard output, a few
# lines "vmrun: ..." on standard error, of which one matches REGEX, and exits with STATUS.
refuse() {
    local name=$1 wanted=$2 regex=$3 why='' LIMIT=$limit
    shift 3
    selected "$name" || return 0
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    cd "$WORK" || exit 1
    run_limited "$@"
    if [ "$status" != "$wanted" ]; then
        why="exit status $status, not $wanted"
    elif [ -s "$OUT" ]; then
        why="says something on standard output"
    elif ! [ -s "$ERR" ]; then
        why="gives no reason"
    elif grep -qv '^vmrun: ' "$ERR"; then
        why="says something that is not a message of vmrun"
    elif [ "$(wc -l <"$ERR")" -gt 3 ]; then
        why="needs more than three lines to say it"
    elif ! grep -qEi "$regex" "$ERR"; then
        why="does not say: $regex"
    fi
    verdict "$name" "$why"
}

# accept NAME COMMAND...: exits 0, with something on standard output and nothing on standard error.
accept() {
    local name=$1 LIMIT=$limit
    shift
    selected "$name" || return 0
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    cd "$WORK" || exit 1
    run_limited "$@"
    if [ "$status" = 0 ] && [ -s "$OUT" ] && ! [ -s "$ERR" ]; then
        verdict "$name" ''
    else
        verdict "$name" "exit status $status"
    fi
}

leases() {
    local with=(env LD_PRELOAD="$build/test/system/no_leases.so")
    local run=("$vmrun" --cache 64M "${vmrun_flags[@]}" -- /bin/echo it runs)
    accept 'no leases on NFS' "${with[@]}" FS_TYPE=6969 "${run[@]}"
    accept 'no leases on CIFS' "${with[@]}" FS_TYPE=ff534d42 "${run[@]}"
    refuse 'no lease on ext4: open for writing' 126 'open for writing: wait until its writer' \
        "${with[@]}" FS_TYPE=ef53 "${run[@]}"
}

# In a control group whose limit is 64M: what --cache may be, what it is by default, and mem:.
control_group() {
    local name='a control group with a limit of memory' LIMIT=$limit why='' group file
    selected "$name" || return 0
    if group=/sys/fs/cgroup/memory/vmrun-test.$$ file=$group/memory.limit_in_bytes
        ! mkdir "$group" 2>/dev/null; then
        group=/sys/fs/cgroup/vmrun-test.$$ file=$group/memory.max
        mkdir "$group" 2>/dev/null
    fi
    if ! echo 64M 2>/dev/null >"$file"; then
        [ ! -d "$group" ] || rmdir "$group"
        skip "$name" 'no control group with a limit of memory can be made here'
        return
    fi
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    # shellcheck disable=SC2016 # for the inner shell
    local in_it=(sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' - "$group" "$vmrun")
    run_limited "${in_it[@]}" --cache 1G true
    grep -qF "larger than the 64M that its control group may use ($file): give less" "$ERR" ||
        why='--cache 1G: the group is not named'
    run_limited "${in_it[@]}" --cache 25% --stats="$WORK/stats" -- true
    grep -q '^cache_bytes 16777216$' "$WORK/stats" || why='--cache 25% is not 16M'
    run_limited "${in_it[@]}" --stats="$WORK/stats" -- true
    [ "$(sed -n 's/^cache_bytes //p' "$WORK/stats")" -le 16777216 ] ||
        why='the default cache is more than a quarter of the limit'
    run_limited "${in_it[@]}" --cache 4M --node mem:16M -- true
    { [ "$status" = 0 ] && [ ! -s "$ERR" ]; } || why='mem:16M does not run without a word'
    run_limited "${in_it[@]}" --cache 4M --node mem:1G -- true
    { [ "$status" = 0 ] && grep -F 'mem: is memory of this host' "$ERR" | grep -qF "($file)"; } ||
        why='mem:1G: no warning'
    rmdir "$group"
    verdict "$name" "$why"
}

refusals() {
    local file bad=$build/test/system/bad

    # A message is the same on any machine; file systems are not.
    if [ "$brief" = yes ]; then
        leases
        return
    fi
    # Not programs: 126, as a shell has it.
    for file in text empty magic-only half-header no-program-headers cut-program-headers \
        cut-segments wrong-machine an-object phnum-0 phnum-65535 phentsize-1 phoff-huge \
        filesz-above-memsz vaddr-wraps kernel-address misaligned script-empty script-of-itself; do
        refuse "bad file: $file" 126 "$file" "$vmrun" -- "$bad/$file"
    done
    if [ -x "$build/test/system/t_vsyscall" ]; then
        accept 'the vsyscall page is in maps' \
            "$vmrun" --cache 1M -- "$build/test/system/t_vsyscall" must
    fi
    cp "$bad/good" "$WORK/not-executable" && chmod 644 "$WORK/not-executable"
    cp "$bad/good" "$WORK/not-readable" && chmod 111 "$WORK/not-readable"
    refuse 'not executable' 126 'permission|executable' "$vmrun" -- "$WORK/not-executable"
    refuse 'a folder' 126 'directory|folder|not.*file|permission' "$vmrun" -- "$bad"
    # Root may read anything, unless it gives that up.
    if [ "$(id -u)" -ne 0 ]; then
        refuse 'not readable' 126 'permission|read' "$vmrun" -- "$WORK/not-readable"
    else
        refuse 'not readable' 126 'permission|read' \
            setpriv --bounding-set -dac_override,-dac_read_search \
            --inh-caps -dac_override,-dac_read_search "$vmrun" -- "$WORK/not-readable"
    fi

    leases

    # Not there: 127.
    refuse 'no such path' 127 '/no/such/program' "$vmrun" -- /no/such/program
    refuse 'no ELF interpreter' 127 '/no/ld.so' "$vmrun" -- "$bad/no-interpreter"
    refuse 'no interpreter of a script' 127 '/no/such/interpreter' \
        "$vmrun" -- "$bad/script-no-interpreter"

    # Errors in the use of vmrun itself: 125.
    refuse '--cache beyond the host' 125 'cache' "$vmrun" --cache 900000G true
    refuse '--cache in percent, too much' 125 '101%: give .* from 1% to 100%' \
        "$vmrun" --cache 101% true
    control_group
    refuse '--stats into a missing folder' 125 '/no/such/folder.*make its folder' \
        "$vmrun" --stats=/no/such/folder/file true
    refuse '--stats into a folder' 125 'directory: name a file' "$vmrun" --stats="$WORK" true
    # shellcheck disable=SC2016 # for the inner shell
    refuse 'a limit of address space' 125 'memory.*ulimit -v' \
        bash -c 'ulimit -v 100000 && exec "$@"' - "$vmrun" --cache 64M true
    # shellcheck disable=SC2016
    refuse 'a limit of data' 125 'memory.*ulimit -d' \
        bash -c 'ulimit -d 29000 && exec "$@"' - "$vmrun" --cache 64M true
    # vmrun's own need is not the program's: a soft limit does not bind it.
    # shellcheck disable=SC2016
    accept 'a soft limit of address space' \
        bash -c 'ulimit -Sv 100000 && exec "$@"' - "$vmrun" --cache 64M echo hello
    # shellcheck disable=SC2016
    accept 'a soft limit of data' \
        bash -c 'ulimit -Sd 29000 && exec "$@"' - "$vmrun" --cache 64M echo hello
    limits_are_the_programs
    # LeakSanitizer's call at the end, with flags of its own. Sixteen bytes of a stack will do for
    # a process that is not made.
    # shellcheck disable=SC2016
    refuse "LeakSanitizer's tracer" 38 'ASAN_OPTIONS=detect_leaks=0' "$vmrun" -- \
        perl -e 'my $stack = "x" x 16; exit(syscall(56, 0x800711, $stack) == -1 ? $!+0 : 0)'
    # shellcheck disable=SC2016
    refuse 'a limit of address space, shared mappings' 12 'shared mappings: .*ulimit -v' \
        bash -c 'ulimit -v 9000000 && exec "$@"' - "$vmrun" --cache 16M --node mem:64M \
        perl -e '
            my $p = syscall(9, 0, 4096, 3, 0x21, -1, 0); exit($p == -1 ? $!+0 : 0)'

    refuse '--stats, a blank and a file that is there' 126 'small: .*--stats=.*small' \
        "$vmrun" --stats "$data/small" true
    local threads='
import sys, threading
threading.stack_size(8 << 20)
end = threading.Event()
try:
    while True:
        threading.Thread(target=end.wait, daemon=True).start()
except RuntimeError:
    sys.exit(3)'
    refuse "a thread's stack beyond the commit limit" 3 '^vmrun: 8192 KiB .* --overcommit$' \
        "$vmrun" --cache 64M --node mem:64M python3 -c "$threads"
    # shellcheck disable=SC2016
    refuse 'memory beyond the commit limit, once' 12 '^vmrun: 204800 KiB of .* --overcommit$' \
        "$vmrun" --cache 16M --node mem:64M perl -e '
            syscall(9, 0, 200 << 20, 3, 0x22, -1, 0) == -1 or exit(1) for 1..4; exit($!+0)'
    refuse 'a stack beyond the commit limit' 139 '^vmrun: a stack cannot grow.* --overcommit$' \
        bash -c 'ulimit -s 1000000 && exec "$@"' - "$vmrun" --cache 16M --node mem:32M python3 -c '
import sys
sys.setrecursionlimit(10**9)
x = []
for _ in range(300000):
    x = [x]
repr(x)'
    refuse '--states of a zombie' 125 'no vmrun .* runs this process: give' \
        python3 -c 'import os, sys, time
p = os.fork() or os._exit(0)
time.sleep(0.3)
os.execv(sys.argv[1], ["vmrun", "--states", str(p)])' "$vmrun"
    refuse '--states of another process' 125 'no vmrun .* runs this process: give' \
        "$vmrun" --states $$
    local less=()
    if [ "$(id -u)" -eq 0 ]; then
        less=(setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace)
    fi
    refuse '--states of another user' 125 'states 1: .*ask as .*root' \
        "${less[@]}" "$vmrun" --states 1

    unknown_ioctls
    files_of_settings
    bad_nodes
    check_nodes
    check_host

    no_kvm

    accept --help "$vmrun" --help
    accept --version "$vmrun" --version
    accept --check "$vmrun" --check
}

# A program that finds no device of a kind takes its second choice, as QEMU does without KVM. Half
# of an interface that lives in the program's memory would be worse: the other half gives up.
unknown_ioctls() {
    local device command name LIMIT=$limit
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    for device in kvm:0xae00 userfaultfd:0xaa00; do
        command=${device#*:} device=/dev/${device%:*}
        name="the first ioctl of $device"
        selected "$name" || continue
        if ! [ -w "$device" ]; then
            skip "$name" "$device cannot be opened here"
            continue
        fi
        # The argument is a number, then an address.
        # shellcheck disable=SC2016 # for perl
        run_limited "$vmrun" -v "${vmrun_flags[@]}" -- perl -e 'my $big = "x" x 100;
            open F, "+<", $ARGV[0] or exit 1;
            exit(ioctl(F, $ARGV[1], 0) ? 2 : ioctl(F, $ARGV[1], $big) ? 3 : $!{ENOTTY} ? 0 : 4)' \
            "$device" $((command))
        if [ "$status" = 0 ] && grep -q "^vmrun: ioctl $command is not known: ENOTTY" "$ERR"; then
            ok "$name"
        else
            not_ok "$name" "exit status $status"
            show "$ERR"
        fi
    done
}

# The program has the limits that vmrun was started with, as a native program has its starter's.
limits_are_the_programs() {
    local name='limits of memory that vmrun raised for itself' flag LIMIT=$limit wanted
    selected "$name" || return 0
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    wanted='2000000 4000000 1000000 3000000 2000000 4000000 1000000 3000000 '
    for flag in --stats="$WORK/limits.stats" --no-follow; do
        # shellcheck disable=SC2016 # for the inner shells
        run_limited bash -c 'ulimit -Sv 2000000; ulimit -Hv 4000000; ulimit -Sd 1000000
            ulimit -Hd 3000000; exec "$@"' - "$vmrun" --cache 16M "$flag" sh -c '
            ulimit -Sv; ulimit -Hv; ulimit -Sd; ulimit -Hd
            exec sh -c "ulimit -Sv; ulimit -Hv; ulimit -Sd; ulimit -Hd"'
        if [ "$status" != 0 ] || [ "$(tr '\n' ' ' <"$OUT")" != "$wanted" ]; then
            not_ok "$name" "with $flag: status $status, $(tr '\n' ' ' <"$OUT")"
            show "$ERR"
            return
        fi
    done
    ok "$name"
}

# settings NAME TEXT: a configuration file of that text (printf's), its path in $conf.
settings() {
    conf=$WORK/$1.conf
    # shellcheck disable=SC2059 # a format it is
    printf "$2" >"$conf"
}

files_of_settings() {
    local conf
    settings good '[vmrun]\ncache = 1M\n'
    accept '--config' "$vmrun" --config "$conf" echo hello
    settings key '[vmrun]\ncache = 1M\ncolour = red\n'
    accept '--no-config' "$vmrun" --no-config echo hello
    settings bad-node '[vmrun]\n[node a]\nurl = mem:1M\n[node b]\nurl = bogus:1\n'
    accept 'a node of the command line instead' "$vmrun" --config "$conf" --node mem:64M echo hello
}

bad_nodes() {
    local file=$WORK/dax
    refuse 'more than the node has' 125 'has 1M, not the size=2M' \
        "$vmrun" --node 'mem:1M?size=2M' true
    bad_files
    refuse 'dax: of a missing file' 125 '/no/such/file: there is no such file' \
        "$vmrun" --node dax:/no/such/file true
    refuse 'dax: of a folder' 125 'directory' "$vmrun" --node "dax:$WORK" true
    refuse 'dax: of another device' 125 'no DAX device' "$vmrun" --node dax:/dev/zero true
    : >"$file"
    refuse 'dax: of an empty file' 125 'too small' "$vmrun" --node "dax:$file" true
    truncate -s 10000 "$file"
    refuse 'dax: of a file of odd size' 125 'multiple of 4K' "$vmrun" --node "dax:$file" true
    truncate -s 64M "$file"
    refuse 'dax: of a file that is too small' 125 'has 64M, not the size=65M' \
        "$vmrun" --node "dax:$file?size=65M" true
    head -c 8192 /dev/zero | tr '\0' x >"$WORK/precious"
    cp "$WORK/precious" "$WORK/precious.was"
    refuse "dax: of somebody's data" 125 'data in it that vmrun did not write.*overwrite=yes' \
        "$vmrun" --node "dax:$WORK/precious" true
    if ! cmp -s "$WORK/precious" "$WORK/precious.was"; then
        not_ok "dax: of somebody's data, untouched" 'the file has changed'
    fi
    accept "dax: of somebody's data, asked for" \
        "$vmrun" --node "dax:$WORK/precious?overwrite=yes" echo hello
    refuse 'dax: of a file in use' 125 'uses it' flock "$file" "$vmrun" --node "dax:$file" true
    refuse 'dax: twice' 125 'uses it' "$vmrun" --node "dax:$file" --node "dax:$file" true
    chmod 400 "$file"
    if [ "$(id -u)" -ne 0 ]; then
        refuse 'dax: of a read-only file' 125 'cannot be written' "$vmrun" --node "dax:$file" true
    else
        refuse 'dax: of a read-only file' 125 'cannot be written' \
            setpriv --bounding-set -dac_override,-dac_read_search \
            --inh-caps -dac_override,-dac_read_search "$vmrun" --node "dax:$file" true
    fi
    chmod 600 "$file"
    full_file
}

# Files that a file: node refuses, where there is io_uring and direct I/O.
bad_files() {
    local file=$WORK/far name='file: of what it does not take'
    "$vmrun" --check --node "file:$file?size=8M" >"$WORK/why"
    if [ -e "$file" ]; then
        not_ok 'file: is looked at' '--check left a file'
    fi
    if ! "$vmrun" --node "file:$file?size=8M" true 2>"$WORK/why"; then
        refuse 'file: without direct I/O or io_uring' 125 '(O_DIRECT|io_uring)' \
            "$vmrun" --node "file:$file?size=8M" true
        ! selected "$name" || skip "$name" "$(tail -n 1 "$WORK/why")"
        rm -f "$file"
        return
    fi
    rm -f "$file"
    refuse 'file: of a missing file' 125 'no such file: say how large' \
        "$vmrun" --node "file:$file" true
    refuse 'file: of a folder' 125 'directory' "$vmrun" --node "file:$WORK" true
    refuse 'file: of another device' 125 'neither a file nor a block' \
        "$vmrun" --node file:/dev/zero true
    refuse 'file: that is too small' 125 'too small with 4K' \
        "$vmrun" --node "file:$file?size=4K" true
    echo precious >"$file"
    refuse "file: of somebody's data" 125 'data in it that vmrun did not write.*overwrite=yes' \
        "$vmrun" --node "file:$file?size=8M" true
    if [ "$(cat "$file")" != precious ]; then
        not_ok "file: of somebody's data, untouched" 'the file has changed'
    fi
    rm "$file"
    refuse 'file: twice' 125 'uses it' \
        "$vmrun" --node "file:$file?size=8M" --node "file:$file?size=8M" true
    accept 'file: by a relative path' \
        "$vmrun" --node 'file:far?size=8M' sh -c 'cd / && exec echo hello'
}

# A file system that is full before the file is: that node gives no more, the others continue, and
# nothing is lost.
full_file() {
    local name='a node that runs out' LIMIT=$limit
    selected "$name" || return 0
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    mkdir -p "$WORK/small"
    if ! unshare -rm mount -t tmpfs none "$WORK/small" 2>/dev/null; then
        skip "$name" 'unshare cannot make a mount namespace here'
        return
    fi
    # shellcheck disable=SC2016 # for the inner shell
    run_limited unshare -rm sh -c 'mount -t tmpfs -o size=24M none "$1" &&
        truncate -s 128M "$1/file" && shift && exec "$@"' sh "$WORK/small" \
        "$vmrun" --placement linear --cache 4M --node "dax:$WORK/small/file" --node mem:128M -- \
        "$build/examples/randmem" --size 64M --accesses 5000
    if [ "$status" = 0 ] && grep -q ' 0 errors$' "$OUT" && [ "$(wc -l <"$ERR")" = 1 ] &&
        grep -q 'no more space can be leased after 16 MiB' "$ERR"; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, or wrong data, or not the one message"
        show "$OUT" 5
        show "$ERR"
    fi
}

# tried NAME STATUS REGEX OPTION...: vmrun --check says this of the nodes.
tried() {
    local name=$1 wanted=$2 regex=$3 LIMIT=$limit
    shift 3
    selected "$name" || return 0
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    run_limited "$vmrun" --check "$@"
    if [ "$status" = "$wanted" ] && [ ! -s "$ERR" ] &&
        sed -n '/^nodes/,$p' "$OUT" | tr '\n' '~' | grep -E "$regex" >/dev/null; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, or not: $regex"
        sed -n '/^nodes/,$p' "$OUT" >"$WORK/nodes"
        show "$WORK/nodes"
        show "$ERR"
    fi
}

check_nodes() {
    local conf file=$WORK/dax
    truncate -s 64M "$file"
    settings two "[node a]\nurl = mem:1M\n[node b]\nurl = dax:$file\nsize = 32M\n"
    local works='^nodes +a works: .*1M.*~ +b works: .*32M of a file.*'
    tried '--check --config' 0 "$works~verdict +programs can run here~\$" --config "$conf"
    tried '--check --node' 0 '^nodes +mem:2M works: [^~]*~verdict' --config "$conf" --node mem:2M
    settings bad "[node a]\nurl = bogus:1M\n[node b]\nurl = dax:$file\n[node c]\nurl = dax:$file\n"
    local fails='~ +c fails: another (node of this vmrun|program) uses it.*~'
    tried '--check with nodes that fail' 125 \
        "^nodes +a fails: unknown scheme.*~ +b works: .*${fails}verdict .*not all nodes work~\$" \
        --config "$conf"
}

# Settings of the host that cost: each with its cure, and nothing of those that do not.  Files of
# another host lie over its own.
check_host() {
    local name='--check of settings of the host that cost' LIMIT=$limit why='' cost said
    selected "$name" || return 0
    OUT=$WORK/guest.out ERR=$WORK/guest.err
    # shellcheck disable=SC2016 # for the inner shell
    local other=(unshare -rm sh -ec 'mkdir -p "$1/numa" && mount -t tmpfs none /sys/module
        mkdir -p /sys/module/kvm/parameters /sys/module/kvm_intel/parameters
        echo "$2" >/sys/module/kvm/parameters/nx_huge_pages
        echo "$3" >/sys/module/kvm_intel/parameters/vmentry_l1d_flush
        echo "$4" >"$1/numa/balancing"
        mount --bind "$1/numa/balancing" /proc/sys/kernel/numa_balancing
        mount -t tmpfs none /sys/kernel/mm
        mkdir /sys/kernel/mm/transparent_hugepage
        echo "$5" >/sys/kernel/mm/transparent_hugepage/shmem_enabled
        exec "$6" --check' - "$WORK")
    run_limited "${other[@]}" Y cond 1 'always [never] deny' "$vmrun"
    if grep -q '^\(unshare\|mount\): ' "$ERR"; then
        skip "$name" 'no files can be laid over those of the host here'
        return
    fi
    for cost in 'nx huge pages +Y~ +[^~]*echo off > [^~]*nx_huge_pages' \
        'l1d flush +cond~ +[^~]*echo never > [^~]*vmentry_l1d_flush' \
        'numa balancing +1~ +[^~]*sysctl kernel.numa_balancing=0' \
        ' of shared memory: always \[never\] deny~ +[^~]*echo advise > [^~]*shmem_enabled'; do
        tr '\n' '~' <"$OUT" | grep -qE "$cost" || why="does not say: $cost"
    done
    run_limited "${other[@]}" N never 0 '[advise] never deny' "$vmrun"
    said=$(grep -cE 'echo (off|never|advise)|numa_balancing=' "$OUT")
    [ "$said" = 0 ] || why="$said cures of what costs nothing"
    verdict "$name" "$why"
}

# The message tells which group has /dev/kvm, if there is one.
kvm_groups() {
    if [ "$(id -u)" -ne 0 ]; then
        skip 'the group of /dev/kvm' 'only root can make such files'
        return
    fi
    kvm_of 'a group with a name' daemon:daemon 660 'the group daemon \(usermod -aG daemon NAME\)'
    kvm_of 'a group without a name' daemon:4242 660 'group has the number 4242 .*--group-add 4242'
    kvm_of 'no group' daemon:root 600 'no group that may \(mode 600, owner 1:0\): run vmrun as root'
}

# kvm_of WHAT OWNER MODE REGEX: says this where /dev/kvm is such a file.
kvm_of() {
    local drop=-dac_override,-dac_read_search
    # shellcheck disable=SC2016 # for the inner shell
    refuse "/dev/kvm has $1" 125 "permission to open /dev/kvm.*$4" \
        unshare -m sh -c 'mount -t tmpfs none /dev && : >/dev/kvm && chown "$1" /dev/kvm &&
            chmod "$2" /dev/kvm && shift 2 && exec "$@"' sh "$2" "$3" \
        setpriv --bounding-set "$drop" --inh-caps "$drop" "$vmrun" -- true
}

# Without a usable /dev/kvm, in a mount namespace of our own.
no_kvm() {
    if ! unshare -rm mount --bind /dev/null /dev/kvm 2>/dev/null; then
        skip 'no usable /dev/kvm' 'unshare cannot make a mount namespace here'
        return
    fi
    refuse '/dev/kvm is no KVM' 125 '/dev/kvm.*lab' \
        unshare -rm sh -c 'mount --bind /dev/null /dev/kvm && exec "$@"' sh "$vmrun" -- true
    refuse 'no /dev/kvm' 125 '/dev/kvm.*lab' \
        unshare -rm sh -c 'mount -t tmpfs none /dev && exec "$@"' sh "$vmrun" -- true
    refuse 'no permission for /dev/kvm' 125 '/dev/kvm.*(permission|allowed|group)' \
        unshare -rm sh -c 'mount -t tmpfs none /dev && : >/dev/kvm && chmod 0 /dev/kvm &&
            exec setpriv --bounding-set -dac_override,-dac_read_search \
                --inh-caps -dac_override,-dac_read_search "$@"' \
        sh "$vmrun" -- true
    kvm_groups
    # --check still speaks, and says that programs cannot run.
    if selected '--check without /dev/kvm'; then
        OUT=$WORK/guest.out ERR=$WORK/guest.err
        local LIMIT=$limit
        run_limited unshare -rm sh -c 'mount --bind /dev/null /dev/kvm && exec "$@"' sh \
            "$vmrun" --check
        if [ "$status" != 0 ] && [ "$status" != timeout ] && [ "$status" -lt 128 ] &&
            grep -q kvm "$OUT"; then
            ok '--check without /dev/kvm'
        else
            not_ok '--check without /dev/kvm' "exit status $status"
            show "$OUT" 5
            show "$ERR"
        fi
    fi
}
