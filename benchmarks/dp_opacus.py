"""Opacus with its options: does training keep what the accountant claims?

The claim is what the accountant has recorded, called Poisson sampling, as its epsilon assumes.
"""

import argparse
import warnings

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lostwax as lw
from lostwax.metrics.estimate import clopper_pearson
from lostwax_dev.results import Row, parse, write_rows

NOISE, CLIP, EPOCHS, BATCH, RECORDS, LR = 0.7, 0.25, 2, 8, 80, 0.1
ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0,
    "min_clipbound": 0.05,
    "unclipped_num_std": 1.0,
}
OPTIONS = {
    "flat clipping": {},
    "per-layer clipping": {"clipping": "per_layer", "max_grad_norm": [CLIP / 2] * 4},
    "adaptive clipping": ADAPTIVE,
    "ghost clipping": {"grad_sample_mode": "ghost"},
    "functorch gradients": {"grad_sample_mode": "functorch"},
    "virtual steps (BatchMemoryManager)": {"virtual": True},
    "gradient accumulation, 4 batches": {"accumulated": 4},
    "poisson_sampling=False": {"poisson_sampling": False},
    "poisson_sampling=False, accumulation of 5 batches": {"poisson_sampling": False, "accumulated": 5},
}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 2))


def train(model, x, y, seed, *, found=None, virtual=False, accumulated=1, **options):
    """Two epochs; `found` takes the engine and the loader."""
    ghost = options.get("grad_sample_mode") == "ghost"
    engine, criterion = PrivacyEngine(), nn.CrossEntropyLoss()
    private = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=LR),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True),
        noise_multiplier=NOISE,
        **{"max_grad_norm": CLIP, **({"criterion": criterion} if ghost else {}), **options},
    )
    model, optimiser, *rest, loader = private
    criterion = rest[0] if ghost else criterion
    for _ in range(EPOCHS):
        if virtual:
            with BatchMemoryManager(data_loader=loader, max_physical_batch_size=3, optimizer=optimiser) as small:
                epoch(model, optimiser, criterion, small, 1)
        else:
            epoch(model, optimiser, criterion, loader, accumulated)
    if found is not None:
        found.append((engine, loader))
    return model


def epoch(model, optimiser, criterion, loader, accumulated):
    for number, (x, y) in enumerate(loader):
        criterion(model(x), y).backward()
        if (number + 1) % accumulated == 0:
            optimiser.step()
            optimiser.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--games", type=int, default=400)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--only", choices=OPTIONS, nargs="*", help="some options")
    arguments = parse(parser)
    warnings.simplefilter("ignore")
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(RECORDS, 8, generator=draws)
    data = lw.Records(x, (x[:, 0] > 0).long())
    for name in arguments.only or OPTIONS:
        found = []
        try:
            train(net(), data.x, data.y, 0, found=found, **OPTIONS[name])
            claim = lw.adapters.opacus.mechanism(found[0][0], poisson=True)
            check = lw.check_dp(
                net(),
                data,
                lambda model, x, y, seed, chosen=OPTIONS[name]: train(model, x, y, seed, **chosen),
                **claim,
                games=arguments.games,
                trials=arguments.trials,
            )
        except (ValueError, RuntimeError, NotImplementedError, TypeError) as error:
            print(f"{name}: {type(error).__name__}: {error}\n", flush=True)
            write_rows(
                __file__, [Row(f"error-{name}", f"stopped, {name}", f"{type(error).__name__}")], keep_others=True
            )
            continue
        print(f"{name}: {claim}\n{check}\n{check.seconds:.0f} s\n", flush=True)
        low, high = clopper_pearson(check.won, check.games)
        rows = [
            Row(f"won-{name}", f"share of games won, {name}", check.success, low, high, check.ceiling.upper, seed=0),
            Row(f"p-{name}", f"p-value, {name}", check.p_value, seed=0),
            Row(f"time-{name}", f"seconds, {name}", check.seconds),
        ]
        write_rows(__file__, rows, keep_others=True)


if __name__ == "__main__":
    main()
