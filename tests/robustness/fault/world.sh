# What every part of the campaign shares: a small world of pools, faults, and what must hold after one.
# Sourced by run.

cases=0
work=$(mktemp -d "${TMPDIR:-/tmp}/reef-test-XXXXXX")
on_exit=()
finish() {
    local last
    for last in "${on_exit[@]}"; do $last 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
fail() {
    echo "FAILED: $*" >&2
    [ ! -s "$work/err" ] || sed 's/^/    said: /' "$work/err" >&2
    exit 1
}

unset REEF_POOL REEF_FAIL_POINT
export OPENBLAS_NUM_THREADS=1

# ---- running ---------------------------------------------------------------------------------------

preload=$shim options_for_preload=${ASAN_OPTIONS:-}
case $sanitize in
*address*)
    # Writes: the sanitizer comes first and passes them on to the shim, as it wants it. Memory: the shim has
    # to come first, since the sanitizer passes nothing on; then what is left behind after a failure may be
    # anything the end of the process frees, so leaks are not looked for.
    preload="$(${CC:-cc} -print-file-name=libasan.so):$shim"
    preload_memory=$shim
    options_for_memory="$options_for_preload:verify_asan_link_order=0:detect_leaks=0"
    ;;
*)
    preload_memory=$shim
    options_for_memory=$options_for_preload
    ;;
esac

# Without the shell's own words on a process that was killed.
quietly() {
    (
        (exec "$@" >"$work/out" 2>"$work/err" </dev/null)
        exit $?
    ) 2>/dev/null
}

