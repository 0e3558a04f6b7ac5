"""What riskcal says about Poisson-sampled DP-SGD; run by goals.py in riskcal's own environment."""

import json
import sys
import warnings

from dp_accounting.pld import privacy_loss_distribution
from riskcal.analysis import get_bayes_risk_from_pld, get_beta_from_pld

warnings.simplefilter("ignore")
question = json.loads(sys.argv[1])
step = privacy_loss_distribution.from_gaussian_mechanism(question["noise"], sampling_prob=question["rate"])
loss = step.self_compose(question["steps"])
found = {
    "success": [1 - float(get_beta_from_pld(loss, alpha=kappa)) for kappa in question["baselines"]],
    "attribute": [1 - float(get_bayes_risk_from_pld(loss, p)) for p in question["priors"]],
}
print(json.dumps(found))
