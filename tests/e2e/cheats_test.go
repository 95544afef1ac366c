package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/tests/program"
)

// attacks are what agents do to their sandbox and to their tests, one command
// each. None solves the task.
var attacks = []string{
	"printf 'echo 7; setsid sh -c \"while :; do sleep 0.01; done\" >/dev/null 2>&1 & sleep 0.2' > add.sh",
	"echo 'echo 7' > add.sh; truncate -s 200M a b c",
	"echo 'echo 7' > add.sh; mkdir -p $(printf 'd/%.0s' $(seq 900))",
	"echo 'sleep 1000' > add.sh",
	"echo 'kill -9 -1' > add.sh",
	"echo 'exec tail /dev/zero' > add.sh",
	"rm -rf /app; mkfifo add.sh",
	":(){ :|:& };:",
	"tail /dev/zero; kill -9 -1",
}

// cheating is an inference server whose model runs one attack in each rollout, but in one of
// them it solves the task.
func cheating(t *testing.T) string {
	var mu sync.Mutex
	begun := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // the list of models, say
			http.NotFound(w, r)
			return
		}
		var asked inference.Request
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Errorf("request: %v", err)
		}
		message, reason := map[string]any{"content": "Done."}, "stop"
		if asked.Messages[len(asked.Messages)-1].Role == "user" {
			mu.Lock()
			command := append([]string{"echo 'echo 7' > add.sh"}, attacks...)[begun%(len(attacks)+1)]
			begun++
			mu.Unlock()
			arguments, _ := json.Marshal(map[string]any{"command": command, "is_background": false})
			message["tool_calls"] = []any{map[string]any{"id": "c", "type": "function",
				"function": map[string]string{"name": "run_terminal_cmd", "arguments": string(arguments)}}}
			reason = "tool_calls"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": reason,
			"message": message}}, "usage": map[string]int{"prompt_tokens": 10, "completion_tokens": 5}})
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// TestCheatingAttemptsCount: an evaluation of a policy that solves one rollout, and in all
// others exhausts or attacks its sandbox and its tests, counts every one of them. None is
// a failure of the machine.
func TestCheatingAttemptsCount(t *testing.T) {
	t.Parallel()
	program.NeedSandbox(t)
	pack := t.TempDir()
	task := filepath.Join(pack, "add")
	writeFile(t, filepath.Join(task, "task.toml"),
		"schema_version = \"1.4\"\n[metadata.rondo]\nsnapshot = \"environment/repo\"\n[verifier]\ntimeout_sec = 15\n")
	writeFile(t, filepath.Join(task, "instruction.md"), "Let `sh add.sh` print 7.\n")
	writeFile(t, filepath.Join(task, "environment/repo/add.sh"), "echo 6\n")
	writeFile(t, filepath.Join(task, "tests/test.sh"),
		"r=0; [ \"$(sh add.sh)\" = 7 ] && r=1\necho \"{\\\"reward\\\": $r}\" > /logs/verifier/reward.json\n")
	dir, n := t.TempDir(), len(attacks)+1
	var r evaluation.Report
	mustRun(t, &r, "eval", "--policy", "cheat", "--endpoint", cheating(t), "--tasks", pack, "--attempts", fmt.Sprint(n),
		"--turns", "3", "--dir", dir, "--json")
	s := r.Summaries[0]
	pass, _ := s.Pass(1)
	if s.Attempts != n || s.Failed != 0 || s.ByTask[0].Scored != n || s.ByTask[0].Passed != 1 ||
		pass.Value != 1/float64(n) {
		t.Errorf("%d attempts, %d failed, pass@1 %+v: ended %s", s.Attempts, s.Failed, pass, s.Ended())
	}
	if len(s.Forfeits) == 0 {
		t.Errorf("no attempt was forfeited: %s", s.Ended())
	}
	t.Log(s.Ended())
	sound(t, r.Run, n, "--dir", dir)
}
