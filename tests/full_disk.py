"""A disk that holds no large file, by a limit that the kernel keeps."""

import resource
from contextlib import contextmanager


@contextmanager
def no_file_over(size):
    """Writing past so many bytes of a file is an error, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
