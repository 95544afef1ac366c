"""Trains a language model on a feed with GRPO, and publishes its weights after every step.

    python3 train.py RUN --model FOLDER --dir /srv/rondo

It may be killed at any moment: started again it goes on from its checkpoint. Nothing here is about the tasks or the engine.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import rondo


def logprobs(model, rows, temperature):
    """Log-probabilities of the sampled tokens of some rows, one after the other, under the distribution that they were sampled from."""
    ids, sampled = rows.input_ids, rows.loss_mask
    # The common beginning of all prompts is computed once: here most of the tokens.
    shared = int((ids == ids[0]).all(0).logical_and(~sampled.any(0)).cumprod(0).sum()) - 1
    with torch.autocast(ids.device.type, torch.bfloat16):  # as the engine computes
        shared, begun = max(shared, 0), None
        if shared:
            begun = model.model(input_ids=ids[:1, :shared], use_cache=True).past_key_values
            begun.batch_repeat_interleave(len(ids))
        hidden = model.model(input_ids=ids[:, shared:], attention_mask=rows.attention_mask, past_key_values=begun).last_hidden_state
        logits = model.lm_head(hidden[:, :-1][sampled[:, shared + 1 :]])  # of prompts nothing is asked, and the vocabulary is large
    return (logits.float() / temperature).log_softmax(-1).gather(-1, ids[sampled].unsqueeze(-1)).squeeze(-1)


def grpo_loss(found, sampler, advantages, low, high):
    """The clipped surrogate of PPO, summed over tokens. A high above low (DAPO's clip-higher) lets rare tokens rise."""
    ratio = (found - sampler).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages).sum()


class Trainer:
    """The model, its optimiser, and the step that they were trained through."""

    def __init__(self, args):
        from transformers import AutoModelForCausalLM  # here, so that the loss can be tested without it

        self.args, self.step = args, 0
        self.model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).to(args.device)
        self.model.get_input_embeddings().requires_grad_(False)  # a quarter of a small model, and hardly any of it is in the batches
        self.learned = [p for p in self.model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.AdamW(self.learned, lr=args.learning_rate, betas=(0.9, 0.95), weight_decay=0.0)

    def load(self, path):
        """Go on from a checkpoint, if there is one."""
        if path.exists():
            saved = torch.load(path, map_location=self.args.device)
            self.step = saved["step"]
            self.model.load_state_dict(saved["model"])
            self.optimiser.load_state_dict(saved["optimiser"])

    def save(self, path):
        """Replace the checkpoint: after a crash there is the old one or the new one, with step and moments that belong to its weights."""
        new = path.with_suffix(".new")
        with new.open("wb") as file:
            torch.save({"step": self.step, "model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}, file)
            os.fsync(file.fileno())
        new.rename(path)

    def train(self, batch, temperature):
        """One step: passes over the batch in mini-batches, one update each. Gives the gap to the sampler before the first update."""
        # Where all rewards of a group are equal, nothing is learnt.
        told = batch.select(np.flatnonzero(np.add.reduceat(np.abs(batch.advantages.values), batch.offsets[:-1])))
        order, gaps = torch.Generator().manual_seed(batch.step), []
        for epoch in range(self.args.epochs if len(told) else 0):
            for number, rows in enumerate(torch.randperm(len(told), generator=order).chunk(self.args.minibatches)):
                tokens = sum(int(told.loss_mask.values[told.offsets[r] : told.offsets[r + 1]].sum()) for r in rows)
                for some in rows.split(self.args.rows):
                    part = told.select(some.numpy())
                    tensors = part.to_torch(device=self.args.device)
                    found, mask = logprobs(self.model, tensors, temperature), tensors.loss_mask
                    if epoch == number == 0:
                        gaps.append(self.gap(part, tensors, found))
                    (
                        grpo_loss(found, tensors.sampler_logprobs[mask], tensors.advantages[mask], self.args.clip_low, self.args.clip_high)
                        / tokens
                    ).backward()
                torch.nn.utils.clip_grad_norm_(self.learned, 1.0)
                self.optimiser.step()
                self.optimiser.zero_grad()
        self.step = batch.step
        return rondo.LogprobGap.merge(gaps)

    def gap(self, part, tensors, found):
        """How far the model is from the sampler on what these very weights have sampled."""
        whole = torch.zeros_like(tensors.sampler_logprobs)
        whole[tensors.loss_mask] = found.detach()
        return part.logprob_gap(whole, version=self.step)

    def written(self, folder):
        """A folder with the weights of this step as the engine takes them."""
        at = folder / f"v{self.step:06}"
        if not (at / "model.safetensors").exists():
            at.mkdir(parents=True, exist_ok=True)
            tied = self.model.config.tie_word_embeddings  # then the head is the input layer, and stands in no file
            tensors = {
                name: t.to(torch.bfloat16).contiguous()
                for name, t in self.model.state_dict().items()
                if not (tied and name == "lm_head.weight")
            }
            save_file(tensors, at / "part", metadata={"format": "pt"})
            (at / "part").rename(at / "model.safetensors")
        return at

    def publish(self, feed):
        """Publish the weights, as what has changed since the version before."""
        folder = self.args.checkpoint.with_suffix(".published")
        before = folder / f"v{self.step - 1:06}"
        feed.publish_weights(self.written(folder), version=self.step, through_step=self.step, base=before if before.exists() else None)
        for old in folder.glob("v*"):
            if old.name < before.name:
                shutil.rmtree(old)


def main(args):
    """Train until the run is closed."""
    trainer = Trainer(args)
    trainer.load(args.checkpoint)
    client = rondo.Client(args.dir, source="llm-trainer", wait=None, timeout=None)
    with client, rondo.Feed(args.run, args.feed, client=client, after=trainer.step) as feed:
        temperature = feed.config["sampling"]["temperature"]
        if trainer.step:  # it may have been killed before it published
            print(f"going on from step {trainer.step}", flush=True)
            trainer.publish(feed)
        for batch in feed:
            feed.consumed(batch)
            feed.consumed(batch, logprob_gap=trainer.train(batch, temperature))  # once more, with what was measured
            trainer.save(args.checkpoint)
            trainer.publish(feed)
            feed.checkpointed(batch)
            print(f"step {batch.step}: {len(batch)} samples, reward {batch.ready['reward_mean']:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--model", required=True, help="folder of the initial model, in Hugging Face's layout")
    parser.add_argument("--feed", default="trainer")
    parser.add_argument("--dir", default=".rondo", help="where `rondo up` runs")
    parser.add_argument("--checkpoint", type=Path, help="file to go on from; RUN-FEED.pt by default")
    parser.add_argument("--learning-rate", type=float, default=3e-5)
    parser.add_argument("--clip-low", type=float, default=0.2, help="how far the ratio of probabilities may fall below 1")
    parser.add_argument("--clip-high", type=float, default=0.3, help="how far it may rise above")
    parser.add_argument("--epochs", type=int, default=1, help="passes over each batch")
    parser.add_argument("--minibatches", type=int, default=2, help="updates in a pass")
    parser.add_argument("--rows", type=int, default=32, help="samples that are computed at once")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    arguments.checkpoint = arguments.checkpoint or Path(f"{arguments.run}-{arguments.feed}.pt")
    main(arguments)
