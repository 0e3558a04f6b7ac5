"""Lightning: a module with its own training_step, trained by Trainer.fit. Which records come back from it?"""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import lostwax as lw


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = lw.nets.mlp(64, 8, 10)

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def train(net, x, y, seed):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    fit = lightning.Trainer(max_epochs=2, accelerator="cpu", enable_model_summary=False, **quiet).fit
    fit(net, DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True))
    return net


known, prior, secrets = lw.records.digits().split(40, 60, 10, seed=0)
trainer = lw.OwnTraining(train, seed=0)  # the order of batches counts as known
game = {"threat": lw.Informed(known), "prior": prior, "secrets": secrets, "attack": lw.KernelRidge()}
print(lw.audit(Classifier(), trainer=trainer, **game))
