"""What LeakPro's LiRA and RMIA score, given reference models; run by membership.py in an environment of LeakPro's own.

python leakpro_lira.py SIGNALS.npz SCORES.npz
"""

import sys
from contextlib import suppress

import numpy as np
from leakpro.attacks.mia_attacks.lira import AttackLiRA
from leakpro.attacks.mia_attacks.rmia import AttackRMIA, softmax_logits

TINY = 1e-12


class LiRA(AttackLiRA):
    """With signals that are given."""

    audit_dataset = handler = None  # properties without a setter


class RMIA(AttackRMIA):
    """With signals that are given."""

    audit_dataset = handler = None


def lira(online, logits, member, victim, labels):
    """(n,) by its run_attack, with the signals that prepare_attack would have computed."""
    attack = object.__new__(LiRA)
    attack.configs = AttackLiRA.AttackConfig(num_shadow_models=len(member), online=online)
    for name, value in attack.configs.model_dump().items():
        setattr(attack, name, value)
    attack.fix_var_threshold, attack.out_indices = 32, ~member
    attack.shadow_models_logits = np.array([attack.rescale_logits(one, labels) for one in logits])
    attack.target_logits = attack.rescale_logits(victim, labels)
    return ran(attack, len(labels))


def rmia(online, logits, member, victim, labels):
    """(n,) by its run_attack; its population are the records themselves."""
    attack, rows = object.__new__(RMIA), np.arange(len(labels))
    attack.configs = AttackRMIA.AttackConfig(num_shadow_models=len(member), online=online)
    for name, value in attack.configs.model_dump().items():
        setattr(attack, name, value)
    attack.out_indices, attack.ground_truth_indices = ~member, labels
    attack.logits_theta, attack.logits_shadow_models = victim, list(logits)
    attack.epsilon = getattr(attack, "epsilon", 1e-6)
    every = np.array([softmax_logits(one, attack.temperature)[rows, labels] for one in logits])
    p_z = every.mean(0, keepdims=True)
    if not online:
        p_z = 0.5 * ((attack.offline_a + 1) * p_z + (1 - attack.offline_a))
    attack.ratio_z = softmax_logits(victim, attack.temperature)[rows, labels] / (p_z + attack.epsilon)
    return ran(attack, len(labels))


def ran(attack, records):
    attack.audit_dataset = {"in_members": np.arange(records), "out_members": np.arange(0)}
    with suppress(ValueError, IndexError, TypeError):  # its report wants both kinds; the scores are there
        attack.run_attack()
    return attack.in_member_signals[:, 0]


if __name__ == "__main__":
    given = np.load(sys.argv[1])
    labels, member = given["labels"], given["member"]
    logits, victims = (np.log(given[name] + TINY) for name in ("reference", "victims"))
    answers = {}
    for online in (False, True):
        for name, attack in (("LiRA", lira), ("RMIA", rmia)):
            every = np.stack([attack(online, logits, member, victim, labels) for victim in victims])
            answers[f"{name}, {'online' if online else 'offline'}"] = every
    np.savez(sys.argv[2], **answers)
