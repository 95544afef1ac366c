"""Makes a folder in Hugging Face's layout of a GGUF file, with weights in bfloat16: python3 model.py FILE.gguf FOLDER.

It needs the packages gguf and accelerate beside transformers. Quantised weights are taken as they are: training goes on from them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(file: Path, folder: Path) -> None:
    """Convert a model and its tokenizer."""
    read = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    config = read.config
    del config.quantization_config  # nothing is quantised any more
    config.dtype = torch.bfloat16
    model = type(read)(config)
    model.load_state_dict(read.state_dict())
    model.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
