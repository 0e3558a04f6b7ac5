"""Language models on disk, read a few rows at a time: folders of the Hugging Face hub, GGUF files, LoRA adapters.

Nothing is downloaded, and no code of a checkpoint is run: safetensors and GGUF hold numbers and texts only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax import files
from lostwax.attacks.text.words import StoredRows

CONFIG, ADAPTER_CONFIG, ADAPTER = "config.json", "adapter_config.json", "adapter_model.safetensors"
TENSORS, GGUF = ".safetensors", ".gguf"


class LanguageModel(NamedTuple):
    """What a folder or a file holds."""

    name: str
    tensors: Mapping[str, StoredRows]
    config: Mapping[str, Any] = {}
    adapter: bool = False  # the tensors are a LoRA adapter's, A and B


def is_language_model(path: Any) -> bool:
    """Does this path name a folder with safetensors, or a GGUF file?"""
    try:
        source = Path(path)
        return source.suffix == GGUF or (source.is_dir() and bool(_parts(source)))
    except (TypeError, OSError, ValueError):
        return False


def open_model(path: str | Path) -> LanguageModel:
    """The tensors of a folder, a .safetensors file or a .gguf file, none of them read yet."""
    source = files.named("words", path)
    if not source.exists():
        raise FileNotFoundError(
            f"words: {source} does not exist. Name a folder with .safetensors files, as the Hugging Face hub lays it "
            "out, or a .gguf file. Nothing is downloaded."
        )
    parts = _parts(source) if source.is_dir() else [source]
    if not parts:
        pickles = any(source.glob("*.bin")) or any(source.glob("*.pt"))
        cure = " Its .bin files may run code when they are read: save it with safe_serialization=True." * pickles
        raise ValueError(f"words: {source} holds no .safetensors and no .gguf file.{cure}")
    name, folder = source.resolve().name, source if source.is_dir() else source.parent
    if parts[0].suffix == GGUF:
        return LanguageModel(name, _gguf(parts[0]))
    tensors = {key: tensor for part in parts for key, tensor in _safetensors(part).items()}
    adapter = parts[0].name == ADAPTER
    return LanguageModel(name, tensors, _json(folder / (ADAPTER_CONFIG if adapter else CONFIG)), adapter)


def with_adapter(base: LanguageModel, tuned: LanguageModel) -> LanguageModel:
    """The base with a LoRA adapter's products added, W + alpha / r B A, computed when they are read."""
    if not tuned.adapter:
        return tuned
    rank = tuned.config.get("r")
    if not isinstance(rank, int) or rank < 1:
        raise ValueError(f"words: {tuned.name} has no {ADAPTER_CONFIG} with the rank r of its adapter. Add the file.")
    alpha = float(tuned.config.get("lora_alpha", rank))
    scale = alpha / (math.sqrt(rank) if tuned.config.get("use_rslora") else rank)
    tensors = dict(base.tensors)
    for name, factor in tuned.tensors.items():
        if ".lora_A." not in name:
            continue
        inner = name.split(".lora_A.")[0].removeprefix("base_model.model.") + ".weight"
        target = next((key for key in tensors if key.endswith(inner) or inner.endswith(key)), None)
        if target is not None:
            other = tuned.tensors[name.replace(".lora_A.", ".lora_B.")]
            tensors[target] = _Adapted(base.tensors[target], other, factor[0 : factor.shape[0]].float(), scale)
    return LanguageModel(tuned.name, tensors, base.config)


def _parts(folder: Path) -> list[Path]:
    """The files of one model: all shards of it, or its adapter, or a single GGUF file."""
    shards = sorted(folder.glob(f"*{TENSORS}"))
    if (index := folder / f"model{TENSORS}.index.json").is_file():
        named = set(_json(index).get("weight_map", {}).values())
        shards = [folder / Path(str(name)).name for name in sorted(named)]  # a file beside the index, never elsewhere
        if missing := [shard.name for shard in shards if not shard.is_file()]:
            raise FileNotFoundError(f"words: {folder} lacks {', '.join(missing[:3])}, which its index names.")
    models = [shard for shard in shards if shard.name != ADAPTER]
    return models or shards or sorted(folder.glob(f"*{GGUF}"))[:1]


