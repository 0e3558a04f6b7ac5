"""What SACRO-ML's LiRA scores, given reference models; run by membership.py in SACRO-ML's own environment.

python sacroml_lira.py SIGNALS.npz SCORES.npz
"""

import logging
import sys
import tempfile

import numpy as np
from sacroml.attacks import utils
from sacroml.attacks.likelihood_attack import LIRAAttack

MODES = ("offline", "offline-carlini", "online-carlini")


def scores(attack, odds, member, probabilities, labels):
    """(n,) its own scores, from its own logits of the label's probability in models without and with each record."""
    inside, outside = {}, {}
    for i in range(len(labels)):
        inside[i], outside[i] = odds[member[:, i], i].tolist(), odds[~member[:, i], i].tolist()
    found, _ = attack._compute_scores(labels, probabilities, outside, inside)
    return np.array(found)[:, 1]  # what it calls member_prob


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    given = np.load(sys.argv[1])
    labels, member = given["labels"], given["member"]
    odds = np.vectorize(utils.logit)(given["reference"][:, np.arange(len(labels)), labels])  # (s, n)
    answers = {}
    for mode in MODES:
        for fixed in (False, True):
            folder = tempfile.mkdtemp()
            attack = LIRAAttack(output_dir=folder, write_report=False, mode=mode, fix_variance=fixed)
            every = [scores(attack, odds, member, victim, labels) for victim in given["victims"]]
            answers[f"{mode}, {'global' if fixed else 'own'} variance"] = np.stack(every)
    np.savez(sys.argv[2], **answers)
