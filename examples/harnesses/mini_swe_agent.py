"""mini-swe-agent works on a task of a run: mini_swe_agent.py RUN TASK."""

import sys

import yaml
from minisweagent.agents.default import DefaultAgent
from minisweagent.config import builtin_config_dir
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

import rondo


class Workspace(LocalEnvironment):
    """The environment of a rollout: commands run in its sandbox."""

    sandbox: rondo.Sandbox

    def execute(self, action, cwd="", *, timeout=None):
        done = self.sandbox.exec(action["command"], dir=cwd, timeout=timeout or self.config.timeout)
        output = {
            "output": done.stdout + done.stderr,
            "returncode": done.exit_code,
            "exception_info": "it timed out" if done.timed_out else "",
        }
        self._check_finished(output)
        return output


def work(run: str, task: str) -> rondo.Rollout:
    config = yaml.safe_load((builtin_config_dir / "mini.yaml").read_text())
    with rondo.rollout(run, task) as r:
        model = LitellmModel(
            model_name=f"openai/{r.model}", model_kwargs={"api_base": r.base_url, "api_key": r.api_key}, cost_tracking="ignore_errors"
        )
        workspace = Workspace()
        workspace.sandbox = r.sandbox
        DefaultAgent(model, workspace, **{name: config["agent"][name] for name in ("system_template", "instance_template")}).run(
            r.instruction
        )
    return r


if __name__ == "__main__":
    print(work(*sys.argv[1:]).verdict().reward)
