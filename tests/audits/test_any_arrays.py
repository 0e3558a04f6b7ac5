"""Whatever arrays come in: an audit, or our own error; never a raw one, never a hang, nothing changed."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.linear_model import LogisticRegression

import lostwax as lw

DTYPES = st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8, np.bool_, np.complex64, "U3", "O"])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12)
TORCH_DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64)


@st.composite
def array(draw):
    """Any numbers, texts or objects in any shape; often shaped like the table, so that some come further."""
    shape = draw(st.one_of(SHAPES, st.sampled_from([(12, 3), (12,)])))
    dtype = np.dtype(draw(DTYPES))
    if dtype.hasobject:
        return draw(arrays.arrays(dtype, shape, elements=st.sampled_from([None, "a", 1.5, -1, b"x", float("nan")])))
    return draw(arrays.arrays(dtype, shape))


@pytest.fixture(scope="module")
def model():
    X = np.random.default_rng(0).normal(size=(12, 3))
    return LogisticRegression().fit(X, np.arange(12) % 2)


@settings(max_examples=150, deadline=None)
@given(X=array(), y=array(), weight=st.none() | array())
def test_a_table(model, X, y, weight):
    before = [np.copy(part) for part in (X, y)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = refused(lambda: lw.audit(model, (X, y), sample_weight=weight))
    assert error is None or error.startswith("audit: ")
    assert all(np.array_equal(one.astype(str), other.astype(str)) for one, other in zip(before, (X, y), strict=True))


def refused(call):
    """What an error of input says; None where there was none."""
    try:
        call()
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def _mostly(usual, *others):
    """What fits nine times of ten, so that most games of three parts come far."""
    return st.integers(0, 9).flatmap(lambda luck: st.just(usual) if luck else st.sampled_from(others))


@st.composite
def records(draw):
    """Any tensors that Records takes."""
    shape = draw(_mostly((6, 4), (6, 2, 2), (0, 4), (6,), (6, 3)))
    dtype = draw(_mostly(*TORCH_DTYPES))
    drawn = torch.rand(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 9))))
    x = (drawn * draw(_mostly(1.0, 0.0, 300.0, 1e38))).to(dtype)
    if dtype.is_floating_point and len(x):
        x.view(-1)[0] = draw(_mostly(0.25, float("nan"), float("inf")))
    y = torch.arange(draw(_mostly(len(x), len(x) + 1))) % draw(_mostly(2, 1, 5))
    return lw.Records(x, y.to(draw(_mostly(torch.int64, torch.float32, torch.bool))))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_records(data):
    def audit():
        known, prior, secrets = (data.draw(records()) for _ in range(3))
        lw.audit(
            torch.nn.Linear(4, 2),
            trainer=lw.GD(lr=0.1, steps=1),
            threat=lw.Informed(known),
            attack=lw.KernelRidge(),
            prior=prior,
            secrets=secrets,
        )

    error = refused(audit)
    assert error is None or error.startswith(("audit: ", "Records", "Cohort", "KernelRidge"))
