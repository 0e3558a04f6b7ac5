import numpy as np
import pytest
import torch

from lostwax import records
from lostwax.metrics import MSE, TokensWrong, nearest_known, nearest_neighbour
from lostwax.seeds import generator


def plain(targets, pool, percentiles, metric):
    """Every distance by the metric itself, one at a time."""
    table = np.array([[metric(t[None], p[None]).item() for p in pool] for t in targets])
    return table.min(1), table.argmin(1), np.percentile(table, percentiles, axis=1).mean(1)


@pytest.mark.parametrize("metric", [MSE(), TokensWrong()], ids=["numbers", "tokens"])
@pytest.mark.parametrize(("block", "rows"), [(8_000_000, 16_384), (100, 7), (1, 1)])
def test_equals_the_plain_loop_whatever_the_block(block, rows, metric, monkeypatch):
    monkeypatch.setattr("lostwax.metrics.errors.BLOCK_DISTANCES", block)
    monkeypatch.setattr("lostwax.metrics.errors.POOL_ROWS", rows)
    random = torch.Generator().manual_seed(0)
    targets, pool = (torch.rand(n, 1, 4, 4, generator=random, dtype=torch.float64) for n in (9, 30))
    tokens = metric == TokensWrong()
    if tokens:
        targets, pool = (4 * targets).round(), (4 * pool).round()
    errors, nearest, percentiles = plain(targets, pool, (1, 10, 50), metric)
    oracle = nearest_neighbour(targets, pool, of_tokens=tokens)
    np.testing.assert_allclose(oracle.errors, errors)
    assert oracle.nearest.tolist() == nearest.tolist()
    assert oracle.mean == pytest.approx(errors.mean())
    assert list(oracle.percentiles) == [1, 10, 50]
    np.testing.assert_allclose(list(oracle.percentiles.values()), percentiles)
    assert oracle.pool == 30


def test_a_record_of_the_pool_has_error_zero():
    pool = 100 + torch.rand(50, 20, generator=torch.Generator().manual_seed(0))  # far out: products lose digits
    oracle = nearest_neighbour(pool[7:9], pool, percentiles=())
    assert oracle.errors.tolist() == [0.0, 0.0]
    assert oracle.percentiles == {}


def test_bad_input():
    with pytest.raises(ValueError, match="at least one target"):
        nearest_neighbour(torch.rand(0, 3), torch.rand(5, 3))
    with pytest.raises(ValueError, match="one shape and one floating dtype"):
        nearest_neighbour(torch.rand(2, 4), torch.rand(5, 3))
    with pytest.raises(ValueError, match=r"percentiles in 0\.\.100"):
        nearest_neighbour(torch.rand(2, 3), torch.rand(5, 3), percentiles=(150,))


@pytest.mark.slow
@pytest.mark.parametrize(("source", "published"), [(records.mnist, 0.0232), (records.cifar10, 0.0291)])
def test_the_thresholds_of_s1(source, published, shared_data):
    """S1 section V-B, over 1K targets and all other images; here 200 targets."""
    x = source("all", root=shared_data).x
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    oracle = nearest_neighbour(x[order[:200]], x[order[1000:]])
    error = oracle.errors.std() / 200**0.5
    assert abs(oracle.mean - published) < 3 * error
    if source is records.cifar10:  # S1 section VI-B: "1st percentile oracle MSE (~0.05)"; of all pairs it is 0.037
        assert oracle.percentiles[1] == pytest.approx(0.05, abs=0.005)


def test_a_target_that_lies_in_the_pool_may_be_left_out(monkeypatch):
    """Against the slow definition, over several blocks of targets."""
    monkeypatch.setattr("lostwax.metrics.errors.BLOCK_DISTANCES", 30)
    pool = torch.rand(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([7, 0, 3, 9])
    assert nearest_neighbour(pool[rows], pool, ()).nearest.tolist() == rows.tolist()
    found = nearest_neighbour(pool[rows], pool, (), not_row=rows)
    for row, nearest, error in zip(rows.tolist(), found.nearest, found.errors, strict=True):
        errors = (pool - pool[row]).square().mean(1)
        errors[row] = torch.inf
        assert nearest == int(errors.argmin())
        assert error == pytest.approx(float(errors.min()))


def test_the_nearest_known_row_of_a_small_table_is_that_of_all_rows():
    table = torch.rand(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    games, unit = torch.tensor([3, 39, 0]), torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]).double()
    found = nearest_known(table, games, unit)
    assert (found.compared, found.whole) == (39, True)
    expected = nearest_neighbour(table[games] / unit, table / unit, (), not_row=games)
    assert found.rows.tolist() == expected.nearest.tolist()


def test_a_large_table_is_compared_with_a_sample_and_with_equal_rows(monkeypatch):
    monkeypatch.setattr("lostwax.metrics.errors.MAX_WORK", 0)
    monkeypatch.setattr("lostwax.metrics.errors.SAMPLED_ROWS", 50)
    table = torch.rand(300, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    table[[17, 250]] = table[4].clone()  # three equal rows
    games = torch.arange(300)
    found = nearest_known(table, games)
    assert (found.compared, found.whole) == (50, False)
    assert (found.rows != games.numpy()).all()
    for row in (4, 17, 250):
        assert found.rows[row] in {4, 17, 250} - {row}
    drawn = np.sort(generator(0, "nearest known").permutation(300)[:51])
    for row in set(range(300)) - {4, 17, 250}:
        sample = drawn[drawn != row] if row in drawn else drawn[:-1]
        distances = (table[sample] - table[row]).norm(dim=1)
        assert found.rows[row] == sample[int(distances.argmin())]
    assert np.array_equal(nearest_known(table, games).rows, found.rows)
