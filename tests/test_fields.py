"""Fields are checked against their annotations and ranges when a value is made."""

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pytest
import torch

import lostwax as lw
from lostwax.fields import above, at_least, between, check_fields, redacted, shown


@runtime_checkable
class Builds(Protocol):
    def build(self): ...


class Plan:
    def build(self): ...


class Place(NamedTuple):
    module: str
    number: int


@dataclass(frozen=True)
class Settings:
    count: int = 1
    rate: float = 0.5
    flag: bool = False
    maybe: int | None = None
    sizes: tuple[int, ...] = (3, 4)
    pair: tuple[float, float] = (0.0, 1.0)
    way: Literal["up", "down"] = "up"
    part: Builds = field(default_factory=Plan)
    where: str | Path | None = None
    places: tuple[Place, ...] = ()

    def __post_init__(self):
        check_fields(self, count=at_least(1), rate=between(0, 1, "[)"), sizes=at_least(1), maybe=above(0))


@pytest.mark.parametrize(
    "good",
    [
        {"count": np.int64(3)},
        {"rate": 0},
        {"rate": np.float32(0.5)},
        {"maybe": 4},
        {"pair": (1, 2.5)},
        {"way": "down"},
        {"part": Plan()},
        {"where": Path("here")},
        {"places": (Place("1", 0),)},
    ],
    ids=lambda good: next(iter(good)),
)
def test_what_is_declared_is_accepted(good):
    name, value = next(iter(good.items()))
    assert getattr(Settings(**good), name) is value


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"count": "3"}, "count to be a whole number, got '3'."),
        ({"count": 2.5}, "count to be a whole number, got 2.5."),
        ({"count": True}, "count to be a whole number, got True."),
        ({"count": 0}, "count >= 1, got 0."),
        ({"count": 10**5000}, "count to be below 2**63, got a whole number of 16610 bits."),
        ({"rate": float("nan")}, "rate in [0, 1), got nan."),
        ({"rate": Fraction(1, 2)}, "rate to be a number, got a Fraction."),
        ({"rate": torch.tensor(0.5)}, "rate to be a number, got torch's Tensor."),
        ({"rate": 10**400}, "rate in [0, 1), got a whole number of 1329 bits."),
        ({"flag": 1}, "flag to be True or False, got 1."),
        ({"maybe": float("inf")}, "maybe to be a whole number, or None, got inf."),
        ({"maybe": 0}, "maybe > 0, or None, got 0."),
        ({"sizes": [3, 4]}, "sizes to be a tuple of whole numbers, got [3, 4]."),
        ({"sizes": 3}, "sizes to be a tuple of whole numbers, got 3."),
        ({"sizes": (3, 0)}, "each of sizes >= 1, got (3, 0)."),
        ({"sizes": ()}, "sizes to hold at least one number, got ()."),
        ({"pair": (0.0,)}, "pair to be a tuple of 2 numbers, got (0.0,)."),
        ({"pair": (0.0, float("inf"))}, "pair to be finite, got (0.0, inf)."),
        ({"way": "left"}, "way to be 'up' or 'down', got 'left'."),
        ({"way": np.zeros(3)}, "way to be 'up' or 'down', got a ndarray."),
        ({"part": "mlp"}, "part to be of type Builds, got 'mlp'."),
        ({"part": Plan}, "part to be of type Builds, got the class Plan (create one: Plan(...))."),
        ({"where": 3}, "where to be text or a path, or None, got 3."),
        ({"places": (Place("1", "0"),)}, "places to be a tuple, each of type Place, got a tuple."),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_anything_else_is_named(bad, words):
    with pytest.raises((TypeError, ValueError)) as error:
        Settings(**bad)
    assert str(error.value) == f"Settings: expected {words}"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lw.RecoNN(epochs="3"), "RecoNN: expected epochs to be a whole number, got '3'."),
        (lambda: lw.RecoNN(epochs=2.5), "RecoNN: expected epochs to be a whole number, got 2.5."),
        (lambda: lw.RecoNN(members=float("inf")), "RecoNN: expected members to be a whole number, got inf."),
        (
            lambda: lw.shadows.Local(chunk=float("nan")),
            "Local: expected chunk to be a whole number, or None, got nan.",
        ),
        (
            lambda: lw.RecoNN(decoder="mlp"),
            "RecoNN: expected decoder to be of type Decoder or RowReading, such as MLPDecoder(), got 'mlp'.",
        ),
    ],
)
def test_the_cases_that_were_accepted_or_raw(make, words):
    with pytest.raises((TypeError, ValueError)) as error:
        make()
    assert str(error.value) == words


def test_what_may_hold_records_is_shown_by_its_kind():
    assert shown(torch.full((2, 2), 41.5)) == "torch's Tensor"
    assert shown([41.5] * 9) == "a list"
    assert shown({"name": "Smith"}) == "a dict"
    assert shown(np.float32(0.5)) == "a float32"
    assert len(shown("x" * 1000)) < 70


def test_a_class_of_the_user_s_own_is_checked_as_far_as_its_annotations_can_be_read():
    local = {"__annotations__": {"other": "Elsewhere"}, "other": None}
    mine = dataclass(frozen=True, kw_only=True)(type("Mine", (lw.GD,), local))
    assert mine(other=3).other == 3
    with pytest.raises(ValueError, match="Mine: expected steps to be a whole number, got '3'"):
        mine(steps="3")


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("s3://KEY:pass/word+@bucket/a", "s3://***@bucket/a"),
        ("store='https://token@host/a?sig=pass', lr=1", "store='https://***@host/a?***', lr=1"),
        ("simplecache::s3://KEY:p@ss@bucket", "simplecache::s3://***@bucket"),
        ("PosixPath('s3:/KEY:pass@bucket')", "PosixPath('s3:/***@bucket')"),
        ("s3://bucket/a, then user@host and C:/folder", "s3://bucket/a, then user@host and C:/folder"),
    ],
)
def test_credentials_in_urls_are_not_shown(text, safe):
    assert redacted(text) == safe


def test_a_refused_value_shows_no_credentials():
    with pytest.raises(ValueError, match=r"got 's3://\*\*\*@bucket'"):
        Settings(count="s3://KEY:pass@bucket")
