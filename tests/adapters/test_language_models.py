"""Language models on disk: folders, shards, adapters, GGUF, tokenizers; nothing else is read."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lostwax.adapters.language_models import is_language_model, open_model, tokens_of, vocabulary_of, with_adapter

TABLE, QUERY = "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight"


def tensors(seed=0):
    draw = torch.Generator().manual_seed(seed)
    return {TABLE: torch.randn(20, 6, generator=draw), QUERY: torch.randn(6, 6, generator=draw)}


def shards(folder, parts):
    """A sharded model as the hub lays it out."""
    folder.mkdir(exist_ok=True)
    places = {}
    for number, (name, value) in enumerate(parts.items()):
        places[name] = f"model-{number}.safetensors"
        save_file({name: value}, folder / places[name])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def test_a_sharded_folder_is_that_of_one_file(tmp_path):
    parts = tensors()
    (tmp_path / "single").mkdir()
    save_file(parts, tmp_path / "single" / "model.safetensors")
    for folder in (tmp_path / "single", shards(tmp_path / "sharded", parts)):
        assert is_language_model(folder)
        model = open_model(folder)
        assert model.name == folder.name
        for name, value in parts.items():
            assert tuple(model.tensors[name].shape) == tuple(value.shape)
            assert torch.equal(model.tensors[name][3:5], value[3:5])


def test_an_index_leads_nowhere_else(tmp_path):
    shards(tmp_path, tensors())
    save_file(tensors(), tmp_path.parent / "elsewhere.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {TABLE: "../elsewhere.safetensors"}})
    )
    with pytest.raises(FileNotFoundError, match="lacks elsewhere"):
        open_model(tmp_path)


def test_what_may_run_code_is_not_read(tmp_path):
    torch.save(tensors(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"no \.safetensors.*may run code"):
        open_model(tmp_path)
    assert not is_language_model(tmp_path)
    with pytest.raises(FileNotFoundError, match="Nothing is downloaded"):
        open_model("meta/llama")
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="cannot be read"):
        open_model(tmp_path)


@pytest.mark.parametrize("rslora", [False, True])
def test_an_adapter_is_merged_as_it_is_read(tmp_path, rslora):
    parts = tensors()
    (tmp_path / "base").mkdir()
    (tmp_path / "adapter").mkdir()
    save_file(parts, tmp_path / "base" / "model.safetensors")
    A, B = torch.randn(2, 6), torch.randn(6, 2)
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    save_file({name.format("A"): A, name.format("B"): B}, tmp_path / "adapter" / "adapter_model.safetensors")
    settings = {"r": 2, "lora_alpha": 8, "use_rslora": rslora}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(settings))
    base = open_model(tmp_path / "base")
    merged = with_adapter(base, open_model(tmp_path / "adapter")).tensors
    expected = parts[QUERY] + (8 / 2**0.5 if rslora else 4) * B @ A
    assert torch.allclose(merged[QUERY][1:4], expected[1:4], atol=1e-5)
    assert torch.equal(merged[TABLE][0:20], parts[TABLE])


def test_gguf_rows_and_words(tmp_path):
    gguf = pytest.importorskip("gguf")
    parts, path = tensors(), tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<s>", "a", "\u0120b", "\u00e4\u00b8"])
    writer.add_token_types([3, 1, 1, 1])
    writer.add_tensor("token_embd.weight", parts[TABLE].half().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    table = open_model(path).tensors["token_embd.weight"]
    assert tuple(table.shape) == (20, 6)
    assert torch.equal(table[4:9], parts[TABLE].half().float()[4:9])
    vocabulary = vocabulary_of(path)
    assert vocabulary.tokens[:3] == ("<s>", "a", " b")
    assert vocabulary.special == {0}
    assert vocabulary.silent == (3,)  # two of the three bytes of a letter


def test_the_words_of_a_tokenizer_json(tmp_path):
    pieces = {"[unused1]": 0, "the": 1, "##ing": 2, "\u00e9": 3, "[CLS]": 4}
    content = {
        "model": {"type": "WordPiece", "vocab": pieces},
        "added_tokens": [{"id": 4, "content": "[CLS]", "special": True}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    vocabulary = vocabulary_of(tmp_path)
    assert vocabulary.tokens == ("[unused1]", "the", "ing", "\u00e9", "[CLS]")
    assert vocabulary.special == {4}
    assert vocabulary.silent == (0, 3)
    assert vocabulary_of(tmp_path / "nowhere") is None


def test_texts_as_numbers_or_by_any_encoder():
    assert tokens_of(torch.tensor([[1, 2], [3, 4]]), None) == [[1, 2], [3, 4]]

    class Letters:
        def encode(self, text):
            return [ord(sign) for sign in text]

    assert tokens_of(["ab"], Letters()) == [[97, 98]]
    with pytest.raises(TypeError, match="need a tokenizer"):
        tokens_of(["ab"], None)
    with pytest.raises((FileNotFoundError, ModuleNotFoundError)):
        tokens_of(["ab"], Path("nowhere.json"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read where Linux keeps it")
def test_models_of_gigabytes_in_little_memory(tmp_path):
    """Two sharded models of 1.7 GB each: the list takes below 1 GB of memory and two minutes."""
    import subprocess
    import sys
    import time

    for folder, moved in (("base", 0.0), ("tuned", 1e-3)):
        (tmp_path / folder).mkdir()
        draw, places = torch.Generator().manual_seed(0), {}
        for number in range(5):
            shape = (150_000, 1_024) if not number else (170_000, 1_024)
            name = TABLE if not number else f"model.layers.{number}.mlp.weight"
            value = torch.randn(shape, generator=draw, dtype=torch.float32).to(torch.bfloat16)
            value += moved * torch.rand(len(value), 1, generator=draw).to(value)  # every row: the longest way
            places[name] = f"model-{number}.safetensors"
            save_file({name: value}, tmp_path / folder / places[name])
            del value
        (tmp_path / folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        size = sum(part.stat().st_size for part in (tmp_path / folder).iterdir())
        assert size > 1.69e9
    pieces = {("[unused%d]" if number % 50 and number < 5_000 else "w%d") % number: number for number in range(150_000)}
    content = {"model": {"vocab": pieces}, "added_tokens": []}
    (tmp_path / "tuned" / "tokenizer.json").write_text(json.dumps(content))
    code = "from lostwax.audits.fine_tuned_words import listed_words; import sys; "
    code += "print(listed_words(*sys.argv[1:]).words.movement.name, "
    code += "open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "base", tmp_path / "tuned"], capture_output=True, text=True, check=True
    )
    movement, memory = done.stdout.split()
    assert movement in ("STEPS", "GRADIENTS")
    assert int(memory) < 1_000_000  # KB, most of which is torch and what is imported with it
    assert time.perf_counter() - start < 120
