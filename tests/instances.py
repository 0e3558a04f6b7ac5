"""Instances of every class that the contract tests, the laws and the fuzz run on: one entry per class."""

import numpy as np
import torch
from torch import nn

from lostwax.access import Layers, Logits, Neuron, Sketch, Superparameters
from lostwax.attacks.calibrated_losses import CalibratedLosses
from lostwax.attacks.closed_form.attack import ClosedForm
from lostwax.attacks.dp_steps.gradient_inversion import GradientInversion
from lostwax.attacks.dp_steps.prior_aware import LogLikelihood, PriorAware
from lostwax.attacks.ensemble import Ensemble
from lostwax.attacks.kernel_ridge import KernelRidge
from lostwax.attacks.membership import LikeliestRefit, NearestCandidate, Refit
from lostwax.attacks.mnemonist import Mnemonist, MnemonistRecoNN, ToMean, ToStart
from lostwax.attacks.newton.attack import Newton
from lostwax.attacks.reconn import RecoNN
from lostwax.attacks.secant import Secant
from lostwax.attacks.text.attack import Tokens
from lostwax.attacks.trees import TreeConstraints
from lostwax.attacks.weak.attack import WeakRecoNN
from lostwax.attacks.weak.objectives import Augmented, BeatChance, LogError, MeanError
from lostwax.attacks.weak.readers import ConditionalReader, FlatReader, SetReader
from lostwax.attacks.whole_table import Search, WholeTable
from lostwax.bounds import BallsInBins, Shuffled
from lostwax.defences import Defended, Quantised, Rounded, WeightNoise
from lostwax.games.records import Records
from lostwax.games.threats import Informed, Weak
from lostwax.inits import LeCunNormal
from lostwax.learning.augment import Affine, Repeats, Shifts
from lostwax.learning.decoders import ConvDecoder, MLPDecoder, PatchDiscriminator, ResidualDecoder, RowDecoder
from lostwax.learning.training import Adversarial, Perceptual
from lostwax.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    ModifiedHuber,
    MultiLabel,
    ProbitLoss,
    SquaredEpsilonInsensitive,
    SquaredError,
    SquaredHinge,
    SquaredSignError,
    Tweedie,
)
from lostwax.metrics.errors import (
    LPIPS,
    MAE,
    MSE,
    PSNR,
    SSIM,
    BagRight,
    EditDistance,
    LargestError,
    NearPixels,
    SpreadRMSE,
    TokensWrong,
)
from lostwax.schedules import Cosine, Linear, StepDecay
from lostwax.seeds import generator
from lostwax.shadows.game import Local
from lostwax.shadows.linear_response import LinearResponse
from lostwax.trainers.descent import GD, SGD, Adam, AdamW
from lostwax.trainers.dpsgd import DPSGD
from lostwax.trainers.optimum import Optimum
from lostwax.trainers.pairs import Negated, Paired, Unlearned


def instances(kind):
    """A tuple of instances of the class."""
    return INSTANCES[kind]()


def mnemonistreconn_instances():
    attack = RecoNN(decoder=MLPDecoder(width=16), epochs=3)
    return tuple(MnemonistRecoNN(attack=attack, mnemonist=mnemonist) for mnemonist in instances(Mnemonist))


def weakreconn_instances():
    decoder, reader = MLPDecoder(width=8), SetReader(width=8, layers=1, heads=2)
    return (
        WeakRecoNN(reader=reader, decoder=decoder, steps=3, batch_size=4),
        WeakRecoNN(reader=FlatReader(), decoder=decoder, steps=3, batch_size=4, shadows=8, aim=BeatChance(within=0.1)),
    )


def defended_instances():
    trainer = GD(lr=0.2, momentum=0.9, steps=5)
    return (
        Defended(trainer, by=Rounded(torch.bfloat16)),
        Defended(Defended(trainer, by=WeightNoise(0.01)), by=Quantised()),
        Defended(Optimum(), by=WeightNoise(0.1)),
    )


def unlearned_instances():
    ascent = GD(lr=0.05, steps=2, loss=Negated(CrossEntropy()))
    return Unlearned(GD(lr=0.2, steps=5), GD(lr=0.1, steps=2)), Unlearned(Optimum(), ascent, on="erased")


def informed_instances():
    random = generator(0, "example")
    x = torch.from_numpy(random.random((6, 4), dtype=np.float32))
    known = Records(x, torch.tensor([0, 1, 2, 0, 1, 2]))
    halves = torch.tensor([True, True, False, False])
    told = Informed(known, label_known=True), Informed(known, parts=halves), Informed(known, candidates=3)
    return Informed(known), *told, Informed(known, secrets=2)


def binarycrossentropy_instances():
    y = torch.tensor([0, 2, 1, 1])
    return (BinaryCrossEntropy(), y), (BinaryCrossEntropy(positive_weight=10.0), y)


def squarederror_instances():
    y = torch.tensor([[0.5, -2.0, 1.0], [0.0, 0.1, 3.0], [1.0, 1.0, 1.0], [-1.0, 0.3, 0.2]])
    return ((SquaredError(), y.double()),)


