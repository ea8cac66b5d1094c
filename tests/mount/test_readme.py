"""The recipes of README.md and docs/recipes.md, run as they stand there, must print what stands there."""
import os
import pathlib
import re
import subprocess

import h5py
import numpy as np
import pytest

import sparse_files
from conftest import BUILD, START_SECONDS, TOP, is_mounted

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


# Each is run in a folder of its own; how many commands it has at least, so that none is lost to a misread block.
RECIPES = {"README.md": 20, "docs/recipes.md": 50}


def commands_and_output(document):
    for block in BLOCK.findall((TOP / document).read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


@pytest.mark.parametrize("document", RECIPES)
def test_recipes(tmp_path, document):
    n, row, column = np.ogrid[:20, :512, :512]
    with h5py.File(tmp_path / "run42.h5", "w") as f:
        d = f.create_dataset("entry/data/detector", data=(n + row + column).astype("<u2"),
                             chunks=(1, 512, 512), compression="gzip", shuffle=True)
        d.attrs["units"] = "counts"
    spots, defined = np.zeros((20, 512, 512), "<u2"), np.zeros((20, 512, 512), bool)
    for frame in range(20):
        defined[frame, 100 + frame:110 + frame, 200:210] = True
        spots[frame][defined[frame]] = frame + 1
    with h5py.File(tmp_path / "eiger_master.h5", "w") as f:
        for i in 1, 2:
            f[f"entry/data/data_{i:06}"] = h5py.ExternalLink(f"eiger_data_{i:06}.h5", "/entry/data/data")
            with h5py.File(tmp_path / f"eiger_data_{i:06}.h5", "w") as part:
                made = part.create_dataset("entry/data/data", data=np.full((10, 16, 16), i, "u4"))
                made.attrs["image_nr_low"], made.attrs["image_nr_high"] = 10 * i - 9, 10 * i
    file = sparse_files.File("spots")
    file.add("spots", spots, defined, (1, 512, 512), deflate=(0, 6))
    file.save(tmp_path / "sparse42.h5")
    mountpoints = [tmp_path / name for name in ("run42", "sparse42", "new42", "watch42", "eiger", "all")]
    for mountpoint in mountpoints:
        mountpoint.mkdir()
    # python3 means the system's, which has the packages that the recipes import.
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "python3").symlink_to("/usr/bin/python3")
    # umount(8) with its helper, as if it were installed.
    (tools / "umount").write_text(f"#!/bin/sh\nPATH={BUILD.absolute()}:{os.environ['PATH']}\nexec /bin/sh "
                                  f"{TOP}/mount-helpers/umount.sparsefs \"$@\"\n")
    (tools / "umount").chmod(0o755)
    environment = dict(os.environ, PATH=f"{BUILD}:{tools}:{os.environ['PATH']}")
    try:
        done = 0
        for command, output in commands_and_output(document):
            result = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment,
                                    capture_output=True, text=True, timeout=START_SECONDS)
            assert result.returncode == 0, (command, result.stderr)
            assert result.stdout.rstrip("\n") == output.rstrip("\n"), command
            done += 1
        assert done >= RECIPES[document]
    finally:
        for mountpoint in filter(is_mounted, mountpoints):
            subprocess.run(["umount", "-i", "-l", mountpoint], check=True)


def anchors_of(document):
    """As headings become anchors on code hosts."""
    heads = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_links_lead_somewhere():
    """In every document, to files and to headings in them."""
    links = [(document, name, anchor) for document in [*TOP.glob("*.md"), *TOP.glob("docs/*.md")]
             for name, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", document.read_text())
             if not name.startswith("http")]
    assert len(links) > 50
    for document, name, anchor in links:
        target = document.parent / name if name else document
        assert target.exists(), (document, name)
        assert not anchor or anchor in anchors_of(target), (document, name, anchor)


def sources():
    return [*TOP.glob("tests/**/*.py"), *TOP.glob("tests/unit/*.c")]


def test_tests_that_are_named_exist():
    """docs/security.md names one for each promise and each attack; ..._end is the end of such a name."""
    text = (TOP / "docs/security.md").read_text()
    code = "\n".join(map(pathlib.Path.read_text, sources()))
    there = set(re.findall(r"^(?:def|static void) (test_\w+)\(", code, re.M))
    files = {source.name for source in sources()}
    named = re.findall(r"\b(test_\w+(?:\.py|\.c)?)", text)
    assert len(named) > 100
    for name in named:
        assert name in (files if "." in name else there), name
    for end in re.findall(r"`\.\.\.(_\w+)`", text):
        assert any(name.endswith(end) for name in there), end


# ---- docs/rfc.md ----

DOCUMENTS = 5
HEAD = ["section", "what it asks for", "where", "test"]


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def named_in(cell):
    """What stands in backquotes: a path with the names in it, `path: name`, `name`."""
    found = []
    for text in re.findall(r"`([^`]+)`", cell):
        path, _, name = text.partition(": ")
        if "/" in path:
            found.append((path, [name] if name else []))
        else:
            assert found and not name, f"a name without a file: {text}"
            found[-1][1].append(text)
    return found


def text_of(path):
    files = [path] if path.is_file() else [p for p in sorted(path.rglob("*")) if p.is_file()]
    return "\n".join(p.read_text() for p in files)


def is_test(source, name):
    """One that is run: pytest's, or one that a program gives to cmocka."""
    run = r"^def {}\(" if source.suffix == ".py" else r"\bcmocka_unit_test\w*\({}\b"
    return bool(name) and re.search(run.format(re.escape(name)), source.read_text(), re.M) is not None


def check_row(row):
    """The names of its tests. Each file exists, with what is said to be in it."""
    section, asks, where, test = row
    assert section and asks, row
    for path, names in named_in(where):
        assert (TOP / path).exists(), path
        for name in names:
            text = text_of(TOP / path)
            assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text), (path, name)
            if path.endswith(".c") and re.search(rf"(?<![*>])\b{re.escape(name)}\(", text) and f"(*{name})" not in text:
                assert re.search(rf"^\w[^;#{{}}]*?\b{re.escape(name)}\(", text, re.M), f"{path} does not define {name}"
    is_open = where.startswith(("**not yet**", "**no**"))
    assert is_open or where == test == "" and "nothing to implement" in asks or named_in(where), row
    assert is_open or not where or named_in(test), row
    tests = []
    for path, names in named_in(test):
        assert (TOP / path).is_file() and path.startswith(("tests/", "docs/examples/")), path
        assert names or path.startswith("docs/examples/"), path
        for name in names:
            assert is_test(TOP / path, name), (path, name)
        tests += names
    return tests


def test_names_in_the_table_of_documents_exist():
    parts = re.split(r"^## ", (TOP / "docs/rfc.md").read_text(), flags=re.MULTILINE)[1:]
    assert len(parts) == DOCUMENTS
    tests = []
    for part in parts:
        head, rule, *rows = [cells_of(line) for line in part.splitlines() if line.startswith("|")]
        assert head == HEAD and set("".join(rule)) == {"-"}
        for row in rows:
            assert len(row) == len(HEAD), row
            tests += check_row(row)
    assert len(tests) > 200
