# Programs that execute others, by themselves or in the child of a vfork: as in programs.sh,
# natively and under vmrun, with the same result; and cases of vmrun alone.
# shellcheck shell=bash disable=SC2016,SC2034,SC2154

executions() {
    local in=../data me=$build/test/system/t_exec
    if [ "$list" = no ]; then
        make_executables || not_ok 'executables for execve' 'they cannot be made'
    fi
    compare --quick --cache 1M,64M 't_exec' "$me"
    compare --quick --elsewhere --cache 8M 'env' env -i FOO=1 BAR='two words' /usr/bin/printenv
    compare --cache 8M 'nice' nice -n 5 nice
    compare --cache 8M 'nohup' nohup echo 'no hangup'
    compare --cache 8M 'chroot to the same root' chroot / /bin/echo inside
    compare --cache 8M 'stdbuf, which preloads a library' stdbuf -oL sh -c 'echo "$LD_PRELOAD"'
    compare --cache 8M 'a library that the loader does not find, said once' \
        env LD_PRELOAD=/no/such.so /bin/echo loaded
    compare --cache 8M 'taskset' taskset 1 nproc
    compare --cache 8M 'prlimit' \
        prlimit --nofile=100:200 sh -c 'ulimit -n; exec sh -c "ulimit -n; ulimit -Hn"'
    above_the_limit
    compare --cache 8M 'setpriv to another user' \
        setpriv --reuid 65534 --regid 65534 --clear-groups id
    compare --quick --elsewhere --cache 8M 'sh, exec' \
        sh -c 'exec 3<../data/small; exec head -n 2 <&3'
    compare --cache 8M 'sh, exec with other limits' \
        sh -c 'ulimit -s 16384; ulimit -v 9000000; exec sh -c "ulimit -s; ulimit -v"'
    compare --cache 8M 'bash, exec -a and -c' \
        bash -c 'exec -a odd bash -c "echo \$0; exec -c printenv"'
    compare --cache 8M 'bash, an ignored signal' \
        bash -c 'trap "" USR1; exec sh -c "kill -USR1 \$\$; echo alive"'
    compare --cache 8M 'sh, death by a signal' sh -c 'exec sh -c "kill -TERM \$\$"'
    compare --cache 8M 'busybox, itself' busybox sh -c 'exec /proc/self/exe echo again'
    compare --cache 8M 'perl, exec' perl -e 'exec {"/bin/sh"} "argv0", "-c", "echo \$0"'
    compare --quick --cache 8M,64M 'python3, execvpe' /usr/bin/python3 -c 'import os
try: os.execv("/no/such", ["x"])
except FileNotFoundError as e: print(e, flush=True)
os.execvpe("sh", ["sh", "-c", "echo $A; exec printenv"], {"A": "b", "PATH": "/bin:/usr/bin"})'
    compare --cache 8M 'a chain of shells' \
        sh -c 'n=${1:-5}; echo $n; [ $n = 0 ] || exec sh -c "$0" "$0" $((n - 1))' \
        'n=${1:-5}; echo $n; [ $n = 0 ] || exec sh -c "$0" "$0" $((n - 1))'
    compare --quick --elsewhere --cache 8M 'env, a script' env $in/script one 'two three'
    compare --cache 8M 'env, a shell script' env $in/shell-script one two
    compare --cache 8M 'env, a script without a first line' env $in/plain-script one
    compare --cache 8M 'env, a script without an interpreter' env $in/lost-script
    compare --cache 8M 'env, no program' env $in/text
    compare --cache 8M 'env, nothing' env $in/missing
    compare --cache 8M 'env, a 32-bit program' env $in/i386

    # In the child of a vfork, and with other threads.
    compare --quick --elsewhere --cache 8M 'sh, commands' sh -c '
        ls -a ../data/tree; echo $?; true; ls nowhere; echo $?
        ../data/script a b; ../data/lost-script; echo $?'
    compare --quick --cache 16M 'python3, subprocess' /usr/bin/python3 -c 'import subprocess
print(subprocess.run(["sh", "-c", "echo hi; exit 3"], capture_output=True))
try: subprocess.run(["/no/such"])
except FileNotFoundError as e: print(e)
print(subprocess.run(["sh", "-c", "kill -9 $$"]).returncode)'
    compare --slow --least 8M --cache 64M 'python3, subprocesses of threads' \
        /usr/bin/python3 -c 'import subprocess, threading
r = []
def run(i): r.append(subprocess.run(["echo", str(i)], stdout=subprocess.PIPE).stdout)
ts = [threading.Thread(target=run, args=(i,)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]; print(sorted(r))'
    compare --quick --least 8M --cache 16M 'python3, execve while threads wait and compute' \
        /usr/bin/python3 -c 'import os, threading, time
threading.Thread(target=lambda: time.sleep(100)).start()
threading.Thread(target=lambda: os.execv("/bin/echo", ["echo", "from a thread"])).start()
while True: pass'
    compare --cache 512K,64M 'far memory of parent and child' "$me" parent 3 3072
    compare --slow --cache 64M 'gcc' gcc -O2 -o hello $in/hello.c $in/two.c
    compare --slow --cache 64M 'make' make -s -f $in/makefile

    local user=(setpriv --reuid 65534 --regid 65534 --clear-groups) file
    for file in set-uid set-gid capable unreadable; do
        compare --cache 8M "a program that is $file" "${user[@]}" "${public-}/$file" ids
        compare --cache 8M "a program that is $file, for root" env "${public-}/$file" ids
    done
    odd_files
    natively
    if [ "$list" = no ]; then
        rm -rf "$public"
        slots_are_freed
        slots_of_children_are_freed
        each_has_its_lock
        every_program_reports
        seen_by_others
        is_known_from_another_file
    fi
}

# Before Linux 6.10 the bss of such files was mapped in other ways.
odd_files() {
    local t=$build/test/system/t_elf name='t_elf, ELF files as no linker makes them'
    if [ "$(printf '%s\n' 6.10 "$(uname -r)" | sort -V | head -n 1)" != 6.10 ]; then
        [ "$quick" = no ] && selected "$name" &&
            skip "$name" "Linux $(uname -r) loads some of them in other ways than Linux 6.10"
        return
    fi
    compare --costly --cache 8M "$name" "$t" 1 200
    compare --long --costly --cache 1M "$name, long" "$t" 201 2000
}

# A program that raises its soft limit of descriptors, to have numbers of its own above what the
# program in it may use. vmrun's own are not among them.
above_the_limit() {
    compare --quick --elsewhere --cache 8M 'numbers just above the soft limit' \
        prlimit --nofile=1024: bash -c 'ulimit -Sn 1036
            for n in {1024..1035}; do eval "exec $n</dev/null" || exit; done; echo taken'
}

natively() {
    local vmrun_flags=("${vmrun_flags[@]}" --no-follow) in=../data
    compare --quick --elsewhere --cache 8M '--no-follow: sh, exec' sh -c '
        ulimit -n 77; ulimit -v 9000000; trap "" USR1
        exec sh -c "ulimit -n; ulimit -v; kill -USR1 \$\$; echo alive"'
    compare --cache 8M '--no-follow: a file of /proc that only native programs have' \
        sh -c 'exec grep -c "^VmFlags.* ex " /proc/self/smaps'
    compare --cache 8M '--no-follow: env, no program' env $in/text
}

# Beside the data, whose folder other users may not look into: $public.
make_executables() {
    local me=$build/test/system/t_exec
    public=$(mktemp -d "${TMPDIR:-/tmp}/vmrun-public.XXXXXX") && chmod 755 "$public" || return
    local kind
    for kind in set-uid set-gid capable unreadable; do
        cp "$me" "$public/$kind" || return
    done
    chmod 4755 "$public/set-uid"
    chmod 2755 "$public/set-gid"
    chmod 711 "$public/unreadable"
    "$me" capable "$public/capable" || echo "# no file capabilities here"
}

# Each program needs most of the far tier: it must find the memory of the program before it free.
slots_are_freed() {
    local name='what a program had in far memory is free after execve' LIMIT=$limit turns=20
    local files short
    selected "$name" || return 0
    [ "$brief" = no ] || turns=6           # emulated, each takes 2 s and more
    OUT=$WORK/out ERR=$WORK/err
    rm -rf "$WORK/reports" && mkdir "$WORK/reports"
    run_limited "$vmrun" --cache 512K --node mem:8M --stats="$WORK/reports/stats" \
        "${vmrun_flags[@]}" -- "$build/test/system/t_exec" again $turns 5120
    files=$(find "$WORK/reports" -name 'stats*' | wc -l)
    short=$(cat "$WORK"/reports/* | awk '$1 == "count.writeback" && $2 < 800' | wc -l)
    if [ "$status" != 0 ] || [ "$(tail -n 1 "$OUT")" != 0 ]; then
        not_ok "$name" "exit status $status, $(wc -l <"$OUT") programs ran"
    elif [ "$files" != $((turns + 1)) ] || [ "$short" != 0 ]; then
        not_ok "$name" "$files reports, $short of them with too few write-backs"
    else
        ok "$name"
        return
    fi
    show "$ERR"
}

# Twelve programs of 3 MiB beside one of 3 MiB, all in one tree; 10 MiB are enough for those that
# live at one time.
slots_of_children_are_freed() {
    local name='what children had in far memory is free after their end' LIMIT=$limit
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 512K --node mem:10M "${vmrun_flags[@]}" -- \
        "$build/test/system/t_exec" parent 6 3072
    if [ "$status" = 0 ] && [ "$(grep -c 'status == 0: 1$' "$OUT")" = 6 ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status"
        show "$ERR"
    fi
}

# descriptors PID: how many the process has of the slots of its tree, and how many with a lock.
descriptors() {
    local fd n=0 locked=0
    for fd in "/proc/$1/fd"/*; do
        [[ $(readlink "$fd") = */memfd:vmrun-slots* ]] || continue
        n=$((n + 1))
        ! grep -q '^lock:' "/proc/$1/fdinfo/${fd##*/}" || locked=$((locked + 1))
    done
    echo "$n $locked"
}

