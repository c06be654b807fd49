"""Read the pickled dictionaries of CIFAR's Python version without numpy, and without running code of a pickle.

A pickle can call any function that it names. Here it may name only those with which numpy writes an array, replaced by
stand-ins that keep bytes and shape. These depend on the numpy and the protocol that wrote the file: CIFAR's original
files are from Python 2, protocol 2. Standard library and torch only.
"""

import io
import pickle
import pickletools
from pathlib import Path

import torch

# A file of 50,000 images has about one entry for each image.
MAX_MEMO_ENTRIES = 1 << 20


class ByteArray:
    """Stands for numpy.ndarray: takes the state that numpy's __reduce__ gave, for uint8 in C order only."""

    def __init__(self, *_unused):
        self.shape, self.data = (0,), b""

    def __setstate__(self, state: tuple) -> None:
        _version, shape, dtype, is_fortran, data = state
        self.take(data, dtype, shape, is_fortran)

    def take(self, data, dtype: "ElementType", shape: tuple, is_fortran: bool) -> None:
        if dtype.name not in ("u1", "|u1", "uint8") or is_fortran:
            order = ", Fortran order" if is_fortran else ""
            raise pickle.UnpicklingError(f"array of {dtype.name}{order}; uint8 expected")
        if not isinstance(data, (bytes, bytearray, pickle.PickleBuffer)):
            raise pickle.UnpicklingError(f"an array contains {type(data).__name__} instead of bytes")
        self.shape, self.data = tuple(shape), bytes(data)

    def tensor(self) -> torch.Tensor:
        """Return the array as uint8. Raises RuntimeError if bytes and shape differ."""
        return torch.frombuffer(bytearray(self.data), dtype=torch.uint8).view(self.shape)


class ElementType:
    """Stands for numpy.dtype: only its name counts, for a byte has no byte order."""

    def __init__(self, name: str | bytes, *_unused):
        self.name = name.decode("ascii") if isinstance(name, bytes) else name

    def __setstate__(self, state: tuple) -> None:
        pass


def from_buffer(data, dtype: ElementType, shape: tuple, order: str = "C") -> ByteArray:
    """Stands for numpy's _frombuffer, which protocol 5 names."""
    array = ByteArray()
    array.take(data, dtype, shape, order == "F")
    return array


def encoded(text: str, encoding: str) -> bytes:
    """Stands for codecs.encode: up to protocol 2, Python 3 writes bytes as a latin1 string."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"bytes in encoding {encoding!r}; latin1 expected")
    return text.encode("latin1")


# (module, name) in pickles of numpy 1 and 2, protocols 0 to 5.
STAND_INS = {("numpy", "ndarray"): ByteArray, ("numpy", "dtype"): ElementType, ("_codecs", "encode"): encoded}
for _core in ("numpy.core", "numpy._core"):
    STAND_INS[f"{_core}.multiarray", "_reconstruct"] = ByteArray
    STAND_INS[f"{_core}.numeric", "_frombuffer"] = from_buffer


class ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in STAND_INS:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return STAND_INS[module, name]


def load(path: Path) -> object:
    """Return the pickled object, with Python 2 strings as bytes. Raises ValueError for any other file."""
    content = path.read_bytes()
    try:
        check_memo(content)
        return ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def check_memo(content: bytes) -> None:
    """Raise an error if the file is truncated, or needs a memo of more than MAX_MEMO_ENTRIES.

    One wrong bit in the number of an entry (LONG_BINPUT) makes the unpickler allocate up to 32 GiB.
    """
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and argument > MAX_MEMO_ENTRIES:
            raise pickle.UnpicklingError(f"memo entry {argument}; at most {MAX_MEMO_ENTRIES} expected")
