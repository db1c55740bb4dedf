# A disk that is full, and then has room again: a small file system of its own.
# Sourced by run.

disk_can_run() {
    disk=$work/disk
    mkdir -p "$disk"
    if ! mount -t tmpfs -o size=24m tmpfs "$disk" 2>"$work/err"; then
        echo "skipped: disk: a small file system cannot be mounted here: $(head -1 "$work/err")"
        return 1
    fi
    on_exit+=("umount $disk")
}

fill() {
    cat /dev/zero >"$disk/filler" 2>/dev/null || true
    [ "$(df --output=avail "$disk" | tail -1)" -eq 0 ] || fail "the disk is not full"
}
room() {
    rm -f "$disk/filler"
}

# On the full disk it says so and changes nothing; with room it does what it would have done.
disk_once() { # operation
    room
    operation "$1"
    undisturbed
    fresh
    local listed
    "$reef" status "$pool" >/dev/null 2>&1 || true # lock.mdb is there from now on
    listed=$(ls -A "$disk")
    fill
    plain "${command[@]}"
    expect_error "$1 on a full disk" 73 'the disk is full|No space left'
    [ "$before" != absent ] || [ ! -e "$looked" ] || fail "$1 on a full disk left $(ls -A "$looked")"
    rm -f "$disk/filler"
    [ "$(ls -A "$disk")" = "$listed" ] || fail "$1 on a full disk left: $(ls -A "$disk"), there was: $listed"
    recover "$1 on a full disk"
}

# A daemon that cannot commit keeps what it has and goes on when there is room.
disk_daemon() {
    local daemon waited
    room
    operation daemon
    undisturbed
    fresh
    "$reef" status "$pool" >/dev/null
    fill
    "${command[@]}" >"$work/out" 2>"$work/err" </dev/null &
    daemon=$!
    on_exit+=("kill -9 $daemon")
    for ((waited = 0; waited < 600; waited++)); do
        ! grep -q 'trying again' "$work/err" || break
        kill -0 "$daemon" 2>/dev/null || fail "reefd ended on a full disk"
        sleep 0.1
    done
    grep -q 'the disk is full' "$work/err" || fail "reefd does not say that the disk is full"
    room
    code=0
    wait "$daemon" || code=$?
    unset 'on_exit[-1]'
    [ "$code" = 0 ] || fail "reefd: exit $code when there was room again"
    look "$pool"
    [ "$state" = "$after" ] || fail "reefd lost a batch on a full disk"
    cases=$((cases + 1))
}

# A file of a model is whole or not there.
disk_file() {
    room
    rm -rf "$pool" "$out"
    cp -r "$base" "$pool"
    "$reef" status "$pool" >/dev/null
    fill
    plain "$reef" export model "$pool" "$disk/file"
    expect_error "export model on a full disk" 73 'No space left'
    [ ! -e "$disk/file" ] && [ ! -e "$disk/file.part" ] || fail "half a file was left"
    room
    must "$reef" export model "$pool" "$disk/file"
    rm "$disk/file"
    cases=$((cases + 1))
}

disk_run() {
    local name pool=$disk/pool out=$disk/made
    for name in init train seal snapshot import export restore in-place; do disk_once "$name"; done
    disk_file
    disk_daemon
}
