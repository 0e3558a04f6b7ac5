"""The regression against scikit-learn's, and against leaving records out one by one."""

from typing import NamedTuple

import pytest
import torch
from sklearn.kernel_ridge import KernelRidge as Reference

from lostwax.learning.kernel_regression import SIZE, Group, Kernel, Scale, median_distance, products, solve

ROWS, RECORDS = (
    torch.randn(30, columns, generator=torch.Generator().manual_seed(columns), dtype=torch.float64)
    for columns in (5_000, 3)
)
CENTRED = RECORDS - RECORDS.mean(0)
KERNELS = [Kernel(True, None), Kernel(True, 4.0), Kernel(False, None), Kernel(False, 16.0)]


class Gram(NamedTuple):
    matrix: torch.Tensor
    median: float


def gram(kernel, features=ROWS):
    rows = kernel.rows(features, 0, Scale.of(ROWS))
    alike = products(rows, rows)
    median = median_distance(alike)
    return Gram(kernel.similarity(alike, alike.diagonal(), alike.diagonal(), median), median)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_regression_is_scikit_learns(kernel):
    rows = kernel.rows(ROWS, 0, Scale.of(ROWS)).numpy()
    if kernel.width is None:
        reference = Reference(alpha=0.1, kernel="linear")
    else:  # k / width, and so the ridge
        reference = Reference(alpha=0.1 / kernel.width, kernel="rbf", gamma=1 / (kernel.width * gram(kernel).median))
    theirs = torch.from_numpy(reference.fit(rows, CENTRED.numpy()).predict(rows))
    ours = gram(kernel).matrix @ solve(gram(kernel).matrix, CENTRED, 0.1).weights
    assert torch.allclose(ours, theirs, atol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_of_records_left_out(kernel):
    matrix, ridge = gram(kernel).matrix, 0.01
    errors = solve(matrix, CENTRED, ridge).left_out
    for left in range(0, 30, 7):
        rest = torch.arange(30) != left
        mean = RECORDS[rest].mean(0)  # of those that are left
        weights = torch.linalg.solve(matrix[rest][:, rest] + ridge * torch.eye(29), RECORDS[rest] - mean)
        error = (mean + matrix[left, rest] @ weights - RECORDS[left]).square().mean()
        assert errors[left] == pytest.approx(float(error), rel=1e-8)


def test_the_median_is_of_rows_and_others():
    for count in (2, 3, 5):
        assert median_distance(torch.eye(count, dtype=torch.float64) / 2) == pytest.approx(1)
    here = products(ROWS[:4], ROWS[:4])
    between = torch.pdist(ROWS[:4]).square()
    assert median_distance(here) == pytest.approx(float(between.median()))
    assert median_distance(torch.ones(1, 1, dtype=torch.float64)) > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_doubts_are_the_variance_of_a_gaussian_process(kernel):
    """Of the second half given the first; and leaving out one record is a special case."""
    matrix, ridge = gram(kernel).matrix, 0.01
    given, rest = slice(0, 15), slice(15, 30)
    rows = kernel.rows(ROWS, 0, Scale.of(ROWS))
    half = solve(matrix[given, given], CENTRED[given], ridge)
    group = Group(rows[given], gram(kernel).median, half.weights, CENTRED.new_zeros(3), half.factor, ridge)
    _, variance = group(kernel, rows[rest])
    noisy = matrix + ridge * torch.eye(30, dtype=torch.float64)
    covariance = noisy[rest, rest] - noisy[rest, given] @ torch.linalg.solve(noisy[given, given], noisy[given, rest])
    assert torch.allclose(variance, covariance.diagonal())
    whole = solve(matrix[:16, :16], CENTRED[:16], ridge)
    assert whole.variance[15] == pytest.approx(float(variance[0]))


def test_a_wide_kernel_is_the_plain_one():
    """Both see the directions alike; a kernel's constant is the mean, which is taken out."""
    wide, plain = (gram(Kernel(False, width)) for width in (1e6, None))
    centre = torch.eye(30, dtype=torch.float64) - 1 / 30
    assert torch.allclose(centre @ wide.matrix @ centre * wide.median / 2, centre @ plain.matrix @ centre, atol=1e-4)


def test_the_direction_does_not_change_with_the_size():
    kernel, scale = Kernel(True, None), Scale.of(ROWS)
    near, far = kernel.rows(ROWS, 0, scale), kernel.rows(100 * ROWS, 0, scale)
    assert torch.allclose(near[:, :-1], far[:, :-1])
    assert torch.allclose(near[:, :-1].norm(dim=1), torch.ones(30, dtype=torch.float64))
    sizes = near[:, -1] / SIZE**0.5
    assert float(sizes.mean()) == pytest.approx(0, abs=1e-9)
    assert float(sizes.std(correction=0)) == pytest.approx(1)


def test_what_is_told_counts_as_much_as_the_model():
    rows = Kernel(False, None).rows(torch.cat([ROWS, 1.0 + 0 * RECORDS], 1), 3, Scale.of(ROWS))
    assert torch.allclose(rows[:, -3:].square().sum(1), torch.ones(30, dtype=torch.float64))


def test_a_ridge_below_rounding_is_refused():
    twins = torch.ones(30, 30, dtype=torch.float64)
    assert solve(twins, CENTRED, 1e-18) is None
    assert solve(twins, CENTRED, 1e-3) is not None


def test_models_that_all_look_alike_have_no_scale():
    scale = Scale.of(torch.ones(5, 3))
    assert scale(torch.ones(2, 3)).isfinite().all()
    assert Kernel(True, 4.0).rows(torch.zeros(2, 3), 0, scale).isfinite().all()
