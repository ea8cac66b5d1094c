"""Compares everything that a mount shows of a file with what h5py reads from it."""
import errno
import functools
import json
import math
import mmap
import os
import re
import shutil
import stat
import subprocess

import h5py
import numpy as np
import pytest

import files

NO_POINTERS = (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.STRING, h5py.h5t.BITFIELD,
               h5py.h5t.OPAQUE, h5py.h5t.COMPOUND, h5py.h5t.ENUM, h5py.h5t.ARRAY, h5py.h5t.TIME)
FRAME_DIRECTORIES = {"raw": ".raw", "npy": ".npy", "tiff": ".tif", "values": ".values"}


def has_pointers(type_id):
    """Whether elements of this type are, or contain, variable-length parts or references."""
    kind = type_id.get_class()
    if kind == h5py.h5t.STRING:
        return type_id.is_variable_str()
    if kind == h5py.h5t.COMPOUND:
        return any(has_pointers(type_id.get_member_type(i)) for i in range(type_id.get_nmembers()))
    if kind == h5py.h5t.ARRAY:
        return has_pointers(type_id.get_super())
    return kind not in NO_POINTERS


def stored_bytes(dataset):
    """All elements in the file's datatype, as libhdf5 reads them; integers that do not fill their
    bytes as if they did."""
    type_id = dataset.id.get_type()
    if type_id.get_class() == h5py.h5t.INTEGER and number_type(dataset):
        type_id = h5py.h5t.py_create(number_type(dataset))
    n = dataset.id.get_space().get_simple_extent_npoints()
    data = np.zeros(n * type_id.get_size(), np.uint8)
    if n:
        dataset.id.read(h5py.h5s.ALL, h5py.h5s.ALL, data, type_id)
    return data.tobytes()


def number_type(dataset):
    """The dataset's NumPy type if its elements are plain numbers, else None."""
    kind = dataset.id.get_type().get_class()
    if kind not in (h5py.h5t.INTEGER, h5py.h5t.FLOAT):
        return None
    try:
        return dataset.dtype
    except TypeError:  # such as integers of three bytes
        return None


class Frames:
    """How a dataset is cut into frames: the first axis of three and more, or the last K."""

    def __init__(self, dataset, frame_rank=None):
        shape = dataset.shape
        self.is_null = shape is None
        self.shape = shape or ()
        rank = len(self.shape)
        if frame_rank is None:
            frame_rank = rank - 1 if rank >= 3 else rank
        frame_rank = min(frame_rank, rank)
        self.dims = self.shape[rank - frame_rank:]
        self.n = 0 if self.is_null else math.prod(self.shape[:rank - frame_rank])
        self.elements = math.prod(self.dims)


def check_file_facts(path, content):
    """Size, blocks, holes and partial reads agree with the content."""
    st = os.stat(path)
    assert st.st_size == len(content), path
    assert st.st_blocks == -(-len(content) // 512), path
    fd = os.open(path, os.O_RDONLY)
    try:
        if content:
            assert os.lseek(fd, 0, os.SEEK_DATA) == 0
            assert os.lseek(fd, len(content) - 1, os.SEEK_HOLE) == len(content)
            middle = len(content) // 2
            assert os.pread(fd, 7, middle) == content[middle:middle + 7]
        for whence in (os.SEEK_DATA, os.SEEK_HOLE):
            with pytest.raises(OSError):
                os.lseek(fd, len(content), whence)
        assert os.pread(fd, 10, len(content)) == b""
    finally:
        os.close(fd)


def check_content(path, content):
    assert path.read_bytes() == content, path
    check_file_facts(path, content)


def has_no_shared_maps(path):
    """Whether the mount was made with direct_io, with a libfuse or a kernel that does not let such files be
    mapped: by trying."""
    with open(path, "rb") as file:
        try:
            mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ).close()
        except OSError as error:
            assert error.errno == errno.ENODEV
            return True
    return False


def check_npy(path, dataset, shape, content):
    """np.load and np.memmap give the elements, shape and, for plain types, h5py's own dtype."""
    loaded = np.load(path, allow_pickle=False)
    type_id = dataset.id.get_type()
    inner = ()
    while type_id.get_class() == h5py.h5t.ARRAY:
        inner += type_id.get_array_dims()
        type_id = type_id.get_super()
    assert loaded.shape == tuple(shape) + inner, path
    assert loaded.tobytes() == content or loaded.dtype.hasobject, path
    if number_type(dataset) or type_id.get_class() == h5py.h5t.STRING:
        assert loaded.dtype == np.dtype(dataset.dtype.base), path
    if content:
        # There only private mappings are possible.
        for mode in ("c",) if has_no_shared_maps(path) else ("c", "r"):
            mapped = np.load(path, mmap_mode=mode)
            assert mapped.tobytes() == content
            del mapped


