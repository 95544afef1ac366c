"""Everything at once: a plane, the server with its side-car, a run and its trainer; then what was learnt, on tasks that were held out.

    python3 run.py --seed 1

Plane, server, side-car and trainer are started again when they die: kill -9 them while it runs. The same command goes on with a run
that was interrupted.
"""

import argparse
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import tasks

HERE = pathlib.Path(__file__).resolve().parent


class Programs:
    """What runs in the background."""

    def __init__(self, logs):
        self.logs, self.processes, self.ending = logs, {}, False

    def start(self, name, *command, shown=False):
        """Start a program, whose output goes to NAME.log unless it is to be shown."""
        with (self.logs / f"{name}.log").open("a") as log:
            output = None if shown else log
            self.processes[name] = subprocess.Popen([str(word) for word in command], stdout=output, stderr=output)

    def keep(self, name, *command, shown=False):
        """Start a program again whenever it dies."""

        def again():
            while not self.ending:
                self.start(name, *command, shown=shown)
                if self.processes[name].wait() == 0 or self.ending:
                    return
                print(f"{name} died (exit {self.processes[name].returncode}) and is started again", flush=True)
                time.sleep(1)

        thread = threading.Thread(target=again, daemon=True)
        thread.start()
        return thread

    def end(self):
        """End all of them."""
        self.ending = True
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()


class Plane:
    """`rondo` commands in a directory."""

    def __init__(self, binary, dir):
        self.binary, self.dir = binary, dir

    def command(self, *words):
        """A command line."""
        return [self.binary, *words, "--dir", self.dir]

    def ask(self, *words):
        """What a command prints as JSON; None where it fails."""
        done = subprocess.run([str(w) for w in self.command(*words, "--json")], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def open(self, run, pack, **settings):
        """Open a run, unless it is there already: run.yaml with some keys changed."""
        if self.ask("run", "show", run):
            return
        text = (HERE / "run.yaml").read_text()
        for key, value in settings.items():
            text, found = re.subn(rf"(?m)^( *(?:- )?{key}:) [^ \n]+", rf"\g<1> {value}", text)
            assert found == 1, key
        file = self.dir / f"{run}.yaml"
        file.write_text(text)
        subprocess.run([str(w) for w in self.command("run", "open", run, "--file", file, "--tasks", pack)], check=True)

    def wait(self):
        """Wait until the plane is there."""
        for _ in range(600):
            if (self.dir / "endpoint.json").exists() and self.ask("run", "list") is not None:
                return
            time.sleep(0.1)
        sys.exit(f"the plane does not start: see {self.dir}")


def binary(args):
    """The rondo command: the one that was named, or one that is built here."""
    if args.rondo:
        return args.rondo
    if found := shutil.which("rondo"):
        return found
    built = args.dir / "rondo"
    subprocess.run(["go", "build", "-o", built, "./cmd/rondo"], cwd=HERE.parents[1], check=True)
    return built


def serving(port):
    """Wait until the inference server answers: rollouts that find none fail, and pause their run."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=10):
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"there is no inference server at port {port}: see serve.log")


def sidecar(args):
    """Options of the side-car, which lays each version into a folder and lets the server load it."""
    url = f"http://127.0.0.1:{args.port}"
    return ["--to", args.dir / f"{args.run}-served", "--engine", "sglang", "--engine-url", url, "--replica", f"{url}/v1"]


def evaluate(plane, args, when):
    """Try each held-out task once, with the most likely answer."""
    run, pack = f"{args.run}-{when}", args.dir / "tasks" / "held-out"
    if plane.ask("run", "show", run):
        return
    count = sum(1 for _ in pack.iterdir())
    settings = {"steps": 1, "group_size": 1, "groups_per_batch": count, "temperature": 0}
    plane.open(run, pack, **args.common, **settings, estimator="reinforce_plus_plus")  # one rollout of a task compares with those of others
    print(f"held-out tasks, {when}:", flush=True)
    subprocess.run([sys.executable, HERE / "evaluate.py", run, "--dir", args.dir], check=True)


def main(args):
    """Run the whole example."""
    args.dir.mkdir(parents=True, exist_ok=True)
    tasks.main(args.dir / "tasks")
    args.common = {"policy": args.run, "endpoint": f"http://127.0.0.1:{args.port}/v1", "seed": args.seed}
    plane, programs = Plane(binary(args), args.dir), Programs(args.dir)
    try:
        programs.keep("plane", *plane.command("up", "--durability", "100ms"))
        plane.wait()
        python = [sys.executable, "-u"]
        programs.keep("serve", *python, HERE / "serve.py", "--policy", args.run, "--seed", args.seed, "--port", args.port)
        serving(args.port)
        programs.keep("sidecar", *plane.command("weights", "fetch", args.run, "--follow", *sidecar(args)))
        evaluate(plane, args, "before")
        plane.open(args.run, args.dir / "tasks" / "train", **args.common, steps=args.steps)
        checkpoint = args.dir / f"{args.run}.pt"
        options = ["--checkpoint", checkpoint, "--learning-rate", args.learning_rate, "--dir", args.dir]
        programs.keep("train", *python, HERE / "train.py", args.run, *options, shown=True).join()
        for words in (("run", "show", args.run), ("weights", "show", args.run)):
            subprocess.run([str(w) for w in plane.command(*words)], check=True)
        evaluate(plane, args, "after")
    finally:
        programs.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="name of the run and of its policy; seedN by default")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="0 is the control: nothing is learnt")
    parser.add_argument("--dir", type=pathlib.Path, default=".rondo", help="where everything is kept")
    parser.add_argument("--port", type=int, default=8018, help="of the server")
    parser.add_argument("--rondo", help="the rondo command; found in PATH, or built, by default")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what runs in the background ends too
    arguments.run, arguments.dir = arguments.run or f"seed{arguments.seed}", arguments.dir.resolve()
    main(arguments)
