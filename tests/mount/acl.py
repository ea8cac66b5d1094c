"""POSIX ACLs, as setfacl sets them, which may be missing."""
import errno
import os
import struct

import pytest

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS = {("u", False): 1, ("u", True): 2, ("g", False): 4, ("g", True): 8, ("m", False): 16, ("o", False): 32}


def set_acl(path, text, name=ACCESS):
    """text: as "u::rw,u:1:rw,g::-,m::rw,o::-"."""
    entries = []
    for entry in text.split(","):
        kind, who, rights = entry.split(":")
        bits = sum({"r": 4, "w": 2, "x": 1}[letter] for letter in rights if letter != "-")
        entries.append((TAGS[kind, bool(who)], int(who) if who else -1, bits))
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", tag, bits, who) for tag, who, bits in sorted(entries))
    try:
        os.setxattr(path, name, packed)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            pytest.skip("this file system has no ACLs")
        raise


def has_acl(path):
    return ACCESS in os.listxattr(path)
