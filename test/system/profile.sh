# --profile: both files, of programs whose functions are known (t_profile.c).
# shellcheck shell=bash disable=SC2034,SC2154

fault_profile() {
    OUT=$WORK/out ERR=$WORK/err
    profile_kinds
    profile_agrees
    profile_processes
    [ "$brief" = yes ] || profile_refusals
}

# profiled NAME STATUS PROGRAM ARGUMENT [OPTION...]: runs it with a fresh folder $prof for its
# profile, prof/p. False: the case is not selected. Sets why.
profiled() {
    local name=$1 expected=$2 program=$3 argument=$4 LIMIT=$limit
    shift 4
    selected "$name" || return 1
    why='' prof=$WORK/prof
    rm -rf "$prof" && mkdir "$prof"
    run_limited "$vmrun" --cache 2M --profile "$prof/p" "${vmrun_flags[@]}" "$@" -- \
        "$build/test/system/$program" "$argument"
    [ "$status" = "$expected" ] || why="status $status"
}

# share FILE REGEX: of the faults of folded stacks, in per cent, those whose stack matches.
share() {
    awk -v re="$2" '
        { n = $NF; sub(/ [0-9]+$/, ""); all += n; if ($0 ~ re) some += n }
        END { printf "%d\n", all ? 100 * some / all : -1 }' "$1"
}

# share_is FILE REGEX LEAST MOST: adds to why.
share_is() {
    local got
    got=$(share "$1" "$2")
    { [ "${got:--1}" -ge "$3" ] && [ "$got" -le "$4" ]; } ||
        why="${why:+$why; }$got % of $(basename "$1") are $2"
}

profile_kinds() {
    local program why prof
    for program in t_profile t_profile_static; do
        [ -x "$build/test/system/$program" ] || continue
        if profiled "$program: the hot function is first" 0 $program work; then
            head -n 1 "$prof/p" | grep -Eq '(^|;)main;work;hot [0-9]+$' || why='hot is not first'
            share_is "$prof/p" '(^|;)main;work;hot$' 68 80
            share_is "$prof/p" '(^|;)main;work;cool$' 18 30
            sed -n 5p "$prof/p.txt" | grep -Eq ' anon 16M .* hot\+0x[0-9a-f]+ \(t_prof' ||
                why="${why:+$why; }the table does not begin with it"
            sed -n 6p "$prof/p.txt" | grep -q ' from work+0x' || why="${why:+$why; }no caller"
            [ -z "$why" ] || cat "$prof/p" "$prof/p.txt" >"$ERR"
            verdict "$program: the hot function is first" "$why"
        fi
        if profiled "$program: stacks of threads" 0 $program threads; then
            share_is "$prof/p" '(^|;)worker;hot$' 90 100
            verdict "$program: stacks of threads" "$why"
        fi
        # A system call that waits for a page is counted at its instruction.
        if profiled "$program: a system call" 0 $program sender; then
            share_is "$prof/p" ';sender;[^;]*write[^;]*$' 85 100
            verdict "$program: a system call" "$why"
        fi
        # memcpy keeps no frame, and may have no name.
        if profiled "$program: who called memcpy" 0 $program copier; then
            share_is "$prof/p" '(^|;)main;copier;[^;]+$' 85 100
            verdict "$program: who called memcpy" "$why"
        fi
        if profiled "$program: junk for frames" 0 $program junk; then
            share_is "$prof/p" '(^|;)junk($|;)|^junk$' 90 100
            grep -qx "done" "$OUT" || why="${why:+$why; }no output"
            verdict "$program: junk for frames" "$why"
        fi
    done
}

