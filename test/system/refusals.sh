# What vmrun must refuse, with one clear sentence and the right exit status, and what it must not die of.
# shellcheck shell=bash disable=SC2034,SC2154

# refuse NAME STATUS REGEX COMMAND...: COMMAND, a vmrun, says nothing on standard output, a few lines "vmrun: ..." on standard error,
# of which one matches REGEX, and exits with STATUS.
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
    if [ -z "$why" ]; then
        ok "$name"
    else
        not_ok "$name" "$why"
        show "$OUT" 5
        show "$ERR"
    fi
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
        ok "$name"
    else
        not_ok "$name" "exit status $status"
        show "$OUT" 5
        show "$ERR"
    fi
}

# Files that are no programs, or damaged ones: variations of a good static one, byte by byte.
make_bad_files() {
    bad=$WORK/bad
    mkdir -p "$bad" && cd "$bad" || return
    cp "$build/examples/quicksort-static" good || return
    python3 - <<'PYTHON' || return
import os, struct
good = open("good", "rb").read()
PT_LOAD, PT_INTERP = 1, 3
phoff, = struct.unpack_from("<Q", good, 32)
phentsize, phnum = struct.unpack_from("<HH", good, 54)

def write(name, content):
    with open(name, "wb") as f:
        f.write(content)
    os.chmod(name, 0o755)

def patched(*changes):
    b = bytearray(good)
    for offset, format, value in changes:
        struct.pack_into("<" + format, b, offset, value)
    return bytes(b)

def headers(content, kind):
    offset, = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    return [h for h in range(offset, offset + size * count, size) if struct.unpack_from("<I", content, h)[0] == kind]

loads = headers(good, PT_LOAD)
vaddr, = struct.unpack_from("<Q", good, loads[0] + 16)
write("text", b"just some words\n")
write("empty", b"")
write("magic-only", good[:4])
write("half-header", good[:40])
write("no-program-headers", good[:64])
write("cut-program-headers", good[:phoff + phentsize + 20])
write("cut-segments", good[:4096])
write("wrong-machine", patched((18, "H", 183)))
write("wrong-class", patched((4, "B", 9)))
write("big-endian", patched((5, "B", 2)))
write("an-object", patched((16, "H", 1)))
write("phnum-0", patched((56, "H", 0)))
write("phnum-65535", patched((56, "H", 65535)))
write("phentsize-1", patched((54, "H", 1)))
write("phoff-huge", patched((32, "Q", 2**64 - 8)))
write("overlapping", patched((loads[1] + 16, "Q", vaddr), (loads[1] + 24, "Q", vaddr), (loads[1] + 8, "Q", 0)))
write("filesz-above-memsz", patched((loads[1] + 40, "Q", 1)))
write("vaddr-wraps", patched((loads[1] + 16, "Q", 2**64 - 4096), (loads[1] + 40, "Q", 2**63)))
write("kernel-address", patched((loads[0] + 16, "Q", 0xffff800000000000)))
write("misaligned", patched((loads[1] + 8, "Q", struct.unpack_from("<Q", good, loads[1] + 8)[0] + 8)))

dynamic = bytearray(open("/bin/true", "rb").read())
h = headers(dynamic, PT_INTERP)[0]
offset, = struct.unpack_from("<Q", dynamic, h + 8)
size, = struct.unpack_from("<Q", dynamic, h + 32)
dynamic[offset:offset + size] = b"/no/ld.so".ljust(size, b"\0")
write("no-interpreter", bytes(dynamic))
write("script-no-interpreter", b"#!/no/such/interpreter -x\n")
write("script-empty", b"#!\n")
write("script-of-itself", b"#!" + os.fsencode(os.path.abspath("script-of-itself")) + b"\n")
PYTHON
    cp good not-executable && chmod 644 not-executable
    cp good not-readable && chmod 111 not-readable
}

