"""docs/architecture.md and CONTRIBUTING.md are right: the files and names in them exist, folders include what the table
allows, and all locks and global variables are in its tables. And no line of code is longer than 120 characters, and
functions with many parameters do not become more."""
import json
import os
import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SPARSEFS_BUILD", TOP / "build"))
DOCUMENT = TOP / "docs/architecture.md"
MOST_COLUMNS = 120


def c_files(*folders):
    return sorted(p for folder in folders for p in (TOP / folder).rglob("*.[ch]"))


def section(title):
    text = DOCUMENT.read_text()
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.M | re.S).group(1)


def named(text):
    """What stands in backquotes: a path, `path: name`, or a name, of which the path is None."""
    for cell in text.split("\n\n"):
        for quoted in re.findall(r"`([^`\n]+)`", cell):
            match = re.fullmatch(r"((?:src|include|tests|docs|mount-helpers)/[\w./-]+)(?:: (\w+))?", quoted)
            if match:
                yield match[1], match[2]
            elif re.fullmatch(r"[A-Za-z_]\w*[a-zA-Z0-9]", quoted):
                yield None, quoted


@pytest.mark.parametrize("document, least", [("docs/architecture.md", 250), ("CONTRIBUTING.md", 80)])
def test_what_is_named_exists(document, least):
    others = *c_files("tests"), *TOP.glob("tests/*/*.py"), TOP / "src/meson.build"
    code = "\n".join(p.read_text() for p in [*c_files("src", "include"), *others])
    there = set(re.findall(r"\w+", code))
    found = [found for found in named((TOP / document).read_text()) if "NAME" not in str(found)]
    assert len(found) > least
    for path, name in found:
        assert path is None or (TOP / path).exists(), path
        if path is None:
            assert name in there or (TOP / "tests/unit" / name).exists(), name
        elif name:
            text = (TOP / path).read_text()
            assert re.search(rf"\b{name}\b", text), (path, name)
            if path.endswith(".c") and re.search(rf"(?<!\*)\b{name}\(", text) and f"(*{name})" not in text:
                assert re.search(rf"^\w[^;#{{}}]*?\b{name}\(", text, re.M), f"{path} does not define {name}"


def test_files_named_in_comments_exist():
    files = c_files("src", "include", "tests", "bench", "docs")
    paths = "".join(f"{path}\n" for path in files)
    for path in c_files("src", "include"):
        for named in re.findall(r'(?<![<"\w/.-])((?:[a-z_0-9]+/)*[a-z_0-9]+\.[ch])\b', path.read_text()):
            assert f"/{named}\n" in paths or named in ("fuse.h", "linux/landlock.h"), f"{path} names {named}"


# ---- Layers ----

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)


def allowed():
    table = {}
    for folder, cell in re.findall(r"^\| `src/(\w+)` \|(.*)\|$", section("Layers"), re.M):
        first = cell.split(";")[0]
        table[folder] = set(re.findall(r"\w+", first)), set(re.findall(r"`src/([^`]+)`", cell))
    return table


def test_folders_include_what_they_may():
    table = allowed()
    assert set(table) == {p.name for p in (TOP / "src").iterdir() if p.is_dir()}
    n = 0
    for file in c_files("src"):
        folder = file.relative_to(TOP / "src").parts[0]
        folders, headers = table[folder]
        for name in INCLUDE.findall(file.read_text()):
            other = name.split("/")[0]
            if other in table and (TOP / "src" / name).exists():
                assert other == folder or other in folders or name in headers, f"{file}: {name}"
                own = re.search(r"(^|/|_)(private|local)\.h$", name)
                assert not own or other == folder, f"{file}: {name} is not for others"
                n += 1
            assert name != "hdf5.h" or folder == "hdf5", file
            assert not name.startswith("fuse") or folder == "fs", file
    assert n > 500


def test_tables_are_hashed_with_a_secret():
    """That is what common/hash.h is for: nobody includes what it is made of."""
    including = [p for p in c_files("src") if "uthash.h" in INCLUDE.findall(p.read_text())]
    assert [str(p.relative_to(TOP)) for p in including] == ["src/common/hash.h"]


def test_layers_go_downwards():
    """In the order of the table a folder includes only those above it."""
    table, seen = allowed(), set()
    for folder, (folders, _) in table.items():
        assert folders <= seen, folder
        seen.add(folder)


# ---- Locks and variables ----

LOCK = re.compile(r"^\s*(?:static )?pthread_(?:mutex|rwlock|cond)_t (\w+)(?:\[\w+\])?(?:;| =)", re.M)


def in_tables(title):
    """Of the first cells: (path, name) of all."""
    for cell in re.findall(r"^\| (`[^|]+) \|", section(title), re.M):
        path = None
        for quoted in re.findall(r"`([^`]+)`", cell):
            head, colon, name = quoted.partition(": ")
            path = head if colon else path
            yield path, name if colon else head


