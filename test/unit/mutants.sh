# Plants one bug after another in a copy of the sources and expects a test to find each. Sourced by
# mutate.sh and the other mutate_*.sh, which say what is planted, and by their functions
# build_test how the test is compiled from the copy.
#
# usage: mutate.sh [--check] [NUMBER...]        the mutants of these numbers, default all
#
# CC, SEED and STEPS come from the environment, and MUTANT_LIMIT: seconds a test may take. A test
# that takes longer is no proof: its mutant is counted as skipped, neither caught nor survived. A
# mutant that changes nothing has failed. --check looks at that alone, and compiles each test once.
# Prints a line a mutant, then `N passed, N failed, N skipped`.
# shellcheck shell=bash disable=SC2034,SC2154

set -uo pipefail
unit=$(cd "$(dirname "$0")" && pwd)
src=$(cd "$unit/../.." && pwd)
# shellcheck source=test/lib.sh
. "$unit/../lib.sh"
LIMIT=${MUTANT_LIMIT:-120}
: "${CC:=gcc}" "${SEED:=1}"
export SEED STEPS
check=no
if [ "${1-}" = --check ]; then
    check=yes
    shift
fi
wanted=" $* "
make_work
tree=$WORK/tree                 # the copy
mkdir "$tree"
cp -r "$src"/{kern,runtime,include,common,memnode} "$tree"
counted=0

# part PATTERN...: of the copy, the source files whose path ends so.
part() {
    local pattern
    for pattern; do
        find "$tree/kern" "$tree/runtime" "$tree/include" "$tree/common" "$tree/memnode" -path "*/$pattern"
    done
}

# compile SOURCE... [FLAG...]
compile() {
    "$CC" -std=gnu11 -O2 -w -D_GNU_SOURCE -pthread -iquote "$unit" -iquote "$tree" \
        -iquote "$tree/kern" -iquote "$tree/runtime" -I"$tree/include" -o "$WORK/test" "$@" -lcmocka
}

# Counts one more; false: it is not wanted.
is_wanted() {
    counted=$((counted + 1))
    [[ $wanted = '  ' || $wanted = *" $counted "* ]]
}

# must_fail NAME: the test, built from the copy.
must_fail() {
    local name=$1
    if ! build_test 2>"$WORK/cc"; then
        not_ok "$name" 'it cannot be compiled'
        show "$WORK/cc"
        return
    fi
    run_limited "$WORK/test"
    case $status in
    0) not_ok "$name" 'survived' ;;
    timeout) skip "$name" "takes longer than $LIMIT s" ;;
    *)
        ok "$name"
        cat "$OUT" "$ERR" | grep -aE -m 1 '^step|^WARNING|^thread|: error: ' >"$WORK/said" &&
            show "$WORK/said"
        ;;
    esac
}

# change FILES SED-SCRIPT: files of the copy, patterns as of part(). Those that then differ from the
# sources are in $changed, patterns that fit none of them in $unchanged.
change() {
    local file pattern before
    changed=() unchanged=()
    for pattern in $1; do
        before=${#changed[@]}
        for file in $(part "$pattern"); do
            if sed -E "$2" "$file" >"$WORK/changed" && ! cmp -s "$WORK/changed" "$file"; then
                cp "$WORK/changed" "$file"
                changed+=("$file")
            fi
        done
        [ ${#changed[@]} -gt "$before" ] || unchanged+=("$pattern")
    done
}

# With --check: the first mutant of those that are compiled in the same way can be.
built=''
still_builds() {
    local how
    how=$(declare -f build_test)
    [ "$how" = "$built" ] || build_test 2>"$WORK/cc" || return
    built=$how
}

# mutant FILES WHAT SED-SCRIPT: the script must change a file of each pattern, as of part().
mutant() {
    local name file
    is_wanted || return 0
    name="mutant $counted, ${1%% *}: $2"
    change "$1" "$3"
    if [ ${#unchanged[@]} -gt 0 ]; then
        not_ok "$name" "the script changes nothing in ${unchanged[*]}"
    elif [ $check = yes ] && ! still_builds; then
        not_ok "$name" 'it cannot be compiled'
        show "$WORK/cc"
    elif [ $check = yes ]; then
        ok "$name"
    else
        must_fail "$name"
    fi
    for file in "${changed[@]}"; do
        cp "$src${file#"$tree"}" "$file"
    done
}

# rule NUMBER WHAT: leaves out a rule that a model's own parts follow, as its header says; the
# sources stay.
rule() {
    is_wanted && [ $check = no ] || return 0
    export RULE=$1
    must_fail "mutant $counted, the model: $2"
    unset RULE
}
