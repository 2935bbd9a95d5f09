# Keys: who is let in over TCP, by TLS, and who is not.  For ./run.

# Keys of three clients, and a stranger's, which has alice's name.
make_keys() {
    local name
    for name in alice bob carol stranger; do
        printf '%s:%s\n' "${name/stranger/alice}" \
            "$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')" >"$WORK/$name"
    done
    cat "$WORK/alice" "$WORK/bob" >"$WORK/keys"
    chmod 600 "$WORK"/{alice,bob,carol,stranger,keys}
    mkdir -p "$WORK/psk"
    cp "$WORK/alice" "$WORK/psk/keys.psk"       # where QEMU looks
}
# uri USER FILE EXPORT
uri() { printf 'nbds://%s@%s/%s?tls-psk-file=%s' "$1" "$tcp" "$3" "$WORK/$2"; }
# turned_away NAME URI: the client does not get in.
turned_away() {
    selected "$1" || return 0
    run_limited nbdinfo --size "$2"
    if [ "$status" -ne 0 ] && [ "$status" != timeout ] && kill -0 "$server" 2>/dev/null; then
        ok "$1"
    else
        not_ok "$1" "status $status"
        show "$OUT"
    fi
}
keys_tests() {
    local name lease="lease-00112233445566778899aabbccddeeff-16777216"
    make_keys
    printf '[memnode]\nkeys = %s\n[client bob]\nquota = 8M\nconnections = 2\n[client alice]
reserve = 40M\n' "$WORK/keys" >"$WORK/keys.conf"
    start --size 64M --export disk=16M --grace 2 --config "$WORK/keys.conf" -v
    check "keys: over TCP nothing is told before TLS" "${case[@]}" "$tcp" before_tls
    check "keys: a socket of this host needs none" "${case[@]}" "$sock" guess
    check "keys: STARTTLS, and words behind it" "${case[@]}" "$tcp" words_behind_starttls
    if ! have nbdcopy || ! have qemu-img; then
        skip "keys: foreign clients" "nbdcopy or qemu-img is not installed"
        stop
        return
    fi
    head -c 16M /dev/urandom >"$WORK/data"
    check "keys: nbdinfo, by one of two" nbdinfo --size "$(uri alice alice disk)"
    check "keys: nbdcopy to and from an export" "${script[@]}" \
        'nbdcopy "$1" "$2" && nbdcopy "$2" "$1.back" && cmp "$1" "$1.back"' script \
        "$WORK/data" "$(uri alice keys disk)"
    check "keys: qemu-img, with the same file" "${script[@]}" 'cd "$1" && qemu-img convert -O raw \
        --object "tls-creds-psk,id=t,dir=$1/psk,endpoint=client,username=alice" --image-opts \
        "driver=nbd,host=127.0.0.1,port=${2#*:},export=disk,tls-creds=t" back && cmp data back' \
        script "$WORK" "$tcp"
    check "keys: nbdcopy to a lease" "${script[@]}" 'nbdcopy "$1" "$2"' script "$WORK/data" \
        "$(uri alice alice $lease)"
    turned_away "keys: another key of the same name" "$(uri alice stranger disk)"
    turned_away "keys: a name that is not known" "$(uri carol carol disk)"
    turned_away "keys: another's key" "$(uri bob alice disk)"
    turned_away "keys: no TLS" "nbd://$tcp/disk"
    check "keys: the log says so" "${script[@]}" \
        '[ "$(grep -c "refused: it uses no TLS" "$1")" -gt 0 ]' script "$log"
    for name in record changed stripped replayed; do
        check "keys: a host on the path: $name" python3 "$here/relay.py" "$WORK" "$tcp" \
            "$WORK/alice" $name
    done
    # bob's quota is 8M; and alice's 40M are not his.
    turned_away "keys: a lease above the quota" "$(uri bob bob $lease)"
    check "keys: a lease within it" nbdinfo --size \
        "$(uri bob bob lease-00112233445566778899aabbccddeef0-8388608)"
    cp "$WORK/carol" "$WORK/keys"
    kill -HUP $server
    sleep 0.5
    check "keys: SIGHUP lets a new one in" nbdinfo --size "$(uri carol carol disk)"
    turned_away "keys: and shuts an old one out" "$(uri alice alice disk)"
    echo nonsense >"$WORK/keys"
    kill -HUP $server
    sleep 0.5
    check "keys: a file with a mistake changes nothing" nbdinfo --size "$(uri carol carol disk)"
    check "keys: and the log says which" grep -q 'line 1: it is no NAME:HEX' "$log"
    stop
    start --size 64M --export disk=16M --insecure
    check "keys: without them, pages can be read on the path" python3 "$here/relay.py" "$WORK" \
        "$tcp" "$WORK/alice" plain
    stop
}
