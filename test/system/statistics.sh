# The forms of --stats: a table for people, JSON, Prometheus's format, and reports while the program
# runs. (limits.sh checks the numbers.)
# shellcheck shell=bash disable=SC2034,SC2154

statistics_forms() {
    OUT=$WORK/out ERR=$WORK/err
    table_on_terminal
    formats
    suffix_of_a_folder
    rewritten
    interval_lines
    reports_of_children
    cannot_be_written
}

# verdict_of NAME WHY: passes if WHY is empty.
verdict_of() {
    if [ -z "$2" ]; then
        ok "$1"
    else
        not_ok "$1" "$2"
        show "$ERR"
    fi
}

# stats_value KEY: from $WORK/stats; nothing if the key is not there.
stats_value() { awk -v key="$1" '$1 == key { print $2 }' "$WORK/stats"; }

# ran_verdict NAME WHY: of a program that run_limited() ran.
ran_verdict() {
    [ "$status" = 0 ] || set -- "$1" "exit status $status"
    verdict_of "$1" "$2"
}

# Uses far memory, says so, and never ends by itself.
# shellcheck disable=SC2016 # for the inner shell
endless=(bash -c 'a=({1..80000}); for i in "${a[@]}"; do :; done
    echo started; while :; do :; done')
# Uses far memory, and ends.
swapping=("$build/examples/randmem" --size 8M --accesses 3000)

# The first report of the table: a line of titles, and one for the fetches.
is_table() {
    grep -q '^latency  *count  *mean  *p50  *p90  *p99  *p99.9  *max$' "$1" &&
        grep -Eq '^fault: fetch  +[0-9,]+( +[0-9.]+ (ns|us|ms|s)){6}$' "$1" &&
        grep -Eq '^ +[0-9.]+ (ns|us|ms|s) to +[0-9.]+ (ns|us|ms|s) +[0-9,]+ \|@+ *\|$' "$1" &&
        grep -Eq 'pages fetched +[0-9,]+' "$1" && grep -Eq '^node ' "$1"
}

# too_wide FILE: the first line that a screen of 80 columns does not hold.
too_wide() { LC_ALL=C awk 'length > 80 { print "more than 80 columns: " $0; exit }' "$1"; }

table_on_terminal() {
    local name='--stats on a terminal is a table, after Ctrl-C too' LIMIT=$limit why=''
    if selected "$name"; then
        run_limited python3 "$here/terminal.py" --interrupt started \
            "$vmrun" --cache 2M --stats "${vmrun_flags[@]}" -- "${endless[@]}"
        [ "$status" = 130 ] || why="status $status"
        is_table "$OUT" || why="${why:+$why; }no table"
        why+=$(too_wide "$OUT")
        [ -z "$why" ] || cp "$OUT" "$ERR"
        verdict_of "$name" "$why"
    fi
    name='--stats=table is one without a terminal' why=''
    selected "$name" || return 0
    run_limited "$vmrun" --cache 2M --stats=table "${vmrun_flags[@]}" -- "${swapping[@]}"
    [ "$status" = 0 ] || why="status $status"
    is_table "$ERR" || why="${why:+$why; }no table"
    why+=$(too_wide "$ERR")
    # the first thought after the head; a long path of the program makes that two lines
    awk 'NR > 1 && !/^ / { print; exit }' "$ERR" |
        grep -Eq '^(The cache is small:|Far memory does not limit)' ||
        why="${why:+$why; }no verdict first"
    verdict_of "$name" "$why"
}

formats() {
    local name kind why LIMIT=$limit
    name='--stats=FILE.prom tells of the end'
    if selected "$name"; then
        why=''
        # shellcheck disable=SC2016 # for the inner shell
        run_limited "$vmrun" --stats="$WORK/end.prom" "${vmrun_flags[@]}" -- \
            bash -c 'exec sh -c "kill -SEGV \$\$"'
        grep -q '^vmrun_ended{vmrun="end",status="execve"} 1$' "$WORK/end.prom" ||
            why='no execve'
        grep -q '^vmrun_ended{vmrun="end\.[0-9]*\.1",status="139"} 1$' "$WORK"/end.*.1.prom ||
            why="${why:+$why; }no signal"
        grep -q '^vmrun_info{vmrun="end",pid="[0-9]*",exec="0",.*program="bash"' \
            "$WORK/end.prom" || why="${why:+$why; }no process"
        verdict_of "$name" "$why"
    fi
    for kind in json prom; do
        name="--stats=FILE.$kind"
        selected "$name" || continue
        why=''
        run_limited "$vmrun" --cache 2M --stats="$WORK/stats.$kind" "${vmrun_flags[@]}" -- \
            "${swapping[@]}"
        [ "$status" = 0 ] || why="status $status"
        [ -n "$why" ] || why=$(python3 "$here/stats.py" $kind "$WORK/stats.$kind" 2>&1 | head -n 3)
        [ -n "$why" ] || [ $kind != json ] ||
            python3 -m json.tool "$WORK/stats.$kind" >"$WORK/tool" 2>&1 ||
            why=$(head -n 1 "$WORK/tool")
        verdict_of "$name" "$why"
        # A program that ends at once has next to nothing to report.
        name="--stats=FILE.$kind, nothing done"
        selected "$name" || continue
        run_limited "$vmrun" --stats="$WORK/none.$kind" "${vmrun_flags[@]}" -- true
        verdict_of "$name" "$(python3 "$here/stats.py" $kind "$WORK/none.$kind" 2>&1 |
            head -n 3)"
    done
}

