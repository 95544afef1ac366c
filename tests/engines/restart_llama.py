"""Starts a llama-server again with the weights of a version: restart_llama.py SOURCES SERVER FOLDER PORT CONTEXT. A side-car calls it."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from llama import command

sources, server, folder = map(Path, sys.argv[1:4])
gguf, running = folder / f"v{os.environ['RONDO_VERSION']}.gguf", folder / "running"
subprocess.run(
    [sys.executable, Path(__file__).with_name("gguf_toy.py"), sources, os.environ["RONDO_WEIGHTS"], gguf],
    check=True,
    stdout=subprocess.DEVNULL,
)
if running.exists():
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(running.read_text()), signal.SIGKILL)
for old in folder.glob("v*.gguf"):
    if old != gguf:
        old.unlink()
with (folder / "llamacpp.log").open("a") as log:
    started = subprocess.Popen(command(server, gguf, *map(int, sys.argv[4:])), stdout=log, stderr=log, start_new_session=True)
running.write_text(str(started.pid))
