"""Programs that people look at images and compute with, on the files of a mount: ImageJ, GDAL, Octave and
silx. Those that are not installed are skipped."""
import os
import re
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

SECONDS = 300
SHAPE = (3, 20, 30)


def run(*command, home, code=0, **more):
    result = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, timeout=SECONDS, env=dict(os.environ, HOME=str(home)), **more)
    assert code is None or result.returncode == code, result.stdout + result.stderr
    return result.stdout


def program(name):
    path = shutil.which(name)
    if not path:
        pytest.skip(f"there is no {name}")
    return path


@pytest.fixture(params=["<u2", ">u2", "<i2", "u1", "<f4", ">f4"])
def data(request):
    return (np.arange(np.prod(SHAPE)).reshape(SHAPE) * 7 % 251).astype(request.param)


def make(tmp_path, data):
    with h5py.File(tmp_path / "run.h5", "w") as f:
        f.create_dataset("d", data=data, chunks=(1, *SHAPE[1:]), compression="gzip")
    return tmp_path / "run.h5"


# ---- ImageJ ----

MEASURE = """
paths = split(getArgument(), "|");
for (i = 0; i < paths.length; i++) {
    open(paths[i]);
    for (k = 1; k <= nSlices; k++) {
        setSlice(k);
        getStatistics(area, mean, min, max);
        print("page " + k + " " + getWidth() + " " + getHeight() + " " + calibrated(mean) + " " + min + " " + max);
    }
    close();
}
function calibrated(value) { return d2s(value, 4); }
"""


def imagej(tmp_path, macro, *arguments):
    """Debian's wrapper looks for windows, so it wants a screen; its exit code says nothing."""
    wrapper, screen, _ = program("imagej"), program("xvfb-run"), program("xauth")
    path = tmp_path / "macro.ijm"
    path.write_text(macro)
    return run(screen, "-a", wrapper, "-b", path, "|".join(map(str, arguments)), home=tmp_path, code=None,
               cwd=tmp_path)


def test_imagej_measures_frames_and_stacks(mounts, tmp_path, data):
    mount = mounts(make(tmp_path, data), "views=default+stack.tif")
    output = imagej(tmp_path, MEASURE, mount / "d/tiff/000001.tif", mount / "d/stack.tif")
    pages = re.findall(r"(?m)^page (\d+) (\d+) (\d+) (\S+) (\S+) (\S+)$", output)
    expected = [(1, data[1])] + [(k + 1, data[k]) for k in range(3)]
    assert len(pages) == 4, output
    for (k, width, height, mean, least, most), (page, frame) in zip(pages, expected):
        assert (int(k), int(width), int(height)) == (page, SHAPE[2], SHAPE[1])
        assert abs(float(mean) - frame.mean(dtype=float)) < 1e-3
        assert (float(least), float(most)) == (frame.min(), frame.max())


def test_imagej_saves_a_frame(mounts, tmp_path):
    data = (np.arange(np.prod(SHAPE)).reshape(SHAPE)).astype("<u2")
    mount = mounts(make(tmp_path, data), "rw")
    frame = mount / "d/tiff/000001.tif"
    imagej(tmp_path, 'open(getArgument()); run("Add...", "value=5"); saveAs("Tiff", getArgument());', frame)
    assert np.array_equal(np.load(mount / "d/npy/000001.npy"), data[1] + 5)
    assert np.array_equal(np.load(mount / "d/npy/000000.npy"), data[0])


# ---- GDAL ----


def test_gdal_has_the_statistics(mounts, tmp_path, data):
    gdalinfo = program("gdalinfo")
    mount = mounts(make(tmp_path, data), "views=default+stack.tif")
    for frame in range(3):
        text = run(gdalinfo, "-stats", mount / f"d/tiff/{frame:06}.tif", home=tmp_path)
        found = dict(re.findall(r"STATISTICS_(\w+)=(\S+)", text))
        assert f"Size is {SHAPE[2]}, {SHAPE[1]}" in text
        assert float(found["MINIMUM"]) == data[frame].min() and float(found["MAXIMUM"]) == data[frame].max()
        assert abs(float(found["MEAN"]) - data[frame].mean(dtype=float)) < 1e-3
    assert run(gdalinfo, mount / "d/stack.tif", home=tmp_path).count("_NAME=GTIFF_DIR:") == 3


