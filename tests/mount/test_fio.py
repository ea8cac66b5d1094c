"""fio writes blocks of every size to random places of a frame and of the stack, each with a checksum in
it, and verifies them all: meanwhile by other jobs, at the end, and in the next mount."""
import subprocess

import pytest

from conftest import BUILD, START_SECONDS

SIDE, FRAMES = 512, 4
FRAME_BYTES = SIDE * SIDE * 2


def fio(path, size, engine, *options, written_by="psync"):
    """Two jobs, each in its half, but one where fio (3.33) would map the second half of the file and
    write into the first; the first failure of a verification ends it."""
    jobs = 1 if "mmap" in (engine, written_by) else 2
    command = ["fio", "--name=blocks", f"--filename={path}", "--allow_file_create=0", "--fallocate=none",
               f"--ioengine={engine}", "--rw=randwrite", "--bsrange=512-24k", "--bs_unaligned=1",
               f"--size={size // jobs}", f"--numjobs={jobs}", f"--offset_increment={size // jobs}", "--thread",
               "--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_state_save=0",
               "--randseed=7", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def sparse(tmp_path):
    path = tmp_path / "fio.h5"
    subprocess.run([BUILD / "sparsectl", "create", path, "/data", "--dims", f"{FRAMES},{SIDE},{SIDE}",
                    "--dtype", "uint16", "--chunk", "1,200,256", "--filter", "values:deflate=1"],
                   check=True)
    return path


@pytest.mark.parametrize("target, size", [("frames/2.raw", FRAME_BYTES),
                                          ("stack.raw", FRAMES * FRAME_BYTES)])
@pytest.mark.parametrize("options, engine", [((), "psync"), ((), "mmap"), (("direct_io",), "psync"),
                                             (("cache_size=256K",), "psync")])
def test_verified(mounts, tmp_path, sparse, target, size, options, engine):
    mount = mounts(sparse, "rw", *options)
    assert (mount / "data" / target).stat().st_size == size
    fio(mount / "data" / target, size, engine)
    mount.unmount()
    checked = subprocess.run([BUILD / "sparsectl", "check", sparse], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    mount = mounts(sparse, "rw")  # fio opens what it verifies for writing
    fio(mount / "data" / target, size, "psync", "--verify_only=1", written_by=engine)


def test_fio_finds_what_is_wrong(tmp_path):
    path = tmp_path / "ordinary"
    path.write_bytes(bytes(FRAME_BYTES))
    fio(path, FRAME_BYTES, "psync")
    fio(path, FRAME_BYTES, "psync", "--verify_only=1")
    content = bytearray(path.read_bytes())
    content[300_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(AssertionError, match="verify"):
        fio(path, FRAME_BYTES, "psync", "--verify_only=1")
