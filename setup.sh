# Sourced by quickstart.sh and test.sh: installs what is missing (Debian, Ubuntu) and builds into
# build/. Nothing is installed that is there already, and root is asked for only to install.

build_packages="gcc libc6-dev meson ninja-build pkg-config libfuse3-dev fuse3 libhdf5-dev zlib1g-dev
    libdeflate-dev uthash-dev"
show_packages="python3-h5py python3-numpy hdf5-tools"
test_packages="libcmocka-dev python3-pytest python3-scipy python3-tifffile libtiff-tools
    hdf5-filter-plugin attr mount shellcheck mandoc fio e2fsprogs sshfs openssh-sftp-server rsync"

# install_missing PACKAGE...
install_missing() {
    missing=
    for package in "$@"; do
        status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
        [ "$status" = "install ok installed" ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    echo "installing:$missing"
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get update -q >/dev/null
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends $missing >/dev/null
}

# build_into DIRECTORY [MESON OPTION...]
build_into() {
    directory=$1
    shift
    if [ -f "$directory/build.ninja" ]; then
        [ $# -eq 0 ] || meson configure "$directory" "$@" >/dev/null
    else
        meson setup "$directory" "$@" >/dev/null
    fi
    meson compile -C "$directory" >"$directory/compile.log" 2>&1 || {
        cat "$directory/compile.log"
        return 1
    }
}
