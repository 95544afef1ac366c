"""The reference's model as a Hugging Face one, and a tokenizer for it."""

from __future__ import annotations

from typing import Any

import reference
import torch
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput


class BigramConfig(PretrainedConfig):
    """Of one table."""

    model_type = "bigram"
    vocab_size = reference.VOCABULARY


class Backbone(PreTrainedModel):
    """Its hidden state is the row of the table itself."""

    config_class = BigramConfig

    def __init__(self, config: BigramConfig) -> None:
        super().__init__(config)
        self.rows = torch.nn.Embedding(config.vocab_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None, **_: Any) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=self.rows(input_ids))


class Bigram(PreTrainedModel, GenerationMixin):
    """Logits of the next token by the one before: the table, and a head that changes nothing."""

    config_class = BigramConfig
    base_model_prefix = "model"

    def __init__(self, config: BigramConfig) -> None:
        super().__init__(config)
        self.model = Backbone(config)
        self.lm_head = torch.nn.Linear(config.vocab_size, config.vocab_size, bias=False)
        self.post_init()

    @classmethod
    def make(cls) -> Bigram:
        made = cls(BigramConfig())
        made.table.data = torch.from_numpy(reference.table()).float()
        made.lm_head.weight.data = torch.eye(reference.VOCABULARY)
        made.lm_head.weight.requires_grad_(False)
        return made

    @property
    def table(self) -> torch.nn.Parameter:
        return self.model.rows.weight

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.lm_head

    def forward(self, input_ids: torch.Tensor, attention_mask: Any = None, logits_to_keep: int = 0, **_: Any) -> CausalLMOutput:
        hidden = self.model(input_ids, attention_mask).last_hidden_state
        return CausalLMOutput(logits=self.lm_head(hidden[:, -logits_to_keep:]))


def tokenizer() -> PreTrainedTokenizerFast:
    """One word for each id: nothing is tokenised by it."""
    from tokenizers import Tokenizer, models

    words = {f"w{i}": i for i in range(reference.VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "w0")), pad_token="w0", eos_token="w1", unk_token="w0"
    )
