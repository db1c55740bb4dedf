# shellcheck shell=bash
# Sourced by tools/demo and tools/test: install what is missing, and say so before.
#
# Everything is looked for where it will be used (a command, a pkg-config module, a file), so a machine
# that has it from elsewhere is left alone, and nothing touches the network when nothing is missing.

missing=()

need_command() { # command, Debian package
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

need_module() { # pkg-config module, Debian package
    pkg-config --exists "$1" 2>/dev/null || missing+=("$2")
}

need_file() { # file, Debian package
    [ -e "$1" ] || missing+=("$2")
}

need_build_packages() {
    need_command gcc gcc
    need_file /usr/include/stdio.h libc6-dev
    need_command cmake cmake
    need_command ninja ninja-build
    need_command pkg-config pkg-config
    need_module lmdb liblmdb-dev
    need_module openblas libopenblas-dev
    need_module libuv libuv1-dev
    need_module jansson libjansson-dev
    need_module libmicrohttpd libmicrohttpd-dev
    need_module hiredis libhiredis-dev
    need_module libxxhash libxxhash-dev
    need_module zlib zlib1g-dev
    need_module libzstd libzstd-dev
    need_module inih libinih-dev
    need_module libsystemd libsystemd-dev
    need_module rdkafka librdkafka-dev
    need_module libcurl libcurl4-openssl-dev
    need_module cmocka libcmocka-dev
}

# Whether clang can link a harness with libFuzzer.
have_fuzzer() {
    command -v clang >/dev/null 2>&1 && [ -e "$(clang -print-runtime-dir 2>/dev/null)/libclang_rt.fuzzer-$(uname -m).a" ]
}

# What tests run beside the build: live sources, a browser, the service manager, MPI, Python with PyTorch, fuzzing, and
# the checkers of packages, manuals, JSON, metrics and scripts. PyTorch takes some 570 MB of disk.
need_test_packages() {
    local at=/usr/lib/python3/dist-packages
    need_command redis-server redis-server
    need_command redis-cli redis-tools
    need_command logrotate logrotate
    need_command rsvg-convert librsvg2-bin
    need_command systemd-analyze systemd
    need_command systemd-nspawn systemd-container
    need_file /lib/systemd/systemd-journal-remote systemd-journal-remote
    need_command logger bsdutils
    need_command rsyslogd rsyslog
    need_command nc netcat-openbsd
    need_command curl curl
    need_command openssl openssl
    need_file /usr/share/i18n/locales/de_DE locales
    need_command clang-format clang-format
    need_command strace strace
    need_command promtool prometheus
    need_command prometheus-alertmanager prometheus-alertmanager
    need_command mpirun openmpi-bin
    need_module ompi libopenmpi-dev
    need_command chromium chromium
    need_command node nodejs
    need_command npm npm
    need_command groff groff-base
    need_command mandoc mandoc
    need_command shellcheck shellcheck
    need_command xz xz-utils
    need_command lintian lintian
    need_command dpkg-shlibdeps dpkg-dev
    have_fuzzer || missing+=(clang libclang-rt-dev)
    need_file /usr/bin/python3 python3
    need_file $at/jsonschema python3-jsonschema
    need_file $at/lmdb python3-lmdb
    need_file $at/matplotlib python3-matplotlib
    need_file $at/numpy python3-numpy
    need_file $at/pip python3-pip
    need_file $at/pytest python3-pytest
    need_file $at/setuptools python3-setuptools
    need_file $at/torch python3-torch
    need_file $at/wheel python3-wheel
    need_file $at/xxhash python3-xxhash
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
}

# What runs apt-get here: nothing, sudo, or no one.
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi

# Names what is missing and cannot be installed on this machine, and fails with 69 (EX_UNAVAILABLE): before anything is
# built or installed.
check_installable() {
    [ ${#missing[@]} -eq 0 ] && return 0
    local why='' unknown
    if ! command -v apt-get >/dev/null 2>&1; then
        why="there is no apt-get here"
    elif [ ${#as_root[@]} -gt 0 ] && ! command -v sudo >/dev/null 2>&1; then
        why="only root can install, and there is no sudo"
    elif ! ${as_root[@]+"${as_root[@]}"} apt-get update -qq </dev/null; then
        why="apt-get update fails"
    else
        unknown=$(apt-get install --simulate --no-install-recommends "${missing[@]}" 2>&1 >/dev/null </dev/null) ||
            why=$(sed -n 's/^E: *//p' <<<"$unknown" | paste -s -d ';')
    fi
    [ -z "$why" ] && return 0
    printf 'missing, and cannot be installed (%s):\n  %s\n' "$why" "${missing[*]}" >&2
    return 69
}

# After check_installable.
install_missing() {
    [ ${#missing[@]} -eq 0 ] && return 0
    echo "installing Debian packages: ${missing[*]}"
    # A machine that only tests may lose packages with its power: dpkg need not wait for its disk.
    local dpkg=()
    if [ "${CI:-}" = true ]; then dpkg=(-o Dpkg::Options::=--force-unsafe-io); fi
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends ${dpkg[@]+"${dpkg[@]}"} "${missing[@]}" </dev/null >/dev/null ||
        { echo "apt-get could not install: ${missing[*]}" >&2 && return 69; }
    missing=()
}
