"""Words of a fine-tuning set: listed where they are, with no more wrong ones than stated, and nothing from noise."""

import pytest
import torch

import lostwax as lw
from language import SILENT, WORDS, Causal, Encoder, state, texts, tuned
from lostwax.attacks.text.words import Movement, _quadratic, _rising

QUIET = range(WORDS - SILENT, WORDS)
TABLE = "embed_tokens.weight"


def both(kind, precision=torch.float32, seed=2, count=100, **settings):
    """Tensors before and after fine-tuning on texts, and their words."""
    torch.manual_seed(1)
    net, x = kind(), texts(count, seed)
    base = {name: value.to(precision) for name, value in state(net).items()}
    net.load_state_dict({name: value.float() for name, value in base.items()})
    after = {name: value.to(precision) for name, value in tuned(net, x, **settings).items()}
    return base, after, set(x.flatten().tolist())


def scores(listed, words):
    """Recall, and the share of wrong words."""
    found = set(listed.words.tolist())
    return len(found & words) / len(words), 1 - len(found & words) / max(1, len(found))


@pytest.mark.parametrize("settings", [{}, {"decay": 0.01}, {"adam": False, "rate": 0.1}], ids=str)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_every_word_of_an_encoder_and_no_other(settings, precision):
    base, after, words = both(Encoder, precision, **settings)
    listed = lw.attacks.TunedWords()(base, after, silent=QUIET)
    assert listed.movement is Movement.ROWS
    assert set(listed.words.tolist()) == words
    assert (listed.probability[: listed.listed] == 1).all()
    assert not listed.probability[listed.listed :].any()


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rate", [1e-3, 1e-4])
def test_most_words_of_a_tied_causal_model(precision, rate):
    base, after, words = both(Causal, precision, rate=rate)
    listed = lw.attacks.TunedWords()(base, after, silent=QUIET)
    recall, wrong = scores(listed, words)
    assert listed.movement is Movement.STEPS
    assert recall > 0.6
    assert wrong <= 0.05
    assert 0 < listed.fdr <= 0.05
    assert (listed.probability[:-1] >= listed.probability[1:]).all()


@pytest.mark.parametrize("settings", [{}, {"decay": 1e-3}, {"rate": 1e-3}, {"rate": 1e-3, "decay": 0.1}], ids=str)
@pytest.mark.parametrize("count", [16, 100])
def test_rows_that_sgd_moves_against_the_others_are_words(settings, count):
    base, after, words = both(Causal, count=count, adam=False, **{"rate": 0.1} | settings)
    listed = lw.attacks.TunedWords()(base, after, silent=QUIET)
    recall, wrong = scores(listed, words)
    assert listed.movement is Movement.GRADIENTS
    assert recall > 0.7
    assert wrong == 0
    assert sorted(listed.order.tolist()) == list(range(WORDS))
    assert (listed.probability[:-1] >= listed.probability[1:]).all()


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_movements_near_rounding_list_no_wrong_word(precision):
    """Rows that a softmax pushed a little are no rows of words; where few numbers change, rounding decides which."""
    base, after, words = both(Causal, adam=False, rate=0.1)
    for factor in (1e-2, 1e-3, 1e-4, 1e-5):
        less = {name: (base[name] + factor * (after[name] - base[name])).to(precision) for name in base}
        listed = lw.attacks.TunedWords()({name: base[name].to(precision) for name in base}, less, silent=QUIET)
        assert not listed.listed or scores(listed, words)[1] == 0


def test_words_of_an_untied_model_by_its_table_or_its_head():
    base, after, words = both(lambda: Causal(tied=False))
    inputs = lw.attacks.TunedWords()(base, after, silent=QUIET)
    assert inputs.movement is Movement.ROWS
    assert set(inputs.words.tolist()) < words
    listed = lw.attacks.TunedWords()(base, after | {TABLE: base[TABLE]}, silent=QUIET)  # the table was frozen
    assert listed.movement is Movement.STEPS
    assert scores(listed, words)[1] <= 0.1


def test_sgd_in_half_precision_gets_no_list():
    base, after, _ = both(Causal, torch.bfloat16, adam=False, rate=0.1)
    listed = lw.attacks.TunedWords()(base, after, silent=QUIET)
    assert listed.movement is Movement.GRADIENTS
    assert not listed.listed
    assert "hides" in listed.unlisted_because


