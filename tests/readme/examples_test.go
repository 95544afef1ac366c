package readme

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestTrainerOfYourOwn goes from `rondo init` to trained steps: it proves the tasks, attaches an
// inference server, and trains with the trainer that init has written. That is killed half way, and
// the second one goes on from the checkpoint. Another run counts the reward of reward.py.
func TestTrainerOfYourOwn(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	py := python(t, "rondo", "torch")
	dir := t.TempDir()
	for _, args := range [][]string{{"init"}, {"tasks", "init", "another"}, {"tasks", "lint", "tasks"}} {
		if out, err := command(dir, rondo, args...); err != nil || strings.Contains(out, "warning") {
			t.Fatalf("rondo %v: %v\n%s", args, err, out)
		}
	}
	plane := filepath.Join(dir, ".rondo")
	up := background(t, dir, rondo, "up")
	var at struct{ NATS, Store string }
	program.Eventually(t, func() error {
		text, err := os.ReadFile(filepath.Join(plane, "endpoint.json"))
		if err == nil {
			err = json.Unmarshal(text, &at)
		}
		return err
	})
	address := fmt.Sprintf("127.0.0.1:%d", natstest.FreePorts(t, 1)[0])
	server := background(t, dir, rondo, "service", "policy", "--nats", at.NATS, "--store", at.Store,
		"--policy-listen", address)
	text := strings.NewReplacer("127.0.0.1:8000", address, "steps: 20", "steps: 3", "groups_per_batch: 4",
		"groups_per_batch: 1", "group_size: 8", "group_size: 3").
		Replace(read(t, filepath.Join(dir, "run.yaml")))
	for name, content := range map[string]string{"run.yaml": text,
		"second.yaml": strings.ReplaceAll(text, "\n# scorer:\n#  ", "\nscorer:\n ")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	program.Eventually(t, func() error {
		_, err := command(dir, rondo, "run", "open", "mine", "--file", "run.yaml")
		return err
	})
	rewarded(t, dir, py, "second.yaml")
	trainer := func(t *testing.T) *program.Process {
		return background(t, dir, py, "trainer.py", "mine", ".rondo")
	}
	var shown struct {
		State         string
		PolicyVersion int64 `json:"policy_version"`
		Rewards       []float64
	}
	t.Run("first", func(t *testing.T) {
		said := trainer(t)
		program.Eventually(t, func() error {
			if !strings.Contains(said.String(), "step 1:") {
				return fmt.Errorf("trainer:\n%s\nplane:\n%s\nserver:\n%s", said, up, server)
			}
			return nil
		})
	})
	said := trainer(t)
	program.Eventually(t, func() error {
		err := ask(dir, &shown, "run", "show", "mine")
		if err == nil && (shown.State != "closed" || shown.PolicyVersion != 3 || len(shown.Rewards) != 3) {
			err = fmt.Errorf("%+v\ntrainer:\n%s\nplane:\n%s", shown, said, up)
		}
		return err
	})
	for _, check := range [][]string{{"audit", "mine"}, {"replay", "mine", "--verify"}} {
		if _, err := command(dir, rondo, check...); err != nil {
			t.Error(err)
		}
	}
	exported := filepath.Join(t.TempDir(), "trajectories")
	if _, err := command(dir, rondo, "trajectories", "export", "mine", "--out", exported); err != nil {
		t.Fatal(err)
	}
	readFiles(t, py, filepath.Join(exported, "*.arrow"), filepath.Join(plane, "objects/runs/mine/batches/*/*.arrow"))
}

// rewarded opens a run whose reward has a component of reward.py, and sees it in a verdict.
func rewarded(t *testing.T, dir, py, file string) {
	t.Helper()
	if _, err := command(dir, rondo, "run", "open", "second", "--file", file); err != nil {
		t.Fatal(err)
	}
	worker := background(t, dir, py, "reward.py", "second", ".rondo")
	program.Eventually(t, func() error {
		story, err := command(dir, rondo, "explain", "rollout", "second", "g000001-0")
		if err == nil && !strings.Contains(story, "made of brevity 0.") {
			err = fmt.Errorf("%s\nand the worker says:\n%s", story, worker)
		}
		return err
	})
}

// readFiles lets examples/read.py read Arrow files.
func readFiles(t *testing.T, py string, patterns ...string) {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) < 3 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	out, err := command(t.TempDir(), py, append([]string{filepath.Join(root, "examples/read.py")}, files...)...)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out, "\n"); n != len(files) || !strings.Contains(out, " messages, ") ||
		!strings.Contains(out, " samples, ") {
		t.Errorf("%d lines about %d files:\n%s", n, len(files), out)
	}
}
