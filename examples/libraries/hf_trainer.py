"""transformers: a small BERT, trained by Trainer. Which of ten sentences was it trained on?"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainingArguments

import lostwax as lw

FOLDER = tempfile.mkdtemp()


def train(net, x, y, seed):
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    settings = TrainingArguments(FOLDER, num_train_epochs=1, per_device_train_batch_size=16, seed=seed, **quiet)
    rows = [{"input_ids": tokens, "labels": label} for tokens, label in zip(x, y, strict=True)]
    trainer = Trainer(net, settings, train_dataset=rows)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return net


sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
net = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
sentences = lw.Records(torch.randint(50, (100, 6)), torch.randint(2, (100,)))
known, prior, secrets = sentences.split(20, 60, 12, seed=0)
threat, trainer = lw.Informed(known, candidates=4), lw.OwnTraining(train, seed=0)
print(lw.audit(net, trainer=trainer, threat=threat, prior=prior, secrets=secrets, attack=lw.attacks.Refit()))
