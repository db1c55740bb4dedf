# shellcheck shell=bash
# Sourced by tests/packages/live and tests/packages/fresh: a Debian 12 in which nothing is installed, made once by
# debootstrap and kept, then copied for each run. Needs root and the network.

suite=bookworm
# Where this machine itself takes that release from. apt-get fills the names in.
# shellcheck disable=SC2016
mirror=${REEF_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 2>/dev/null |
    awk -v suite="$suite" '$1 == suite { print $2; exit }')}

# Whether that can be done here; otherwise says why not.
can_make_root() {
    if [ "$(id -u)" -ne 0 ]; then echo "only root can make a Debian root" && return 1; fi
    if ! command -v debootstrap >/dev/null; then echo "no debootstrap here (Debian package debootstrap)" && return 1; fi
    if ! unshare --mount --pid --fork true 2>/dev/null; then echo "no mounts can be made here" && return 1; fi
    [ -n "$mirror" ] || { echo "this machine has no source of $suite; name one in REEF_DEBIAN_MIRROR" && return 1; }
    local host=${mirror#*://}
    if ! timeout 20 bash -c ": </dev/tcp/${host%%/*}/80" 2>/dev/null; then echo "$mirror cannot be reached" && return 1; fi
}

make_root() { # folder that is kept, new root
    local kept=$1 root=$2
    mkdir -p "$kept/archives"
    if [ ! -e "$kept/base/.complete" ]; then
        rm -rf "$kept/base"
        echo "debootstrap $suite into $kept/base"
        debootstrap --variant=minbase "$suite" "$kept/base" "$mirror" >"$kept/debootstrap.log" 2>&1 ||
            { tail "$kept/debootstrap.log" >&2 && return 1; }
        : >"$kept/base/.complete"
    fi
    cp -a --reflink=auto "$kept/base" "$root"
    rm "$root/.complete"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    # Whom this machine trusts beyond Debian's list, as behind a proxy: npm reaches nothing without.
    if [ -n "${NODE_EXTRA_CA_CERTS:-}" ]; then cp -L "$NODE_EXTRA_CA_CERTS" "$root/etc/trusted.crt"; fi
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # nothing is started in it
    chmod 755 "$root/usr/sbin/policy-rc.d"
}

# Its processes and mounts end with the command. Downloaded packages are kept for the next run.
in_root() { # folder that is kept, root, command
    local kept=$1 root=$2
    shift 2
    # shellcheck disable=SC2016 # for the inner shell
    unshare --mount --pid --fork --kill-child bash -c '
        mount --bind "$1" "$2/var/cache/apt/archives" && mount -t proc proc "$2/proc" || exit 1
        mount -t tmpfs tmpfs "$2/dev/shm" && mount -t tmpfs tmpfs "$2/tmp" || exit 1
        mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$2/dev/pts" || exit 1
        mount --bind "$2/dev/pts/ptmx" "$2/dev/ptmx" || exit 1
        root=$2
        shift 2
        exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            HOME=/root TERM=dumb LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            ${NODE_EXTRA_CA_CERTS:+NODE_EXTRA_CA_CERTS=/etc/trusted.crt} "$@"
    ' in_root "$kept/archives" "$root" "$@"
}
