# Killed at every fail point that an operation comes by, and at writes inside LMDB's commit, which has none.
# Sourced by run.

kill_can_run() {
    [ -n "$fail_points" ] || echo "skipped: kill: this build has no fail points (REEF_FAIL_POINTS)"
    [ -n "$fail_points" ]
}

# operation, and the points: a number behind a colon is which time
KILLS=(
    "init make.begun make.filled make.moved make.cleaned commit.before_root commit.before_record
          commit.before_sync commit.after_sync"
    "seal commit.begun commit.model commit.state commit.before_sync commit.after_sync"
    "snapshot snapshot.begun snapshot.copied snapshot.stored commit.before_sync:2
          commit.after_sync:2"
    "remove snapshot.removed commit.before_sync commit.after_sync"
    "compact compact.gathered compact.merged compact.removed commit.before_sync commit.after_sync"
    "import import.read import.joined import.cleared commit.before_sync commit.after_sync"
    "export make.begun copy.written copy.compared make.filled make.moved make.cleaned"
    "shards make.begun make.filled:2 make.moved shard.made shard.made:2 shards.made"
    "restore make.begun copy.written restore.removed restore.copied restore.told commit.before_sync
          commit.after_sync make.filled make.moved make.cleaned"
    "push journal.written journal.written:2 commit.before_sync commit.after_sync commit.after_sync:2"
    "in-place restore.kept restore.removed restore.copied restore.told commit.before_sync commit.after_sync"
)

declare -A reached=()
killed_at() { # operation, point
    fresh
    plain env "REEF_FAIL_POINT=$2" "${command[@]}"
    [ "$code" = 137 ] || fail "$1 never reached $2: exit $code"
    reached[${2%:*}]=yes
}

# The state of the first commit from commit number $n on that is not $1; n becomes its number.
next_commit() { # state, operation
    while :; do
        killed_at "$2" "commit.after_sync:$n"
        look "$pool"
        [ "$state" = "$1" ] || return 0
        n=$((n + 1))
    done
}

# Of a pool that is trained there are states between the first and the last: those of its first two commits that
# change anything.
kill_training() { # operation
    local point first second n=1
    operation "$1"
    undisturbed
    next_commit "$before" "$1"
    first=$state
    next_commit "$first" "$1"
    second=$state
    [ "$second" != "$after" ] || fail "$1: it has only two commits"
    recover "$1, commit.after_sync:$n" "$second"
    for point in begun model state before_root before_record before_sync; do
        [ "$1" = train ] || [ -n "$long" ] || [ $point = before_sync ] || continue
        killed_at "$1" "commit.$point:$n"
        look "$pool"
        [ "$state" = "$first" ] || fail "$1: killed at commit.$point:$n it is not in the state of the commit before"
        recover "$1, commit.$point:$n" "$first"
    done
}

# Inside LMDB's commit: pages, their sync, the meta page.
kill_inside() { # operation
    local n writes
    operation "$1"
    undisturbed
    fresh
    faulty -- "${command[@]}"
    writes=$io_count
    [ "$writes" -ge 3 ] || fail "$1 makes $writes writes: a commit has pages, their sync and the meta page"
    for ((n = 1; n <= writes; n++)); do
        fresh
        faulty "REEF_FAULT_IO=kill:$n" -- "${command[@]}"
        [ "$code" = 137 ] || fail "$1 never made its write $n: exit $code"
        recover "$1, killed at write $n"
    done
}

kill_run() {
    local line points point name
    for line in "${KILLS[@]}"; do
        read -r -d '' -a points <<<"$line" || true
        name=${points[0]}
        operation "$name"
        undisturbed
        for point in "${points[@]:1}"; do
            killed_at "$name" "$point"
            recover "$name, $point"
        done
    done
    kill_training train
    kill_training daemon
    kill_inside seal
    for name in ${long:+init snapshot import export restore in-place}; do kill_inside "$name"; done
    while read -r name; do
        # Ranks that join are killed by test_daemon_joins.
        [ -n "${reached[$name]:-}" ] || [[ $name = join.* ]] || fail "no operation is killed at $name"
        grep -qF "\`$name\`" "$here/../../README.md" || fail "tests/README.md does not explain $name"
    done < <("$names")
}
