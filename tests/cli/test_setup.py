"""setup.sh: whatever a build directory has been through, it is configured and built as asked."""
import pathlib
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