def test_gdal_translates_frames(mounts, tmp_path, data):
    """To what it is asked for, here bytes in a row, which say that it read the same ones."""
    translate = program("gdal_translate")
    mount = mounts(make(tmp_path, data), "views=default+stack.tif")
    for name, frame in ((str(mount / "d/tiff/000002.tif"), 2), (f"GTIFF_DIR:2:{mount.root}/d/stack.tif", 1)):
        run(translate, "-q", "-of", "ENVI", name, tmp_path / "out.bin", home=tmp_path)
        found = np.fromfile(tmp_path / "out.bin", data.dtype.newbyteorder("<")).reshape(SHAPE[1:])
        assert np.array_equal(found, data[frame])


# ---- Octave ----


def test_octave_reads_and_writes_frames(mounts, tmp_path):
    octave = program("octave-cli")
    data = (np.arange(np.prod(SHAPE)).reshape(SHAPE)).astype("<u2")
    mount = mounts(make(tmp_path, data), "rw")
    script = tmp_path / "script.m"
    script.write_text(f"""
        file = fopen("{mount.root}/d/frames/1.raw", "r");
        image = fread(file, [{SHAPE[2]}, {SHAPE[1]}], "uint16=>uint16", 0, "ieee-le")';
        fclose(file);
        printf("%d %d %.2f %d\\n", size(image), mean(image(:)), image(3, 5));
        file = fopen("{mount.root}/d/frames/1.raw", "r+");
        fwrite(file, (image + 1)', "uint16", 0, "ieee-le");
        fclose(file);
    """)
    output = run(octave, "--no-gui", "--norc", script, home=tmp_path)
    assert output == f"{SHAPE[1]} {SHAPE[2]} {data[1].mean():.2f} {data[1, 2, 4]}\n"
    assert np.array_equal(np.load(mount / "d/npy/000001.npy"), data[1] + 1)


def test_octave_reads_tables(mounts, tmp_path):
    octave = program("octave-cli")
    table = np.arange(60.).reshape(12, 5) / 4
    with h5py.File(tmp_path / "run.h5", "w") as f:
        f["d"] = table
    mount = mounts(tmp_path / "run.h5", "views=csv")
    output = run(octave, "--no-gui", "--norc", "--eval",
                 f'a = csvread("{mount.root}/d/table.csv"); printf("%.2f ", a\');', home=tmp_path)
    assert [float(word) for word in output.split()] == list(table.flat)


# ---- silx ----


def test_silx_opens_frames(mounts, tmp_path, data):
    silx_io = pytest.importorskip("silx.io")
    mount = mounts(make(tmp_path, data))
    for frame in range(3):
        with silx_io.open(str(mount / f"d/tiff/{frame:06}.tif")) as opened:
            found = opened["scan_0/measurement/image_0/data"][()]
        assert np.array_equal(np.squeeze(found), data[frame])


def test_silx_converts_frames(mounts, tmp_path):
    """All of them to one HDF5 file. From CBF: silx 1.1 converts nobody's TIFF files, as fabio 0.14 gives it
    lists among their headers."""
    pytest.importorskip("silx.app.convert")
    data = (np.arange(np.prod(SHAPE)).reshape(SHAPE)).astype("<u2")
    mount = mounts(make(tmp_path, data), "views=cbf")
    out = tmp_path / "out.h5"
    run(sys.executable, "-m", "silx", "convert", "--file-pattern", mount / "d/cbf/%06d.cbf", "-o", out,
        home=tmp_path, cwd=tmp_path)
    with h5py.File(out, "r") as f:
        found = f["scan_0/measurement/image_0/data"][()]
    assert np.array_equal(np.squeeze(found), data)
