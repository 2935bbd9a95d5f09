# words under vmrun, and the liar beside memnode m. Sourced after common.sh. Uses $words and $liar,
# the programs.
# shellcheck shell=bash disable=SC2034,SC2154

LIMIT=240                   # seconds that a program under vmrun may take; in a busy lab 100
told=(--seconds 300)        # of words: it works until finish(), however slow the machine is

# lies SEED: memnode m's memory is changed from now on.
lies() {
    "$liar" --seed "$1" --every 10 --log "$WORK/liar.log" "${node[m]}" 2>"$WORK/liar.err" &
    node[liar]=$!
}
lies_told() { wc -l <"$WORK/liar.log"; }

# start_words NAME OPTION... -- WORDS...: in the background; run_words: until it ends, which must be
# in time.
start_words() {
    local name=$1
    shift
    rm -f "$WORK/$name.stats"
    run_program "$name" --stats="$WORK/$name.stats" "$@"
}
run_words() {
    start_words "$@"
    wait_vm "$1" "$LIMIT"
}

# finish NAME...: tells these programs to end, after all faults; all must end in time.
finish() {
    local name
    for name; do
        running "$name" && kill -TERM "${program[$name]}" || return
    done
    for name; do
        wait_vm "$name" "$LIMIT" || return
    done
}

# begun NAME [SECONDS]: it bears lost pages from now on.
begun() { said_soon "$1" 'words: begins' "${2-30}"; }

# lied_words SEED NAME OPTION... -- WORDS...: like run_words, but memnode's memory changes once
# words has begun.
lied_words() {
    local seed=$1
    shift
    [ -z "${node[liar]-}" ] || kill_node liar
    start_words "$@"
    begun "$1" && lies "$seed" && wait_vm "$1" "$LIMIT"
}

# count NAME WORD: the number before this word in the output of words.
count() {
    awk -v word="$2" '/^words: [0-9]/ {
        for (i = 2; i <= NF; i++)
            if ($i ~ "^" word)
                n = $(i - 1)
    } END { print n + 0 }' "$WORK/$1.out"
}
# stat_of NAME KEY, of vmrun's statistics.
stat_of() { awk -v key="$2" '$1 == key { n = $2 } END { print n + 0 }' "$WORK/$1.stats"; }

# right NAME: it ended well, and no word was wrong.
right() {
    if [ "${status_of[$1]}" != 0 ] || ! grep -q '^words: .* 0 wrong,' "$WORK/$1.out"; then
        echo "$1: status ${status_of[$1]}: $(tail -n 1 "$WORK/$1.out" "$WORK/$1.err" | tail -n 1)"
        return 1
    fi
}

# intact NAME: and no page was lost, for none was spoiled.
intact() {
    right "$1" || return
    [ "$(count "$1" lost)" -eq 0 ] || { echo "$1: $(tail -n 1 "$WORK/$1.out")"; return 1; }
}

# misled NAME: what was spoiled reached the program, as it should with --no-verify: it read wrong
# words, or a wrong page of its code, stack or heap ended it by a signal.
misled() {
    echo "measured --no-verify: $(count "$1" wrong) wrong words, status ${status_of[$1]}"
    [ "$(count "$1" wrong)" -gt 0 ] || [ "${status_of[$1]}" -gt 128 ]
}

# ended_with NAME STATUS PATTERN, and without a wrong word.
ended_with() {
    if [ "${status_of[$1]}" != "$2" ]; then
        echo "$1: status ${status_of[$1]}, not $2"
    elif grep -q ' words are wrong' "$WORK/$1.err"; then
        echo "$1: wrong words"
    else
        said "$1" "$3"
        return
    fi
    return 1
}
