# The n-th write or sync of a data file fails, once or from then on.
# Sourced by run.

io_can_run() {
    return 0
}

# Numbers to try of 1 to $1: all, or some, the first and the last among them.
some() {
    local n
    if [ -n "$long" ] || [ "$1" -le 3 ]; then
        seq "$1"
    else
        for n in 1 2 $(($1 / 3)) $(($1 / 2)) $(($1 * 3 / 4)) $(($1 - 1)) "$1"; do echo "$n"; done | sort -nu
    fi
}

# An operation fails with one line, leaves nothing half done, and works the next time.
io_once() { # operation, action
    local n words='Input/output error|I/O error'
    [ "$2" = eio ] || words='the disk is full|No space left'
    operation "$1"
    undisturbed
    fresh
    faulty -- "${command[@]}"
    [ "$code" = 0 ] || fail "$1 under the shim: exit $code"
    [ "$io_count" -gt 0 ] || fail "$1 writes nothing that the shim sees"
    for n in $(some "$io_count"); do
        fresh
        faulty "REEF_FAULT_IO=$2:$n" -- "${command[@]}"
        expect_error "$1, $2 at write $n" "73 74" "$words"
        [ "$before" != absent ] || [ ! -e "$looked" ] || fail "$1, $2 at write $n: left $(ls -A "$looked")"
        recover "$1, $2 at write $n"
    done
}

# A training of many commits: write 1 to 100 and what comes of it. It goes on at the last commit.
io_training() { # writes to fail...
    local n sticky
    operation train
    command+=(--commit-steps 1)
    undisturbed
    fresh
    faulty -- "${command[@]}"
    [ "$code" = 0 ] && [ "$io_count" -ge 100 ] || fail "train makes $io_count writes, which is no 100"
    for n in "$@"; do
        for sticky in '' ${long:++}; do
            fresh
            faulty "REEF_FAULT_IO=eio:$n$sticky" -- "${command[@]}"
            expect_error "train, write $n$sticky" 74 'Input/output error'
            look "$pool" # that its root follows from what it holds says that it is a state of a commit
            must "${command[@]}"
            look "$pool"
            [ "$state" = "$after" ] || fail "train, write $n$sticky: it goes on to another state"
            cases=$((cases + 1))
        done
    done
}

# The daemon keeps what it has in memory and tries again.
io_daemon() { # writes to fail...
    local n writes
    operation daemon
    undisturbed
    fresh
    faulty -- "${command[@]}"
    writes=$io_count
    for n in "$@"; do
        [ "$n" -le "$writes" ] || fail "reefd makes only $writes writes"
        fresh
        faulty "REEF_FAULT_IO=eio:$n" -- "${command[@]}"
        [ "$code" = 0 ] || fail "reefd, write $n: exit $code"
        grep -q 'trying again' "$work/err" || fail "reefd, write $n: it said nothing"
        look "$pool"
        [ "$state" = "$after" ] || fail "reefd, write $n: a batch was lost"
        cases=$((cases + 1))
    done
    fresh
    REEF_TEST_COMMIT_RETRIES=1 faulty "REEF_FAULT_IO=eio:$1+" -- "${command[@]}"
    expect_error "reefd, from write $1 on" 74 'Input/output error'
    look "$pool" # whatever commits came before
    recover "reefd, from write $1 on" "$state"
}

io_run() {
    local name
    for name in init snapshot import export restore in-place ${long:+seal remove}; do io_once "$name" eio; done
    for name in snapshot export ${long:+init seal import restore in-place}; do io_once "$name" enospc; done
    if [ -n "$long" ]; then
        io_training $(seq 100)
        io_daemon $(seq 12)
    else
        io_training 1 2 3 4 5 7 12 33 66 100
        io_daemon 3 4
    fi
}
