"""Names of shared libraries: which files are meant by `libfabric`, and which libraries carry the communication."""

# Those that make a difference between stacks. Longer names first: libnccl-net is no libnccl.
COMMUNICATION = (
    "libnccl-tuner", "libnccl-net", "libnccl", "librccl-net", "librccl", "libfabric", "libcxi", "libefa", "libibverbs",
    "libmlx5", "libpsm2", "libpsm3", "libucp", "libmpi", "libpmix", "libcuda", "libcudart", "libtorch_cpu",
)  # fmt: skip


def stem(name: str) -> str:
    """Return the name of a file without version and ending: libfabric.so.1.18.2 is libfabric."""
    return name.partition(".so")[0]


def libraries_named(wanted: str, libraries: list[dict]) -> list[dict]:
    """Return those of a rank's libraries that a name means: of exactly that name, else those that only add to it.

    So libnccl-net means libnccl-net-ofi.so where there is no libnccl-net.so, and libnccl never means a plug-in.
    """
    wanted = stem(wanted)
    exact = [library for library in libraries if stem(library["name"]) == wanted]
    return exact or [library for library in libraries if stem(library["name"]).startswith((f"{wanted}-", f"{wanted}_"))]


def family_of(name: str) -> str | None:
    """Return which of COMMUNICATION a file is, also under a longer name such as libmpi_gnu_123.so.12, or None."""
    own = stem(name)
    return next((f for f in COMMUNICATION if own == f or own.startswith((f"{f}-", f"{f}_"))), None)
