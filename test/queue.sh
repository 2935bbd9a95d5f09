# Suites of tests, run by a few workers: each takes the next suite when it has ended one, the
# longest first. The output of a suite is printed whole when it ends. For quickstart, which sources
# this.
# shellcheck shell=bash

# A suite speaks TAP, with the plan at the end, and then a line `N passed, N failed, N skipped`.
# Lines of its output that the summary takes beside these:
#   ok N - CASE, not ok N - CASE # WHY, FAIL: CASE and ERROR: CASE, each with lines `# ...` after it
#   # up                   no case has run so far: the time of the next one begins here
#   # took SECONDS: CASE   of a case that has no line of its own
#   # once more            the cases so far had failed, and run again (patient)
#   # first try: CASE # WHY  this one failed, and runs again

: "${queue_dir:=build}"         # for the output of each suite, and for the results
queue_workers=2
# Of each suite that has ended, a line: NAME, passed, failed, skipped and seconds, between tabs.
queue_results=$queue_dir/test-results

queue_not_run=()                # "NAME: WHY" of suites that cannot run here
queue_order=()                  # "SECONDS w: INDEX" or "SECONDS : INDEX" of each suite in the queue
queue_names=() queue_commands=() queue_begun=0
declare -A queue_running=() queue_began=()      # by process number: the suite's index, the time

queue_slug() { tr -cs 'a-z0-9\n' '-' <<<"${1,,}"; }
queue_log() { echo "$queue_dir/test-$(queue_slug "$1").log"; }

# queue_add NAME SECONDS COMMAND...: SECONDS is about the time of the suite on an idle machine, with
# a `w` after it if the suite mostly waits: one suite of that kind runs beside the workers.
queue_add() {
    queue_order+=("${2%w} ${2//[0-9]/}: ${#queue_names[@]}")
    queue_names+=("$1")
    queue_commands+=("$(printf '%q ' "${@:3}")")
}

# queue_leave_out NAME WHY: a suite that cannot run here, as the summary says.
queue_leave_out() {
    local log
    log=$(queue_log "$1")
    rm -f "$log" "${log%.log}.times"
    queue_not_run+=("$1: $2")
    printf '%s\t0\t0\t1\t0\n' "$1" >>"$queue_results"
}

# queue_new RESUME: forgets earlier results; with `yes`, only those of suites that have failed, and
# of those that were left out.
queue_new() {
    mkdir -p "$queue_dir"
    if [ "$1" != yes ] || [ ! -e "$queue_results" ]; then
        : >"$queue_results"
    fi
    sed -i -E '/\t[0-9]+\t0\t[0-9]+\t[0-9]+$/!d; /\t0\t0\t1\t0$/d' "$queue_results"
}

queue_has_passed() {
    awk -F '\t' -v name="$1" '$1 == name { found = 1 } END { exit !found }' "$queue_results"
}

