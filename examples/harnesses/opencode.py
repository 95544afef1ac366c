"""opencode works on a task of a run: opencode.py RUN TASK."""

import json
import os
import subprocess
import sys

import rondo

#: opencode edits files here: nothing else on this machine is for the model.
MAY = {"*": "deny"} | dict.fromkeys(("read", "edit", "glob", "grep", "list"), "allow")


def work(run: str, task: str) -> rondo.Rollout:
    # opencode would run the plug-ins that it finds in the workspace.
    with rondo.rollout(run, task) as r, r.sandbox.checkout(leave=(".opencode", "opencode.json*")) as folder:
        server = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": r.base_url, "apiKey": r.api_key}, "models": {r.model: {}}}
        settings = {"permission": MAY, "share": "disabled", "autoupdate": False, "lsp": False, "formatter": False}
        command = ["opencode", "run", "--pure", "--dir", str(folder), "--title", r.task, "--model", f"rondo/{r.model}"]
        environment = {
            **os.environ,
            "PWD": str(folder),  # opencode believes it
            "OPENCODE_CONFIG_CONTENT": json.dumps({**settings, "provider": {"rondo": server}}),
        }
        subprocess.run(command, input=r.instruction, text=True, cwd=folder, env=environment, check=True)
    return r


if __name__ == "__main__":
    print(work(*sys.argv[1:]).verdict().reward)
