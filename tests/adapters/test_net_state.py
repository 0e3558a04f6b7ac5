import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import lostwax as lw


def net():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


@pytest.fixture
def state():
    return net().state_dict()


def test_both_formats_give_the_same_net_and_leave_the_given_one(tmp_path, state):
    save_file(state, tmp_path / "weights.safetensors")
    torch.save(state, tmp_path / "weights.pt")
    ours = net()
    before = ours[0].weight.clone()
    for name in ("weights.safetensors", "weights.pt"):
        loaded = lw.adapters.load_weights(ours, tmp_path / name)
        assert all(torch.equal(value, state[key]) for key, value in loaded.state_dict().items())
    assert torch.equal(ours[0].weight, before)


def test_a_net_must_be_built_first(tmp_path, state):
    save_file(state, tmp_path / "w")
    with pytest.raises(TypeError, match=r"load_weights: expected a torch nn.Module.*got 'net'. Build it first"):
        lw.adapters.load_weights("net", tmp_path / "w")


def test_the_format_is_told_by_the_bytes(tmp_path, state):
    save_file(state, tmp_path / "weights.bin")
    assert torch.equal(lw.adapters.load_weights(net(), tmp_path / "weights.bin")[0].weight, state["0.weight"])


def test_victims_can_start_there(tmp_path, state):
    save_file(state, tmp_path / "w")
    start = lw.inits.Given(lw.adapters.load_weights(net(), tmp_path / "w").state_dict())
    known = lw.Records(torch.rand(6, 4), torch.arange(6) % 2)
    cohort = lw.Informed(known).deal(known, 1, seed=0)
    release = lw.GD(lr=1e-30, steps=1, init=start)(net(), cohort, seed=0)
    assert torch.equal(release.params["0.weight"][0], state["0.weight"])


def test_a_state_dict_inside_a_checkpoint_is_named(tmp_path, state):
    torch.save({"epoch": 3, "model": state}, tmp_path / "c.pt")
    assert torch.equal(lw.adapters.load_weights(net(), tmp_path / "c.pt", entry="model")[0].weight, state["0.weight"])
    with pytest.raises(ValueError, match=r"holds more than tensors: epoch, model\..*entry=\"model\""):
        lw.adapters.load_weights(net(), tmp_path / "c.pt")
    with pytest.raises(ValueError, match='has no entry "net"; it holds epoch, model'):
        lw.adapters.load_weights(net(), tmp_path / "c.pt", entry="net")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.pop("0.bias"), "missing 0.bias"),
        (lambda s: s.update(extra=torch.ones(1)), "unexpected extra"),
        (lambda s: s.update({"0.bias": torch.ones(7)}), r"0.bias has shape \(7,\) where the net has \(3,\)"),
        (lambda s: s.update({"0.bias": torch.full((3,), torch.nan)}), "NaN or infinite values in 0.bias"),
        (lambda s: s.clear(), "got nothing"),
        (
            lambda s: s.update({"0.bias": torch.full((3,), 1e300, dtype=torch.float64)}),
            "0.bias .* overflow float32",
        ),
        (lambda s: s.update({"0.bias": torch.ones(3, dtype=torch.complex64)}), "0.bias is complex64 where .* float32"),
        (lambda s: s.update({"0.bias": torch.ones(3).to_sparse()}), "0.bias of .* are not dense tensors"),
    ],
    ids=["missing", "unexpected", "misshapen", "nan", "empty", "overflow", "complex", "sparse"],
)
def test_weights_of_another_net(tmp_path, state, change, words):
    change(state)
    torch.save(dict(state), tmp_path / "w.pt")
    with pytest.raises(ValueError, match=words):
        lw.adapters.load_weights(net(), tmp_path / "w.pt")


def test_a_cast_that_loses_nothing_but_digits_is_fine(tmp_path, state):
    torch.save({name: value.double() for name, value in state.items()}, tmp_path / "w.pt")
    assert torch.equal(lw.adapters.load_weights(net(), tmp_path / "w.pt")[0].weight, state["0.weight"])
    large = {**state, "0.bias": torch.full((3,), 1e300, dtype=torch.float64)}
    torch.save(large, tmp_path / "large.pt")
    assert float(lw.adapters.load_weights(net().double(), tmp_path / "large.pt")[0].bias[0]) == 1e300


def test_a_fraction_is_no_count(tmp_path):
    counting = nn.Sequential(nn.BatchNorm1d(3))
    torch.save({**counting.state_dict(), "0.num_batches_tracked": torch.tensor(1.5)}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"0\.num_batches_tracked is float32 where the net has int64"):
        lw.adapters.load_weights(counting, tmp_path / "w.pt")


class Bomb:
    def __init__(self, fuse):
        self.fuse = fuse

    def __reduce__(self):
        return Path.touch, (self.fuse,)


@pytest.mark.parametrize("write", [torch.save, lambda what, path: path.write_bytes(pickle.dumps(what))])
def test_code_is_never_run(tmp_path, state, write):
    write({**state, "bomb": Bomb(tmp_path / "ran")}, tmp_path / "evil.pt")
    with pytest.raises(ValueError, match="could run code, so it is refused"):
        lw.adapters.load_weights(net(), tmp_path / "evil.pt")
    torch.save(net(), tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="could run code"):
        lw.adapters.load_weights(net(), tmp_path / "whole.pt")
    assert not (tmp_path / "ran").exists()


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        lw.adapters.load_weights(net(), tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match="is a folder"):
        lw.adapters.load_weights(net(), tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), safetensors=st.booleans())
def test_damaged_files_are_named_and_left_alone(tmp_path, data, safetensors):
    """Cut short anywhere, or a bit flipped: our own error, or weights of the right shape (a flip in a number)."""
    path = tmp_path / "w"
    save_file(net().state_dict(), path) if safetensors else torch.save(net().state_dict(), path)
    good = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(good) - 1))
    bad = good[:where] if data.draw(st.booleans()) else good[:where] + bytes([good[where] ^ 16]) + good[where + 1 :]
    path.write_bytes(bad)
    try:
        outcome = str(lw.adapters.load_weights(net(), path)[0].weight.shape)
    except ValueError as error:
        outcome = str(error)
    assert outcome == "torch.Size([3, 4])" or (outcome.startswith("load_weights: ") and str(path) in outcome)
    assert path.read_bytes() == bad


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes_are_refused(tmp_path, content):
    (tmp_path / "w").write_bytes(content)
    with pytest.raises(ValueError, match="load_weights: "):
        lw.adapters.load_weights(net(), tmp_path / "w")
