# The n-th allocation of a command fails, from the beginning of main on.
# Sourced by run.

memory_can_run() {
    return 0
}

# Numbers to try of 1 to $1: the first few, in which programs start, and some evenly between.
spread() {
    local n
    if [ -n "$long" ]; then
        seq 1 $(($1 / 1000 + 1)) "$1"
    else
        for n in 1 2 3 5 8 $(($1 / 16)) $(($1 / 8)) $(($1 / 4)) $(($1 / 2)) $(($1 * 3 / 4)) "$1"; do
            [ "$n" -lt 1 ] || [ "$n" -gt "$1" ] || echo "$n"
        done | sort -nu
    fi
}

# It says that memory is out, or did without; the pool is whole, as it was or as it should become.
memory_once() { # operation
    local n
    operation "$1"
    undisturbed
    fresh
    faulty REEF_FAULT_MEMORY=0 -- "${command[@]}"
    [ "$code" = 0 ] || fail "$1 under the shim: exit $code"
    [ "$memory_count" -gt 10 ] || fail "$1 allocates nothing that the shim sees"
    for n in $(spread "$memory_count"); do
        fresh
        faulty "REEF_FAULT_MEMORY=$n" -- "${command[@]}"
        if [ "$code" = 0 ]; then
            look "$looked"
            [ "$state" = "$after" ] || fail "$1, allocation $n: it says that all went well"
        elif [ -n "$sanitize" ] && grep -q 'AddressSanitizer: CHECK failed: sanitizer_' "$work/err"; then
            : # the sanitizer itself went without memory, where a thread starts
        else
            expect_error "$1, allocation $n of $memory_count" 71 'memory'
        fi
        # Whoever was training may have committed some of it.
        look "$looked"
        recover "$1, allocation $n" "$([ "$1" != train ] || echo "$state")"
    done
}

memory_run() {
    local name
    for name in ${only:-init train snapshot export status verify ${long:+seal import restore in-place}}; do
        memory_once "$name"
    done
}
