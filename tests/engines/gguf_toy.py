"""Writes the toy model as GGUF with llama.cpp's own converter: gguf_toy.py SOURCES MODEL FILE."""

import sys
from pathlib import Path

sources, model, file = map(Path, sys.argv[1:])
sys.path[:0] = [str(sources), str(sources / "gguf-py")]

import convert_hf_to_gguf
from conversion.base import TextModel

# The converter knows tokenizers by a digest of what they make of a text. The toy's is a new one, which cuts text as GPT-2's does.
TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
sys.argv = [sys.argv[0], str(model), "--outfile", str(file), "--outtype", "f32"]
convert_hf_to_gguf.main()