# lives FLAG... EXPECT: of a parent, a child, a program of a child and one of a child of vfork.
lives() {
    local expect=${*: -1} seen=() pids pid turn
    mkfifo "$WORK/end"
    "$vmrun" --cache 4M --node mem:64M "${vmrun_flags[@]}" "${@:1:$#-1}" -- \
        /usr/bin/python3 -c 'import os, subprocess, sys, time
a = os.fork() or time.sleep(1000)
b = os.fork() or os.execlp("sleep", "sleep", "1000")
c = subprocess.Popen(["sleep", "1000"]).pid
print(os.getpid(), a, b, c, flush=True)
sys.stdin.read()
for p in a, b, c: os.kill(p, 9)' <"$WORK/end" >"$WORK/out" 2>"$WORK/err" &
    exec {end}>"$WORK/end"
    for ((turn = 0; turn < limit * 5; turn++)); do
        sleep 0.2
        read -ra pids <"$WORK/out" || continue
        seen=()
        for pid in "${pids[@]}"; do seen+=("$(descriptors "$pid" 2>/dev/null)"); done
        [ "${seen[*]}" != "$expect" ] || break
    done
    exec {end}>&-
    wait $!
    rm "$WORK/end"
    [ "${seen[*]}" = "$expect" ] || echo "descriptors and locks: ${seen[*]}, not $expect"
}

