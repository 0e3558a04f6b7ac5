import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.trainers import GD


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": 3}, "expected the net to be a torch nn.Module, got int"),
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
