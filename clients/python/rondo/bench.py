"""Measures how fast batch files become numpy columns.

    python -m rondo.bench pull --store DIR --files LIST.json

LIST.json is an array of references to batch files, as facts carry them. Prints {"tokens": …, "seconds": …}.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .batch import Batch, open_batch
from .objects import Ref, Store, fetch, open_store

__all__ = ["main", "pull"]

#: What training reads of each token.
COLUMNS = ("tokens", "loss_mask", "sampler_logprobs", "advantages")


def pull(store: Store, files: Iterable[Ref], workers: int = 2) -> tuple[int, float]:
    """Read batch files as a feed does, digests verified, into the per-token columns; tokens, and seconds that it took.

    workers: files that are opened at once.
    """

    def one(ref: Ref) -> int:
        batch: Batch = open_batch(fetch(store, ref))
        return min(len(batch.column(name).values) for name in COLUMNS)

    began = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        tokens = sum(pool.map(one, files))
    return tokens, time.perf_counter() - began


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m rondo.bench", description="Measure how fast batch files become numpy columns.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("pull", help="read the listed batch files")
    command.add_argument("--store", required=True, help="directory or s3:// URL of the store")
    command.add_argument("--files", required=True, type=Path, help='JSON array of {"ref", "sha256", "size"}')
    chosen = parser.parse_args(arguments)
    refs = [Ref.parse(told) for told in json.loads(chosen.files.read_text())]
    tokens, seconds = pull(open_store(chosen.store), refs)
    json.dump({"tokens": tokens, "seconds": seconds}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
