"""Reads all structured datasets of files by the readers of these tests, sparse_reader.py and variable_reader.py, which
share no code with src/, and compares each value with what `sparsectl dump` says. Left out are files that differ and in
which `sparsectl check` finds faults, that are no HDF5 file or are open for writing, and large ones; and datasets with
filters that Python has not."""
import collections
import json
import os
import pathlib
import subprocess
import sys

import h5py
import numpy as np

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/mount"), str(TOP / "tests/cli")]
import sparse_reader  # noqa: E402
import variable_reader  # noqa: E402
from variable_reader import Array, Compound, Plain, Reference, Sequence  # noqa: E402

SPARSECTL = pathlib.Path(os.environ.get("SPARSEFS_BUILD", TOP / "build")) / "sparsectl"
SECONDS = 300
MOST_BYTES = 4 << 20  # of a file
MOST_ELEMENTS = 20000  # of a dataset
LAYOUT = 8  # the message


def sparsectl(*arguments):
    return subprocess.run([SPARSECTL, *map(str, arguments)], capture_output=True, text=True, timeout=SECONDS)


def objects(path):
    """Addresses of all objects by their path."""
    found = {}

    def look(group, name):
        for link in group:
            info = group.id.links.get_info(link.encode())
            if info.type != h5py.h5l.TYPE_HARD or info.u in found.values():
                continue
            found[name + link] = info.u
            if h5py.h5g.get_objinfo(group.id, link.encode()).type == h5py.h5g.GROUP:
                look(group[link], name + link + "/")

    with h5py.File(path, "r") as file:
        found["/"] = h5py.h5g.get_objinfo(file.id).objno[0]
        look(file, "/")
    return found


def layout_of(file, address):
    """The layout message of a structured dataset; None: it is none."""
    if file.bytes[address:address + 4] != b"OHDR":
        return None
    messages = [data for kind, _, data in file.messages(address) if kind == LAYOUT]
    return messages[0] if messages and messages[0][:2] == bytes([5, 4]) else None


# ---- Values ----


def same_text(digits, text):
    try:
        return bytes.fromhex(digits).split(b"\0")[0].decode() == text  # as libhdf5 ends them
    except UnicodeDecodeError:
        return True  # JSON has no such bytes


def same(kind, value, said, paths):
    """Whether a value of variable_reader.py is what JSON says of it. Of enumerations, strings of fixed length and
    opaque bytes nothing is compared, of regions only whose they are."""
    if isinstance(kind, Compound):
        return len(value) == len(said) and all(
            same(base, part, one, paths) for (_, base), part, one in zip(kind.members, value, said.values()))
    for _ in kind.dims[1:] if isinstance(kind, Array) else ():
        said = [one for row in said for one in row]
    if isinstance(kind, Array) or (isinstance(kind, Sequence) and not kind.is_string):
        return len(value) == len(said) and all(same(kind.base, part, one, paths) for part, one in zip(value, said))
    if isinstance(kind, Reference):
        return said is None or (value is not None and paths.get(said.split(" {")[0]) == value["to"])
    if isinstance(kind, Sequence):
        return same_text(value, said)
    assert isinstance(kind, Plain)
    if kind.number is None or isinstance(said, (str, bool)):
        return True
    return same_number(np.frombuffer(bytes.fromhex(value), kind.number)[0], said)


def same_number(number, said):
    """The text has as many digits as tell a number from all others of its type."""
    if said is None or float(said) == float(number):
        return True
    with np.errstate(over="ignore"):
        narrow = [kind for kind in (np.float16, np.float32) if isinstance(number, (float, np.floating)) and
                  float(kind(number)) == float(number)]
        if any(kind(float(said)) == kind(number) for kind in narrow):
            return True
    return np.isnan(number) and np.isnan(float(said))


def dumped(path, name, rank):
    """{coordinates: text}, as the library has it; None: an element is too large as text."""
    result = sparsectl("dump", "--format", "coo", f"{path}:{name}")
    if "File too large" in result.stderr:
        return None
    assert result.returncode == 0, result.stderr
    rows = [line.split(" ", rank) for line in result.stdout.splitlines()]
    return {tuple(map(int, row[:rank])): row[rank] for row in rows}


def compare_numbers(file, path, name, address):
    dataset = sparse_reader.Dataset(file, address)
    said, values = dumped(path, name, dataset.rank), dataset.elements()
    assert set(said) == set(values), f"{path}:{name}: other elements are defined"
    for place, value in values.items():
        assert same_number(value, float(said[place].strip('"'))), f"{path}:{name}: {place}: {value}, not {said[place]}"
    return f"{dataset.order} {dataset.encoding}"


def compare_variable(path, name, rank, order, paths):
    said = dumped(path, name, rank)
    if said is None:
        return "too large"
    dataset = variable_reader.Dataset(path, name, order)
    assert set(said) == set(dataset.values) or dataset.first, f"{path}:{name}: other elements are defined"
    for place, value in dataset.values.items():
        assert same(dataset.kind, value, json.loads(said[place]), paths), f"{path}:{name}: {place}: {value}"
    return f"{order} {'dense' if dataset.first else 'variable'}"


def compare(path, counts):
    paths, file = objects(path), sparse_reader.File(path)
    layouts = {name: layout for name, address in paths.items() if (layout := layout_of(file, address))}
    if not layouts:
        return
    described = {said["path"]: said for said in json.loads(sparsectl("info", "--json", path).stdout)["datasets"]}
    for name, layout in layouts.items():
        said, address = described[name], paths[name]
        if said["defined_elements"] > MOST_ELEMENTS or np.prod(said["chunk_dims"], dtype=float) > MOST_ELEMENTS ** 2:
            continue
        try:
            if layout[3] & 2:
                counts[compare_variable(path, name, len(said["dims"]), said["layout_message"], paths)] += 1
            elif datatype_class(file, address) in (0, 1):
                counts[compare_numbers(file, path, name, address)] += 1
        except NotImplementedError as lacking:  # in Python's library: LZ4 and others
            counts[f"not read: {lacking}"] += 1


def datatype_class(file, address):
    return next(data[0] & 15 for kind, _, data in file.messages(address) if kind == 3)


def is_readable(path):
    """A journal, as programs leave it that were killed, is not known to these readers."""
    content = path.read_bytes()[:16]
    if content[:8] != b"\x89HDF\r\n\x1a\n" or path.with_name(path.name + ".journal").exists():
        return False
    return content[8] == 0 or content[11] == 0


def compare_if_sound(path, counts):
    """Whether it is takes a process to find out, and matters only of what differs or cannot be read."""
    found = collections.Counter()
    try:
        compare(path, found)
    except Exception:
        if sparsectl("check", path).returncode == 0:
            raise
    else:
        counts.update(found)


def read_again(folder):
    """How many datasets of each encoding were compared."""
    counts = collections.Counter()
    for path in sorted(pathlib.Path(folder).rglob("*.h5")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES and is_readable(path):
            compare_if_sound(path, counts)
    return counts

