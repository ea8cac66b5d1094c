# Sourced by quickstart.sh and test.sh: installs what is missing (Debian, Ubuntu) and builds into
# build/. Nothing is installed that is there already, and root is asked for only to install.

build_packages="gcc libc6-dev meson ninja-build pkg-config libfuse3-dev fuse3 libhdf5-dev zlib1g-dev
    libdeflate-dev uthash-dev"
show_packages="python3-h5py python3-numpy hdf5-tools"
test_packages="libcmocka-dev python3-pytest python3-scipy python3-tifffile libtiff-tools
    hdf5-filter-plugin attr mount shellcheck mandoc fio e2fsprogs sshfs openssh-sftp-server rsync"

as_root=
[ "$(id -u)" = 0 ] || as_root=sudo

# Bare containers do not have it, and without it fusermount3 unmounts nothing for an ordinary user:
# tests that root runs have such users, too.
provide_mtab() {
    [ -e /etc/mtab ] || {
        echo "making /etc/mtab, a link to /proc/self/mounts"
        $as_root ln -s ../proc/self/mounts /etc/mtab
    }
}

# install_missing PACKAGE...
install_missing() {
    missing=
    for package in "$@"; do
        status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
        [ "$status" = "install ok installed" ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    echo "installing:$missing"
    quietly $as_root apt-get update -q
    quietly $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q -o DPkg::Lock::Timeout=600 --no-install-recommends $missing
}

# quietly COMMAND...: what it prints is shown when it fails.
quietly() {
    said=$("$@" 2>&1) || {
        printf '%s\n' "$said"
        return 1
    }
}

# build_into DIRECTORY [MESON OPTION...]. It is configured anew each time: what was missing when that
# was done last may be there now. What an interruption has left is done again from nothing.
build_into() {
    directory=$1
    shift
    if [ -f "$directory/meson-private/coredata.dat" ]; then
        quietly meson setup --reconfigure "$directory" "$@" >/dev/null ||
            quietly meson setup --wipe "$directory" "$@"
    else
        quietly meson setup "$directory" "$@"
    fi
    quietly meson compile -C "$directory"
}
