#!/bin/sh
# From a fresh clone to a mounted file: ./quickstart.sh makes one and writes frames into it,
# ./quickstart.sh FILE mounts yours and leaves it mounted, read-only: it is not this script's to change.
set -eu
top=$(cd "$(dirname "$0")" && pwd)
. "$top/setup.sh"

# Names in a file may have control characters, which must not reach a terminal: those of ASCII, those that begin with
# C2 in UTF-8, and those that change the direction of what follows. Newlines are left.
controls=$(printf 's/\302[\200-\237]/?/g; s/\342\200[\252-\256]/?/g; s/\342\201[\246-\251]/?/g')
clean() {
    LC_ALL=C tr '\001-\011\013-\037\177' '[?*]' | LC_ALL=C sed "$controls"
}

# Prints a command.
show() {
    echo
    printf '$ %s' "$*" | tr '\n' '?' | clean
    echo
}

# Prints a command, then runs it.
run() {
    show "$@"
    "$@"
}

# Absolute before anything changes the directory.
file=
[ $# -eq 0 ] || file=$(realpath -- "$1")
cd "$top"
install_missing $build_packages
install_offered $codec_packages
[ -n "$file" ] || install_missing $show_packages
provide_mtab
build_into build
PATH=$top/build:$PATH

if [ -n "$file" ]; then
    mountpoint=$(realpath -- "$(mktemp -d "${TMPDIR:-/tmp}/sparsefs-XXXXXX")")
    trap 'rmdir "$mountpoint" 2>/dev/null || true' EXIT # it is empty if the file cannot be mounted
    run sparsefs -o ro "$file" "$mountpoint"
    trap - EXIT
    run ls "$mountpoint"
    # The datasets with the most frames are what people look for; first of all, and before its
    # members, a series. Not those with a newline in their names, which are lines of others' making.
    newline='
'
    dataset=$(LC_ALL=C find "$mountpoint" \( -path "$mountpoint/.sparsefs" -o -name "*$newline*" \) -prune -o \
        -name dataset.json -print | head -200 | while IFS= read -r json; do
            printf '%s %s\n' "$(sed -n -e 's/^  "frames": \([0-9]*\),$/\1/p' -- "$json")" "${json%/*}"
        done | LC_ALL=C sort -k1,1nr -k2 | head -1 | cut -d' ' -f2-)
    if [ -n "$dataset" ]; then
        run ls "$dataset"
        show "ls -l $dataset/frames | head -6"
        ls -l "$dataset/frames" | head -6 | clean
        # Of a virtual dataset or a series, the files that it is made of.
        if grep -q '"sources"' "$dataset/dataset.json"; then
            show "grep -A5 source_count $dataset/dataset.json"
            grep -A5 '"source_count"' "$dataset/dataset.json" | clean
        fi
    fi
    if [ "$(id -u)" = 0 ]; then unmount=umount; else unmount="fusermount3 -u"; fi
    printf '\n%s is mounted read-only at %s.\nUnmount it with:  %s "%s"\n' "$file" "$mountpoint" \
        "$unmount" "$mountpoint" | clean
    printf 'To write to it:   sparsefs %s DIRECTORY\n' "$file" | clean
    exit 0
fi

# What umount runs where sparsefs is installed: it waits until everything is in the file.
umount_run() {
    printf '\n$ umount %s\n' "$1"
    sh "$top/mount-helpers/umount.sparsefs" "$1"
}

work=$(mktemp -d)
trap 'cd /; sh "$top/mount-helpers/umount.sparsefs" "$work/run42" 2>/dev/null || true
    rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
cd "$work"

echo "
A sparse dataset for frames of 512 x 512 pixels of 16 bits: only what is written will exist in it."
run sparsectl create run42.h5 /entry/data/detector --dims 0,512,512 --maxdims inf,512,512 \
    --chunk 1,64,512 --dtype uint16 --filter values:shuffle --filter values:deflate=4
mkdir run42
run sparsefs -o sparsify run42.h5 run42
cd run42/entry/data/detector
printf '\n$ cd run42/entry/data/detector\n'

echo "
Frames are files. Two frames, each a spot on nothing, from files as any program writes them (with
sparsify what is 0 in them stays undefined); and ten rows of a third one:"
/usr/bin/python3 - "$work" <<'PYTHON'
import numpy, sys
for number, row in ((0, 100), (1, 300)):
    frame = numpy.zeros((512, 512), "uint16")
    frame[row:row + 20, 200:220] = numpy.arange(1, 401).reshape(20, 20)
    frame.tofile(f"{sys.argv[1]}/frame{number}.raw")
numpy.full((10, 512), 7, "uint16").tofile(f"{sys.argv[1]}/rows.raw")
PYTHON
run cp "$work/frame0.raw" frames/0.raw
run cp "$work/frame1.raw" frames/1.raw
run dd if="$work/rows.raw" of=frames/2.raw bs=1024 seek=50 conv=notrunc status=none

echo "
Read back they are what was written; of frame 2 only the ten rows exist (the first column counts the
KiB of what is defined):"
run cmp frames/1.raw "$work/frame1.raw"
run ls -lsh frames raw
run /usr/bin/python3 -c 'import h5py
for n in range(3):
    selection = h5py.h5s.decode(open(f"frames/{n}.defined", "rb").read())
    print("frame", n, "has", selection.get_select_npoints(), "elements, in", selection.get_select_bounds())'

echo "
Erasing: all of frame 2 behind row 55, and the first rows of it. Its size stays."
run truncate -s $((56 * 1024)) frames/2.raw
run fallocate --punch-hole --offset 0 --length $((52 * 1024)) frames/2.raw
run ls -lsh frames/2.raw
run cat dataset.json
cd "$work"
umount_run run42
run sparsectl info run42.h5
run sparsectl check run42.h5
