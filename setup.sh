# Sourced by quickstart.sh and test.sh: installs what is missing and builds into build/. Nothing is
# installed that is there already, and root is asked for only to install.
#
# Packages are those of Debian and Ubuntu (apt-get), or of Fedora and, with EPEL and CRB enabled, of
# RHEL, Alma and Rocky Linux 9 (dnf). The latter are names only: nobody has run them yet.

if command -v apt-get >/dev/null; then
    build_packages="gcc libc6-dev meson ninja-build pkg-config libfuse3-dev fuse3 libhdf5-dev
        zlib1g-dev libdeflate-dev libxxhash-dev uthash-dev"
    # What filters are built with that are run by plugins otherwise; for confining libhdf5; for TIFF
    # files of other programs; and for the MD5 sums of CBF files.
    codec_packages="liblz4-dev libzstd-dev libblosc-dev libblosc2-dev libbz2-dev libaec-dev libseccomp-dev
        libtiff-dev nettle-dev"
    show_packages="python3-h5py python3-numpy hdf5-tools"
    test_packages="libcmocka-dev python3-pytest python3-scipy python3-tifffile libtiff-tools attr mount
        shellcheck mandoc fio e2fsprogs sshfs openssh-sftp-server rsync bubblewrap"
    sanitizer_packages=  # they come with gcc
    # Not in every release: without them tests are skipped, and say so; without the first one they take longer.
    extra_packages="python3-pytest-xdist hdf5-filter-plugin bitshuffle hdf5-filter-plugin-blosc-serial
        hdf5-plugin-lzf unzip zip python3-tables python3-fabio python3-pycbf python3-pil python3-zarr
        gdal-bin imagej xvfb xauth" # python3-tables has the filter Blosc2
    # For tests of exports, and only where they do not start: see servers_stay_off.
    server_packages="samba smbclient nfs-ganesha nfs-ganesha-vfs libnfs-utils"
else
    build_packages="gcc glibc-devel meson ninja-build pkgconf-pkg-config fuse3-devel fuse3 hdf5-devel
        zlib-devel libdeflate-devel xxhash-devel uthash-devel"
    codec_packages="lz4-devel libzstd-devel blosc-devel blosc2-devel bzip2-devel libaec-devel libseccomp-devel
        libtiff-devel nettle-devel"
    show_packages="python3-h5py python3-numpy hdf5"
    test_packages="libcmocka-devel python3-pytest python3-scipy attr util-linux mandoc fio e2fsprogs
        openssh-server rsync bubblewrap"
    sanitizer_packages="libasan libtsan libubsan"
    extra_packages="python3-pytest-xdist python3-tifffile libtiff-tools ShellCheck fuse-sshfs"
    server_packages="samba samba-client libsmbclient nfs-ganesha nfs-ganesha-vfs libnfs-utils"
fi

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

is_installed() {
    if command -v apt-get >/dev/null; then
        [ "$(dpkg-query -W -f '${Status}' "$1" 2>/dev/null)" = "install ok installed" ]
    else
        rpm -q --whatprovides "$1" >/dev/null 2>&1
    fi
}

# Prints those of the packages that are not installed.
missing_of() {
    for package in "$@"; do
        is_installed "$package" || printf ' %s' "$package"
    done
}

# patient_apt_get ARGUMENT...: while another one is at work, as unattended upgrades are, it says so and
# waits. DPkg::Lock::Timeout would wait for one of the locks only. What an interruption of dpkg has
# left is finished first.
lock_seconds=600
patient_apt_get() {
    waited=0 finished=''
    until said=$($as_root env LC_ALL=C DEBIAN_FRONTEND=noninteractive apt-get "$@" 2>&1); do
        held=$(printf '%s\n' "$said" | sed -n 's/^E: \(Could not get lock .*\)/\1/p' | head -1)
        if [ -n "$held" ] && [ $waited -lt $lock_seconds ]; then
            [ $waited -gt 0 ] || echo "waiting for another apt, up to $lock_seconds seconds: $held"
            sleep 2
            waited=$((waited + 2))
        elif [ -z "$finished" ] && printf '%s\n' "$said" | grep -q '^E: dpkg was interrupted'; then
            finished=yes
            echo "finishing what an interrupted dpkg has begun"
            $as_root env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >/dev/null 2>&1 || true
            set -- "$@" --fix-broken
        else
            printf '%s\n' "$said"
            return 1
        fi
    done
}

# install_missing PACKAGE...
install_missing() {
    missing=$(missing_of "$@")
    [ -n "$missing" ] || return 0
    echo "installing:$missing"
    if command -v apt-get >/dev/null; then
        patient_apt_get update -q
        patient_apt_get install -y -q --no-install-recommends $missing
    elif command -v dnf >/dev/null; then
        quietly $as_root dnf install -y -q --setopt=install_weak_deps=False $missing
    else
        echo "there is neither apt-get nor dnf here: please install them"
        return 1
    fi
}

is_offered() {
    if command -v apt-get >/dev/null; then
        [ -n "$(apt-cache madison "$1" 2>/dev/null)" ]
    else
        dnf -q list "$1" >/dev/null 2>&1
    fi
}

# install_offered PACKAGE...: those that this release has.
install_offered() {
    offered=
    for package in $(missing_of "$@"); do
        if is_offered "$package"; then
            offered="$offered $package"
        else
            echo "not in this release: $package"
        fi
    done
    install_missing $offered
}

# Whether packages of servers can be installed so that none runs then, nor when the machine starts again:
# where there is no systemd, as in containers. Debian's packages ask policy-rc.d, too; Fedora's start nothing.
started_by=/run/systemd/system policy=/usr/sbin/policy-rc.d
servers_stay_off() {
    [ ! -d "$started_by" ] || return 1
    command -v apt-get >/dev/null || return 0
    [ -x "$policy" ] && ! "$policy" smbd start >/dev/null 2>&1
}

# quietly COMMAND...: what it prints is shown when it fails.
quietly() {
    said=$("$@" 2>&1) || {
        printf '%s\n' "$said"
        return 1
    }
}

# configure DIRECTORY [MESON OPTION...], each time anew: what was missing when that was done last may be
# there now. What an interruption has left is done again from nothing.
configure() {
    directory=$1
    shift
    if [ -f "$directory/meson-private/coredata.dat" ]; then
        quietly meson setup --reconfigure "$directory" "$@" >/dev/null ||
            quietly meson setup --wipe "$directory" "$@"
    else
        quietly meson setup "$directory" "$@"
    fi
}

# build_into DIRECTORY [MESON OPTION...]
build_into() {
    configure "$@"
    quietly meson compile -C "$1"
}
