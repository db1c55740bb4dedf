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
    need_module inih libinih-dev
    need_module libsystemd libsystemd-dev
    need_module cmocka libcmocka-dev
}

# Whether clang can link a harness with libFuzzer.
have_fuzzer() {
    command -v clang >/dev/null 2>&1 && [ -e "$(clang -print-runtime-dir 2>/dev/null)/libclang_rt.fuzzer-$(uname -m).a" ]
}

need_fuzzer() {
    have_fuzzer || missing+=(clang libclang-rt-dev)
}

# Tests of live sources use the real ones.
need_test_packages() {
    need_command redis-server redis-server
    need_command redis-cli redis-tools
    need_command logrotate logrotate
    need_command rsvg-convert librsvg2-bin
    need_command systemd-nspawn systemd-container
    need_command nc netcat-openbsd
    need_command curl curl
    need_command openssl openssl
    need_file /usr/share/i18n/locales/de_DE locales
    need_command clang-format clang-format
}

# For the pages of the manual, completion and the schemas of JSON answers.
need_manual_packages() {
    need_command groff groff-base
    need_command mandoc mandoc
    need_command shellcheck shellcheck
    need_command zsh zsh
    need_command fish fish
    need_file /usr/lib/python3/dist-packages/jsonschema python3-jsonschema
}

# For the test of the dashboard, which is skipped without them.
need_browser_packages() {
    need_command chromium chromium
    need_command node nodejs
    need_command npm npm
}

# For the tests of python/; PyTorch takes some 570 MB of disk.
need_python_packages() {
    local at=/usr/lib/python3/dist-packages
    need_file $at/numpy python3-numpy
    need_file $at/torch python3-torch
    need_file $at/pytest python3-pytest
    need_file $at/setuptools python3-setuptools
    need_file $at/wheel python3-wheel
    need_file $at/pip python3-pip
    /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
}

# All that tests are skipped without: rendered benchmarks, the second reader, live sources, metrics, the unit of systemd,
# the dashboard, fuzzing, manuals, packages, Python and PyTorch.
need_optional_packages() {
    need_file /usr/lib/python3/dist-packages/matplotlib python3-matplotlib
    need_file /usr/lib/python3/dist-packages/lmdb python3-lmdb
    need_file /usr/lib/python3/dist-packages/xxhash python3-xxhash
    need_test_packages
    need_command systemd-analyze systemd
    need_command strace strace
    need_fuzzer
    need_command promtool prometheus
    need_command mpirun openmpi-bin
    need_module ompi libopenmpi-dev
    need_browser_packages
    need_manual_packages
    need_command lintian lintian
    need_command dpkg-shlibdeps dpkg-dev
    need_file /usr/bin/python3 python3
    need_python_packages
}

# What tests are skipped for on this machine, with the one command that installs all of it.
report_optional() {
    missing=()
    need_optional_packages
    if [ ${#missing[@]} -gt 0 ]; then
        echo "Tests that need programs which this machine lacks were skipped. To run all of them:"
        echo "  sudo apt-get install -y --no-install-recommends ${missing[*]}"
    fi
    if command -v npm >/dev/null 2>&1 && [ ! -d tests/conformance/dashboard/node_modules ]; then
        echo "and for the dashboard:"
        echo "  npm ci --prefix tests/conformance/dashboard"
    fi
    missing=()
}

install_missing() {
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "missing, and there is no apt-get to install it: ${missing[*]}" >&2
        return 1
    fi
    local root=()
    if [ "$(id -u)" -ne 0 ]; then
        root=(sudo)
        if ! command -v sudo >/dev/null 2>&1; then
            echo "missing: ${missing[*]}; install them as root with apt-get, then run this again" >&2
            return 1
        fi
    fi
    echo "installing Debian packages: ${missing[*]}"
    "${root[@]}" apt-get update -qq </dev/null
    # A machine that only tests may lose packages with its power: dpkg need not wait for its disk.
    local quick=()
    if [ "${CI:-}" = true ]; then quick=(-o Dpkg::Options::=--force-unsafe-io); fi
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends ${quick[@]+"${quick[@]}"} "${missing[@]}" </dev/null >/dev/null
    missing=()
}