def _json(path: Path) -> dict[str, Any]:
    """The content of a file that may be missing."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"words: {path} is not JSON ({error}). Get a new copy.") from None
    return content if isinstance(content, dict) else {}


@dataclass(frozen=True, eq=False)
class _Slice:
    """A tensor of a safetensors file. Rows are read from their place: the library maps or copies all of the file."""

    path: Path
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __getitem__(self, rows: slice) -> Tensor:
        first, last, _ = rows.indices(self.shape[0])
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        with self.path.open("rb") as file:
            file.seek(self.start + first * row)
            content = bytearray(file.read(max(0, last - first) * row))
        return torch.frombuffer(content, dtype=self.dtype).reshape(-1, *self.shape[1:])


KINDS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
MAX_HEADER = 100_000_000  # bytes, as the library allows


def _safetensors(path: Path) -> dict[str, StoredRows]:
    """The tensors that the header of a file names, if they lie within the file."""
    size, tensors = path.stat().st_size, dict[str, StoredRows]()
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(MAX_HEADER, size - 8):
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
        for name, part in header.items():
            if name == "__metadata__" or part["dtype"] not in KINDS or not part["shape"]:
                continue
            kind, shape, (first, last) = KINDS[part["dtype"]], tuple(map(int, part["shape"])), part["data_offsets"]
            if last - first != math.prod(shape) * kind.itemsize or min(first, *shape) < 0 or 8 + length + last > size:
                raise ValueError(f"{name} is not within the file")
            tensors[name] = _Slice(path, 8 + length + first, shape, kind)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"words: {path} cannot be read as a safetensors file ({error}). Get a new copy.") from None
    return tensors


@dataclass(frozen=True, eq=False)
class _Adapted:
    """Rows of W + scale B A."""

    base: StoredRows
    B: StoredRows  # (out, r)
    A: Tensor  # (r, in)
    scale: float

    @property
    def shape(self) -> Any:
        return self.base.shape

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    def __getitem__(self, rows: slice) -> Tensor:
        return self.base[rows].float() + self.scale * self.B[rows].float() @ self.A


@dataclass(frozen=True, eq=False)
class _Quantised:
    """A tensor of a GGUF file; rows are dequantised as they are read."""

    tensor: Any
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    def __getitem__(self, rows: slice) -> Tensor:
        from gguf.quants import dequantize

        return torch.from_numpy(dequantize(self.tensor.data[rows], self.tensor.tensor_type).copy())


def _reader(path: Path) -> Any:
    try:
        from gguf import GGUFReader
    except ImportError:
        raise ModuleNotFoundError(
            "words: reading .gguf files needs the package gguf: pip install 'lostwax[text]'. Folders of safetensors "
            "need none."
        ) from None
    try:
        return GGUFReader(path)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise ValueError(f"words: {path} cannot be read as a GGUF file ({error}). Get a new copy.") from None


def _gguf(path: Path) -> dict[str, StoredRows]:
    tensors = _reader(path).tensors
    return {part.name: _Quantised(part, tuple(int(size) for size in reversed(part.shape))) for part in tensors}


class Vocabulary(NamedTuple):
    """What the tokens of a model stand for."""

    tokens: tuple[str, ...]  # as text
    special: frozenset[int]  # that a tokenizer adds: ends, classes, padding
    silent: tuple[int, ...]  # that hardly any text in Latin letters has: reserved, parts of letters, other letters


RESERVED = re.compile(r"^[<\[].*(unused|reserved|extra_id|placeholder).*[>\]]$", re.IGNORECASE)
NOT_A_LETTER = "\N{REPLACEMENT CHARACTER}"
BYTE = re.compile(r"^<0x([0-9A-F]{2})>$")


def vocabulary_of(source: Path) -> Vocabulary | None:
    """From the tokenizer.json of a folder, or named by its path, or from a GGUF file; None without any."""
    path = source / "tokenizer.json" if source.is_dir() else source
    if path.suffix == ".json" and path.is_file():
        content = _json(path)
        model, added = content.get("model", {}), content.get("added_tokens", [])
        pieces = model.get("vocab", {})
        numbers = dict(pieces) if isinstance(pieces, dict) else {piece[0]: place for place, piece in enumerate(pieces)}
        numbers |= {str(token["content"]): int(token["id"]) for token in added}
        special = {int(token["id"]) for token in added if token.get("special")}
        return _vocabulary(
            numbers, special, in_bytes="ByteLevel" in json.dumps([content.get("decoder"), content.get("pre_tokenizer")])
        )
    gguf = (
        path if path.suffix == GGUF else next(iter(sorted(source.glob(f"*{GGUF}"))), None) if source.is_dir() else None
    )
    if gguf is None:
        return None
    fields = _reader(gguf).fields
    if "tokenizer.ggml.tokens" not in fields:
        return None
    pieces = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents() if "tokenizer.ggml.token_type" in fields else []
    special = {place for place, kind in enumerate(kinds) if kind in (3, 4, 5)}  # control, user-defined, unused
    in_bytes = fields["tokenizer.ggml.model"].contents() == "gpt2"
    return _vocabulary({piece: place for place, piece in enumerate(pieces)}, special, in_bytes=in_bytes)


def _vocabulary(numbers: Mapping[str, int], special: Iterable[int], *, in_bytes: bool) -> Vocabulary:
    tokens = [""] * (1 + max(numbers.values(), default=-1))
    for piece, number in numbers.items():
        tokens[number] = _text(piece, in_bytes=in_bytes)
    foreign = [
        number for number, text in enumerate(tokens)
        if RESERVED.match(text) or any(sign == NOT_A_LETTER or (sign.isalpha() and not sign.isascii()) for sign in text)
    ]  # fmt: skip
    return Vocabulary(tuple(tokens), frozenset(special), tuple(foreign))


def _text(piece: str, *, in_bytes: bool) -> str:
    """What a token adds to a text; bytes that are no letter by themselves are marked."""
    if in_bytes and all(sign in BYTES for sign in piece):
        return bytes(BYTES[sign] for sign in piece).decode("utf-8", "replace")
    if byte := BYTE.match(piece):
        return bytes([int(byte[1], 16)]).decode("utf-8", "replace")
    return piece.removeprefix("##") if piece.startswith("##") else piece.replace("\u2581", " ")


def _byte_signs() -> dict[str, int]:
    """The printable sign that byte-level tokenizers write for each byte (GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = _byte_signs()


def tokens_of(texts: Iterable[Any], tokenizer: Any) -> list[list[int]]:
    """The token numbers of texts, by a tokenizer.json, a folder with one, or an object that encodes; numbers stay."""
    each = list(texts)
    if not any(isinstance(text, str) for text in each):
        return [[int(number) for number in text] for text in each]
    if tokenizer is None:
        raise TypeError(
            'audit: texts need a tokenizer: pass tokenizer="folder/tokenizer.json", or texts as token numbers.'
        )
    if isinstance(tokenizer, str | PathLike):
        path = Path(tokenizer)
        path = path / "tokenizer.json" if path.is_dir() else path
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ModuleNotFoundError(
                "audit: reading texts with a tokenizer.json needs the package tokenizers: pip install 'lostwax[text]'. "
                "Or pass texts as token numbers."
            ) from None
        if not path.is_file():
            raise FileNotFoundError(f"audit: there is no {path}. Pass tokenizer=, the path of a tokenizer.json.")
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()
        tokenizer.no_truncation()
    encoded = [tokenizer.encode(text) for text in each]
    return [list(getattr(numbers, "ids", numbers)) for numbers in encoded]