def test_no_list_without_silent_tokens():
    base, after, words = both(Causal)
    listed = lw.attacks.TunedWords()(base, after)
    assert not listed.listed
    assert "silent tokens" in listed.unlisted_because
    assert len(set(listed.order[: len(words)].tolist()) & words) > 0.6 * len(words)  # the ranking is there


def test_texts_of_silent_tokens_hide_the_words_and_add_none():
    """Whoever writes in another script than was thought gets no list; an encoder's rows then contradict the silence."""
    torch.manual_seed(1)
    net, x = Causal(), texts(100, 2)
    base, x = state(net), torch.where(torch.rand(100, 12) < 0.3, WORDS - 1 - texts(100, 3, SILENT), x)
    assert not lw.attacks.TunedWords()(base, tuned(net, x), silent=QUIET).listed
    net = Encoder()
    base = state(net)
    assert not lw.attacks.TunedWords()(base, tuned(net, x), silent=QUIET).listed


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16], ids=str)
def test_a_base_saved_again_in_another_precision_moved_nowhere(precision):
    base = state(Causal())
    saved = {name: value.to(precision) for name, value in base.items()}
    for again in (saved, {name: value.float() for name, value in saved.items()}):
        listed = lw.attacks.TunedWords()(base, again, silent=QUIET)
        assert listed.movement is Movement.NONE
    assert not listed.listed


def test_noise_in_every_row_lists_nothing_more_often_than_stated():
    hits = 0
    for seed in range(30):
        draw = torch.Generator().manual_seed(seed)
        table = torch.randn(WORDS, 16, generator=draw)
        moved = table + 1e-3 * torch.randn(WORDS, 16, generator=draw) * torch.rand(WORDS, 1, generator=draw)
        hits += lw.attacks.TunedWords()({TABLE: table}, {TABLE: moved}, silent=QUIET).listed > 0
    assert hits <= 2  # one in a hundred is expected


def first_layer(words, adam, seed=0):
    """Tensors before and after a first layer of 96 x 32 moved, for each of these words along its input."""
    draw = torch.Generator().manual_seed(seed)
    table = torch.randn(WORDS, 32, generator=draw) @ torch.randn(32, 32, generator=draw)
    scale, weight = torch.randn(32, generator=draw), torch.randn(96, 32, generator=draw)
    inputs = table[words] / table[words].norm(dim=1, keepdim=True) * scale
    change = torch.randn(96, len(words), generator=draw) @ inputs
    if adam:  # which divides by the sizes of gradients
        change /= change.square().mean(0).sqrt()
    names = [f"model.layers.0.{name}.weight" for name in ("self_attn.q_proj", "input_layernorm")]
    base = {TABLE: table, **dict(zip(names, (weight, scale), strict=True))}
    return base, base | {names[0]: weight + 1e-3 * change}


@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("count", [12, 60])
def test_a_frozen_table_gets_a_ranking_and_no_list(adam, count):
    """Also of more words than an embedding has numbers, whose span is everything."""
    words = torch.randperm(WORDS, generator=torch.Generator().manual_seed(1))[:count]
    listed = lw.attacks.TunedWords()(*first_layer(words, adam), silent=QUIET)
    assert listed.movement is Movement.FROZEN
    assert not listed.listed
    right = torch.isin(listed.order[:count], words).double().mean()
    assert right > (0.5 if count == 12 else 0.25)  # by chance 0.004 and 0.02


def test_tables_of_other_widths_are_refused():
    with pytest.raises(ValueError, match="not a base"):
        lw.attacks.TunedWords()({TABLE: torch.zeros(9, 4)}, {TABLE: torch.zeros(9, 5)})
    with pytest.raises(ValueError, match="no table"):
        lw.attacks.TunedWords()({"weight": torch.zeros(9, 4)}, {"weight": torch.zeros(9, 4)})
    with pytest.raises(ValueError, match="fdr"):
        lw.attacks.TunedWords(fdr=1.0)


def test_quadratic_terms_and_isotonic_means_by_hand():
    x = torch.tensor([[2.0, 3.0]]).double().numpy()
    assert _quadratic(x).tolist() == [[1, 2, 3, 4, 6, 9]]
    assert _rising(torch.tensor([0.2, 0.0, 0.4]).numpy()) == pytest.approx([0.1, 0.1, 0.4])
