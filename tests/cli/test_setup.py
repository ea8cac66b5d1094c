"""setup.sh: whatever a build directory has been through, it is configured and built as asked; and it
waits for another apt."""
import fcntl
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path):
    """A project with a program that is built where the package `late` is, as ours are with cmocka."""
    (tmp_path / "meson_options.txt").write_text("option('tests', type: 'feature', value: 'auto')\n")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "meson.build").write_text(
        "project('small', 'c')\n"
        "executable('product', 'main.c')\n"
        "if dependency('late', required: get_option('tests')).found()\n"
        "  executable('tests', 'main.c')\n"
        "endif\n")
    return tmp_path


def build(project, *options):
    return subprocess.run(["sh", "-euc", f'. "{TOP}/setup.sh"; build_into build "$@"', "sh", *options],
                          cwd=project, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                                            "PKG_CONFIG_PATH": str(project)},
                          capture_output=True, text=True)


def late_package_comes(project):
    (project / "late.pc").write_text("Name: late\nDescription: late\nVersion: 1\n")


def test_what_was_missing_when_it_was_configured(project):
    assert build(project).returncode == 0
    assert (project / "build/product").exists() and not (project / "build/tests").exists()
    refused = build(project, "-Dtests=enabled")
    assert refused.returncode != 0 and "late" in refused.stdout
    late_package_comes(project)
    assert build(project, "-Dtests=enabled").returncode == 0
    assert (project / "build/tests").exists()
    assert build(project).returncode == 0
    assert (project / "build/tests").exists()


@pytest.mark.parametrize("lost", ["build.ninja", "meson-private/coredata.dat", "meson-private/build.dat"])
@pytest.mark.parametrize("left", [None, b""])
def test_after_an_interruption(project, lost, left):
    late_package_comes(project)
    assert build(project).returncode == 0
    (project / "build" / lost).unlink()
    if left is not None:
        (project / "build" / lost).write_bytes(left)
    (project / "build/product").unlink()
    finished = build(project)
    assert finished.returncode == 0, finished.stdout
    assert (project / "build/product").exists()


def test_what_fails_is_shown(project):
    (project / "main.c").write_text("int main(void) { return nothing; }\n")
    failed = build(project)
    assert failed.returncode != 0 and "nothing" in failed.stdout


@pytest.fixture
def apt(tmp_path):
    """apt(SECONDS) starts apt-get update as setup.sh does, with lists of its own and no sources."""
    if not shutil.which("apt-get"):
        pytest.skip("there is no apt-get here")
    (tmp_path / "lists/partial").mkdir(parents=True)
    (tmp_path / "cache/archives/partial").mkdir(parents=True)
    (tmp_path / "apt.conf").write_text(
        f'Dir::State "{tmp_path}"; Dir::State::lists "{tmp_path}/lists"; Dir::Cache "{tmp_path}/cache";\n'
        f'Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "{tmp_path}/none";\n')
    running = []

    def start(seconds):
        script = f'. "{TOP}/setup.sh"; as_root=; lock_seconds={seconds}; patient_apt_get update -q'
        running.append(subprocess.Popen(
            ["sh", "-euc", script], stdout=subprocess.PIPE, text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "APT_CONFIG": str(tmp_path / "apt.conf")}))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def test_another_apt_is_waited_for(apt, tmp_path):
    with open(tmp_path / "lists/lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        process = apt(300)
        said = process.stdout.readline()
        assert "waiting" in said and str(tmp_path / "lists/lock") in said
        assert process.poll() is None
    assert process.stdout.read() == ""
    assert process.wait() == 0


def test_another_apt_is_not_waited_for_without_an_end(apt, tmp_path):
    with open(tmp_path / "lists/lock", "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        process = apt(2)
        said = process.communicate()[0]
    assert process.returncode != 0
    assert said.startswith("waiting") and "E: Could not get lock" in said


def test_an_apt_that_fails_is_not_repeated(apt, tmp_path):
    (tmp_path / "apt.conf").write_text("this is nothing {\n")
    process = apt(300)
    assert "waiting" not in process.communicate()[0] and process.returncode != 0


@pytest.mark.parametrize("started_by, policy, expected", [
    (False, "exit 101", True), (False, "exit 0", False), (False, None, False), (True, "exit 101", False)])
def test_servers_are_installed_only_where_they_do_not_start(tmp_path, started_by, policy, expected):
    if not shutil.which("apt-get"):
        pytest.skip("not Debian")
    if policy:
        (tmp_path / "policy").write_text(f"#!/bin/sh\n{policy}\n")
        (tmp_path / "policy").chmod(0o755)
    if started_by:
        (tmp_path / "systemd").mkdir()
    done = subprocess.run(["sh", "-uc", f'. "{TOP}/setup.sh"; started_by=systemd policy=./policy; servers_stay_off'],
                          cwd=tmp_path, check=False)
    assert (done.returncode == 0) == expected