def check_tiff(path, dataset, dims, content):
    import tifffile
    with tifffile.TiffFile(path) as tiff:
        image = tiff.asarray()
        order = tiff.byteorder
    assert image.shape == tuple(dims), path
    assert image.astype(image.dtype.newbyteorder(order)).tobytes() == content, path
    dtype = number_type(dataset)
    if dtype:
        frame = np.asarray(dataset[...]).reshape((-1,) + tuple(dims))[int(path.stem)]
        np.testing.assert_array_equal(image, frame)


def selected(encoded, dims):
    """Which elements an encoded dataspace of these dims selects, as libhdf5 decodes it."""
    space = files.decode_selection(encoded)
    mask = np.zeros(dims or (1,), bool)
    kind = space.get_select_type()
    if kind == h5py.h5s.SEL_ALL:
        mask[...] = True
    elif kind == h5py.h5s.SEL_HYPERSLABS:
        for first, last in space.get_select_hyper_blocklist().tolist():
            mask[tuple(slice(a, b + 1) for a, b in zip(first, last))] = True
    elif kind == h5py.h5s.SEL_POINTS:
        mask[tuple(space.get_select_elem_pointlist().T)] = True
    else:
        assert kind == h5py.h5s.SEL_NONE
    if dims:
        assert space.get_simple_extent_dims() == dims
    return mask


def check_defined(path, frames):
    """Everything is defined: the released library decodes it and would encode it just so."""
    content = path.read_bytes()
    space = files.decode_selection(content)
    assert space.get_select_npoints() == frames.elements
    if frames.dims:
        assert space.get_simple_extent_dims() == tuple(frames.dims)
        same = h5py.h5s.create_simple(tuple(frames.dims))
    else:
        same = h5py.h5s.create(h5py.h5s.SCALAR)
    assert content == same.encode()
    check_file_facts(path, content)


def check_csr(folder, dataset, frames, content):
    import scipy.sparse
    toml = (folder / "raw_csr.toml").read_text()
    assert f'nav_shape = {list(dataset.shape[:len(dataset.shape) - len(frames.dims)]) or [1]}' in toml
    assert f'sig_shape = {list(frames.dims) or [1]}' in toml
    index_type = "<i4" if frames.elements < 2**31 else "<i8"
    assert f'indices_dtype = "{index_type}"' in toml
    indptr = np.fromfile(folder / "indptr.raw", "<i8")
    indices = np.fromfile(folder / "indices.raw", index_type)
    assert (folder / "data.raw").read_bytes() == content
    assert len(indptr) == frames.n + 1
    check_file_facts(folder / "indices.raw", (folder / "indices.raw").read_bytes())
    if not content:
        return
    described = json.loads((folder / ".." / "dataset.json").read_text())
    data = np.frombuffer(content, described["dtype"])
    dense = data.reshape(frames.n, frames.elements)
    if dense.dtype.kind == "f" and dense.dtype.itemsize in (2, 16):
        dense = dense.astype("f8")  # scipy has no such matrices
        data = dense.ravel()
    dense = dense.astype(dense.dtype.newbyteorder("="))
    matrix = scipy.sparse.csr_matrix((data.astype(dense.dtype), indices, indptr),
                                     shape=dense.shape)
    np.testing.assert_array_equal(matrix.toarray(), dense)


def check_text(path, dataset):
    with open(path, "rb") as file:  # of a long text the size is known when it is open
        assert os.fstat(file.fileno()).st_size == len(file.read())
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    if dataset.shape is None:
        assert text == ""
        return
    dtype = number_type(dataset)
    if dtype:
        value = dataset[()]
        # Each number's text reads back as just that number.
        native = dtype.newbyteorder("=")
        native = np.dtype("f4") if native == np.dtype("f2") else native
        np.testing.assert_array_equal(np.array(text.split()).astype(native),
                                      np.asarray(value, native).ravel())
        if value.size > 1:
            assert text.count("\n") == value.size // value.shape[-1]
    elif dataset.id.get_type().get_class() == h5py.h5t.STRING:
        value = dataset[()]
        strings = [s if isinstance(s, bytes) else s.encode() for s in np.asarray(value).ravel()]
        if len(strings) == 1:
            assert text.encode("utf-8", "surrogateescape") == strings[0].rstrip(b"\0") + b"\n" \
                or dataset.id.get_type().get_strpad() == h5py.h5t.STR_SPACEPAD
        elif dataset.size:
            decoder = json.JSONDecoder()
            rest, found = text.strip(), []
            while rest:
                word, end = decoder.raw_decode(rest)
                found.append(word)
                rest = rest[end:].lstrip()
            assert [s.decode("utf-8") for s in strings] == found