# Copies lines, and writes to FILE how long each case took: the time since the one before.
queue_stamp() {
    local line now last=${EPOCHREALTIME//[!0-9]/}
    : >"$1"
    while IFS= read -r line || [ -n "$line" ]; do
        printf '%s\n' "$line"
        now=${EPOCHREALTIME//[!0-9]/}
        case $line in
        'ok '* | 'not ok '*)
            line=${line#*ok }
            line=${line#*- }
            printf '%d %s\n' $(((now - last) / 1000)) "${line%% # *}" >>"$1"
            last=$now
            ;;
        '# up') last=$now ;;
        '# took '*) sed -E 's/^# took ([0-9]+): /\1000 /' <<<"$line" >>"$1" ;;
        esac
    done
}

# queue_start INDEX
queue_start() {
    local name=${queue_names[$1]} log far=''
    log=$(queue_log "$name")
    queue_begun=$((queue_begun + 1))
    [ ! -t 1 ] || far="step $queue_begun of ${#queue_names[@]}: "
    printf '==> %sbegins: %s\n' "$far" "$name"
    # In a process group of its own, so that all of it can be ended.
    set -m
    (
        set +e
        eval "${queue_commands[$1]}" 2>&1 | queue_stamp "${log%.log}.times"
        exit "${PIPESTATUS[0]}"
    ) >"$log" 2>&1 </dev/null &
    set +m
    queue_running[$!]=$1
    queue_began[$!]=$SECONDS
}

# queue_end PID STATUS: a suite has ended.
queue_end() {
    local name=${queue_names[${queue_running[$1]}]} seconds=$((SECONDS - queue_began[$1])) log line
    local passed=0 failed=1 skipped=0
    unset "queue_running[$1]"
    log=$(queue_log "$name")
    printf '==> %s\n' "$name"
    # A first try that failed is no result.
    if grep -q '^# once more$' "$log"; then
        sed '1,/^# once more$/s/^/first try: /' "$log"
    else
        cat "$log"
    fi
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1) || true
    if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=${BASH_REMATCH[1]} failed=${BASH_REMATCH[2]} skipped=${BASH_REMATCH[3]}
        # What it printed may not hide how it ended.
        if [ "$2" -ne 0 ] && [ "$failed" -eq 0 ]; then
            failed=1
            echo "$name: ended with status $2"
        fi
    else
        echo "$name: ended with status $2 without a result"
    fi
    printf '%s\t%d\t%d\t%d\t%d\n' "$name" "$passed" "$failed" "$skipped" "$seconds" \
        >>"$queue_results"
}

# Ends suites that still run when this script ends.
queue_kill() {
    local pid
    for pid in "${!queue_running[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null
    done
    return 0
}

# A time limit from outside, or the user: says how far it came.
queue_stopped() {
    local pid name
    trap '' TERM INT HUP
    echo "==> stopped by a signal after $SECONDS s"
    queue_kill
    for pid in "${!queue_running[@]}"; do
        name=${queue_names[${queue_running[$pid]}]}
        echo "# stopped by a signal" >>"$(queue_log "$name")"
        printf '%s\t0\t1\t0\t%d\n' "$name" $((SECONDS - queue_began[$pid])) >>"$queue_results"
    done
    queue_running=()
    queue_summary || true
    exit 143
}

