"""Trains the transformer on a feed with GRPO, and publishes its weights after every step.

    python3 train.py RUN --dir /srv/rondo --checkpoint reverser.pt

It trains in float32 and publishes bfloat16, as large models are served. Of each version but the first it uploads how it differs from
the one before (reverser.published), and the publisher makes the files. It may be killed at any moment: started again it goes on from
its checkpoint, and publishes the same weights as without the kill. The initial weights are those of the run's seed.
"""

import argparse
import os
import pathlib
import shutil

import torch
from model import Transformer
from safetensors.torch import save_file

import rondo


def log_probabilities(model, tokens, temperature):
    """Log-probability of each token but the first under the distribution that the sampler draws from; entry i is of token i + 1."""
    logprobs = (model(tokens[:, :-1]) / temperature).log_softmax(-1)
    said = tokens[:, 1:].clamp(max=logprobs.shape[-1] - 1)  # words of prompts cannot be said; the mask leaves them out
    return logprobs.gather(-1, said.unsqueeze(-1)).squeeze(-1)


def grpo_loss(logprobs, batch, low, high):
    """The clipped surrogate of PPO with the advantages that come with the tokens, averaged over the sampled tokens.

    low, high: how far the ratio of probabilities may fall and rise. A high bound farther off (DAPO's clip-higher) lets rare tokens rise.
    """
    mask, advantages = batch.loss_mask[:, 1:], batch.advantages[:, 1:]
    ratio = (logprobs - batch.sampler_logprobs[:, 1:]).exp()
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)
    return -surrogate[mask].mean()


class Trainer:
    """The model, its optimiser, and the step that they were trained through."""

    def __init__(self, seed, args):
        self.model, self.step, self.args = Transformer(seed), 0, args
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=args.learning_rate, betas=(0.9, 0.99))

    def load(self, path):
        """Go on from a checkpoint, if there is one."""
        if path.exists():
            saved = torch.load(path)
            self.step = saved["step"]
            self.model.load_state_dict(saved["model"])
            self.optimiser.load_state_dict(saved["optimiser"])

    def save(self, path):
        """Replace the checkpoint: after a crash there is the old one or the new one."""
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            torch.save({"step": self.step, "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}, file)
            os.fsync(file.fileno())
        new.rename(path)

    def served(self):
        """The weights as they are published."""
        return {name: weights.to(torch.bfloat16) for name, weights in self.model.state_dict().items()}

    def gap(self, batch, temperature):
        """How far the published weights are from the sampler on tokens that they sampled, before they train on them; None without any."""
        model = Transformer(0)
        model.load_state_dict(self.served())
        with torch.no_grad():
            found = log_probabilities(model, batch.to_torch().input_ids, temperature)
        return batch.logprob_gap(found, version=self.step, shifted=True)

    def train(self, batch, temperature):
        """One step: some passes over the batch in mini-batches. The same batch and state give the same weights."""
        order = torch.Generator().manual_seed(batch.step)
        for _ in range(self.args.epochs):
            for rows in torch.randperm(len(batch), generator=order).chunk(self.args.minibatches):
                part = batch.select(rows.numpy()).to_torch()
                loss = grpo_loss(log_probabilities(self.model, part.input_ids, temperature), part, self.args.clip_low, self.args.clip_high)
                self.optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimiser.step()
        self.step = batch.step


class Publisher:
    """Publishes versions by what changed since the one before, whose files it keeps in a folder."""

    def __init__(self, feed, folder):
        self.feed, self.folder = feed, folder

    def publish(self, trainer):
        """Publish the step's weights. A folder that holds another version, as after a crash, has no delta: the files go up."""
        new = self.folder.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        save_file(trainer.served(), new / "model.safetensors")
        base = self.folder if self.folder.exists() else None
        self.feed.publish_weights(new, version=trainer.step, through_step=trainer.step, base=base)
        shutil.rmtree(self.folder, ignore_errors=True)
        new.rename(self.folder)


def main(args):
    """Train until the run is closed."""
    client = rondo.Client(args.dir, source="torch-trainer", wait=None, timeout=None)
    config = client.config(args.run)
    trainer = Trainer(config.get("seed", 0), args)
    trainer.load(args.checkpoint)
    temperature = config["sampling"]["temperature"]
    with client, rondo.Feed(args.run, args.feed, client=client, after=trainer.step) as feed:
        publisher = Publisher(feed, args.checkpoint.with_suffix(".published"))
        if trainer.step:  # it may have been killed before it published
            print(f"going on from step {trainer.step}", flush=True)
            publisher.publish(trainer)
        for batch in feed:
            feed.consumed(batch, logprob_gap=trainer.gap(batch, temperature))
            trainer.train(batch, temperature)
            trainer.save(args.checkpoint)
            publisher.publish(trainer)
            feed.checkpointed(batch)
            print(f"step {batch.step}: {len(batch)} samples, reward {batch.ready['reward_mean']:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--feed", default="trainer")
    parser.add_argument("--dir", default=".rondo", help="where `rondo up` runs")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="file to go on from; RUN-FEED.pt by default")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--clip-low", type=float, default=0.2, help="how far the ratio of probabilities may fall below 1")
    parser.add_argument("--clip-high", type=float, default=1.0, help="how far it may rise above")
    parser.add_argument("--epochs", type=int, default=4, help="passes over each batch")
    parser.add_argument("--minibatches", type=int, default=4, help="updates in a pass")
    torch.set_num_threads(1)  # a model of this size gains nothing from more
    arguments = parser.parse_args()
    arguments.checkpoint = arguments.checkpoint or pathlib.Path(f"{arguments.run}-{arguments.feed}.pt")
    main(arguments)
