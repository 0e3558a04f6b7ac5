import numpy as np
import pytest
import torch

import lostwax as lw
from lostwax.games import Cohort, Records, Release, records


def some(n=10):
    return Records(torch.arange(n * 2.0).reshape(n, 2), torch.arange(n))


def test_split_is_disjoint_and_repeatable():
    parts = some().split(5, 3, 2, seed=1)
    assert [len(part) for part in parts] == [5, 3, 2]
    assert sorted(torch.cat([part.y for part in parts]).tolist()) == list(range(10))
    again = some().split(5, 3, 2, seed=1)
    assert all(torch.equal(a.x, b.x) for a, b in zip(parts, again, strict=True))
    assert not torch.equal(some().split(10, seed=2)[0].y, some().split(10, seed=1)[0].y)


@pytest.mark.parametrize("sizes", [(5, 6), (0, 3), ()])
def test_split_of_more_than_there_is(sizes):
    with pytest.raises(ValueError, match="sum to at most 10"):
        some().split(*sizes, seed=0)


def test_matches_are_exact_whatever_dtype_sign_of_zero_or_label():
    table = Records(torch.tensor([[0.1, 0.0], [2.0, 3.0], [2.0, 3.0], [4.0, 5.0]]), torch.arange(4))
    asked = Records(torch.tensor([[2, 3], [4, 5.0001], [0.1, -0.0], [4, 5]]).double(), torch.zeros(4))
    asked.x[2, 0] = table.x[0, 0].double()  # 0.1 as float32 has it
    assert asked.matches(table).tolist() == [1, -1, 0, 3]
    assert table.matches(table).tolist() == [0, 1, 1, 3]
    assert asked.without(table).x.tolist() == [asked.x[1].tolist()]
    assert len(table.without()) == 4
    assert table.without(table[:1], table[3:]).y.tolist() == [1, 2]


def test_matches_cross_blocks_and_find_the_digits_different(monkeypatch):
    digits = lw.records.digits()
    assert digits.matches(digits).tolist() == list(range(1797))  # no digit twice
    monkeypatch.setattr(records, "ROWS_AT_A_TIME", 7)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(digits[order].matches(digits[:50]), order)


def test_records_are_not_printed():
    printed = repr(Records(torch.full((3, 2), 0.1234), torch.arange(3)))
    assert printed == "Records(x: (3, 2) torch.float32, y: (3,) torch.int64)"


def test_moving_keeps_whole_labels_whole():
    moved = Records(some().x, some().y, features=some().x).to(torch.float64)
    assert (moved.x.dtype, moved.y.dtype, moved.inputs.dtype) == (torch.float64, torch.int64, torch.float64)
    assert moved.to("cpu").x.device.type == "cpu"


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8, torch.bool])
def test_whole_labels_are_int64(kind):
    labels = torch.tensor([0, 1, 1]).to(kind)
    records = Records(torch.zeros(3, 2), labels)
    assert (records.y.dtype, records.y.tolist()) == (torch.int64, [0, 1, 1])
    assert records[:2].to(torch.float64).y.dtype == torch.int64
    assert Records(torch.zeros(3, 2), labels.float()).y.dtype == torch.float32


def test_features_are_what_the_net_trains_on():
    records = Records(some().x, some().y, features=torch.ones(10, 3))
    assert torch.equal(records.inputs, torch.ones(10, 3))
    assert torch.equal(records[:2].inputs, torch.ones(2, 3))
    assert torch.equal(some().inputs, some().x)


@pytest.mark.parametrize("part", ["y", "features"])
def test_rows_must_agree(part):
    with pytest.raises(ValueError, match=f"{part} must have one row per record.*expected 10 rows"):
        Records(**{"x": some().x, "y": some().y, part: torch.zeros(9)})


@pytest.mark.parametrize("part", ["x", "y", "features"])
@pytest.mark.parametrize("value", [np.zeros((10, 2)), ["a"] * 10], ids=["numpy", "list"])
def test_what_is_no_tensor_is_refused_with_the_cure(part, value):
    words = rf"Records: expected {part} to be a tensor, got {type(value).__name__}. Pass torch.as_tensor\({part}\)"
    with pytest.raises(TypeError, match=words):
        Records(**{"x": some().x, "y": some().y, part: value})


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_here_is_named(device):
    with pytest.raises(ValueError, match=f"device='{device}' cannot be used here: .* such as 'cpu'"):
        some().to(device)


def test_cohort_counts():
    own = Records(torch.zeros(4, 2, 2), torch.zeros(4, 2))
    cohort = Cohort(some(), own, torch.arange(4))
    assert (len(cohort), cohort.secrets, cohort.records) == (4, 2, 12)
    assert cohort[1:3].index.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("own", "index", "words"),
    [
        (Records(torch.zeros(4, 1, 2), torch.zeros(4, 1)), torch.arange(3), "one index per model"),
        (Records(torch.zeros(4, 1, 3), torch.zeros(4, 1)), torch.arange(4), "differ in shape"),
        (Records(torch.zeros(4, 1, 2), torch.zeros(4, 2)), torch.arange(4), r"own.y of shape \(4, 1"),
    ],
)
def test_cohort_that_does_not_fit(own, index, words):
    with pytest.raises(ValueError, match=words):
        Cohort(some(), own, index)


def test_release_flat_and_one():
    release = Release({"weight": torch.arange(12.0).reshape(2, 3, 2), "bias": torch.ones(2, 3)})
    assert len(release) == 2
    assert release.flat().shape == (2, 9)
    assert release[1]["weight"].tolist() == [[6, 7], [8, 9], [10, 11]]


def test_every_record_is_matched_with_the_first_that_is_equal():
    random = torch.Generator().manual_seed(0)
    x = torch.randint(2, (200, 6), generator=random).double()
    x[7] = x[9] = torch.nan
    table, asked = Records(x, torch.zeros(200)), Records(x.float().flip(0), torch.zeros(200))
    expected = [next(j for j in range(200) if torch.equal(x[j].nan_to_num(5), x[i].nan_to_num(5))) for i in range(200)]
    assert table.matches(table).tolist() == expected
    assert asked.matches(table).tolist() == expected[::-1]


def test_together_keeps_features_if_every_part_has_them():
    one, other = (Records(torch.rand(n, 2), torch.arange(n), torch.rand(n, 3)) for n in (2, 3))
    both = Records.together([one, other])
    assert torch.equal(both[:2].x, one.x)
    assert torch.equal(both[2:].features, other.features)
    assert Records.together([one, Records(other.x, other.y)]).features is None
    stacked = Records(both.x.unsqueeze(0), both.y.unsqueeze(0))
    assert torch.equal(Records.together([stacked, stacked], 1)[:, 5].x, one.x[:1])
