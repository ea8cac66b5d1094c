"""What a process that does not end is doing, for the report of the test that has waited for it."""
import os
import pathlib
import shutil
import subprocess

GDB_SECONDS = 60


def read(path):
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        return error.strerror


def backtraces(pid):
    """Of all threads, in the program and its libraries; "" where that cannot be had."""
    if not shutil.which("gdb"):
        return ""
    command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(pid),
               "-ex", "thread apply all bt"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=GDB_SECONDS)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if "\nThread " in done.stdout else ""


def in_kernel(pid):
    """Where the kernel has each thread."""
    lines = []
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
        lines.append(f"thread {task.name} ({read(task / 'comm')}): in {read(task / 'wchan')}, system call "
                     f"{read(task / 'syscall')}")
        lines.append(read(task / "stack"))
    return "\n".join(lines)


def other_namespaces(mountpoint):
    """Processes in whose mount namespaces something is still mounted there. A copy of a mount, in a
    namespace that was made while it was there, keeps its daemon alive."""
    ours = os.readlink("/proc/self/ns/mnt")
    holders = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            theirs = os.readlink(process / "ns/mnt")
            mounts = (process / "mountinfo").read_text(errors="replace").splitlines()
        except OSError:
            continue
        if theirs != ours and any(line.split()[4] == str(mountpoint) for line in mounts):
            holders.append(f"{process.name} ({read(process / 'comm')})")
    return holders


def describe(pid, mountpoint=None):
    parts = [f"process {pid} does not end", in_kernel(pid), backtraces(pid)]
    if mountpoint:
        holders = other_namespaces(mountpoint)
        parts.append(f"{mountpoint} is mounted in the namespaces of: {', '.join(holders) or 'nobody else'}")
    return "\n".join(part for part in parts if part)
