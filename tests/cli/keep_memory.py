"""Has this process keep memory that it has freed. Python and libhdf5 give it back and take it again for each small
write, and where the kernel takes long to give it, as in some virtual machines, a test takes minutes instead of seconds.
"""
import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt(3)

ctypes.CDLL(None).mallopt(TRIM_THRESHOLD, 1 << 30)
ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, 32 << 20)
