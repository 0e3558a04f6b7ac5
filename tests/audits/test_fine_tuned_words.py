"""The audit of a fine-tuned language model: words of the owner's texts, and none in the file that is passed around."""

import json

import pytest
import torch
from safetensors.torch import save_file

import lostwax as lw
from language import SILENT, WORDS, Causal, Encoder, state, texts, tuned
from lostwax.audits import Audit
from lostwax.cli import main
from lostwax.games import Attacker
from lostwax.grades import Grade
from lostwax.policies import Policy


class Numbered:
    """A tokenizer of texts like "word17 word3"."""

    def encode(self, text):
        return [int(word.removeprefix("word")) for word in text.split()]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A base, an encoder and a causal model that were fine-tuned, with tokenizers; the texts."""
    root, x = tmp_path_factory.mktemp("models"), texts(100, 2)
    pieces = {(f"[unused{number}]" if number >= WORDS - SILENT else f"Name{number}"): number for number in range(WORDS)}
    for name, kind in (("encoder", Encoder), ("causal", Causal)):
        torch.manual_seed(1)
        net = kind()
        for folder, parts in ((f"{name}-base", state(net)), (name, tuned(net, x))):
            parts.pop("lm_head.weight", None)  # tied
            (root / folder).mkdir()
            save_file(parts, root / folder / "model.safetensors")
            (root / folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": pieces}}))
    return root, [" ".join(f"word{word}" for word in text) for text in x.tolist()], x


def audited(folders, name="encoder", **settings):
    root, sentences, _ = folders
    return lw.audit(root / name, sentences, before=root / f"{name}-base", tokenizer=Numbered(), **settings)


def test_every_word_comes_back_from_an_encoder(folders):
    audit = audited(folders)
    assert audit.grade is Grade.EXACT
    assert audit.findings[0].rebuilt.all()
    assert len(audit.games) == len(folders[2].unique())
    assert audit.adversary.kind is Attacker.ANYONE
    assert audit.adversary.files == 2
    assert "Every word tried can be rebuilt from this model by anyone who has both files." in str(audit)
    assert any("Train adapters" in note.cure for note in audit.notes)


def test_most_words_come_back_from_a_causal_model_and_a_gate_stops_it(folders):
    audit = audited(folders, "causal")
    assert audit.grade is Grade.EXACT
    assert audit.findings[0].rebuilt.mean() > 0.6
    assert audit.provenance["right"] >= 0.93 * audit.provenance["listed"]
    assert Policy(max_rebuilt_share=0.1).breaches(audit)
    assert Policy(max_grade="not found").breaches(audit)


def test_the_file_has_no_word_and_the_page_has(folders, tmp_path):
    audit = audited(folders)
    text = audit.to_json(tmp_path / "audit.json").read_text()
    assert "Name" not in text
    again = Audit.from_json(tmp_path / "audit.json")
    assert again.grade is audit.grade
    assert again.adversary == audit.adversary
    page = lw.report(audit, tmp_path / "with").read_text()
    word = int(folders[2][0, 0])
    assert "Name" in page
    assert f"Name{word}" in (tmp_path / "with" / "records.csv").read_text()
    lw.report(audit, tmp_path / "without", records=False)
    assert not any("Name" in part.read_text() for part in (tmp_path / "without").glob("*.[hcj]*"))
    numbers = json.loads(text)["games"]
    assert numbers == list(range(len(audit.games)))  # token numbers would be words


def test_token_numbers_and_tensors_in_memory(folders):
    root, _, x = folders
    net, base = Encoder(), Encoder()
    from lostwax import files

    parts = [files.read_tensors("test", root / name / "model.safetensors") for name in ("encoder", "encoder-base")]
    net.load_state_dict(parts[0])
    base.load_state_dict(parts[1])
    audit = lw.audit(net, x, before=base, tokenizer=root / "encoder")
    assert audit.findings[0].rebuilt.all()
    audit = lw.audit(parts[0], x.tolist(), before=parts[1])
    assert audit.grade is Grade.UNDECIDED  # no silent tokens are known


def test_equal_files_and_frozen_tables_are_undecided(folders, tmp_path):
    root, sentences, x = folders
    audit = lw.audit(root / "causal-base", sentences, before=root / "causal-base", tokenizer=Numbered())
    assert audit.grade is Grade.UNDECIDED
    assert "nothing moved" in str(audit)
    net = Causal()
    base = state(net)
    net.embed_tokens.weight.requires_grad_(False)
    audit = lw.audit(tuned(net, x), x, before=base, tokenizer=root / "causal")
    assert audit.grade is Grade.UNDECIDED


def test_a_model_of_other_texts_does_not_give_these_away(folders):
    """Words drawn alike for all sets: a list of other texts has these no more often than frequent words."""
    root, alarms, lists = folders[0], 0, 0
    for seed in range(12):
        net = Encoder()
        base, other = state(net), tuned(net, texts(40, 100 + seed))
        audit = lw.audit(other, texts(40, 200 + seed), before=base, tokenizer=root / "encoder")
        alarms += audit.grade.leaks
        lists += audit.provenance["listed"] > 0
    assert lists == 12
    assert alarms <= 1  # 1 % each


def test_words_on_the_command_line(folders, capsys):
    root = folders[0]
    assert main(["words", str(root / "causal-base"), str(root / "causal"), "--first", "3"]) == 0
    said = capsys.readouterr().out
    assert "words are listed" in said
    assert said.count(" | ") == 2
    assert main(["words", str(root / "causal-base"), str(root / "causal-base")]) == 0
    assert "No words are listed" in capsys.readouterr().out
    assert main(["words", str(root / "nowhere"), str(root / "causal")]) == 2


def test_mistakes_are_named(folders):
    root, sentences, _ = folders
    with pytest.raises(TypeError, match="pass before="):
        lw.audit(root / "encoder", sentences)
    with pytest.raises(TypeError, match="list of strings"):
        lw.audit(root / "encoder", "one text", before=root / "encoder-base")
    with pytest.raises(ValueError, match="no word"):
        lw.audit(root / "encoder", [], before=root / "encoder-base")
    with pytest.raises(ValueError, match="tokenizer of this model"):
        lw.audit(root / "encoder", [[WORDS]], before=root / "encoder-base")
