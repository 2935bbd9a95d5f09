# Mappings at random, natively and under vmrun, and files of huge pages.
# shellcheck shell=bash disable=SC2154

# The pool of huge pages is the machine's, and test/nbd/service.sh counts what is in it. So whoever
# of the tests changes it or counts holds this folder's lock.
huge_pool=/sys/kernel/mm/hugepages/hugepages-2048kB

# take_huge_pages N: adds so many free huge pages to the pool, until give_huge_pages. False, with
# the reason in $why, if they cannot be had.
take_huge_pages() {
    why='this kernel has no huge pages of 2M'
    [ -d "$huge_pool" ] || return
    exec {huge_lock}<"$huge_pool" && flock "$huge_lock"
    huge_were=$(cat "$huge_pool/nr_hugepages")
    why='to reserve huge pages takes root'
    if [ -w "$huge_pool/nr_hugepages" ] &&
        echo $((huge_were + $1)) 2>/dev/null >"$huge_pool/nr_hugepages"; then
        why="this machine has no memory for $1 huge pages of 2M"
        [ $(($(cat "$huge_pool/nr_hugepages") - huge_were)) -lt "$1" ] || return 0
    fi
    give_huge_pages
    return 1
}

give_huge_pages() {
    [ ! -w "$huge_pool/nr_hugepages" ] ||
        echo "$huge_were" 2>/dev/null >"$huge_pool/nr_hugepages"
    exec {huge_lock}<&-
}

# Is one of these cases to be run?
any_wanted() {
    local name
    for name; do
        [[ ! $name =~ $only ]] || return 0
    done
    return 1
}

# With --long 100,000 steps more. Their first seed is drawn, if it is not in $SEED.
huge_cases() {
    local t_maps=$build/test/system/t_maps t_huge=$build/test/system/t_huge seed
    local first=${SEED:-$((RANDOM + 2))}
    compare --quick --cache 1M 't_huge, borders' "$t_huge" pages
    compare --quick --cache 1M 't_huge, an empty pool' "$t_huge" empty
    compare --quick --costly --cache 1M,64M 't_maps' "$t_maps" --seed 1 --steps 1000
    for ((seed = first; seed < first + 10; seed++)); do
        compare --long --cache 1M "t_maps, long, seed $seed" \
            "$t_maps" --seed "$seed" --steps 10000
    done
}

huge_mappings() {
    if [ "$list" = yes ]; then
        huge_cases
    elif ! any_wanted 't_huge, borders' 't_huge, an empty pool' 't_maps' 't_maps, long'; then
        return
    elif take_huge_pages 72; then
        huge_cases
        give_huge_pages
    else
        skip 't_maps and t_huge, huge pages' "$why"
    fi
}

# On a file system that can be filled without harm, which only root can mount.
full_file_system() {
    local folder=$WORK/full name='t_huge, a full file system'
    selected "$name" || return 0
    mkdir -p "$folder"
    if ! mount -t tmpfs -o size=32K none "$folder" 2>/dev/null; then
        skip "$name" 'a file system of its own cannot be mounted'
        return
    fi
    compare --quick --cache 1M "$name" \
        "$build/test/system/t_huge" full "$folder/file"
    umount "$folder"
}

mappings() {
    compare --quick --cache 1M 't_maps, without huge pages' \
        "$build/test/system/t_maps" --plain --seed 1 --steps 1000
    huge_mappings
    full_file_system
}