# Each fault that waited is there: as many as the statistics count.
profile_agrees() {
    local why prof faults markers folded
    if profiled 'a profile has all faults that waited' 0 t_profile threads \
        --stats="$WORK/prof.stats"; then
        faults=$(awk '$1 == "faults.fetch" || $1 == "faults.wait" { n += $2 } END { print n }' \
            "$WORK/prof.stats")
        markers=$(awk '$1 == "faults.marker" { print $2 }' "$WORK/prof.stats")
        folded=$(awk '{ n += $NF } END { print n }' "$prof/p")
        # A page that was waited for may turn out to be a marker, or be evicted before it is read.
        { [ "$folded" -ge "$faults" ] && [ "$folded" -le $((faults + markers + 20)) ]; } ||
            why="$folded in the profile, $faults in the statistics"
        verdict 'a profile has all faults that waited' "$why"
    fi
    if profiled 'a profile after a signal' 143 t_profile killed; then
        share_is "$prof/p" '(^|;)main;work;hot$' 68 80
        verdict 'a profile after a signal' "$why"
    fi
    if profiled 'a profile after an execve that failed' 0 t_profile noexec; then
        share_is "$prof/p" '(^|;)main;work;hot$' 68 80
        verdict 'a profile after an execve that failed' "$why"
    fi
}

profile_processes() {
    local why prof child
    if profiled 'a child has a profile of its own' 0 t_profile fork; then
        child=$(find "$prof" -name 'p.*.0')
        share_is "$prof/p" ';in_child;hot$|;main;hot$' 90 100
        share_is "${child:-/dev/null}" ';cool$' 90 100
        [ "$(find "$prof" -type f | wc -l)" = 4 ] || why="${why:+$why; }$(ls "$prof")"
        verdict 'a child has a profile of its own' "$why"
    fi
    if profiled 'an executed program has a profile, too' 0 t_profile exec; then
        child=$(find "$prof" -name 'p.*.1')
        share_is "$prof/p" '(^|;)main;work;hot$' 68 80
        share_is "${child:-/dev/null}" '(^|;)main;work;hot$' 68 80
        verdict 'an executed program has a profile, too' "$why"
    fi
    if profiled 'a profile of what a child executes' 0 t_profile forkexec; then
        [ "$(find "$prof" -type f | wc -l)" = 6 ] || why="${why:+$why; }$(ls "$prof")"
        share_is "$(find "$prof" -name 'p.*.0')" ';cool$' 90 100
        share_is "$(find "$prof" -name 'p.*.1')" '(^|;)main;work;hot$' 68 80
        verdict 'a profile of what a child executes' "$why"
    fi
}

# no_profile NAME FILE MESSAGE: vmrun refuses to start.
no_profile() {
    local why='' LIMIT=$limit
    selected "$1" || return 0
    run_limited "$vmrun" --profile "$2" "${vmrun_flags[@]}" -- echo started
    [ "$status" = 125 ] || why="status $status"
    [ ! -s "$OUT" ] || why="${why:+$why; }it started"
    grep -q "^vmrun: --profile $2: $3" "$ERR" || why="${why:+$why; }another message"
    verdict "$1" "$why"
}

profile_refusals() {
    local name='profile = FILE in the configuration' why='' LIMIT=$limit
    no_profile 'a profile in no folder' /nowhere/p 'cannot be written: .*: make its folder first$'
    no_profile 'a profile that is a folder' /usr 'cannot be written: .*: name a file in it$'
    no_profile 'a profile that is a device' /dev/null 'cannot be written: .*: name a regular file$'
    no_profile 'a profile called yes' yes 'give no, or the path of a file, as in ./profile$'
    selected "$name" || return 0
    rm -f "$WORK/conf.p" "$WORK/conf.p.txt"
    {
        printf '[vmrun]\nprofile = %s\n' "$WORK/conf.p"
        grep -vxF '[vmrun]' "$XDG_CONFIG_HOME/vmrun.conf"
    } >"$WORK/profile.conf"
    run_limited "$vmrun" --config "$WORK/profile.conf" "${vmrun_flags[@]}" --no-profile -- true
    { [ "$status" = 0 ] && [ ! -e "$WORK/conf.p" ]; } || why="status $status; --no-profile"
    run_limited "$vmrun" --config "$WORK/profile.conf" "${vmrun_flags[@]}" -- true
    { [ "$status" = 0 ] && [ -e "$WORK/conf.p" ] && [ -e "$WORK/conf.p.txt" ]; } ||
        why="${why:+$why; }status $status; no files"
    verdict "$name" "$why"
}