# That of no other process, as it would keep that one alive; so none of a program that runs
# natively.
each_has_its_lock() {
    local name='each process of a tree has its own lock, and no other' wrong
    # It starts programs by the dozen: minutes where the machine is emulated.
    [ "$brief" = no ] || return 0
    selected "$name" || return 0
    wrong=$(lives '2 1 2 1 2 1 2 1')
    wrong+=$(lives --no-follow '2 1 2 1 0 0 0 0')
    if [ -z "$wrong" ]; then
        ok "$name"
    else
        not_ok "$name" "$wrong"
        show "$WORK/err"
    fi
}

# Also where the program has closed standard error.
every_program_reports() {
    local name='--stats reports at the end of each program' LIMIT=$limit n
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    run_limited "$vmrun" --cache 4M --stats -- sh -c 'exec 2>&-; exec sh -c "exec true"'
    n=$(grep -c '^vmrun_statistics ' "$ERR")
    if [ "$status" = 0 ] && [ "$n" = 3 ] &&
        [ "$(grep '^execs ' "$ERR" | tr -cd '0-9')" = 012 ]; then
        ok "$name"
    else
        not_ok "$name" "exit status $status, $n reports"
        show "$ERR"
    fi
}

# seen PID: its arguments, environment and name, in a line.
seen() {
    echo "$(tr '\0' '|' <"/proc/$1/cmdline")" "$(tr '\0' '|' <"/proc/$1/environ")" \
        "$(cat "/proc/$1/comm")"
}

