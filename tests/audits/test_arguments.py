import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression
from torch import nn

import lostwax as lw
from lostwax.trainers import GD


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": 3}, "expected the net to be a torch nn.Module, got int"),
        ({"model": nn.Sequential(nn.LazyLinear(2))}, "0.weight of the net has no shape yet.* Call the net on a batch"),
        ({"model": nn.Linear(4, 2, device="meta")}, "weight of the net has no values"),
        ({"prior": (1, 2)}, r"expected prior to be lw.Records\(x, y\), got tuple"),
        ({"secrets": torch.ones(3)}, r"expected secrets to be lw.Records\(x, y\), got Tensor"),
        ({"prior": None}, "to audit this way of training, pass prior too"),
        ({"threat": None, "secrets": None}, "to audit this way of training, pass threat, secrets too"),
        ({"trainer": GD}, r"expected trainer to be a trainer, such as lw.GD\(.*got the class GD"),
        ({"trainer": print}, "expected trainer to be a trainer"),
        ({"trainer": lambda net, x, y, seed: net}, ".* Wrap a training function of your own: lw.OwnTraining"),
        ({"threat": "informed"}, r"expected threat to be a threat, such as lw.Informed\(known\), got str"),
        ({"attack": lw.RecoNN}, "expected attack to be an attack, .*, got the class RecoNN"),
        ({"access": "weights"}, "expected access to be an access"),
        ({"metrics": 3}, "expected metrics to be a list of metrics"),
        ({"metrics": ["ssim"]}, "expected metrics to be a list of metrics"),
        ({"threshold": "0.1"}, "expected threshold to be an int or a float, got '0.1'"),
        ({"seed": 1.5}, "expected seed to be a whole number"),
        ({"games": 1.5}, "expected games to be a whole number"),
        ({"secrets": lw.Records(torch.rand(0, 4), torch.arange(0)), "games": 3}, "expected at least one record in sec"),
        ({"gams": 3}, "there is no argument gams. Did you mean games?"),
        ({"xyz": 3}, "there is no argument xyz. Its arguments are: model, data, games, "),
        ({"device": "cuda"}, r"there is no argument device.*records.to\('cuda'\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_argument_is_named_and_the_cure_with_it(change, words):
    records = lw.Records(torch.rand(8, 4), torch.arange(8) % 2)
    game = {"trainer": GD(lr=0.1, steps=2), "threat": lw.Informed(records), "prior": records, "secrets": records}
    arguments = {"model": nn.Linear(4, 2), "attack": lw.RecoNN(), **game, **change}
    with pytest.raises((TypeError, ValueError), match=f"audit: {words}"):
        lw.audit(arguments.pop("model"), **arguments)


@pytest.mark.parametrize("call", [lambda X, y: lw.audit(3, X, y), lambda X, y: lw.audit(3, X=X, y=y)])
def test_data_come_as_one_argument(call):
    with pytest.raises(TypeError, match=r"pass the data as one argument, lw.audit\(model, \(X, y\)\)"):
        call(torch.rand(8, 4), torch.arange(8))


class Nearest:
    """Can be fitted and asked, and states no tags of scikit-learn."""

    def fit(self, X, y):
        self.X, self.y = X, y
        return self

    def predict(self, X):
        return self.y[((X[:, None] - self.X) ** 2).sum(-1).argmin(1)]


class OddSettings(Nearest):
    def get_params(self, deep=True):
        return ["k"]


def test_a_model_without_tags_is_audited_and_one_without_settings_refused():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 3)), random.integers(0, 2, 60)
    assert lw.audit(Nearest().fit(X, y), (X, y), max_minutes=0.2).grade.leaks  # it holds all rows
    with pytest.raises(TypeError, match="expected get_params of OddSettings to give its settings by name"):
        lw.audit(OddSettings().fit(X, y), (X, y))


def test_a_report_takes_a_comparison(tmp_path):
    audit = lw.audit(LinearRegression().fit(np.eye(5), np.arange(5.0)), (np.eye(5), np.arange(5.0)))
    with pytest.raises(TypeError, match=r"report: expected compared to be the result of lw.compare\(...\), got a list"):
        lw.report(audit, tmp_path / "report", compared=[audit])
    assert not (tmp_path / "report").exists()