def check_json(path, dataset, name, frames):
    described = json.loads(path.read_text())
    assert os.stat(path).st_size == len(path.read_bytes())
    assert described["path"] == name
    assert described["dims"] == list(dataset.shape or ())
    assert described["max_dims"] == list(dataset.shape and dataset.maxshape or ())  # h5py 2: none of a null one
    assert described["frames"] == frames.n
    assert described["frame_dims"] == list(frames.dims)
    assert described["item_size"] == dataset.id.get_type().get_size()
    assert described["chunk_dims"] == (list(dataset.chunks) if dataset.chunks else None)
    assert len(described["filters"]["values"]) == dataset.id.get_create_plist().get_nfilters()
    assert set(described["attributes"]) == set(dataset.attrs)
    dtype = number_type(dataset)
    if dtype:
        assert np.dtype(described["dtype"]) == dtype
        order = {"<": "little", ">": "big", "|": "none"}[dtype.str[0]]
        assert described["byte_order"] == order
        if np.isfinite(dataset.fillvalue):
            assert described["fill_value"] == dataset.fillvalue
    for key, value in dataset.attrs.items():
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            assert described["attributes"][key] == value


def check_xattrs(path, attributes):
    names = {name for name in attributes if len("user." + name) <= 255}
    assert set(os.listxattr(path)) == {"user." + name for name in names}
    for name in names:
        text = os.getxattr(path, "user." + name).decode("utf-8", "surrogateescape")
        try:
            value = attributes[name]
        except (OSError, TypeError):  # a type that h5py does not know
            continue
        if isinstance(value, str):
            assert text == value, (path, name)
        elif isinstance(value, bytes):
            assert text.encode("utf-8", "surrogateescape") == value.rstrip(b"\0"), (path, name)
        elif isinstance(value, (np.integer, np.floating)):
            assert type(value)(text) == value or math.isnan(value), (path, name)
    with pytest.raises(OSError):
        os.getxattr(path, "user.no such attribute")


def check_parts(directory, dataset, listed):
    """As many sequences or lines as there are elements; of sequences that h5py reads, what is in them."""
    if "offsets.npy" in listed:
        offsets, values = np.load(str(directory / "offsets.npy")), np.load(str(directory / "values.npy"))
        assert len(offsets) == dataset.size + 1 and offsets[0] == 0 and offsets[-1] == len(values)
        for i, wanted in enumerate(dataset[...].ravel() if dataset.dtype.kind == "O" else ()):
            assert np.array_equal(values[offsets[i]:offsets[i + 1]], [] if wanted is None else wanted)
    if "lines.txt" in listed:
        assert (directory / "lines.txt").read_bytes().count(b"\n") == dataset.size


def check_dataset(directory, dataset, name, frame_rank=None, first=0):
    """Every view of one dataset."""
    frames = Frames(dataset, frame_rank)
    listed = {entry.name for entry in os.scandir(directory)}
    type_id = dataset.id.get_type()
    check_json(directory / "dataset.json", dataset, name, frames)
    check_xattrs(directory, dataset.attrs)
    if "value.txt" in listed:
        check_text(directory / "value.txt", dataset)
    if has_pointers(type_id):
        assert listed <= {"dataset.json", "value.txt", "lines.txt", "offsets.npy", "values.npy"}
        check_parts(directory, dataset, listed)
        return

    suffixes = ("raw", "defined")
    numbers = range(first, first + frames.n)
    assert {e.name for e in os.scandir(directory / "frames")} \
        == {f"{n}.{s}" for n in numbers for s in suffixes}
    content = stored_bytes(dataset)
    width = max(6, len(str(first + frames.n - 1)))
    size = frames.elements * type_id.get_size()
    for kind, suffix in FRAME_DIRECTORIES.items():
        if kind in listed:
            assert {e.name for e in os.scandir(directory / kind)} \
                == {f"{n:0{width}d}{suffix}" for n in numbers}
    for n in numbers:
        frame = content[(n - first) * size:(n - first + 1) * size]
        check_content(directory / "frames" / f"{n}.raw", frame)
        check_content(directory / "raw" / f"{n:0{width}d}.raw", frame)
        check_content(directory / "values" / f"{n:0{width}d}.values", frame)
        check_defined(directory / "frames" / f"{n}.defined", frames)
        if "npy" in listed:
            check_npy(directory / "npy" / f"{n:0{width}d}.npy", dataset, frames.dims, frame)
        if "tiff" in listed and first == 0:
            check_tiff(directory / "tiff" / f"{n:0{width}d}.tif", dataset, frames.dims, frame)
    check_content(directory / "stack.raw", content)
    if not frames.is_null:
        check_npy(directory / "stack.npy", dataset, dataset.shape, content)
    if "csr" in listed:
        check_csr(directory / "csr", dataset, frames, content)