refusals() {
    make_bad_files || { not_ok 'bad ELF files' 'cannot be made' && return; }
    local file

    # Not programs: 126, as a shell has it.
    for file in text empty magic-only half-header no-program-headers cut-program-headers cut-segments wrong-machine wrong-class \
        big-endian an-object phnum-0 phnum-65535 phentsize-1 phoff-huge overlapping filesz-above-memsz vaddr-wraps kernel-address \
        misaligned script-empty script-of-itself; do
        refuse "bad file: $file" 126 "$file" "$vmrun" -- "$bad/$file"
    done
    refuse 'not executable' 126 'permission|executable' "$vmrun" -- "$bad/not-executable"
    refuse 'a folder' 126 'directory|folder|not.*file|permission' "$vmrun" -- "$bad"
    # Root may read anything, unless it gives that up.
    if [ "$(id -u)" -ne 0 ]; then
        refuse 'not readable' 126 'permission|read' "$vmrun" -- "$bad/not-readable"
    else
        refuse 'not readable' 126 'permission|read' \
            setpriv --bounding-set -dac_override,-dac_read_search --inh-caps -dac_override,-dac_read_search "$vmrun" -- "$bad/not-readable"
    fi

    # Not there: 127.
    refuse 'no such program' 127 'no-such-program' "$vmrun" -- no-such-program
    refuse 'no such path' 127 '/no/such/program' "$vmrun" -- /no/such/program
    refuse 'no ELF interpreter' 127 '/no/ld.so' "$vmrun" -- "$bad/no-interpreter"
    refuse 'no interpreter of a script' 127 '/no/such/interpreter' "$vmrun" -- "$bad/script-no-interpreter"

    # What the user asked of vmrun itself: 125.
    refuse 'no program' 125 'program' "$vmrun"
    refuse 'an empty name' 125 'program' "$vmrun" -- ''
    refuse 'an unknown option' 125 'no-such-option' "$vmrun" --no-such-option true
    refuse '--cache 0' 125 'cache' "$vmrun" --cache 0 true
    refuse '--cache 1K' 125 'cache.*([0-9]+ ?K|smallest|least)' "$vmrun" --cache 1K true
    refuse '--cache beyond the host' 125 'cache' "$vmrun" --cache 900000G true
    refuse '--cache with a wrong suffix' 125 'cache' "$vmrun" --cache 10Q true
    refuse '--cache with a sign' 125 'cache' "$vmrun" --cache -1M true
    refuse '--cache that overflows' 125 'cache' "$vmrun" --cache 99999999999999999999G true
    refuse '--cache without a value' 125 'cache' "$vmrun" --cache
    refuse '--node of an unknown kind' 125 'bogus' "$vmrun" --node bogus://host true
    refuse '--node without a kind' 125 'node|host' "$vmrun" --node host true
    refuse '--node mem:0' 125 'mem:0' "$vmrun" --node mem:0 true
    refuse '--node mem: with a bad size' 125 'mem:12x' "$vmrun" --node mem:12x true
    refuse '--stats into a missing folder' 125 '/no/such/folder' "$vmrun" --stats=/no/such/folder/file true

    no_kvm

    accept --help "$vmrun" --help
    accept --version "$vmrun" --version
    accept --check "$vmrun" --check
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
            exec setpriv --bounding-set -dac_override,-dac_read_search --inh-caps -dac_override,-dac_read_search "$@"' \
        sh "$vmrun" -- true
    # --check still speaks, and says that programs cannot run.
    if selected '--check without /dev/kvm'; then
        OUT=$WORK/guest.out ERR=$WORK/guest.err
        local LIMIT=$limit
        run_limited unshare -rm sh -c 'mount --bind /dev/null /dev/kvm && exec "$@"' sh "$vmrun" --check
        if [ "$status" != 0 ] && [ "$status" != timeout ] && [ "$status" -lt 128 ] && grep -q kvm "$OUT"; then
            ok '--check without /dev/kvm'
        else
            not_ok '--check without /dev/kvm' "exit status $status"
            show "$OUT" 5
            show "$ERR"
        fi
    fi
}