# Run with a fault, and count: faulty VARIABLE=VALUE... -- PROGRAM...
# code, $work/out, $work/err and the counts io_count and memory_count are what came of it.
faulty() {
    local settings=() library=$preload sanitizer=$options_for_preload
    while [ "$1" != -- ]; do
        settings+=("$1")
        case $1 in REEF_FAULT_MEMORY=*) library=$preload_memory sanitizer=$options_for_memory ;; esac
        shift
    done
    shift
    rm -f "$work/counts"
    code=0
    (
        [ ${#settings[@]} -eq 0 ] || export "${settings[@]}"
        export REEF_FAULT_COUNTS="$work/counts" ASAN_OPTIONS=$sanitizer LD_PRELOAD=$library
        quietly "$@"
    ) || code=$?
    read -r io_count memory_count < <(od -An -v -t u8 -w16 "$work/counts")
}

# The same without anything preloaded.
plain() {
    code=0
    quietly "$@" || code=$?
}

must() {
    plain "$@"
    [ "$code" = 0 ] || fail "exit $code of $*"
}

# An error for people: an exit code of sysexits(3), and one line that names what was tried and says why.
expect_error() { # what was done, codes that are right, words of which one must be said
    [[ " $2 " == *" $code "* ]] || fail "$1: exit $code, not one of $2"
    grep -qE "$3" "$work/err" || fail "$1: exit $code without saying '$3'"
    # The daemon says more than its last words, and the process that verify starts says its own.
    [[ $1 == reefd* || $1 == verify* ]] || [ "$(wc -l <"$work/err")" = 1 ] || fail "$1: more or less than one line"
}

# ---- the state of a pool ---------------------------------------------------------------------------

# Verifies it, and sets state: "absent", or what a commit decides (root hash, generations, snapshots).
look() {
    if [ ! -e "$1/data.mdb" ]; then
        state=absent
        return
    fi
    must "$reef" verify "$1" --json
    grep -q '"sound": true' "$work/out" || fail "$1 is damaged: $(cat "$work/out")"
    state=$(sed -nE 's/^ *"(root|generations|snapshots)": *"?([^",]*)"?,?$/\2/p' "$work/out" | tr '\n' ' ')
    [ "$(wc -w <<<"$state")" = 3 ] || fail "verify says something else now: $(cat "$work/out")"
}

# ---- the world -------------------------------------------------------------------------------------

# Made-up words that are the same everywhere: a generator of the C standard's example.
words() { # bytes, words...
    local bytes=$1 draw=7 text=
    shift
    while [ ${#text} -lt "$bytes" ]; do
        draw=$(((draw * 1103515245 + 12345) & 0xffffffff))
        text+="${*:draw / 65536 % $# + 1:1} "
    done
    printf '%s' "${text:0:bytes}"
}

tiny=(--layers 2 --ffw pd --d-model 16 --attention-heads 2 --context 16 --batch 2 --heads 1 --topk 2 --d-key 8
    --side 4 --d-ffw 16 --boundaries given
    --memory 0)
hours_ago=$((-5 * 3600))

# base: generation 0 knows English and is sealed; 1 has begun with C; snapshot "kept". aged: the same before
# that, some hours ago, so that a daemon merges its usage. early: base as it was when generation 1 was opened.
# imported: a pool that went on, of which generation 1 is.
world_make() {
    english=$work/english.txt code_text=$work/code.c more=$work/more.c
    words 1500 the sea a reef grows under slow water and light >"$english"
    words 700 'int i = 0;' 'return x;' 'if (a)' '{ }' 'x += 1;' 'for (;;)' >"$code_text"
    words 500 'while (y)' 'y--;' '*p = q;' '#define A' >"$more"
    code_lines=$work/lines.c
    tr ' ' '\n' <"$code_text" >"$code_lines"
    base=$work/base early=$work/early imported=$work/imported
    faulty "REEF_FAULT_CLOCK=$hours_ago" -- "$reef" init "$work/aged" "${tiny[@]}"
    [ "$code" = 0 ] || fail "init: exit $code"
    faulty "REEF_FAULT_CLOCK=$hours_ago" -- "$reef" train "$work/aged" "$english" --commit-steps 10 --threads 1
    [ "$code" = 0 ] || fail "train: exit $code"
    must "$reef" init "$base" "${tiny[@]}"
    must "$reef" train "$base" "$english" --commit-steps 10 --threads 1
    must "$reef" seal "$base" --threads 1
    must "$reef" export pool "$base" "$early" --no-verify
    must "$reef" train "$base" "$english" "$code_text" --threads 1
    must "$reef" snapshot create "$base" kept --threads 1
    must "$reef" export pool "$base" "$work/compact" --no-verify # without free pages that a snapshot could take
    must "$reef" train "$base" "$english" "$code_text" "$more" --threads 1
    cp -r "$base" "$imported"
    must "$reef" seal "$imported" --threads 1
}

# ---- what is done to a pool ------------------------------------------------------------------------
#
# An operation sets: from, the pool to begin with (empty: none); command; looked, the pool that it makes or
# changes. $pool is a fresh copy of `from` each time.

pool=$work/pool out=$work/made
operation() {
    from=$base looked=$pool environment=()
    case $1 in
    init) from="" command=("$reef" init "$pool" "${tiny[@]}") ;;
    train) from=$early command=("$reef" train "$pool" "$english" "$code_text" --commit-steps 2 --threads 1) ;;
    daemon) from=$early command=("$reefd" --pool "$pool" --source "$code_text" --commit-steps 2 --threads 1 --quiet) ;;
    seal) command=("$reef" seal "$pool" --threads 1) ;;
    snapshot) from=$work/compact command=("$reef" snapshot create "$pool" new --threads 1) ;;
    remove) command=("$reef" snapshot remove "$pool" kept --threads 1) ;;
    compact) from=$work/aged command=("$reefd" --pool "$pool" --source "file:$code_text" --threads 1 --quiet) ;;
    import) from=$early command=("$reef" import "$pool" "$imported" --threads 1) ;;
    export) looked=$out command=("$reef" export pool "$pool" "$out" --no-verify) ;;
    shards) looked=$out command=("$here/divide" "$reef" "$pool" "$out") ;;
    restore) looked=$out command=("$reef" snapshot restore "$pool" kept "$out") ;;
    in-place) command=("$reef" snapshot restore "$pool" kept --in-place) ;;
    push) from=$early command=("$here/push" "$reef" "$reefd" "$pool" "$code_lines") ;;
    status) command=("$reef" status "$pool") ;;
    verify) command=("$reef" verify "$pool") ;;
    *) fail "no operation $1" ;;
    esac
}
fresh() {
    rm -rf "$pool" "$out" "$out".shards "$out".shards.unfinished
    [ -z "$from" ] || cp -r "$from" "$pool"
}

# The states before and after the operation when nothing goes wrong.
undisturbed() {
    fresh
    look "$looked"
    before=$state
    must "${command[@]}"
    look "$looked"
    after=$state
}

# After an accident: whole, as it was or as it should become, and done once more it is as if nothing had been.
# Stops short where it had happened: what is done cannot be done again.
recover() { # what was done, further states that are right
    look "$looked"
    [ "$state" = "$before" ] || [ "$state" = "$after" ] || [ "$state" = "${2:-}" ] ||
        fail "$1: the state is neither that before nor that after"
    if [ "$looked" != "$pool" ]; then
        survivor=$state
        look "$pool" # what was copied
        state=$survivor
    fi
    if [ "$state" != "$after" ] || [ "$before" = "$after" ]; then
        must "${command[@]}"
        look "$looked"
    fi
    [ "$state" = "$after" ] || fail "$1: repeated it ends in another state"
    cases=$((cases + 1))
}