def file_name(link, in_root):
    """The name that a link is shown by."""
    if link in (".", ".."):
        return link.replace(".", "%2E")
    if in_root and link == ".sparsefs":
        return "%2Esparsefs"
    if re.search("%([0-9a-fA-F]{2}|~)", link):
        link = link.replace("%", "%25")
    raw = os.fsencode(link)
    if len(raw) <= 255:
        return link
    hashed = 0xcbf29ce484222325
    for byte in raw:
        hashed = (hashed ^ byte) * 0x100000001b3 % 2**64
    return os.fsdecode(raw[:200] + b"%%~%016x" % hashed)


def check_group(directory, group, above=(), datasets=None):
    """A group and all below it; returns the number of datasets seen."""
    names = list(group)
    shown = set(os.listdir(directory)) - {".sparsefs"}
    if any(isinstance(group.get(name, getlink=True), h5py.ExternalLink) for name in names):
        assert json.loads((directory / "group.json").read_text())["path"] == group.name
        shown.remove("group.json")
    assert len(shown) == len(names), directory
    check_xattrs(directory, group.attrs)
    seen = 0
    for name in names:
        link = group.get(name, getlink=True)
        path = directory / file_name(name, group.name == "/")
        if isinstance(link, h5py.SoftLink):
            assert stat.S_ISLNK(os.lstat(path).st_mode), path
            target = group.get(name)
            assert path.exists() == (target is not None), path
        elif isinstance(link, h5py.ExternalLink):
            assert stat.S_ISLNK(os.lstat(path).st_mode) and not path.exists(), path
        else:
            child = group[name]
            address = h5py.h5o.get_info(child.id).addr
            if address in above:
                assert stat.S_ISLNK(os.lstat(path).st_mode), path
            elif isinstance(child, h5py.Group):
                seen += check_group(path, child, above + (address,))
            elif isinstance(child, h5py.Dataset):
                full = (group.name.rstrip("/") + "/" + name)
                check_dataset(path, child, full)
                seen += 1
            else:
                assert path.read_text().strip(), path
    return seen


def contents(root):
    """Every regular file below a directory but those of .sparsefs, which change, by its path."""
    found = {}
    for folder, names, leaves in os.walk(root):
        names[:] = [name for name in names if name != ".sparsefs"]
        for path in (os.path.join(folder, leaf) for leaf in leaves):
            if not os.path.islink(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, root)] = file.read()
    return found


def check_copies(root, folder):
    """What people copy a whole mount with ends well and has copied all of it."""
    made = {name: folder / name for name in ("cp", "rsync", "tar")}
    made["tar"].mkdir()
    run = functools.partial(subprocess.run, check=True, stdout=subprocess.PIPE)
    run(["ls", "-lR", root])
    sums = run(["find", root, "-path", "*/.sparsefs", "-prune", "-o", "-type", "f", "-exec",
                "md5sum", "{}", "+"]).stdout
    run(["cp", "-r", root, made["cp"]])
    run(["rsync", "-a", f"{root}/", made["rsync"]])
    archive = run(["tar", "-c", "-C", root, "."]).stdout
    run(["tar", "-x", "-C", made["tar"]], input=archive)
    there = contents(root)
    assert sums.count(b"\n") == len(there)
    for name, copy in made.items():
        assert contents(copy) == there, name
        subprocess.run(["chmod", "-R", "u+w", copy], check=True)  # as directories here may be read-only
        shutil.rmtree(copy)


def check_mount(root, path):
    """The whole of a file."""
    with files.open_with_any_type(path) as file:
        return check_group(root, file, (h5py.h5o.get_info(file.id).addr,))
