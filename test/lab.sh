# Suites that run in the lab, whose machine may die. Sourced by quickstart, whose in_lab starts one.
# shellcheck shell=bash

lab_deaths_most=3               # after this number of deaths a suite is given up

# lab_suite OPTION... -- COMMAND...: in the lab; how long the machine takes to come up is no case's.
lab_suite() {
    local options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    machine_cases in_lab_again "${options[@]}" "$@"
}

# As in_lab, for machine_cases.
in_lab_again() {
    local options=(--env "CASES_AFTER=$CASES_AFTER")
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    # shellcheck disable=SC2016 # for the inner shell
    in_lab "${options[@]}" -- sh -c 'echo "# up"; exec "$@"' "$@"
}

# machine_cases COMMAND...: COMMAND runs a script of tests in a machine, and ends with 125 if that
# dies and with 124 if its time is up (lab/README.md). $CASES_AFTER goes to the script, whose
# wanted() (test/lib.sh) says which case begins. If the machine dies, the case that ran has failed,
# and a new machine runs the cases behind it.
machine_cases() {
    local -x CASES_AFTER=''
    local passed=0 failed=0 skipped=0 deaths=0 begun plan total status last line
    while :; do
        begun='' plan='' total='' last=()
        while IFS= read -r line || [ -n "$line" ]; do
            case $line in
            '# begins: '*) begun=${line#*: } && continue ;;
            '# machine: '*) status=${line#*: } && continue ;;
            '') continue ;;
            'lab: the virtual machine ended'* | 'lab: time-out:'*) last=("#   $line") ;;
            'not ok '*) failed=$((failed + 1)) ;;
            'ok '*'# SKIP'*) skipped=$((skipped + 1)) ;;
            'ok '*) passed=$((passed + 1)) ;;
            1..*) plan=$line && continue ;;
            *' passed, '*' failed, '*' skipped') total=$line && continue ;;
            *) [ ${#last[@]} -eq 0 ] || last+=("#   $line") ;;
            esac
            printf '%s\n' "$line"
        done < <(s=0; "$@" 2>&1 || s=$?; printf '\n# machine: %d\n' $s)
        if [ -n "$total" ] || { [ "$status" != 125 ] && [ "$status" != 124 ]; }; then
            break
        fi
        failed=$((failed + 1)) deaths=$((deaths + 1))
        case $status in
        124) line="the lab's time was up" ;;
        *) line="the lab's machine ended" ;;
        esac
        printf 'not ok - %s # %s\n' "${begun:-the lab}" "$line"
        [ ${#last[@]} -eq 0 ] || printf '%s\n' "${last[@]:0:5}"
        if [ "$status" = 124 ] || [ -z "$begun" ] || [ $deaths -ge $lab_deaths_most ]; then
            echo "# the cases behind it were not run"
            break
        fi
        CASES_AFTER=$begun
    done
    if [ $deaths -gt 0 ]; then
        plan=1..$((passed + failed + skipped))
        total="$passed passed, $failed failed, $skipped skipped" status=1
    fi
    [ -z "$plan" ] || printf '%s\n' "$plan"
    [ -z "$total" ] || printf '%s\n' "$total"
    return "$status"
}