suffix_of_a_folder() {
    local name='--stats=FOLDER.json/FILE has lines' LIMIT=$limit why=''
    selected "$name" || return 0
    rm -rf "$WORK/a.json" && mkdir "$WORK/a.json"
    for file in run .json; do
        run_limited "$vmrun" --stats="$WORK/a.json/$file" "${vmrun_flags[@]}" -- true
        grep -q '^faults.total [1-9]' "$WORK/a.json/$file" || why="$file has none"
    done
    verdict_of "$name" "$why"
}

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    local n=$(($1 * 10))
    shift
    until "$@" 2>/dev/null; do
        ((n-- > 0)) || return 1
        read -r -t 0.1 _ <>"$WORK/never"
    done
    return 0
}

differs() { [ -s "$1" ] && ! cmp -s "$1" "$2"; }
fault_count() { sed -n 's/^faults\.total //p' "$1"; }

rewritten() {
    local name='--stats-interval replaces the file while the program runs' pid why='' turn
    local last=0 now left
    selected "$name" || return 0
    rm -rf "$WORK/live" && mkdir "$WORK/live" && : >"$WORK/seen"
    "$vmrun" --cache 2M --stats="$WORK/live/run" --stats-interval 0.2 "${vmrun_flags[@]}" -- \
        "${endless[@]}" >"$OUT" 2>"$ERR" &
    pid=$!
    for turn in 1 2 3 4; do
        wait_for 60 differs "$WORK/live/run" "$WORK/seen" || why="report $turn does not come"
        cp "$WORK/live/run" "$WORK/seen"
        now=$(fault_count "$WORK/seen")
        [ -n "$(disagreements "$WORK/seen")" ] && why=$(disagreements "$WORK/seen" | head -n 1)
        [ "${now:-0}" -ge "$last" ] || why="faults went from $last to $now"
        grep -q '^elapsed_ns ' "$WORK/seen" || why='a report is not whole'
        last=$now
    done
    kill -USR1 $pid
    { wait $pid; } 2>/dev/null
    [ $? = 138 ] || why="${why:+$why; }not ended by the signal"
    [ "$(fault_count "$WORK/live/run")" -ge "$last" ] || why='the last report has less'
    left=$(find "$WORK/live" -type f -printf '%f ')
    [ "$left" = 'run ' ] || why="files are left: $left"
    verdict_of "$name" "$why"
}

interval_lines() {
    local name='--stats-interval without a file prints lines' LIMIT=$limit why=''
    local line='^vmrun: process [0-9]+, after [0-9.]+ (ms|s): [0-9]+ faults/s,'
    selected "$name" || return 0
    run_limited "$vmrun" --cache 2M --stats --stats-interval 0.1 "${vmrun_flags[@]}" -- sleep 1
    [ "$status" = 0 ] || why="status $status"
    [ "$(grep -Ec "$line" "$ERR")" -ge 2 ] || why="${why:+$why; }no lines"
    grep -Ev "$line" "$ERR" | head -n 1 | grep -q '^vmrun_statistics 1$' ||
        why="${why:+$why; }no report behind them"
    verdict_of "$name" "$why"
}

# Each process and program has a file of its own, with its own number in it, whatever others do.
reports_of_children() {
    local name='--stats-interval in a storm of forks' LIMIT=$limit why='' file reports=0 pid
    selected "$name" || return 0
    rm -rf "$WORK/storm" && mkdir "$WORK/storm"
    # shellcheck disable=SC2016 # for the inner shell
    run_limited "$vmrun" --cache 4M --stats="$WORK/storm/run.json" --stats-interval 0.1 \
        "${vmrun_flags[@]}" -- bash -c \
        'for ((i = 0; i < 12; i++)); do (: $((i * i))) & (exec true) & done; wait; sleep 0.3; true'
    [ "$status" = 0 ] || why="status $status"
    # at once: starting python takes seconds on an emulated machine
    why+=$(python3 "$here/stats.py" json "$WORK"/storm/* 2>&1 | head -n 1)
    for file in "$WORK"/storm/*; do
        pid=$(basename "$file" .json)
        pid=${pid#run}
        pid=${pid#.}
        pid=${pid%.*}
        [ -z "$pid" ] || grep -q "^  \"pid\": $pid,$" "$file" || why+="; $file is of another"
        reports=$((reports + 1))
    done
    # bash, 24 children, and the programs of 12 of them, and of sleep
    [ "$reports" = 39 ] || why+="; $reports reports instead of 39"
    verdict_of "$name" "${why#; }"
}

cannot_be_written() {
    local name='statistics that cannot be written are said to be' LIMIT=$limit why=''
    selected "$name" || return 0
    run_limited "$vmrun" --stats=/dev/full "${vmrun_flags[@]}" -- echo hello
    [ "$status" = 0 ] && [ "$(cat "$OUT")" = hello ] || why="status $status"
    grep -q '^vmrun: the statistics could not be written: No space left' "$ERR" ||
        why="${why:+$why; }not said"
    verdict_of "$name" "$why"
}
