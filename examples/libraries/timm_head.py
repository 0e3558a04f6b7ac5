"""timm: a new head on a frozen vision transformer, which computes features once. Which pictures come back from it?"""

import timm
import torch

import lostwax as lw

torch.manual_seed(0)
settings = {"img_size": 8, "patch_size": 4, "in_chans": 1, "depth": 1, "embed_dim": 48, "num_heads": 2}
backbone = timm.create_model("vit_tiny_patch16_224", num_classes=0, **settings)  # yours has pretrained=True
known, prior, secrets = lw.records.digits().through(backbone).split(40, 200, 30, seed=0)
trainer, head = lw.GD(lr=0.1, steps=20), torch.nn.Linear(48, 10)
game = {"threat": lw.Informed(known), "prior": prior, "secrets": secrets, "attack": lw.KernelRidge()}
print(lw.audit(head, trainer=trainer, **game))
