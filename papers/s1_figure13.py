"""S1 Figure 13, MNIST: an adversary who first sees the model near convergence, not at its start.

    python papers/s1_figure13.py --device cuda [--rows cold warm] [--data FOLDER]

The warm victims start from a model that the victim's own trainer made of other records, as many as are known (S1: of
10,000, and over 92 % accurate). Those records are taken from the prior, for both rows, and there are no changed copies.
S1 in words: a model near convergence is harder to attack.
"""

from dataclasses import replace

from s1_mnist import VICTIM, Game, arguments, cohort, knowledge, rate_row, split, table, write

import lostwax as lw

COLD = Game(copies=1)


def main() -> None:
    options = arguments(__doc__, ["cold", "warm"])
    data = split(options)
    others, prior = data.prior[: options.known], data.prior[options.known :]
    data = data._replace(prior=prior)
    net, before = knowledge(COLD, data).net, data._replace(known=others[:-1], secrets=others[-1:])
    start = VICTIM(net, cohort(before), seed=options.seed)  # one model
    answers = lw.access.Logits(data.secrets.x)(net, start).view(-1, 10).argmax(1)  # (targets,)
    right = (answers == data.secrets.y).cpu().numpy()
    write(__file__, [rate_row("accuracy", f"accuracy of the warm start, of {len(others):,} records", right)], options)
    warm = replace(COLD, trainer=replace(VICTIM, init=lw.inits.Given(start[0])))
    table(__file__, {"cold": COLD, "warm": warm}, data, options)


if __name__ == "__main__":
    main()
