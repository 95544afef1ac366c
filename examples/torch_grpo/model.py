"""A decoder-only transformer of some 60,000 parameters: small enough to learn within minutes on a CPU."""

import math

import torch
from torch import nn
from vocabulary import SAID, WORDS

CONTEXT = 128  # tokens of a prompt and its answer together


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each normalised before and added to what came in."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention_in, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.attention_in(self.attention_norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        x = x + self.attention_out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """Maps token ids [batch, length] to logits of the next token [batch, length, len(SAID)].

    Nothing looks ahead, so padding on the right changes nothing. The same seed gives the same initial weights, whose policy is
    close to uniform.
    """

    def __init__(self, seed, width=64, layers=1, heads=8):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.tokens, self.positions = nn.Embedding(len(WORDS), width), nn.Embedding(CONTEXT, width)
            self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(SAID))
            with torch.no_grad():
                self.head.weight.mul_(0.1)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