# Runs all that was added. Its own status says nothing: see queue_summary.
queue_run() {
    local sorted compute=() waits=() pid status n beside=none
    [ ${#queue_order[@]} -gt 0 ] || return 0
    # Indices, the longest first.
    sorted=$(printf '%s\n' "${queue_order[@]}" | sort -k1,1nr -k3,3n)
    mapfile -t compute < <(sed -n 's/.* : //p' <<<"$sorted")
    mapfile -t waits < <(sed -n 's/.* w: //p' <<<"$sorted")
    queue_order=()
    trap queue_kill EXIT
    trap queue_stopped TERM INT HUP
    while [ $((${#compute[@]} + ${#waits[@]} + ${#queue_running[@]})) -gt 0 ]; do
        if [ ${#waits[@]} -gt 0 ] && [ -z "${queue_running[$beside]-}" ]; then
            queue_start "${waits[0]}"
            beside=$!
            waits=("${waits[@]:1}")
        fi
        n=${#queue_running[@]}
        [ -z "${queue_running[$beside]-}" ] || n=$((n - 1))
        # When there is nothing else, the workers take suites that mostly wait, too.
        for (( ; n < queue_workers && ${#compute[@]} + ${#waits[@]} > 0; n++)); do
            if [ ${#compute[@]} -gt 0 ]; then
                queue_start "${compute[0]}"
                compute=("${compute[@]:1}")
            else
                queue_start "${waits[0]}"
                waits=("${waits[@]:1}")
            fi
        done
        # Not `wait -n`, which does not know of a suite that ended while another was being looked
        # after.
        sleep 0.2
        for pid in "${!queue_running[@]}"; do
            if ! kill -0 "$pid" 2>/dev/null; then
                status=0
                wait "$pid" || status=$?
                queue_end "$pid" "$status"
            fi
        done
    done
    trap - EXIT TERM INT HUP
}

# --- the summary ---

# queue_cases LOG: of each case that failed a line, after it at most 5 of the lines `#` that say
# why.
queue_cases() {
    awk '
        /^not ok / { sub(/^not ok [0-9]* *-? */, ""); print; left = 5; next }
        /^(FAIL|ERROR|XPASS): / { sub(/^[A-Z]*: /, ""); print; left = 5; next }
        /^#/ && left > 0 { left--; print "    " substr($0, 1, 200); next }
        { left = 0 }' "$1"
}

# Which cases took longest, of all suites that have run now or, with --resume, before.
queue_slowest() {
    local name times
    while IFS=$'\t' read -r name _; do
        times=$(queue_log "$name")
        times=${times%.log}.times
        [ ! -e "$times" ] || sed "s|\$|\t$name|" "$times"
    done <"$queue_results" | sort -k1,1nr |
        # Not `head`: sort would end by SIGPIPE, and with it the run.
        awk -F '\t' 'NR <= 10 {
            i = index($1, " ")
            printf "%8.1f s  %s: %s\n", substr($1, 1, i) / 1000, $2, substr($1, i + 1)
        }'
}

# Cases that failed at first, and passed in the end.
queue_retried() {
    local name failed log
    while IFS=$'\t' read -r name _ failed _; do
        log=$(queue_log "$name")
        [ -e "$log" ] || continue
        if [ "$failed" -eq 0 ] && grep -q '^# once more$' "$log"; then
            sed '/^# once more$/q' "$log" >"$queue_dir/test-first-try"
            queue_cases "$queue_dir/test-first-try" | sed "/^    /d; s|^|$name: |" | grep . ||
                echo "$name: it ended without a result"
        fi
        awk -v suite="$name: " '
            sub(/^# first try: /, "") { sub(/ # .*/, ""); tried[$0] }
            sub(/^ok [0-9]+ - /, "") && $0 in tried { print suite $0 }' "$log"
    done <"$queue_results"
}

# Cases that failed, with the first lines of why, as many as the end of a log has room for.
queue_failures() {
    local name failed log cases
    while IFS=$'\t' read -r name _ failed _; do
        [ "$failed" -gt 0 ] || continue
        log=$(queue_log "$name")
        # Of the last try only.
        if grep -q '^# once more$' "$log"; then
            sed '1,/^# once more$/d' "$log" >"$queue_dir/test-last-try"
            log=$queue_dir/test-last-try
        fi
        cases=$(queue_cases "$log" | sed "/^    /!s|^|$name: |")
        if [ -z "$cases" ]; then
            cases="$name: it ends so:"$'\n'"$(tail -n 6 "$log" | cut -c 1-200 | sed 's/^/    /')"
        fi
        printf '%s\n' "$cases"
    done <"$queue_results" >"$queue_dir/test-failures"
    if [ "$(grep -vc '^    ' "$queue_dir/test-failures")" -gt 12 ]; then
        grep -v '^    ' "$queue_dir/test-failures"      # names before reasons
    else
        cat "$queue_dir/test-failures"
    fi
}

# Says what became of all suites; its status is 0 if nothing failed. The line of totals is the last.
queue_summary() {
    echo '==> summary'
    awk -F '\t' '{
        printf "%-55s %4d passed, %3d failed, %3d skipped in %5d s\n", $1, $2, $3, $4, $5
    }' "$queue_results"
    echo '==> the ten slowest cases'
    queue_slowest
    local retried
    retried=$(queue_retried)
    [ -z "$retried" ] || printf '==> passed only on a retry\n%s\n' "$retried"
    if [ ${#queue_not_run[@]} -gt 0 ]; then
        printf '==> not run\n'
        printf '%s\n' "${queue_not_run[@]}"
    fi
    if awk -F '\t' '$3 > 0 { found = 1 } END { exit !found }' "$queue_results"; then
        echo '==> failed'
        queue_failures
    fi
    awk -F '\t' '
        { passed += $2; failed += $3; skipped += $4 }
        END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
              exit failed > 0 || NR == 0 }' "$queue_results"
}

# patient COMMAND...: once more if it failed. For tests of time-outs of connections, which a
# machine that is busy for a moment exceeds without an error; an error fails twice.
patient() {
    "$@" && return
    echo '# once more'
    "$@"
}
