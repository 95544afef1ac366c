"""A trainer of your own in PyTorch: takes the batches of a feed, trains on each, and publishes weights.

    python3 examples/trainer.py RUN DIR

DIR is where the plane runs. The trainer may be killed at any moment: it goes on from its checkpoint. Put your model and your loss in the
place of the two here: a model that predicts a token from the last one alone, and the clipped policy gradient.
"""

import os
import sys

import torch

import rondo

run, plane, path = sys.argv[1], sys.argv[2], "checkpoint.pt"
model = torch.nn.Sequential(torch.nn.Embedding(512, 16), torch.nn.Linear(16, 512))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)


def train(batch):
    """One step. Token t is predicted from the one before it: predictions [B, S - 1] belong to the tokens from the second one on."""
    tokens, mask, advantages = batch.input_ids % 512, batch.loss_mask[:, 1:], batch.advantages[:, 1:]
    logprobs = model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
    ratio = (logprobs - batch.sampler_logprobs[:, 1:]).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    loss = -(gain * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


step = 0
if os.path.exists(path):
    step, weights, moments = torch.load(path)
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
with rondo.Feed(run, "trainer", dir=plane, after=step) as feed:
    if step:  # it may have been killed before it published
        feed.publish_weights(model.state_dict(), version=step, through_step=step)
    for batch in feed:
        feed.consumed(batch)
        train(batch.to_torch())
        torch.save((batch.step, model.state_dict(), optimizer.state_dict()), path + ".part")
        os.replace(path + ".part", path)
        feed.publish_weights(model.state_dict(), version=batch.step, through_step=batch.step)
        feed.checkpointed(batch)
        print(f"step {batch.step}: {len(batch)} samples, reward {batch.rewards.mean():.3f}", flush=True)
