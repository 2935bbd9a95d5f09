# What the scripts of bench/ share. Sourced with the working directory at the root of the source
# tree.
#
#   VMRUN      the vmrun to measure             build/vmrun
#   LAB        the lab                          lab/lab
#   BENCH_BIN  where bench's programs are       build/bench
# shellcheck shell=bash

VMRUN=$(realpath "${VMRUN:-build/vmrun}")
LAB=$(realpath "${LAB:-lab/lab}")
BENCH_BIN=$(realpath "${BENCH_BIN:-build/bench}")
json_file=
# shellcheck disable=SC2034 # the scripts look at it
inside=
failures=0

die() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# Prints the usage line at the script's head.
usage() {
    local script=bench/${0##*/}
    [ -e "$script" ] || script=bench/tables/${0##*/}
    die "usage: $(sed -n "s|^# *\($script.*\)|\1|p" "$script" | head -n 1)"
}

# options NAMES ARGUMENT...: of the script, whose options are NAMES: `--NAME VALUE` sets the
# variable NAME (with _ for -); a NAME that ends in ! takes no value, and its variable becomes
# --NAME. All scripts have --json FILE (as seen from where the script was called) and --inside WHAT.
options() {
    local known=" $1 json inside " name json=
    shift
    while [ $# -gt 0 ]; do
        name=${1#--}
        case $1 in
        --*) ;;
        *) usage ;;
        esac
        case $known in
        *" $name! "*) printf -v "${name//-/_}" -- '--%s' "$name" ;;
        *" $name "*)
            [ $# -gt 1 ] || usage
            printf -v "${name//-/_}" '%s' "$2"
            shift
            ;;
        *) usage ;;
        esac
        shift
    done
    if [ -n "$json" ]; then
        [[ $json == /* ]] && json_file=$json || json_file=$OLDPWD/$json
        : >"$json_file"
    fi
}

# ran COMMAND...: shows the command line, then runs it. All of this goes to standard error: results
# have standard output.
ran() {
    printf '+ %s\n' "$*" >&2
    "$@"
}

# in_lab [OPTION...] -- COMMAND...: in a lab that knows this file's variables.
in_lab() { ran "$LAB" --env VMRUN="$VMRUN" --env LAB="$LAB" --env BENCH_BIN="$BENCH_BIN" "$@"; }

# value KEY FILE: of a line `KEY VALUE`; 0 where there is none.
value() { awk -v key="$1" '$1 == key { v = $2 } END { print v + 0 }' "$2"; }

# median: of the numbers on standard input.
median() {
    sort -g | awk '
        { v[NR] = $1 }
        END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# calc EXPRESSION
calc() { awk "BEGIN { printf \"%.6g\", $1 }"; }

# record KEY=VALUE...: one JSON line to the file of --json.
record() {
    [ -n "$json_file" ] || return 0
    local pair line=
    for pair in "$@"; do
        local v=${pair#*=}
        if [[ ! $v =~ ^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$ ]]; then
            v=${v//\\/\\\\}
            v=${v//$'\n'/\\n}
            v=${v//$'\t'/\\t}
            v=\"${v//\"/\\\"}\"
        fi
        line+="${line:+, }\"${pair%%=*}\": $v"
    done
    printf '{%s}\n' "$line" >>"$json_file"
}

# verdict WHAT VALUE OPERATOR LIMIT: a line PASS or FAIL.
verdict() {
    local word=FAIL
    if awk "BEGIN { exit !($2 $3 $4) }"; then
        word=PASS
    else
        failures=$((failures + 1))
    fi
    printf '%s  %-72s %12s   (%s %s)\n' "$word" "$1" "$2" "$3" "$4"
    record "verdict=$word" "what=$1" "value=$2" "limit=$4"
}

finish() {
    if [ "$failures" -eq 0 ]; then
        echo PASS
    else
        echo "FAIL ($failures)"
        exit 1
    fi
}
