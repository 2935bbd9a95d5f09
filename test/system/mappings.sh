# Mappings at random, natively and under vmrun, and files of huge pages.
# shellcheck shell=bash disable=SC2154

# The pool of huge pages is the machine's, and test/nbd/service.sh counts its pages. So a test
# that changes or counts the pool holds this folder's lock.
huge_pool=/sys/kernel/mm/hugepages/hugepages-2048kB
huge_lock='' huge_were=''

# take_huge_pages N: adds pages to the pool until N are free and not reserved, until
# give_huge_pages. False, with the reason in $why, if they cannot be had.
take_huge_pages() {
    local missing
    why='this kernel has no huge pages of 2M'
    [ -d "$huge_pool" ] || return
    exec {huge_lock}<"$huge_pool" && flock "$huge_lock"
    huge_were=$(cat "$huge_pool/nr_hugepages")
    missing=$(huge_pages_missing "$1")
    why='to reserve huge pages takes root'
    if [ -w "$huge_pool/nr_hugepages" ] &&
        echo $((huge_were + missing)) 2>/dev/null >"$huge_pool/nr_hugepages"; then
        why="this machine has no memory for $1 huge pages of 2M"
        [ "$(huge_pages_missing "$1")" -gt 0 ] || return 0
    fi
    give_huge_pages
    return 1
}

# How many of N pages the pool lacks.
huge_pages_missing() {
    local free reserved
    free=$(cat "$huge_pool/free_hugepages") reserved=$(cat "$huge_pool/resv_hugepages")
    echo $(($1 + reserved > free ? $1 + reserved - free : 0))
}

give_huge_pages() {
    [ -n "$huge_lock" ] || return 0
    [ ! -w "$huge_pool/nr_hugepages" ] ||
        echo "$huge_were" 2>/dev/null >"$huge_pool/nr_hugepages"
    exec {huge_lock}<&-
    huge_lock=''
}

# compare_huge NAME CACHES PROGRAM [ARGUMENT...]: compare with 72 more free huge pages in the pool,
# or the case is skipped.
compare_huge() {
    local name=$1 sizes=$2
    shift 2
    if [ "$list" = no ] && [[ $name =~ $only ]] && ! take_huge_pages 72; then
        skip "$name" "$why"
        return
    fi
    compare --quick --cache "$sizes" "$name" "$@"
    give_huge_pages
}

# With --long 100,000 steps more. Their first seed is drawn, if it is not in $SEED.
huge_mappings() {
    local t_maps=$build/test/system/t_maps t_huge=$build/test/system/t_huge
    local first=${SEED:-$((RANDOM + 2))} seed
    compare_huge 't_huge, borders' 1M "$t_huge" pages
    compare_huge 't_huge, an empty pool' 1M "$t_huge" empty
    compare_huge 't_maps' 1M "$t_maps" --seed 1 --steps 1000
    [ "$long" = yes ] || return 0
    for ((seed = first; seed < first + 10; seed++)); do
        compare_huge "t_maps, long, seed $seed" 1M "$t_maps" --seed "$seed" --steps 10000
    done
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
