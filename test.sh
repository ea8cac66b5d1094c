#!/bin/sh
# Builds and runs every test: C unit tests, then pytest over real mounts, whose summary comes last.
#
#   ./test.sh                                the normal build
#   ./test.sh --sanitize=address,undefined   the same tests under sanitizers,
#   ./test.sh --sanitize=thread              in build directories of their own
#   ./test.sh ... -k PATTERN                 what follows goes to pytest
set -eu
cd "$(dirname "$0")"
. ./setup.sh

build=build
patience=4 # times the time that a unit program may take: a busy machine is no error
case ${1-} in
--sanitize=*)
    sanitizers=${1#--sanitize=}
    build=build-$(echo "$sanitizers" | tr , -)
    patience=20
    shift
    ;;
esac

install_missing $build_packages $show_packages $test_packages
install_offered $codec_packages $extra_packages
if servers_stay_off; then
    install_offered $server_packages
else
    echo "servers are not installed for tests, as they would start: exports are tested with those that are there"
fi
provide_mtab
if [ "$build" = build ]; then
    build_into build -Dtests=enabled
else
    install_missing $sanitizer_packages
    build_into "$build" -Dtests=enabled -Db_sanitize="$sanitizers" -Db_lundef=false --buildtype=debugoptimized
fi

# libhdf5 and libfuse are not instrumented; tests/*.supp say what is left out and why.
export ASAN_OPTIONS="detect_leaks=1:halt_on_error=1"
export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp:halt_on_error=1:second_deadlock_stack=1"
export SPARSEFS_BUILD=$PWD/$build
meson test -C "$build" --print-errorlogs --timeout-multiplier "$patience"
echo "$(grep -c . "$build/meson-logs/testlog.json") unit and crash programs have run."

# Files of tests by one process more than there are processors, up to four, as many of them wait; each makes its
# own files and mounts.
processes=$(($(nproc) + 1))
[ "$processes" -le 4 ] || processes=4
case " $* " in *" --pdb "* | *" -p no:xdist "*) processes=1 ;; esac
if [ "$processes" -gt 1 ] && /usr/bin/python3 -c 'import xdist' 2>/dev/null; then
    set -- -n "$processes" --dist loadfile "$@"
fi

# In namespaces of its own nothing that is mounted or started can stay behind, whatever happens. The
# shell between is their first process and takes care of orphans. Copies of mounts that are there now
# would keep their daemons from ending when they are unmounted.
set -- /usr/bin/python3 -m pytest -q -p no:cacheprovider tests/cli tests/mount "$@"
if [ "$(id -u)" = 0 ] && unshare --mount --pid --fork --kill-child --mount-proc true 2>/dev/null; then
    set -- unshare --mount --pid --fork --kill-child --mount-proc sh -c \
        'umount -a -i -l -t fuse.sparsefs; "$@"; exit $?' sh "$@"
fi
exec "$@"
