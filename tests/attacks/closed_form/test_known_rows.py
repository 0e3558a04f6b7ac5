"""Moments of the rows known in each game, against their definition."""

import torch

from lostwax.attacks.closed_form.attack import known_extremes, known_label, known_moments
from lostwax.games import Records


def table(n):
    generator = torch.Generator().manual_seed(0)
    timestamps = 1_700_000_000 + torch.arange(n, dtype=torch.float64)[:, None] % 7
    constant, outlier = torch.full((n, 1), 3.3, dtype=torch.float64), torch.zeros(n, 1, dtype=torch.float64)
    outlier[0] = 1e9
    plain = torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return Records(torch.cat([timestamps, constant, outlier, plain], 1), torch.zeros(n, dtype=torch.long))


def test_every_game_has_the_moments_of_its_known_rows():
    rows = table(30)
    mean, spread = known_moments(rows, torch.arange(30))
    for i in range(30):
        known = torch.cat([rows.x[:i], rows.x[i + 1 :]])
        from_one = known - known[0]  # so that the definition itself does not cancel
        torch.testing.assert_close(mean[i], known[0] + from_one.mean(0), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(spread[i], from_one.std(0, correction=0), rtol=1e-13, atol=1e-13)
    assert (spread[:, 1] == 0).all()


def test_the_missing_row_is_never_looked_at():
    rows = table(30)
    honest = known_moments(rows, torch.arange(30))
    for i in (0, 1, 29):
        x = rows.x.clone()
        x[i] = torch.nan
        for part, blinded in zip(honest, known_moments(Records(x, rows.y), torch.tensor([i])), strict=True):
            assert torch.equal(part[i], blinded[0])


def test_one_row_tells_nothing_of_the_spread():
    mean, spread = known_moments(table(2), torch.tensor([1]))
    torch.testing.assert_close(mean, table(1).x)
    assert spread.isinf().all()


def test_a_blind_label_is_made_of_the_known_rows():
    y = torch.tensor([0, 1, 1, 2, 0, 1])
    x = torch.zeros(6, 1, dtype=torch.float64)
    games = torch.arange(6)
    expected = torch.stack([torch.cat([y[:i], y[i + 1 :]]).mode().values for i in range(6)])
    assert torch.equal(known_label(Records(x, y), games), expected)
    means = torch.stack([torch.cat([y[:i], y[i + 1 :]]).double().mean() for i in range(6)])
    torch.testing.assert_close(known_label(Records(x, y.double()), games), means)
    pairs = torch.stack([y.double(), 2 * y], 1)
    torch.testing.assert_close(known_label(Records(x, pairs), games), torch.stack([means, 2 * means], 1))


def test_extremes_of_the_known_rows(monkeypatch):
    """Against the definition, in blocks of three rows; a NaN in the missing row changes nothing."""
    rows = table(20)
    rows.x[3, 3], rows.x[9, 3] = -50.0, -50.0  # two rows attain the minimum
    monkeypatch.setattr("lostwax.games.fitted.BLOCK_NUMBERS", 15)
    low, high = known_extremes(rows, torch.arange(20))
    for i in range(20):
        known = torch.cat([rows.x[:i], rows.x[i + 1 :]])
        assert torch.equal(low[i], known.amin(0))
        assert torch.equal(high[i], known.amax(0))
        x = rows.x.clone()
        x[i] = torch.nan
        blinded = known_extremes(Records(x, rows.y), torch.tensor([i]))
        assert torch.equal(torch.stack(blinded)[:, 0], torch.stack([low[i], high[i]]))


def test_games_in_any_order_and_twice():
    rows, games = table(30), torch.tensor([7, 29, 0, 7, 3])
    every = known_moments(rows, torch.arange(30))
    for part, some in zip(every, known_moments(rows, games), strict=True):
        assert torch.equal(part[games], some)
