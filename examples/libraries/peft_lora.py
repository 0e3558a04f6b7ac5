"""PEFT: only the adapters A and B of LoRA are trained and released. Which of four sentences were they trained on?"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification

import lostwax as lw


def train(net, x, y, seed):
    optimiser = torch.optim.Adam([value for value in net.parameters() if value.requires_grad], lr=0.01)
    for _ in range(5):
        optimiser.zero_grad()
        net.eval()(input_ids=x, labels=y).loss.backward()
        optimiser.step()
    return net


sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
base = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
net = get_peft_model(base, LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS"))
sentences = lw.Records(torch.randint(50, (100, 6)), torch.randint(2, (100,)))
known, prior, secrets = sentences.split(20, 60, 12, seed=0)
threat, attack = lw.Informed(known, candidates=4), lw.attacks.Refit()
print(lw.audit(net, trainer=lw.OwnTraining(train), threat=threat, prior=prior, secrets=secrets, attack=attack))