def tweedie_instances():
    y = torch.tensor([0.5, 2.0, 1.0, 3.0]).double()
    return (
        (Tweedie(1.0), y),
        (Tweedie(2.0), y),
        (Tweedie(1.5), y),
        (Tweedie(3.0), y),
        (Tweedie(0.0, "identity"), y),
        (Tweedie(2.0, "inverse"), y),
    )


def sgd_instances():
    private = SGD(lr=0.1, momentum=0.9, batch_size=4, epochs=2, order_seed=None, tile=4)
    return (
        SGD(lr=0.1, momentum=0.9, batch_size=4, epochs=2, weight_decay=1e-3, schedule=StepDecay(every=3)),
        private,
        SGD(
            lr=0.1,
            batch_size=5,
            epochs=1,
            order_seed=None,
            init=LeCunNormal(seed=None),
            dtype=torch.float64,
        ),
    )


INSTANCES = {
    Layers: lambda: (Layers("3"), Layers("1", "3"), Layers("1.weight")),
    Logits: lambda: ((Logits(torch.eye(4)),)),
    Sketch: lambda: (Sketch(Layers("3"), torch.zeros(8), torch.eye(3, 8)),),
    Superparameters: lambda: (Superparameters((Neuron("1", 0),)), Superparameters((Neuron("1", 2), Neuron("3", 1)))),
    ClosedForm: lambda: ((ClosedForm(),)),
    GradientInversion: lambda: tuple(
        GradientInversion(iterations=5, restarts=2, steps_at_a_time=2, prior=prior) for prior in (False, True)
    ),
    LogLikelihood: lambda: ((LogLikelihood(),)),
    PriorAware: lambda: (
        PriorAware(),
        PriorAware(subtract_known=False),
    ),
    Ensemble: lambda: (
        Ensemble(members=12, rounds=1, restarts=1),
        Ensemble(members=12, rounds=2, margin=2.0, restarts=0),
    ),
    KernelRidge: lambda: (
        KernelRidge(),
        KernelRidge(shadows=12, validation=0.2),
        KernelRidge(validation=0.3, engine=LinearResponse(directions=4, checked=8)),
    ),
    LinearResponse: lambda: (LinearResponse(directions=4, checked=8), LinearResponse(rank=3)),
    NearestCandidate: lambda: ((NearestCandidate(RecoNN(decoder=MLPDecoder(width=16), epochs=3)),)),
    CalibratedLosses: lambda: (CalibratedLosses(models=8),),
    LikeliestRefit: lambda: (LikeliestRefit(), LikeliestRefit(repeats=3)),
    Secant: lambda: (Secant(), Secant(iterations=1, start=KernelRidge(shadows=12))),
    Refit: lambda: (Refit(), Refit(repeats=3)),
    MnemonistRecoNN: mnemonistreconn_instances,
    ToStart: lambda: ((ToStart(),)),
    ToMean: lambda: ((ToMean(),)),
    Mnemonist: lambda: (Mnemonist(masks=40), Mnemonist(masks=40, erase=ToMean())),
    Newton: lambda: (Newton(bank=10), Newton(bank=0, jacobians=1, coordinates=2), Newton(bank=0, products=4)),
    RecoNN: lambda: (
        (
            RecoNN(decoder=MLPDecoder(width=16), epochs=3),
            RecoNN(
                decoder=MLPDecoder(width=8, depth=1, dropout=0.1),
                shadows=10,
                epochs=2,
                mae=0.0,
                patience=None,
                members=2,
            ),
            RecoNN(decoder=RowDecoder(width=8), epochs=2),
        )
    ),
    Tokens: lambda: ((Tokens(directions=4, starts=1),)),
    WeakRecoNN: weakreconn_instances,
    TreeConstraints: lambda: ((TreeConstraints(),)),
    WholeTable: lambda: (WholeTable(), WholeTable(Search(5.0))),
    Search: lambda: (Search(), Search(seconds=5.0, workers=1)),
    MeanError: lambda: ((MeanError(),)),
    LogError: lambda: ((LogError(),)),
    BeatChance: lambda: ((BeatChance(within=0.05),)),
    Augmented: lambda: (Augmented(None), Augmented(nn.Flatten(), copies=2)),
    SetReader: lambda: (SetReader(), SetReader(width=16, layers=1, heads=2)),
    ConditionalReader: lambda: ((ConditionalReader(),)),
    FlatReader: lambda: ((FlatReader(),)),
    Rounded: lambda: (Rounded(), Rounded(torch.bfloat16)),
    Quantised: lambda: (Quantised(), Quantised(bits=4)),
    WeightNoise: lambda: (WeightNoise(sigma=0.01), WeightNoise(sigma=1.0)),
    Defended: defended_instances,
    Paired: lambda: (
        Paired(GD(lr=0.2, steps=5), 10, bases=2, block=1),
        Paired(unlearned_instances()[0], 8, bases=3, scale=0.5),
    ),
    Unlearned: unlearned_instances,
    Informed: informed_instances,
    Weak: lambda: (Weak(size=5), Weak(size=2, per_class=(1, 0, 1))),
    Repeats: lambda: ((Repeats(),)),
    Shifts: lambda: (Shifts(), Shifts(pixels=2)),
    Affine: lambda: (Affine(), Affine(degrees=0.0, scale=0.0, pixels=0.5, mirror=True)),
    MLPDecoder: lambda: (MLPDecoder(), MLPDecoder(width=8, depth=1, input_noise=0.0, dropout=0.1), MLPDecoder(depth=0)),
    ResidualDecoder: lambda: (ResidualDecoder(width=8), ResidualDecoder(width=1)),
    ConvDecoder: lambda: (ConvDecoder(), ConvDecoder(channels=(8,), input_noise=0.0)),
    RowDecoder: lambda: (
        RowDecoder(),
        RowDecoder(sums=2, summary=2, width=8, input_noise=0.0, picture=MLPDecoder(width=8, depth=1)),
    ),
    PatchDiscriminator: lambda: (PatchDiscriminator(), PatchDiscriminator(channels=(8,))),
    Perceptual: lambda: (Perceptual(), Perceptual(weight=0.1)),
    Adversarial: lambda: (Adversarial(), Adversarial(weight=0.1, discriminator=PatchDiscriminator(channels=(8, 16)))),
    CrossEntropy: lambda: (((CrossEntropy(), torch.tensor([0, 2, 1, 1])),)),
    BinaryCrossEntropy: binarycrossentropy_instances,
    SquaredError: squarederror_instances,
    SquaredHinge: lambda: (((SquaredHinge(), torch.tensor([0, 2, 1, 1])),)),
    ProbitLoss: lambda: (((ProbitLoss(), torch.tensor([0, 2, 1, 1])),)),
    SquaredSignError: lambda: (((SquaredSignError(), torch.tensor([0, 2, 1, 1])),)),
    Negated: lambda: ((Negated(CrossEntropy()), torch.tensor([0, 2, 1, 1])),),
    MultiLabel: lambda: (((MultiLabel(), squarederror_instances()[0][1].sigmoid()),)),
    ModifiedHuber: lambda: (((ModifiedHuber(), torch.tensor([0, 2, 1, 1])),)),
    Huber: lambda: (((Huber(5.0), squarederror_instances()[0][1]),)),
    SquaredEpsilonInsensitive: lambda: (((SquaredEpsilonInsensitive(1e-3), squarederror_instances()[0][1]),)),
    Tweedie: tweedie_instances,
    MSE: lambda: ((MSE(),)),
    TokensWrong: lambda: ((TokensWrong(),)),
    BagRight: lambda: ((BagRight(),)),
    EditDistance: lambda: ((EditDistance(),)),
    MAE: lambda: ((MAE(),)),
    PSNR: lambda: (PSNR(), PSNR(peak=255.0)),
    NearPixels: lambda: (NearPixels(tolerance=0.01), NearPixels(tolerance=0.05)),
    LargestError: lambda: ((LargestError(torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)),)),
    SpreadRMSE: lambda: ((SpreadRMSE(torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64)),)),
    SSIM: lambda: (()),
    LPIPS: lambda: (()),
    Local: lambda: (Local(), Local(chunk=8)),
    GD: lambda: (
        (
            GD(lr=0.2, momentum=0.9, steps=5),
            GD(lr=0.2, steps=4, weight_decay=1e-2, schedule=Cosine(warmup=1), dtype=torch.float64),
            GD(lr=0.2, momentum=0.5, steps=3, init=LeCunNormal(seed=None), tile=4),
        )
    ),
    SGD: sgd_instances,
    Adam: lambda: (
        (
            Adam(lr=1e-2, epochs=4, weight_decay=1e-2, dtype=torch.float64),
            Adam(lr=1e-2, epochs=2, batch_size=4, schedule=Linear()),
            Adam(lr=1e-2, epochs=2, batch_size=5, order_seed=None, init=LeCunNormal(seed=None), tile=4),
        )
    ),
    AdamW: lambda: (
        (
            AdamW(lr=1e-2, epochs=4, weight_decay=1e-2, dtype=torch.float64),
            AdamW(lr=1e-2, epochs=2, batch_size=4, schedule=Linear()),
            AdamW(lr=1e-2, epochs=2, batch_size=5, order_seed=None, init=LeCunNormal(seed=None), tile=4),
        )
    ),
    DPSGD: lambda: (
        (
            DPSGD(lr=0.5, clip=0.1, noise_multiplier=0.5, steps=4, momentum=0.5),
            DPSGD(lr=0.5, noise_multiplier=1.0, steps=5, sample_rate=0.15, dtype=torch.float64),
            DPSGD(lr=0.5, noise_multiplier=0.3, steps=3, sample_rate=0.5, init=LeCunNormal(seed=None), tile=4),
            DPSGD(lr=0.5, noise_multiplier=0.7, steps=6, batches=BallsInBins(epochs=2)),
            DPSGD(lr=0.5, noise_multiplier=0.7, steps=6, batches=Shuffled(epochs=3)),
        )
    ),
    Optimum: lambda: (Optimum(), Optimum(ridge=1e-2, mean=True, penalise_bias=True)),
}