def test_locks_are_listed():
    there = {(str(p.relative_to(TOP)), name) for p in c_files("src") for name in LOCK.findall(p.read_text())}
    there -= {("src/common/thread.c", "key")}
    assert len(there) > 60
    listed = list(in_tables("Locks"))
    assert len(listed) == len(set(listed))
    assert set(listed) == there, set(listed) ^ there


def variables_of(object_file):
    """Those in sections that can be written to, but for what is constant once it is relocated."""
    text = subprocess.run(["objdump", "-t", object_file], capture_output=True, text=True, check=True).stdout
    for name_of_section, size, name in re.findall(
            r"^[0-9a-f]+ .{7} (\S+)\t([0-9a-f]+)\s+(?:\.\w+ )?([A-Za-z_]\w*)(?:\.\d+)?$", text, re.M):
        writable = re.match(r"\.t?(bss|data)\b", name_of_section) or name_of_section == "*COM*"
        if writable and not name_of_section.startswith(".data.rel.ro") and int(size, 16):
            yield name


def is_instrumented():
    options = json.loads((BUILD / "meson-info/intro-buildoptions.json").read_text())
    value = {option["name"]: option["value"] for option in options}
    return value.get("b_sanitize", "none") not in ("none", []) or value["b_coverage"]


def source_of(object_file):
    """Meson puts underscores for slashes."""
    name = object_file.name.removesuffix(".o").removeprefix("src_").replace("_", "/", 1)
    return "src/" + name.replace("hdf5/worker_", "hdf5/worker/").replace("fs/daemon_", "fs/daemon/")


def test_variables_are_listed():
    if is_instrumented():
        pytest.skip("a sanitizer has variables of its own in every file")
    listed = set(in_tables("Variables that outlive a call"))
    names = {path: {name for p, name in listed if p == path} for path, _ in listed}
    n = 0
    for file in [*BUILD.glob("src/*.p/*.o"), *BUILD.glob("sparse*.p/*.o")]:
        path = source_of(file)
        assert (TOP / path).exists(), path
        for name in variables_of(file):
            assert name == "hash_out_of_memory" or name in names.get(path, ()), f"{path}: {name} is not listed"
            n += 1
    assert n > 70


# ---- Functions ----

MOST_PARAMETERS = 6
GIVEN = {  # by the public interface, or by libhdf5, which calls them: H5Z_func_t, H5T_conv_t, H5L_elink_traverse_t
    "sfs_filters_encode", "sfs_filters_decode", "sfs_lend_or_read", "sfs_read_parts",
    "src/hdf5/register_own_filters.c: run",
    "src/hdf5/attribute_lengths.c: count_elements", "src/hdf5/tree.c: refuse_external",
}
MOST_WITH_MORE = 7  # others: lower it when one of them has fewer
NESTED = r"\((?:[^(){};]|\([^(){};]*\))*\)"
DEFINITION = re.compile(rf"^[A-Za-z_][^;{{}}#()=]*?\b(\w+)\(((?:[^(){{}};]|{NESTED})*)\)\s*\n\{{", re.M)


def parameters_of(text):
    """Of all functions that are defined there: name, and number of parameters."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for name, parameters in DEFINITION.findall(text):
        while "(" in parameters:
            parameters = re.sub(r"\([^()]*\)", "", parameters)
        yield name, parameters.count(",") + 1


def test_functions_have_few_parameters():
    """What belongs together is a struct."""
    n, found = 0, []
    for path in c_files("src"):
        for name, parameters in parameters_of(path.read_text()):
            n += 1
            full = f"{path.relative_to(TOP)}: {name}"
            if parameters > MOST_PARAMETERS and name not in GIVEN and full not in GIVEN:
                found.append(full)
    assert n > 4000
    assert len(found) <= MOST_WITH_MORE, "\n".join(found)


# ---- Lines ----

def code_files():
    folders = "src", "include", "tests", "bench", "mount-helpers", "docs", "debian/tests"
    for folder in folders:
        for p in sorted((TOP / folder).rglob("*")):
            if p.is_file() and "__pycache__" not in p.parts and p.suffix in (".c", ".h", ".py", ".sh", ".build", ""):
                yield p
    yield from (TOP / name for name in ("meson.build", "quickstart.sh", "setup.sh", "test.sh"))


def is_code(path):
    with path.open("rb") as file:
        head = file.read(200)
    return path.suffix or head.startswith(b"#!") or path.parent.name == "mount-helpers"


def test_lines_are_not_long():
    n = 0
    for path in filter(is_code, code_files()):
        for i, line in enumerate(path.read_text().splitlines(), 1):
            assert len(line) <= MOST_COLUMNS, f"{path}:{i}: {len(line)} characters"
            n += 1
    assert n > 50000
