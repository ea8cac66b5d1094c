#!/bin/sh
# From a fresh clone to a mounted file: ./quickstart.sh shows it on a file that it makes,
# ./quickstart.sh FILE mounts yours and leaves it mounted.
set -eu
top=$(cd "$(dirname "$0")" && pwd)
. "$top/setup.sh"

# Prints a command, then runs it.
run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

if [ "$(id -u)" = 0 ]; then unmount=umount; else unmount="fusermount3 -u"; fi

# Absolute before anything changes the directory.
file=
[ $# -eq 0 ] || file=$(realpath -- "$1")
cd "$top"
install_missing $build_packages
[ -n "$file" ] || install_missing $show_packages
build_into build
PATH=$top/build:$PATH

if [ -n "$file" ]; then
    mountpoint=${TMPDIR:-/tmp}/sparsefs-$(basename "$file")
    mkdir -p "$mountpoint"
    run sparsefs "$file" "$mountpoint"
    run ls "$mountpoint"
    # The datasets with the most frames are what people look for.
    dataset=$(find "$mountpoint" -path "$mountpoint/.sparsefs" -prune -o -name dataset.json -print |
        head -200 | while read -r json; do
            printf '%s %s\n' "$(sed -n 's/^  "frames": \([0-9]*\),$/\1/p' "$json")" "${json%/*}"
        done | sort -rn | head -1 | cut -d' ' -f2-)
    if [ -n "$dataset" ]; then
        run ls "$dataset"
        printf '\n$ ls -l %s | head -6\n' "$dataset/frames"
        ls -l "$dataset/frames" | head -6
    fi
    printf '\n%s is mounted at %s.\nUnmount it with:  %s %s\n' "$file" "$mountpoint" \
        "$unmount" "$mountpoint"
    exit 0
fi

work=$(mktemp -d)
trap '$unmount "$work/run42" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"

echo "
A run of 20 detector frames, 512 x 512 pixels of 16 bits, gzipped, as a beamline writes it: 1 % of the
pixels saw something."
/usr/bin/python3 - <<'PYTHON'
import h5py, numpy
random = numpy.random.default_rng(42)
frames = random.poisson(8, (20, 512, 512)) * (random.random((20, 512, 512)) < 0.01)
frames[:, 200:210, 300:330] = 1000
with h5py.File("dense.h5", "w") as file:
    detector = file.create_dataset("entry/data/detector", data=frames.astype("uint16"),
                                   chunks=(1, 512, 512), compression="gzip", shuffle=True)
    detector.attrs["units"] = "counts"
PYTHON
echo "
A sparse dataset of it: only what is not zero exists in it, but for every tenth frame, kept in full."
run sparsectl import dense.h5 run42.h5 --undefined 0 --full-every 10
run sparsectl info run42.h5
run ls -l dense.h5 run42.h5

echo "
Mounted, every frame is a file, dense as programs know it and sparse where they want it:"
mkdir run42
run sparsefs run42.h5 run42
run ls run42/entry/data/detector
run ls -ls run42/entry/data/detector/raw
run cp run42/entry/data/detector/frames/7.raw frame7.raw
run dd if=run42/entry/data/detector/frames/7.raw of=rows.raw bs=1024 skip=200 count=10 status=none
run ls -ls frame7.raw rows.raw
run /usr/bin/python3 -c 'import numpy
frame = numpy.memmap("run42/entry/data/detector/frames/7.raw", "uint16", "r", shape=(512, 512))
print("brightest pixel:", frame.max(), "in row", frame.argmax() // 512)'
run ls -l run42/entry/data/detector/frames/7.defined run42/entry/data/detector/values/000007.values
run cat run42/entry/data/detector/dataset.json
printf '\n$ sparsectl dump run42.h5:/entry/data/detector --frame 7 | head -5\n'
sparsectl dump run42.h5:/entry/data/detector --frame 7 | head -5

echo "
The bytes are those that the HDF5 tools give of the dense file:"
run h5dump -d /entry/data/detector -s 7,0,0 -c 1,512,512 -b LE -o reference.raw dense.h5 | head -2
run cmp frame7.raw reference.raw
echo "(no difference)"
run $unmount run42
run sparsectl check run42.h5
