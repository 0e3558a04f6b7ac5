"""What protects, and what does it cost? Five ways to train one net, side by side on one page.

The attacker chooses among ten records, one of which was trained on: a blind guess is right in 10 % of games. The
learning rate of DP-SGD is chosen on public records: neither those that are protected nor those that measure accuracy.
"""

import torch

import lostwax as lw

known, prior, secrets, test, public, check = lw.records.digits().split(300, 100, 60, 600, 300, 300, seed=0)
net, start = lw.nets.mlp(64, 10, 10), lw.inits.LeCunNormal()
plain = lw.GD(lr=0.2, momentum=0.9, steps=30, init=start)


def accuracy(trainer, trained_on, tested_on):
    """The share of right predictions on records that were not trained on, mean of five models."""
    shares = []
    for _, release in lw.simulate(net, trainer=trainer, threat=lw.Informed(trained_on), prior=prior, models=5):
        for number in range(len(release)):
            weights = {name: value[number] for name, value in release.params.items()}
            guesses = torch.func.functional_call(net, weights, (tested_on.x,)).argmax(1)
            shares.append((guesses == tested_on.y).float().mean().item())
    return sum(shares) / len(shares)


def private(epsilon):
    """DP-SGD with the learning rate that suits public records best."""
    rates = (2.0, 5.0, 10.0, 20.0, 40.0)
    tried = [lw.DPSGD.for_epsilon(epsilon, 1e-5, steps=30, lr=lr, clip=0.1, init=start) for lr in rates]
    return max(tried, key=lambda trainer: accuracy(trainer, public, check))


trainers = {
    "undefended": plain,
    "8 bits per weight": lw.defences.Defended(plain, by=lw.defences.Quantised(bits=8)),
    **{f"DP, ε = {epsilon:g}": private(epsilon) for epsilon in (16.0, 4.0, 1.0)},
}
audits = [
    lw.audit(
        net,
        trainer=trainer,
        threat=lw.Informed(known, candidates=10),
        attack=lw.PriorAware() if name.startswith("DP") else lw.attacks.Refit(),
        prior=prior,
        secrets=secrets,
    )
    for name, trainer in trainers.items()
]
comparison = lw.compare(
    *audits, names=list(trainers), accuracy=[accuracy(one, known, test) for one in trainers.values()]
)
print(comparison)
print(comparison.to_html("what_protects.html"))
print(lw.report(audits[0], "what_protects", title="Digits, before release", compared=comparison))
