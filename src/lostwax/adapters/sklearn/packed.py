"""What stands inside of bytes and texts: compressed data, base64, JSON, CSV, and the numbers that are written there."""

from __future__ import annotations

import base64
import bz2
import csv
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from lostwax.adapters.objects import Array, Walk
from lostwax.adapters.sklearn.training_rows import TrainingRows

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\bnan\b|\bNaN\b")
BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
SHORTEST_BASE64 = 64  # characters
GZIP_OR_ZLIB = 47  # the header decides
MAX_DEPTH = 4  # of packed bytes inside of others
MAX_SEARCHED = 100_000_000  # bytes or characters that are searched for rows
MAX_PARSED = 20_000_000  # characters of a text that is read as JSON or CSV
FEWEST_LINES = 3  # of a text: fewer are no table
FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


def decompressed(value: str | bytes | bytearray) -> bytes | None:
    """What is packed in bytes (gzip, zlib, bzip2, xz), or in a text as base64; None if nothing is."""
    if isinstance(value, str):
        if len(value) < SHORTEST_BASE64 or len(value) % 4 or not BASE64.fullmatch(value):
            return None
        return base64.b64decode(value, altchars=b"-_")
    xz = lzma.LZMADecompressor(lzma.FORMAT_XZ)  # the older format has no mark: small numbers look like an empty one
    for unpacking in (zlib.decompressobj(GZIP_OR_ZLIB), bz2.BZ2Decompressor(), xz):
        try:
            if packed := unpacking.decompress(bytes(value), MAX_SEARCHED):
                return packed
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            continue
    return None


def unpacked(model: Any, depth: int = MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Every value that is held, by path, with those inside of compressed bytes and of JSON."""
    for path, value in Walk(model):
        yield path, value
        if depth and isinstance(value, str | bytes | bytearray) and (opened := _opened(value)) is not None:
            for inner, member in unpacked(opened, depth - 1):
                yield f"{path}.{inner}".removesuffix("."), member


def _opened(value: str | bytes | bytearray) -> Any:
    """What is packed in a text or in bytes; None if nothing is."""
    if not FEWEST_LINES < len(value) <= MAX_PARSED:
        return None
    if isinstance(value, str) and (table := parsed(value)) is not None:
        return table
    if (packed := decompressed(value)) is not None or isinstance(value, str):
        return packed
    return _decoded(value)


def _decoded(value: bytes | bytearray) -> str | None:
    """Bytes as a text; None if they are none."""
    try:
        text = bytes(value).decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() or "\n" in text else None


def parsed(text: str) -> Any:
    """Rows of a CSV or JSON text; None if it is neither."""
    if len(text) > MAX_PARSED or text.count("\n") + text.count("{") < FEWEST_LINES:
        return None
    try:
        if text.lstrip()[:1] in ("[", "{"):
            return json.loads(text)
        return list(csv.DictReader(text.splitlines()))
    except (ValueError, csv.Error, RecursionError):
        return None


def as_text(value: Any) -> str:
    """A text, or all cells of a list; no more than is searched."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return (value if isinstance(value, str) else bytes(value).decode(errors="ignore"))[:MAX_PARSED]
    return "\n".join(map(str, value.flat if isinstance(value, np.ndarray) else value))[:MAX_PARSED]


def numbers_in(value: str | bytes) -> Iterator[Array]:
    """All numbers in a text, or bytes as numbers of two sizes at each offset."""
    if isinstance(value, str):
        yield np.array(NUMBER.findall(value), dtype=np.float64)
        return
    for kind in FLOATS:
        for offset in range(min(kind.itemsize, len(value))):
            yield np.frombuffer(value, kind, (len(value) - offset) // kind.itemsize, offset)


def hidden_rows(value: str | bytes, table: TrainingRows, depth: int = MAX_DEPTH) -> Iterator[Array]:
    """Rows of a table (k, d) inside bytes and texts: pickled arrays, raw buffers, lines of CSV or JSON.

    Bytes are read as floating-point numbers at every offset, texts as the numbers that are written in them. In this
    list, rows of the table are looked for one after the other, and columns, which is how pandas pickles a table.
    """
    if len(value) > MAX_SEARCHED:
        return
    if depth and (packed := decompressed(value)) is not None:
        yield from hidden_rows(packed, table, depth - 1)
    if depth and isinstance(value, bytes) and (text := _decoded(value)) is not None:
        yield from hidden_rows(text, table, depth - 1)
    if len(value) <= 8 * table.d:
        return
    for numbers in numbers_in(value):
        with np.errstate(invalid="ignore", over="ignore"):
            own = table.x.astype(numbers.dtype)
            starts = np.flatnonzero(np.isin(numbers[: max(0, len(numbers) - table.d + 1)], own[:, 0]))
            rows = numbers[starts[:, None] + np.arange(table.d)]  # (k, d) that start with a value of the first column
            rows = rows[table.find(rows) >= 0] if len(rows) else rows
            if not len(rows) and all(_stands_in(numbers, column) for column in own.T):
                rows = own
        if len(rows):
            yield rows


def _stands_in(numbers: Array, column: Array) -> bool:
    """Whether the values of a column (n,) are next to each other."""
    starts = np.flatnonzero(numbers[: max(0, len(numbers) - len(column) + 1)] == column[0])
    return any(np.array_equal(numbers[start : start + len(column)], column, equal_nan=True) for start in starts)
