# The suites of `quickstart test`: their names, their times, and where a case lives.
# Sourced by quickstart, from whose folder all paths are.
# shellcheck shell=bash disable=SC2119,SC2120,SC2154

# The suites whose name matches, and the one case that is wanted, as people write it and as a
# regular expression for --only; all suites or cases, where they are empty.
only='' case='' one=()
# Options of a run without --full, and of a run with it; and seconds for a command in the lab, a
# command here, a fuzzer, random faults, and an attack of strangers.
quick=(--quick) about_memory=(--quick --memory) long=() lab_command=600 command=400 fuzz=6
faults=10 strangers=2

runs_here=no                    # whether programs can run on this machine itself

is_full() { [ ${#long[@]} -gt 0 ]; }

# suite NAME SECONDS CASES COMMAND...: SECONDS on an idle core, roughly (see queue_add). CASES is a
# command that lists the suite's cases, for --case; `-` if it has none that can be run alone.
suite() {
    if is_wanted "$1" "$3"; then
        queue_add "$1" "$2" "${@:4}"
    fi
}
# native ...: as suite, for programs under vmrun on this machine.
native() {
    if [ $runs_here = yes ]; then
        suite "$@"
    elif is_wanted "$1" "$3"; then
        queue_leave_out "$1" 'vmrun --check says that programs cannot run on this machine'
    fi
}

# is_wanted NAME CASES, by --only, --resume and --case
is_wanted() {
    [[ $1 =~ $only ]] && ! queue_has_passed "$1" || return
    [ -z "$case" ] || $2 2>/dev/null | grep -Fx -- "$case" >/dev/null
}

# --- where cases are ---

-() { :; }
in_system() { test/system/run --list "$@" build/vmrun; }
# In a script's text, where the names are in quotation marks.
in_source() { grep -Fo -e "'$case'" -e "\"$case\"" "$1" | tr -d "'\"" | head -n 1; }
# Programs: cases in them cannot be run alone.
in_units() { printf '%s\n' test/unit/test_*.c | sed 's/.*\/\(.*\)\.c/\1/'; }
# Suites that run quickly and cannot list their cases: a suite without such a case runs none.
in_any() { printf '%s\n' "$case"; }
in_selftest() { lab/selftest --list; }
in_large() { test/large/run --list "$@"; }

# choose NAME: one case, also as a log has it: with the size of its cache, or with its unit test
# before it.
choose() {
    case=$(sed -E 's/, round [0-9]+$//; s/, cache [0-9]+[KMG]$//' <<<"$1")
    [[ ! $case =~ ^(test_[a-z_]+)\ [0-9]+\ -\  ]] || case=${BASH_REMATCH[1]}
    one=(--only "^$(sed 's/[][\.*^$+?(){}|/]/\\&/g' <<<"$case")\$")
}

# --- how they are run ---

# unit FOLDER FLAG...: the unit tests of a build of their own, of which no more is made than they
# link: the libraries of these parts.
unit() {
    local folder=$1 part
    shift
    configured "$folder" "$@"
    for part in common kern runtime memnode; do
        compile "$folder/$part" all
    done
    make_check "$folder/test/unit"
}

# make_check FOLDER: make check there, with its result as `N passed, N failed, N skipped`.
make_check() {
    local folder=$1 log=$1/check.log status=0 file name
    make -s -C "$folder" -j"$jobs" ${case:+TESTS="$case"} check >"$log" 2>&1 ||
        status=$?
    grep 'error:' "$log" || true
    sed -n 's/^\(# took .*\)/\1/p' "$folder"/test_*.log 2>/dev/null || true
    # With the output of each test that failed: its folder may be gone before the output is read.
    grep -E '^(FAIL|ERROR|XPASS): ' "$log" | while read -r line; do
        printf '%s\n' "$line"
        name=${line#*: } file=$folder/${name%% *}.log
        file=${file%.sh.log}.log
        # Lines that are not of a case that passed.
        [ ! -s "$file" ] || grep -vE '^(ok|PASS:|# took) ' "$file" | tail -n 20 | cut -c 1-300 |
            sed 's/^/#   /'
    done
    # The summary of automake's harness, which is there only if all was built.
    awk -v status=$status '
        /^# (PASS|XFAIL):/ { pass += $3 }
        /^# SKIP:/ { skip += $3 }
        /^# (FAIL|XPASS|ERROR):/ { fail += $3 }
        END {
            if (status && !fail) {
                fail = 1
                print "see " FILENAME
            }
            printf "%d passed, %d failed, %d skipped\n", pass, fail, skip
            exit fail > 0
        }' "$log"
}

# Two unit tests for long, in a build of their own: the unit tests may be compiled meanwhile.
both() {
    test/unit/tap build/soak/test/unit/test_tree_life --full
    UNIT_LIMIT=4000 test/unit/tap build/soak/test/unit/test_sum_soak --full
}
soak() {
    configured build/soak
    compile build/soak/common all
    compile build/soak/runtime far/libfar.a
    compile build/soak/test/unit test_tree_life
    compile build/soak/test/unit test_sum_soak
    tap both
}

# Compiles with the other compiler as well; one test.
other_compiler() {
    configured build/clang CC=clang --enable-werror
    if compile build/clang all && compile build/clang/test programs; then
        echo '1 passed, 0 failed, 0 skipped'
    else
        echo '0 passed, 1 failed, 0 skipped'
    fi
}

# tap COMMAND...: counts the lines of a TAP test that prints no totals.
tap() {
    "$@" | awk '
        { print; fflush() }
        /^ok .*# SKIP/ { skip++; next }
        /^ok / { pass++ }
        /^not ok / { fail++ }
        END { printf "%d passed, %d failed, %d skipped\n", pass, fail, skip }'
}

# large KIND WHERE SECONDS LIMIT PREFIX...: large programs; if all their cases are run, which may
# take an hour, each program as a suite. KIND is suite or native.
large() {
    local kind=$1 where=$2 seconds=$3 limit=$((10 * $4)) program programs which
    shift 4
    if ! is_full; then
        $kind "large programs $where" "$seconds" 'in_large --quick' \
            "$@" test/large/run --quick "${one[@]}" --limit $limit build/vmrun
        return
    fi
    programs=$(in_large | cut -d , -f 1 | uniq)
    for program in $programs; do
        which=(--only "${one[1]-^$program,}")
        if [[ $program = chromium && $where = *lab* ]]; then
            ! is_wanted "large programs $where: $program" "in_large --only ^$program," ||
                queue_leave_out "large programs $where: $program" \
                    'a browser of many processes, not tried in an emulated machine'
            continue
        fi
        # In the lab the whole of CPython's modules takes more than an hour.
        if [[ $program = python && $where = *lab* && -z $case ]]; then
            which+=(--quick)
        fi
        $kind "large programs $where: $program" 1000 "in_large --only ^$program," \
            "$@" test/large/run "${which[@]}" --limit $limit build/vmrun
    done
}

# --- all of them ---

suites() {
    ! can_run_here || runs_here=yes
    suite 'unit tests' 60 in_units unit build
    suite 'unit tests, address and undefined sanitizers' 100 in_units \
        unit build/asan --enable-sanitize=address,undefined
    suite 'unit tests, thread sanitizer' 110 in_units unit build/tsan --enable-sanitize=thread
    ! is_full || suite 'lives in a tree, 10,000 rounds; sums of 10^9 pages' 450 - soak
    suite 'build with clang' 30 - other_compiler
    suite 'documents' 5 - test/docs/run build
    suite 'wrong command lines' 10 - test/messages/run build
    suite 'files for Kubernetes and Slurm' 5 - test/docs/deploy build
    suite 'order of folders' 5 - test/layers/run build
    suite 'mutants still apply' 10 - test/unit/mutants_apply
    suite 'installation' 30 - test/install/run build
    suite 'completion of command lines' 5w - test/install/completion build
    suite 'the queue of suites' 10 - test/queue/run
    suite 'figures and alerts for Prometheus' 5w - test/prometheus/run "${long[@]}" build
    suite 'the report of measurements' 5 - test/bench/run
    suite 'fuzzers' 120 - test/fuzz/run $fuzz
    suite 'memnode over NBD' 80w in_any \
        patient test/nbd/run "${one[@]}" build/memnode/memnode
    suite 'strangers at a memory node' 50w - python3 test/nbd/strangers.py build/memnode/memnode \
        "$([ $runs_here = no ] || echo build/vmrun)" build/examples/scan $strangers
    suite 'the driver of NBD nodes' 80w - patient make_check build/test/nbd
    ! is_full || suite 'packages' 600 - test/install/packages build
    if is_full; then
        suite 'far memory on a Ceph' 120 - tap test/cluster/ceph build
        suite 'mutants of kern and runtime' 2400 - test/unit/mutate.sh
        suite 'mutants of the process tree' 1200 - test/unit/mutate_tree.sh
        suite 'mutants of the lives in the tree' 1200 - test/unit/mutate_life.sh
        suite 'mutants of the fences' 1200 - test/unit/mutate_fence.sh
        suite 'mutants of the copies' 1200 - test/unit/mutate_copies.sh
        suite "mutants of kern's own queues" 300 - test/unit/mutate_direct.sh
        suite 'mutants of what vCPUs share' 300 - test/unit/mutate_lines.sh
        suite 'mutants of mappings' 300 - test/unit/mutate_memory.sh
        suite 'mutants of who may come' 100 - test/unit/mutate_admission.sh
        suite 'mutants of memnode over RDMA' 300 - test/unit/mutate_rdma.sh
        suite 'mutants of threads' 600 - test/unit/mutate_threads.sh
    fi
    natively
    in_the_lab
    [ $runs_here = yes ] || in_the_lab_instead
}

natively() {
    # Each case once, with its smallest cache.
    local sizes=(--small)
    [ -z "$case" ] || sizes=()
    ! is_full || sizes=(--long)
    native 'system tests on this machine' 600 "in_system --working ${sizes[*]}" \
        test/system/run --working "${sizes[@]}" "${one[@]}" --limit $command build/vmrun
    native 'system tests that wait, on this machine' 210w 'in_system --waiting' \
        test/system/run --waiting "${long[@]}" "${one[@]}" --limit $command build/vmrun
    native "kern's ways in, fuzzed on this machine" 20 - test/system/entry-fuzz $fuzz build/vmrun
    native 'system tests on this machine, NBD nodes' 150 "in_system ${about_memory[*]}" \
        test/system/nodes unix "${about_memory[@]}" "${one[@]}" --limit $command build/vmrun
    local full=()
    ! is_full || full=(--full)
    native "README's first steps, and uses" 60 - test/docs/first-steps "${full[@]}" build
    # Not patient: a case that fails once may have read a wrong word.
    native 'faults over NBD' 60w 'in_source test/faults/nbd' \
        test/faults/nbd "${long[@]}" "${one[@]}" build
    native 'copies on several nodes' 60w 'in_source test/faults/replicas' \
        test/faults/replicas "${long[@]}" "${one[@]}" build
    native 'nodes that are drained' 140w 'in_source test/faults/drain' \
        test/faults/drain "${long[@]}" "${one[@]}" build
    native 'scrubs over NBD' 90w 'in_source test/faults/scrub' \
        test/faults/scrub "${long[@]}" "${one[@]}" build
    native 'random faults over NBD' ${faults}w - \
        test/faults/random --seconds $faults --log build/random-faults.log build
    native 'random faults with copies' ${faults}w - \
        test/faults/random --copies --seconds $faults --log build/random-copies.log build
    large native 'on this machine' 45 $command
    if is_full; then
        native 'system tests on this machine, NBD nodes over TCP' 900 'in_system --working' \
            test/system/nodes nbd --working "${one[@]}" --limit $command build/vmrun
        native 'system tests on this machine, a wire by the clock' 400 'in_system --working' \
            test/system/nodes timed --working "${one[@]}" --limit $command build/vmrun
        native 'system tests on this machine, dax' 400 'in_system --working' \
            test/system/nodes dax --working "${one[@]}" --limit $command build/vmrun
        native 'system tests on this machine, a file' 900 'in_system --working' \
            test/system/nodes file --working "${one[@]}" --limit $command build/vmrun
        native 'threads, signals and fork on this machine, 20 times' 2400 \
            'in_system --only t_threads|t_fork|t_signals' \
            test/system/run --repeat 20 --only "${one[1]-t_threads|t_fork|t_signals}" \
            --limit $command build/vmrun
    fi
}

in_the_lab() {
    # Each case once, with its smallest cache: the others run natively with --full. A run without
    # that has fewer programs. With other paging and over nodes a run with --full has fewer, too.
    local few=(--few --small --brief) kinds=("${about_memory[@]}" --small --brief)
    # Where only the paging or the nodes differ: the cases that change page tables most. With
    # emulated nodes the hardest of them takes minutes.
    local most='true|randmem, |sqlite3|hints|t_maps$|t_exec|memory op'
    local paging=("${kinds[@]}" --only "^($most|t_fork$)")
    kinds+=(--only "^($most)")
    # These are about vmrun's side, which is the same where programs run on this machine itself.
    local outside='wire: |replay: |a profile |.* has a profile|t_profile|two quicksorts|RssAnon'
    outside+='|what (a program|children) had|.* (the arguments, env|another copy of vmrun)|--stats'
    outside+='|guide malloc|python3, (subprocess|execve while)'
    [ $runs_here = no ] || few+=(--except "^($outside)")
    # A case that is named is wanted, also if it is none of the few.
    [ -z "$case" ] || few=(--small) kinds=("${about_memory[@]}" --small) paging=("${kinds[@]}")
    ! is_full || few=(--small) kinds=(--working --few --small) paging=("${kinds[@]}")
    local itself=("${quick[@]}")
    [ -z "$case" ] || itself=("$case")
    suite "README's first steps, and uses, in the lab" 100 - test/docs/first-steps --lab build
    suite 'the lab itself' 230 in_selftest patient tap lab/selftest "${itself[@]}"
    suite 'system tests in the lab, nested paging' 550 "in_system --working ${few[*]}" \
        lab_suite -- test/system/run --working "${few[@]}" "${one[@]}" --limit $lab_command \
        build/vmrun
    suite 'system tests that wait, in the lab' 190w 'in_system --waiting' \
        lab_suite -- test/system/run --waiting "${one[@]}" --limit $lab_command build/vmrun
    large suite 'in the lab, nested paging' 90 $lab_command lab_suite --
    suite "kern's ways in, fuzzed in the lab" 60 - \
        lab_suite -- test/system/entry-fuzz $fuzz build/vmrun
    suite 'memnode over RDMA, in the lab' 120 'in_source test/rdma/run' \
        patient lab_suite --rdma -- test/rdma/run "${one[@]}" --attack $strangers build
    ! is_full || suite 'a disk that the kernel lends over RDMA, in the lab' 90 - \
        lab_suite --rdma -- test/cluster/nvmet build
    ! is_full || suite 'in containers, in the lab' 90 - \
        lab_suite --rdma -- test/install/container build
    ! is_full || suite 'packets over RDMA, recorded in the lab' 60 - tap test/rdma/recorded build
    suite 'the driver of RDMA nodes, in the lab' 110w 'in_source test/rdma/driver.c' \
        patient tap lab_suite -- test/rdma/driver.sh build ${case:+"$case"}
    suite "a card's register as memory of a guest, in the lab" 15 - \
        tap lab_suite --mem 2048 --qemu=-device --qemu=edu,dma_mask=0xffffffff -- \
        build/test/rdma/bar
    suite 'memnode and the kernel NBD client, in the lab' 30 'in_source test/nbd/run' \
        lab_suite -- test/nbd/run --kernel --only "${one[1]-kernel}" build/memnode/memnode
    suite 'random faults over RDMA, in the lab' $((3 * faults))w - \
        lab_suite --rdma -- test/faults/random --rdma 10.77.0.1 --seconds $((3 * faults)) \
        --log build/random-faults-rdma.log build
    suite 'random faults with copies over RDMA, in the lab' $((3 * faults))w - \
        lab_suite --rdma -- test/faults/random --copies --rdma 10.77.0.1 \
        --seconds $((3 * faults)) --log build/random-copies-rdma.log build
    suite 'faults of memory nodes, in the lab' 500w 'in_source test/faults/cases.sh' \
        lab_suite --memnodes 2 --memnode-size 256M -- \
        test/faults/run --patient "${long[@]}" "${one[@]}" build
    suite 'copies on a disk that hangs, in the lab' 60w 'in_source test/faults/disk' \
        lab_suite -- test/faults/disk "${long[@]}" "${one[@]}" build
    suite 'system tests in the lab, shadow paging' 200 "in_system ${paging[*]}" \
        lab_suite --npt 0 -- test/system/run "${paging[@]}" "${one[@]}" --limit $lab_command \
        build/vmrun
    suite 'system tests in the lab, VMX and EPT' 70 'in_source test/system/vmx' \
        machine_cases test/system/vmx "${quick[@]}" "${one[@]}" build/vmrun
    suite 'system tests in the lab, nodes of all kinds' 110 "in_system ${kinds[*]}" \
        lab_suite --rdma -- test/system/nodes mixed "${kinds[@]}" "${one[@]}" \
        --limit $lab_command build/vmrun
    ! is_full || suite 'system tests in the lab, RDMA nodes' 1500 "in_system ${kinds[*]}" \
        lab_suite --rdma -- test/system/nodes rdma "${kinds[@]}" "${one[@]}" \
        --limit $lab_command build/vmrun
}

# Suites that a machine with /dev/kvm runs natively, in the lab instead: the cases that there is
# time for.
in_the_lab_instead() {
    in_the_lab_some 'copies on several nodes' replicas \
        '^(a node is stopped for seconds|two of three copies|a node that missed writes)'
    in_the_lab_some 'nodes that are drained' drain \
        '^(rolling restart, one copy$|the only node is drained|a process is stopped$)'
    in_the_lab_some 'scrubs over NBD' scrub '^(a copy that is spoiled is made right, inline)'
    in_the_lab_some 'faults over NBD' nbd \
        '^(a bit flips on the way back|late writes of a child|connections that are closed)'
}

# in_the_lab_some NAME SCRIPT REGEX: cases of a script of test/faults: those that match, or all in a
# run with --full, or the case that is wanted.
in_the_lab_some() {
    local some=("${long[@]}" "${one[@]}")
    is_full || [ -n "$case" ] || some=(--only "$3")
    suite "$1, in the lab" 80w "in_source test/faults/$2" \
        lab_suite -- "test/faults/$2" "${some[@]}" build
}
