"""What Feldman and Shenfeld's PLD_accounting says about balls-in-bins; run by sampling.py in its own environment."""

import json
import sys
import time

import numpy as np
from PLD_accounting import AllocationSchemeConfig, BoundType, ConvolutionMethod, PrivacyParams, gaussian_allocation_pld

question = json.loads(sys.argv[1])
levels = np.linspace(-5, 30, 20_001)
params = PrivacyParams(sigma=question["noise"], num_steps=question["steps"], num_epochs=question["epochs"])
found = {}
for name, bound_type in (("low", BoundType.IS_DOMINATED), ("high", BoundType.DOMINATES)):
    start = time.process_time()
    config = AllocationSchemeConfig(
        loss_discretization=question["grid"], tail_truncation=1e-10, convolution_method=ConvolutionMethod.GEOM
    )
    law = gaussian_allocation_pld(params=params, config=config, bound_type=bound_type)
    deltas = law._pmf_remove.get_delta_for_epsilon(levels)
    found[name] = float(np.min(deltas + np.exp(levels) * question["baseline"]))
    found[f"seconds {name}"] = time.process_time() - start
print(json.dumps(found))
