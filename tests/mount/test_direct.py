"""What a listing asks of a file is read by our own reader, where it is plain, and is what libhdf5 says.
`tests/unit/direct.c` asks both about files, and compares all fields."""
import collections
import os
import random
import re
import shutil
import subprocess

import h5py
import numpy as np
import pytest

from conftest import BUILD, TOP, real_files, sparse_files, wait_until
from test_disk_errors import Failfs
from test_folder import list_all, processes_of_files, stats

DIRECT = BUILD / "tests/unit/direct"
LIBVERS = ["earliest", "v108", "v110", "latest", ("earliest", "v110")]

Answers = collections.namedtuple("Answers", "opened links kinds datasets")


def ask_both(*paths):
    """Of each file whether our reader opens it, and how many of how many questions it answers."""
    run = subprocess.run([DIRECT, *map(str, paths)], capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stderr == "", run.stderr
    lines = [line.split(" ", 5) for line in run.stdout.splitlines()]
    assert [line[5] for line in lines] == list(map(str, paths))
    return [Answers(line[0], *(tuple(map(int, of.split("/"))) for of in line[1:4])) for line in lines]


def is_all(of):
    return of[0] == of[1]


NUMBERS = ["u1", "i1", "<u2", ">u2", "<i4", ">i4", "<u8", ">i8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
OTHERS = ["?", "S5", "V7", "c8", ">c16", [("x", "<f8"), ("y", ">i2"), ("s", "S3"), ("z", "u1", (2, 3))],
          [("x", "<f8"), ("n", [("p", "<i4"), ("q", ">f4")])], np.dtype([("x", "u1"), ("y", "<f8")], align=True),
          ("<f4", (2, 5)), (">i2", (3,))]


def write_types(group):
    """Every datatype, with and without a fill value, and an odd one."""
    enums = [h5py.special_dtype(enum=(base, {"RED": 1, "BLUE": 100})) for base in ("u1", "<i4")]
    for i, dtype in enumerate(map(np.dtype, NUMBERS + OTHERS + enums)):
        group.create_dataset(f"{i} zero", (3, 4), dtype)
        if dtype.shape == ():
            fill = np.frombuffer(bytes(range(1, dtype.itemsize + 1)), dtype)[0]
            group.create_dataset(f"{i} filled", (3, 4), dtype, fillvalue=np.bool_(True) if dtype == bool else fill)
    for dtype, value in [("<f8", np.nan), (">f4", -np.inf), ("<f2", 0.1), ("<f8", 1e300), (">i8", -2**63),
                         ("<u8", 2**64 - 1)]:
        group.create_dataset(f"{dtype} {value}", (2,), dtype, fillvalue=value)
    for name, dtype in {"str": h5py.special_dtype(vlen=str), "bytes": h5py.special_dtype(vlen=bytes),
                        "list": h5py.special_dtype(vlen=np.dtype("<i4")),
                        "big": h5py.special_dtype(vlen=np.dtype(">f8")),
                        "reference": h5py.special_dtype(ref=h5py.Reference),
                        "region": h5py.special_dtype(ref=h5py.RegionReference)}.items():
        group.create_dataset(name, (3,), dtype)


def write_spaces(group):
    group["null"], group["scalar"], group["text"] = h5py.Empty("<f4"), 1.5, "words"
    group.create_dataset("empty", (0, 3), "<i4")
    group.create_dataset("empty, unlimited", (0, 3), "<i4", maxshape=(None, 3))
    group.create_dataset("deep", (1,) * 32, "u1")


def write_layouts(group):
    data = np.arange(1000.).reshape(10, 100)
    for filters in {}, {"compression": "gzip"}, {"compression": "lzf", "shuffle": True, "fletcher32": True}:
        for name, options in {"fixed": {}, "one": {"maxshape": (None, 100)}, "two": {"maxshape": (None, None)},
                              "limited": {"maxshape": (20, 100)}}.items():
            group.create_dataset(f"{name} {filters}", data=data, chunks=(3, 7), **options, **filters)
        group.create_dataset(f"single {filters}", data=data, chunks=data.shape, **filters)
    group.create_dataset("scaled", data=np.arange(100), chunks=(10,), scaleoffset=3)
    early, late, later = h5py.h5d.ALLOC_TIME_EARLY, h5py.h5d.ALLOC_TIME_LATE, h5py.h5d.ALLOC_TIME_INCR
    allocations = {h5py.h5d.COMPACT: [early], h5py.h5d.CONTIGUOUS: [early, late, later],
                   h5py.h5d.CHUNKED: [early, late, later]}
    fills = h5py.h5d.FILL_TIME_ALLOC, h5py.h5d.FILL_TIME_NEVER, h5py.h5d.FILL_TIME_IFSET
    for layout, allocation, fill in [(layout, allocation, fill) for layout, allowed in allocations.items()
                                     for allocation in allowed for fill in fills]:
        dcpl = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        dcpl.set_layout(layout)
        if layout == h5py.h5d.CHUNKED:
            dcpl.set_chunk((2,))
        dcpl.set_alloc_time(allocation)
        dcpl.set_fill_time(fill)
        space = h5py.h5s.create_simple((4,))
        h5py.h5d.create(group.id, f"{layout} {allocation} {fill}".encode(), h5py.h5t.STD_I32BE, space, dcpl)


def write_links(group):
    group.create_group("a/b/c").attrs["x"] = 1
    group.create_group("empty")
    group["soft"], group["nowhere"] = h5py.SoftLink(group.name + "/a/b"), h5py.SoftLink("no/such")
    group["external"] = h5py.ExternalLink("other.h5", "/x/y")
    group["hard"], group["a/b/up"] = group["a/b"], group["a"]
    group["a/b/\u00e9 \u65e5"] = np.arange(3)


def write_all(file):
    for part in write_types, write_spaces, write_layouts:
        part(file.create_group(part.__name__))
    write_links(file.create_group("links"))


@pytest.mark.parametrize("options", [{}, {"track_order": True}, {"userblock_size": 512}], ids=str)
@pytest.mark.parametrize("libver", LIBVERS, ids=str)
def test_files_of_h5py(tmp_path, libver, options):
    """Our own reader answers everything."""
    path = tmp_path / "plain.h5"
    with h5py.File(path, "w", libver=libver, **options) as file:
        write_all(file)
    answers, = ask_both(path)
    assert answers.opened == "answered" and all(map(is_all, answers[1:])), answers
    assert answers.datasets[1] > 100 and answers.links[1] > 7


@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_large_groups(tmp_path, libver, track_order):
    """Symbol tables and heaps of several levels, after links were removed, too."""
    path = tmp_path / "large.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for n in 0, 1, 8, 9, 45, 46, 100, 3000, 20000:
            group = file.create_group(f"{n}", track_order=track_order)
            for i in np.random.default_rng(n).permutation(n):
                group[f"link {i} {'x' * (i % 50)}"] = file["0"] if i % 3 else h5py.SoftLink(f"/{i}")
            for i in range(0, n if n > 100 else 0, 2):
                del group[f"link {i} {'x' * (i % 50)}"]
    answers, = ask_both(path)
    assert answers.opened == "answered" and all(map(is_all, answers[1:])), answers


@pytest.mark.parametrize("sizes", [(8, 4), (4, 8), (4, 4)], ids=str)
def test_other_sizes_of_addresses_and_lengths(tmp_path, sizes):
    """In symbol tables the place of a name is a length."""
    path, creation = tmp_path / "sizes.h5", h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_sizes(*sizes)
    with h5py.File(h5py.h5f.create(bytes(path), h5py.h5f.ACC_TRUNC, creation)) as file:
        for i in range(30):
            file[f"group {i}/x"] = np.arange(i)
        file.create_dataset("growing", (3, 4), maxshape=(None, 4), chunks=(1, 4))
    answers, = ask_both(path)
    assert answers.opened == "answered" and is_all(answers.links) and answers.links[1] == 31
    # To libhdf5 four bytes of ones are a limit like others.
    assert answers.datasets == (30 + (sizes[1] == 8), 31)


def test_fill_values_of_much_text(tmp_path):
    """A name stands there once for each element: what becomes large is not made here."""
    path = tmp_path / "text.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("small", (2,), np.dtype([("a" * 100, "u1")]))
        file.create_dataset("large", (2,), np.dtype([("x", np.dtype([("n" * 2000, "u1")]), (4096,))]))
    answers, = ask_both(path)
    assert answers.opened == "answered" and answers.datasets == (1, 2), answers


def test_a_group_that_names_the_same_again(tmp_path):
    """Old groups: symbols that lead to ends of one long name. What would be kept of it is bounded."""
    path = tmp_path / "names.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        for i in range(8):
            file[f"{i}" + "x" * 60000] = h5py.SoftLink("/" + "y" * 60000)
    answers, = ask_both(path)
    assert answers.opened == "answered" and all(map(is_all, answers[1:])), answers
    with h5py.File(path, "w", libver="earliest") as file:
        for i in range(8):
            file[f"{i}" + "x" * 70000] = h5py.SoftLink("/x")
    answers, = ask_both(path)
    assert answers.opened == "asked", answers


@pytest.mark.parametrize("number", [900, 1300])
def test_links_that_share_one_long_target(tmp_path, number):
    """A small file, of which every link would keep 60,000 bytes: up to 64 MiB it is our reader's."""
    path = tmp_path / "shared.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        for i in range(number):
            file[f"g/{i:04}"] = h5py.SoftLink("/" + "y" * 60000 if i == 0 else "/x")
    content = bytearray(path.read_bytes())
    leaves = [match.start() for match in re.finditer(b"SNOD\1\0", content)]
    symbols = [(content[at + 8 + 40 * i + 16], at + 8 + 40 * i + 24) for at in leaves
               for i in range(int.from_bytes(content[at + 6:at + 8], "little"))]
    places = [at for kind, at in symbols if kind == 2]
    assert len(places) == number
    longest = max((bytes(content[at:at + 4]) for at in places), key=lambda place: places_target(content, place))
    for at in places:
        content[at:at + 4] = longest
    path.write_bytes(content)
    answers, = ask_both(path)
    assert answers.opened == "answered" and is_all(answers.links) == (number == 900), answers


def places_target(content, place):
    """How long the target is that stands there in the group's heap, the last one of the file."""
    heap = content.rindex(b"HEAP")
    data = int.from_bytes(content[heap + 24:heap + 32], "little") + int.from_bytes(place, "little")
    return content.index(b"\0", data) - data


def odd_integer():
    """12 bits in two bytes."""
    integer = h5py.h5t.STD_U16LE.copy()
    integer.set_precision(12)
    return integer


def enumeration_of_a_byte():
    enumeration = h5py.h5t.enum_create(h5py.h5t.STD_U8BE)
    enumeration.enum_insert(b"A", 5)
    return enumeration


def test_what_is_not_plain_is_asked(tmp_path):
    """Committed datatypes, virtual and external ones, odd types; and files of other kinds."""
    path = tmp_path / "odd.h5"
    layout = h5py.VirtualLayout((4,), "<i4")
    layout[:] = h5py.VirtualSource(".", "x", (4,))
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(4, dtype="<i4")
        file["type"] = np.dtype("<i4")
        file.create_dataset("committed", (3,), file["type"])
        file.create_dataset("external", (3,), "<i4", external=[("raw", 0, 12)])
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("enumeration", (3,), h5py.special_dtype(enum=(">i2", {"RED": 1})))
        file.create_dataset("list in compound", (3,), [("x", h5py.special_dtype(vlen=np.dtype("<i4")))])
        h5py.h5d.create(file.id, b"bits", odd_integer(), h5py.h5s.create_simple((3,)))
        h5py.h5d.create(file.id, b"byte", enumeration_of_a_byte(), h5py.h5s.create_simple((3,)))
    answers, = ask_both(path)
    assert answers.opened == "answered" and answers.datasets == (1, 8) and answers.kinds == (9, 10)
    extended = tmp_path / "extended.h5"
    with h5py.File(extended, "w", fs_strategy="page", fs_persist=True):
        pass
    assert ask_both(extended)[0].opened == "asked"


def test_files_that_are_there():
    """Those that releases have written, those that must be refused, and extra ones."""
    tests = sorted((TOP / "tests").glob("**/*.h5"))
    assert len(tests) > 50
    ask_both(*tests)
    for path, answers in zip(real_files(), ask_both(*real_files())):
        assert answers.opened in ("answered", "asked"), path
    ask_both(*sparse_files())


def write_small(path, libver):
    with h5py.File(path, "w", libver=libver) as file:
        group = file.create_group("g")
        group["soft"] = h5py.SoftLink("/x")
        for i in range(20):
            group.create_group(f"m{i}")
        if libver == "latest":
            group["external"] = h5py.ExternalLink("a", "/b")
        file["x"], file["text"] = np.arange(5.0), "text"
        file["x"].attrs["unit"] = 1
        file.create_dataset("c", (4, 6), ">i2", chunks=(2, 3), compression="gzip", shuffle=True, fillvalue=3)
        file.create_dataset("b", (3,), "?", maxshape=(None,), chunks=(2,))
        file["k"] = np.zeros(2, [("a", "<f4"), ("bb", "S3"), ("c", "u1", (2,))])


def damage(rng, content):
    """One to three bytes where there is something, or the end."""
    damaged = bytearray(content)
    places = [at for at in range(len(content)) if any(content[max(0, at - 8):at + 9])]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.choice(places)
        damaged[at] = rng.choice([0, 1, 2, 0x7f, 0x80, 0xff, damaged[at] ^ 1 << rng.randrange(8), rng.randrange(256)])
    return bytes(damaged[:rng.randrange(len(damaged))] if rng.random() < 0.03 else damaged)


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_damaged_files(tmp_path, libver):
    """libhdf5 says the same of them, or is asked: also where there are no checksums."""
    seed = int(os.environ.get("SPARSEFS_TEST_SEED", random.randrange(2**32)))
    n = int(os.environ.get("SPARSEFS_TEST_DAMAGED", 200))
    print("seed", seed)
    rng = random.Random(seed)
    sound = tmp_path / "sound.h5"
    write_small(sound, libver)
    paths = [tmp_path / f"{i}.h5" for i in range(n)]
    for path in paths:
        path.write_bytes(damage(rng, sound.read_bytes()))
    opened = [answers.opened for answers in ask_both(sound, *paths)]
    assert opened[0] == "answered" and opened.count("answered") > n // 10


# ---- In mounts of folders ----


@pytest.fixture
def folder(tmp_path):
    """Files of h5py as they come, and libhdf5 has other ones to read."""
    path = tmp_path / "folder"
    path.mkdir()
    for i, libver in enumerate(LIBVERS * 4):
        with h5py.File(path / f"{i}.h5", "w", libver=libver, track_order=i % 3 == 0) as file:
            file["entry/data"] = np.arange(100.0).reshape(10, 10)
            file["entry/text"], file["entry/alias"] = "words", h5py.SoftLink("/entry/data")
            file.create_dataset("instrument/frames", (4, 8, 8), "<u2", chunks=(1, 8, 8), compression="gzip")
    return path


@pytest.mark.parametrize("option", ["default", "ro"])
def test_a_listing_starts_no_process(mounts, folder, option):
    mount = mounts(folder, option)
    listing = list_all(mount)
    assert processes_of_files(mount) == 0
    assert listing.count("frames:") > 20 and "alias" in listing
    assert (mount / "3.h5/entry/text/value.txt").read_text() == "words\n"  # by libhdf5
    assert processes_of_files(mount) == 1
    inside = mounts(folder, option, "hdf5=inside")
    assert list_all(inside) == listing


SHAPES = (), (1,), (1, 1), (7,), (3, 4), (2, 3, 2), (0,), (3, 0)


def of_any_bytes(generator, shape, dtype):
    dtype = np.dtype(dtype)
    if dtype == bool:
        return generator.integers(0, 2, shape).astype(bool)
    return generator.integers(0, 256, (*shape, dtype.itemsize), "u1").view(dtype).reshape(shape)


def write_elements(group, dtype, chunked, generator):
    for shape in SHAPES:
        data = of_any_bytes(generator, shape, dtype)
        if data.size > 0 and shape or not chunked:
            group.create_dataset("x".join(map(str, ("of", *shape))), data=data, chunks=shape if chunked else None)


def texts(mount):
    return {path.relative_to(mount.root): path.read_bytes() for path in mount.root.rglob("*")
            if path.name == "value.txt" or path.parent.name == "values"}


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("option", ["default", "ro"])
def test_text_needs_no_process(mounts, tmp_path, option, chunked):
    """That of datatypes that are plain, but to find chunks; it is what libhdf5 would write."""
    path, generator = tmp_path / "plain.h5", np.random.default_rng(9)
    names = h5py.enum_dtype({"RED": 0, 'a "b"\n': 42, "minus": -3}, "<i2")
    special = [np.nan, np.inf, -np.inf, -0., 0.1, 1 / 3, 6e-8]
    chunks = (2,) if chunked else None
    with h5py.File(path, "w") as file:
        for i, dtype in enumerate([*NUMBERS, *(other for other in OTHERS if not isinstance(other, tuple))]):
            write_elements(file.create_group(f"{i}"), dtype, chunked, generator)
        file.create_dataset("names", data=np.array([0, 42, 5, -3], "<i2"), dtype=names, chunks=chunks)
        file.create_dataset("spaces", data=np.array([b"ab  ", b'"\\\n', b"\xff\x00x"], "S4"), chunks=chunks)
        for dtype in "<f2", "<f4", ">f8":
            file.create_dataset(f"special {dtype}", data=np.array(special, dtype), chunks=chunks)
        file.create_dataset("fill", (4,), "<i4", fillvalue=7, chunks=chunks)
        file["none"] = h5py.Empty("<f4")
    mount, inside = mounts(path, option), mounts(path, option, "hdf5=inside")
    answers = texts(mount)
    assert answers == texts(inside) and len(answers) > 100
    assert processes_of_files(mount) == chunked


def names_in(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_what_is_written_is_listed(mounts, folder):
    """By libhdf5's process, from when the file is written on; and by our reader when it is opened again."""
    mount = mounts(folder, "default")
    before = names_in(mount / "0.h5")
    (mount / "0.h5/entry/new").mkdir()
    (mount / "1.h5/instrument/frames/frames/2.raw").write_bytes(bytes(range(128)))
    assert names_in(mount / "0.h5") == before | {"entry/new"}
    (mount / "0.h5/entry/new").rmdir()
    assert names_in(mount / "0.h5") == before
    assert (mount / "1.h5/instrument/frames/frames/2.raw").read_bytes() == bytes(range(128))


def test_what_was_written_is_listed(mounts, folder):
    """By our reader, when the file is shared again: not as it was when it was opened."""
    mount = mounts(folder, "default", "commit_interval=1")
    for name in "0.h5", "3.h5":  # of a symbol table, and without one
        (mount / name / "new").mkdir()
        wait_until(lambda: stats(mount)["lock"] == "shared")
        assert os.listdir(mount / name / "new") == []
        assert "new" in os.listdir(mount / name)


def test_a_damaged_file_is_said_to_be_one(mounts, folder):
    """When it is opened, where libhdf5 refuses it then; else what is damaged in it is."""
    root, group = folder / "0.h5", folder / "5.h5"
    content = bytearray(root.read_bytes())
    at = content.index(b"TREE")
    content[at:at + 4] = b"EERT"
    root.write_bytes(content)
    content = bytearray(group.read_bytes())
    at = content.rindex(b"SNOD")
    content[at:at + 4] = b"DONS"
    group.write_bytes(content)
    listings = []
    for options in (), ("hdf5=inside",):
        mount = mounts(folder, *options, expect_log=True)
        run = subprocess.run(["ls", "-R", "."], cwd=mount.root, capture_output=True, text=True, check=False)
        assert run.returncode != 0
        listings.append((run.stdout, run.stderr))
    assert listings[0] == listings[1]
    said = {path for path in ("0.h5", "5.h5/instrument") if path in listings[0][1]}
    assert said == {"0.h5", "5.h5/instrument"} and len(listings[0][1].splitlines()) == 2, listings[0][1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount disks")
def test_a_slow_disk_does_not_hold_it(mounts, tmp_path):
    """What our reader does not read in hdf5_timeout libhdf5 reads, whose time is counted without the disk."""
    disk = Failfs(tmp_path / "disk", 0)
    try:
        with h5py.File(tmp_path / "many.h5", "w", libver="earliest") as file:
            for i in range(200):
                file[f"group/{i:03}"] = h5py.SoftLink("/x")
            file["other/x"] = 1.5
        shutil.copyfile(tmp_path / "many.h5", disk.path / "many.h5")
        mount = mounts(disk.path, "hdf5_timeout=5", expect_log=True)
        assert sorted(os.listdir(mount / "many.h5")) == ["group", "other"]
        disk.hold("slow")
        assert len(os.listdir(mount / "many.h5/group")) == 200
        disk.let_go()
        assert mount.log().count("has taken more than 5.0 s") == 1
        assert processes_of_files(mount) == 1
        assert os.listdir(mount / "many.h5/other") == ["x"]
        mount.unmount()
    finally:
        disk.let_go()
        disk.end()
