package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/toolset"
	"github.com/rondo-rl/rondo/tests/nightly"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestCacheChangesNothing: some rollouts of each task, with and without answers of tools that are
// used again, say and earn the same.
func TestCacheChangesNothing(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	k, pack := nightly.Count(4, 8), smallPack(t)
	for _, task := range []string{"add", "max"} { // mark what the policy runs
		file := filepath.Join(pack, task, "task.toml")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, strings.Replace(string(text), "[verifier]",
			"deterministic = [\"timeout 2 sh check.sh\"]\n[verifier]", 1))
	}
	evaluate := func(cache string) (rewards []float64, answers map[string][]string, statuses map[string]int) {
		file, dir := filepath.Join(t.TempDir(), "run.yaml"), t.TempDir()
		writeFile(t, file, "policy: small\nendpoint: builtin\nseed: 3\nlimits: {turns: 4}\ntools: {cache: "+cache+"}\n")
		mustRun(t, nil, "eval", "--policy", "small@0", "--run", "r", "--file", file, "--tasks", pack,
			"--k", fmt.Sprint(k), "--dir", dir, "--json")
		answers, statuses = map[string][]string{}, map[string]int{}
		for _, g := range completed(t, dir, "r") {
			for _, m := range g.Members {
				if m.Failed {
					t.Errorf("%s failed", m.Rollout)
				}
				rewards = append(rewards, m.Reward)
			}
		}
		for line := range strings.Lines(said(t, "events", "tail", "r", "--type", string(events.ToolsCompletedType),
			"--json", "--dir", dir)) {
			var e struct {
				Entity string
				Data   events.ToolsCompleted
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil || e.Entity == "" {
				t.Fatalf("%v: %s", err, line)
			}
			for _, r := range e.Data.Results {
				answers[e.Entity] = append(answers[e.Entity], r.Name+"\n"+r.Content)
				statuses[r.Cache]++
				if r.Cache == toolset.CacheHit {
					statuses["hit of "+r.Name]++
				}
				if r.Cache == toolset.CacheHit && r.OriginalMS <= 0 {
					t.Errorf("a hit without the time that it took once: %+v", r)
				}
			}
		}
		return rewards, answers, statuses
	}
	rewards, answers, statuses := evaluate("true")
	plainRewards, plainAnswers, plainStatuses := evaluate("false")
	t.Logf("%d rollouts: with the cache %v, without %v", len(answers), statuses, plainStatuses)
	if statuses[toolset.CacheHit] == 0 || statuses["hit of run_terminal_cmd"] == 0 ||
		statuses[toolset.CacheMiss] == 0 || statuses[""] != 0 || len(plainStatuses) != 1 || plainStatuses[""] == 0 {
		t.Errorf("calls are %v, without the cache %v", statuses, plainStatuses)
	}
	if len(rewards) != 2*k || !reflect.DeepEqual(rewards, plainRewards) {
		t.Errorf("rewards %v, without the cache %v", rewards, plainRewards)
	}
	if !reflect.DeepEqual(answers, plainAnswers) {
		t.Errorf("tools answer %v, without the cache %v", answers, plainAnswers)
	}
}
