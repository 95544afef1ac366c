package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// writeFile writes a file of a fixture with its parents.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// smallPack is two tasks whose tests take no time.
func smallPack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, bug := range map[string]string{"add": "$(($1 - $2))", "max": "$([ $1 -lt $2 ] && echo $1 || echo $2)"} {
		task := filepath.Join(dir, name)
		want := map[string]string{"add": "7", "max": "4"}[name]
		writeFile(t, filepath.Join(task, "task.toml"),
			"schema_version = \"1.4\"\n[metadata.rondo]\nsnapshot = \"environment/repo\"\n[verifier]\ntimeout_sec = 20\n")
		writeFile(t, filepath.Join(task, "instruction.md"),
			fmt.Sprintf("`sh %s.sh 3 4` prints the wrong result. Run `sh check.sh` to see.\n", name))
		writeFile(t, filepath.Join(task, "environment/repo", name+".sh"), "echo "+bug+"\n")
		writeFile(t, filepath.Join(task, "environment/repo/check.sh"),
			fmt.Sprintf("[ \"$(sh %s.sh 3 4)\" = %s ] && echo PASS || { echo FAIL; exit 1; }\n", name, want))
		writeFile(t, filepath.Join(task, "tests/test.sh"),
			fmt.Sprintf("r=0; [ \"$(sh %s.sh 3 4)\" = %s ] && r=1\necho \"{\\\"reward\\\": $r}\" > /logs/verifier/reward.json\n", name, want))
	}
	return dir
}

// smallRun is a run of a few short rollouts.
func smallRun(t *testing.T, steps int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.yaml")
	writeFile(t, path, fmt.Sprintf(`policy: small
endpoint: builtin
seed: 3
steps: %d
group_size: 3
min_verifier: in-process-without-canaries
feeds:
  - name: trainer
    groups_per_batch: 2
staleness: {max: 1}
in_flight: 0
limits:
  turns: 6
  tokens: 100000
  timeout: 90s
  tries: 10
`, steps))
	return path
}

// audit is what the tests read of `rondo audit --json`.
type audit struct {
	Started    int `json:"started"`
	Trained    int `json:"trained"`
	Stale      int `json:"stale"`
	Filtered   int `json:"filtered"`
	Failed     int `json:"failed"`
	InFlight   int `json:"in_flight"`
	Duplicates int `json:"duplicates"`
	Findings   []struct {
		Rule, Event, Message string
	} `json:"findings"`
}

func checkAudit(t *testing.T, a audit) {
	t.Helper()
	if len(a.Findings) > 0 || a.Duplicates > 0 ||
		a.Started != a.Trained+a.Stale+a.Filtered+a.Failed+a.InFlight || a.Started == 0 {
		t.Errorf("the audit found faults: %+v", a)
	}
}

// runState is what the tests read of `rondo run show --json`.
type runState struct {
	State         string    `json:"state"`
	PolicyVersion int64     `json:"policy_version"`
	Events        int64     `json:"events"`
	Rewards       []float64 `json:"rewards"`
}