seen_by_others() {
    local name='other processes see the arguments, environment and name of a program that was'
    name+=' executed'
    local pid turns=0
    local expected="sh|-c|read x <$WORK/hold|arg0||last one| B=2 3|LD_X=y| sh"
    selected "$name" || return 0
    mkfifo "$WORK/hold"
    env -i A=1 "$vmrun" --cache 4M -- sh -c \
        'exec env -i "B=2 3" LD_X=y sh -c "read x <$1" arg0 "" "last one"' sh "$WORK/hold" \
        2>"$WORK/err" &
    pid=$!
    # It stays, for it waits for a line.
    exec 9<>"$WORK/hold"
    while [ "$(seen $pid 2>/dev/null)" != "$expected" ] &&
        [ $((turns += 1)) -lt $((10 * limit)) ]; do
        sleep 0.1
    done
    if [ "$(seen $pid)" = "$expected" ]; then
        ok "$name"
    else
        not_ok "$name" "they see $(seen $pid)"
        show "$WORK/err"
    fi
    echo >&9
    wait $pid
    exec 9>&-
}

# Of another file and inode than the vmrun that asks, as after an upgrade.
is_known_from_another_file() {
    local name='a program under another copy of vmrun is not taken for a native one'
    local LIMIT=$limit pid turns=0
    selected "$name" || return 0
    OUT=$WORK/out ERR=$WORK/err
    cp -L "$vmrun" "$WORK/another" || return
    : >"$WORK/up"
    "$WORK/another" --no-config --cache 4M -- sh -c 'echo up; exec sleep 1000' >"$WORK/up" 2>&1 &
    pid=$!
    until [ -s "$WORK/up" ] || [ $((turns += 1)) -gt $((10 * limit)) ]; do
        sleep 0.1
    done
    run_limited "$vmrun" --cache 64M "${vmrun_flags[@]}" -- /usr/bin/python3 -c '
import ctypes, os, resource, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)
class iovec(ctypes.Structure): _fields_ = [("base", ctypes.c_uint64), ("len", ctypes.c_uint64)]
buf = ctypes.create_string_buffer(8)
for at in 0x680000000000, 8:
    ours, its = iovec(ctypes.addressof(buf), 8), iovec(at, 8)
    n = libc.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(its), 1, 0)
    print(n, os.strerror(ctypes.get_errno()))
try: print(resource.prlimit(pid, resource.RLIMIT_NOFILE, (100, 100)))
except PermissionError: print("EPERM")' $pid
    kill $pid
    wait $pid 2>/dev/null
    local denied='-1 Operation not permitted'
    if [ "$(tr '\n' ' ' <"$OUT")" = "$denied $denied EPERM " ]; then
        ok "$name"
    else
        not_ok "$name" "$(tr '\n' ' ' <"$OUT")"
        show "$ERR"
    fi
}
