import pytest
import torch

import lostwax as lw


def test_there_and_back():
    inputs = {
        "image": torch.rand(5, 1, 2, 3),
        "on": torch.tensor([True, False, True, True, False]),
        "row": torch.rand(5, 2),
    }
    x, parts = lw.records.pack(inputs)
    assert x.shape == (5, 9)
    assert all(torch.equal(value, inputs[name]) for name, value in parts(x).items())
    assert list(parts(x)) == list(inputs)
    several = parts(x.expand(4, 5, 9))
    assert several["image"].shape == (4, 5, 1, 2, 3)


def test_a_tuple_stays_one_and_doubles_are_kept_where_all_are():
    x, parts = lw.records.pack((torch.rand(3, 2).double(), torch.rand(3, 4).double()))
    assert x.dtype == torch.float64
    x, parts = lw.records.pack((torch.rand(3, 2), torch.rand(3, 4).double()))
    assert x.dtype == torch.float32  # as the net of the first part
    assert [tuple(part.shape) for part in parts(x)] == [(3, 2), (3, 4)]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({}, "at least one part"),
        ({"a": torch.rand(3, 2), "b": torch.rand(4, 2)}, "one row per record in each part, got \\(4, 2\\) for 'b'"),
        ((torch.rand(3, 2), [1, 2, 3]), "got list for a part"),
        ({"tokens": torch.ones(3, 2).long()}, "got torch.int64.*one_hot"),
    ],
)
def test_what_cannot_be_packed(inputs, words):
    with pytest.raises((TypeError, ValueError), match=words):
        lw.records.pack(inputs)


def test_other_records_are_refused():
    _, parts = lw.records.pack((torch.rand(3, 2), torch.rand(3, 4)))
    with pytest.raises(ValueError, match="expected 6 numbers per record, got 5"):
        parts(torch.rand(3, 5))
