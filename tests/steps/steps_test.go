// Package steps holds tasks of several steps to what Rondo promises, with all services at work.
package steps

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/generator"
	"github.com/rondo-rl/rondo/services/scorer"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/services/toolrunner"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tests/plane"
)

const run = "r"

// obedient is an inference server whose model runs the instruction that it was given last as a
// command, and is done then. Its prompts have one token for each message and those that it sampled.
func obedient(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // the list of models, say
			http.NotFound(w, r)
			return
		}
		var asked inference.Request
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Errorf("request: %v", err)
		}
		var prompt []int32
		turns, command := int32(0), ""
		for _, m := range asked.Messages {
			if m.Role == "assistant" {
				prompt, turns = append(prompt, 1000+2*turns, 1001+2*turns), turns+1
				continue
			}
			prompt = append(prompt, int32(len(m.Content)))
			if command = ""; m.Role == "user" {
				command = m.Content
			}
		}
		message, reason := map[string]any{"content": "Done."}, "stop"
		if command != "" {
			arguments, _ := json.Marshal(map[string]any{"command": command, "is_background": false})
			message["tool_calls"] = []any{map[string]any{"id": fmt.Sprint("c", turns), "type": "function",
				"function": map[string]string{"name": "run_terminal_cmd", "arguments": string(arguments)}}}
			reason = "tool_calls"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"prompt_token_ids": prompt, "choices": []any{map[string]any{
			"finish_reason": reason, "message": message, "token_ids": []int32{1000 + 2*turns, 1001 + 2*turns},
			"logprobs": map[string]any{"content": []any{map[string]float64{"logprob": -1},
				map[string]float64{"logprob": -1}}},
		}}})
	}))
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// said is one step: what the agent is told to run, what tests it, and what it brings along.
type said struct {
	command, tests string
	least          map[string]float64
	files          map[string]string
}

// reads is a test that gives a reward where a command succeeds.
func reads(command, reward string) string {
	return command + " && r='" + reward + "' || r='{\"reward\": 0}'\necho \"$r\" > /logs/verifier/reward.json\n"
}

// cheat does all that an agent could do for the tests of a later step.
const cheat = `echo exit 0 > check.sh; echo true > conftest.py; mkdir -p /tests /logs/verifier; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh
echo '{"reward": 1}' > /logs/verifier/reward.json; ln -s /tests/test.sh link; (while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.1; done) > /dev/null 2>&1 &`

var tasks = map[string]struct {
	strategy string
	steps    []said
	rewards  []float64 // of the steps that are reached
	reward   float64
	fails    string // the rollout, for this reason
}{
	"mean": {"", []said{
		{"echo one > a.txt", reads("grep -q one a.txt && ! test -e b.txt", `{"reward": 1, "style": 1}`),
			map[string]float64{"reward": 1, "style": 0.5}, nil},
		{"echo two > b.txt", reads("grep -q one a.txt && grep -q two b.txt", `{"reward": 0.5}`), nil, nil},
	}, []float64{1, 0.5}, 0.75, ""},
	"final": {runfile.StrategyFinal, []said{
		{"echo one > a.txt", reads("grep -q one a.txt", `{"reward": 1}`), nil, nil},
		{"echo two > b.txt", reads("grep -q one a.txt && grep -q two b.txt", `{"reward": 0.5}`), nil, nil},
	}, []float64{1, 0.5}, 0.5, ""},
	"separate": {"", []said{
		{"echo one > a.txt", reads("under-test grep -q one a.txt && ! test -e a.txt", `{"reward": 1}`), nil, nil},
		{"echo two > b.txt",
			reads("under-test sh -c 'grep -q one a.txt && ! test -e /tests' && under-test grep -q two b.txt",
				`{"reward": 0.5}`), nil, nil},
	}, []float64{1, 0.5}, 0.75, ""},
	"stops": {"", []said{
		{"echo one > a.txt", reads("grep -q one a.txt", `{"reward": 0.25}`), map[string]float64{"reward": 0.5}, nil},
		{"echo never > a.txt", reads("true", `{"reward": 1}`), nil, nil},
	}, []float64{0.25}, 0.25, ""},
	"unreported": {"", []said{
		{"echo one > a.txt", reads("true", `{"reward": 1}`), map[string]float64{"style": 0}, nil},
		{"echo never > a.txt", reads("true", `{"reward": 0}`), nil, nil},
	}, []float64{1}, 1, ""},
	"cheats": {runfile.StrategyFinal, []said{
		{cheat, reads("grep -q one a.txt", `{"reward": 1}`), nil, nil},
		{"true", reads("sh check.sh && ! test -e conftest.py", `{"reward": 1}`), nil, nil},
	}, []float64{0, 0}, 0, ""},
	// The agent of "files" does what it can against the next step's: a link and a folder in their
	// way. What the third brings is the snapshot again, and the fourth is never begun, as the
	// turns of the run are used up.
	"files": {"", []said{
		{"echo one > a.txt; ln -s /tmp given; mkdir -p setup.sh/x; echo x > /tmp/outside",
			reads("grep -q one a.txt", `{"reward": 1}`), nil, nil},
		{"cat given/b.txt made.txt > c.txt; test -e /tmp/outside && rm c.txt",
			reads("grep -q given c.txt && grep -q two c.txt && test -x tests/x_test.sh && ! test -e setup.sh",
				`{"reward": 1}`),
			nil, map[string]string{"given/b.txt": "given\n", "tests/x_test.sh": "#!/bin/sh\n",
				"setup.sh": "set -e\ngrep -q one a.txt\necho \"$WORD\" > made.txt\ntrue > conftest.py; ln -s /etc out\n"}},
		{"true", reads("grep -q zero a.txt && ! test -e given", `{"reward": 1}`),
			nil, map[string]string{"a.txt": "zero\n", "setup.sh": "rm -rf given tests made.txt c.txt conftest.py out"}},
		{"true", reads("true", `{"reward": 1}`), nil, map[string]string{"never.txt": "x"}},
	}, []float64{1, 1, 1}, 1, ""},
	"withheld": {"", []said{
		{"echo one > a.txt", reads("true", `{"reward": 0.25}`), map[string]float64{"reward": 0.5}, nil},
		{"true", reads("true", `{"reward": 1}`), nil, map[string]string{"setup.sh": "exit 1"}},
	}, []float64{0.25}, 0.25, ""},
	"unready": {"", []said{
		{"echo one > a.txt", reads("true", `{"reward": 1}`), nil, nil},
		{"true", reads("true", `{"reward": 1}`), nil,
			map[string]string{"setup.sh": "echo nothing here is right; exit 3"}},
	}, nil, 0, "begin the next stage: setup.sh of stage s1: exit 3 (and over the task's untouched snapshot: setup.sh of stage s1: exit 3); its log ends: nothing here is right"},
}

func config(t *testing.T, log *eventlog.Log) runfile.RunConfig {
	cfg := servicetest.Config(slices.Sorted(maps.Keys(tasks))...)
	cfg.Endpoint, cfg.Epochs, cfg.GroupSize, cfg.InFlight, cfg.Feeds, cfg.Limits.Turns = obedient(t), 1, 1, 1, nil, 6
	for i := range cfg.Tasks {
		task := &cfg.Tasks[i]
		task.Snapshot = servicetest.Blob(t, log.Store(),
			sandboxtest.Pack(t, map[string]string{"a.txt": "zero\n", "check.sh": "exit 1\n"}))
		task.Protected, task.RewardStrategy, task.Env = []string{"check.sh"}, tasks[task.Name].strategy,
			map[string]string{"WORD": "two"}
		if task.Name == "separate" {
			task.Verifier = runfile.VerifierSeparate
		}
		for n, s := range tasks[task.Name].steps {
			task.Tests = servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, map[string]string{"test.sh": s.tests}))
			task.Steps = append(task.Steps, runfile.StepSpec{
				Name: fmt.Sprint("s", n), Instruction: s.command, VerifierTimeout: runfile.Duration(20 * time.Second),
				MinReward: s.least, Tests: task.Tests,
			})
			if s.files != nil {
				task.Steps[n].Files = new(servicetest.Blob(t, log.Store(), sandboxtest.Pack(t, s.files)))
			}
		}
	}
	return cfg
}

// TestSteps goes through tasks of two steps with two generators and two scorers, of which one of
// each ends on the way: each step is scored as its agent has left it, by its own tests, which
// nothing that the agent did before can change. Everything can be made again.
func TestSteps(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	cfg := config(t, log)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	generates := func(ctx context.Context, env pipeline.Env) error {
		return generator.Run(ctx, env, servicetest.Fleet(t, env, nil), generator.DefaultOptions())
	}
	runs := func(ctx context.Context, env pipeline.Env) error {
		return toolrunner.Run(ctx, env, toolrunner.Options{Slots: 2, Pool: cfg.Pool})
	}
	scores := func(ctx context.Context, env pipeline.Env) error {
		return scorer.Run(ctx, env, scorer.Options{Slots: 1})
	}
	plane.Start(t, log, run, cfg, generates, runs)
	var ends []func()
	for _, service := range []plane.Service{generates, scores} {
		env := servicetest.Env(t, log)
		ends = append(ends, servicetest.Start(t, func(ctx context.Context) error { return service(ctx, env) }))
	}
	servicetest.Wait(t, log, run, events.StepScoredType, "*", 2)
	for _, end := range ends {
		end()
	}
	servicetest.Wait(t, log, run, events.RunClosedType, run, 1)
	plane.Prove(t, log, run)

	for r, err := range log.Rollouts(t.Context(), run) {
		if err != nil {
			t.Fatal(err)
		}
		check(t, log, &r.Rollout)
		if r.Failed != nil {
			continue
		}
		task, err := r.Task(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if changed, err := scorer.Compare(t.Context(), log.Store(), scorer.Options{}, cfg, task, &r); err != nil ||
			len(changed) > 0 {
			t.Errorf("%s verified again: %+v, %v", r.Started.Task, changed, err)
		}
		if again, err := toolrunner.Rerun(t.Context(), log.Store(), toolrunner.Options{}, cfg, task,
			&r.Rollout); err != nil || len(again.Changed) > 0 || again.Calls != len(tasks[task.Name].rewards) {
			t.Errorf("tools of %s run again: %+v, %v", r.Started.Task, again, err)
		}
		other := slices.Clone(task.Steps)
		other[0].Tests = servicetest.Blob(t, log.Store(),
			sandboxtest.Pack(t, map[string]string{"test.sh": "echo 7 > /logs/verifier/reward.txt\n"}))
		task.Steps = other
		if changed, err := scorer.Compare(t.Context(), log.Store(), scorer.Options{}, cfg, task, &r); err != nil ||
			len(changed) == 0 {
			t.Errorf("%s verified with other tests: %+v, %v", r.Started.Task, changed, err)
		}
	}
	differences(t, log, cfg)
}

// check compares a rollout with what its task says must come of it.
func check(t *testing.T, log *eventlog.Log, r *events.Rollout) {
	t.Helper()
	task := tasks[r.Started.Task]
	if task.fails != "" {
		if r.Failed == nil || r.Scored != nil || r.Failed.Class != events.ClassVerifier ||
			r.Failed.Message != task.fails {
			t.Errorf("%s: scored %+v, failed %+v", r.Started.Task, r.Scored, r.Failed)
		}
		return
	}
	stop := events.StopFinished
	if r.Started.Task == "files" {
		stop = events.StopMaxTurns
	}
	if r.Scored == nil || r.Finished.Steps != len(task.rewards) || r.Scored.Reward != task.reward ||
		r.Finished.StopReason != stop {
		t.Errorf("%s: finished %+v, scored %+v, failed %+v", r.Started.Task, r.Finished, r.Scored, r.Failed)
		return
	}
	level := runfile.VerifierUnguarded
	if r.Started.Task == "separate" {
		level = runfile.VerifierSeparate
	}
	if r.Scored.Verifier != level || r.Steps[0].Verdict.Verifier != level {
		t.Errorf("%s: scored with a verifier %q, its first step with %q", r.Started.Task, r.Scored.Verifier,
			r.Steps[0].Verdict.Verifier)
	}
	for i, want := range task.rewards {
		if got := r.Steps[i].Verdict.Components["reward"]; got != want || r.Steps[i].Turns != 2*(i+1) {
			t.Errorf("%s, step %d: reward %g after %d turns, want %g", r.Started.Task, i, got, r.Steps[i].Turns, want)
		}
	}
	if style := r.Scored.Components["style"]; r.Started.Task == "mean" && style != 0.5 {
		t.Errorf("mean: style %g: what a step does not report counts as 0", style)
	}
	laid(t, log, r, task.steps)
	if flags := strings.Join(r.Scored.Flags, ", "); r.Started.Task == "cheats" &&
		(!strings.Contains(flags, "protected_path: check.sh") || !strings.Contains(flags, "link_outside: link")) {
		t.Errorf("cheats: flags %s", flags)
	}
	data, err := storage.GetBlob(t.Context(), log.Store(), r.Finished.Trajectory)
	if err != nil {
		t.Fatal(err)
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		t.Fatal(err)
	}
	var roles, asked []string
	for _, m := range trajectory.Messages {
		roles = append(roles, m.Role)
		if m.Role == "user" {
			asked = append(asked, m.Content)
		}
		if m.Role != "assistant" && slices.Contains(m.LossMask, true) || m.Segment != 0 {
			t.Errorf("%s: %s is trained on, or of segment %d", r.Started.Task, m.Role, m.Segment)
		}
	}
	want, told := []string{"system"}, []string(nil)
	for i := range task.rewards {
		want, told = append(want, "user", "assistant", "tool", "assistant"), append(told, task.steps[i].command)
	}
	if !slices.Equal(roles, want) || !slices.Equal(asked, told) {
		t.Errorf("%s: the trajectory has rows of %v, want %v; the agent was asked %q, want %q", r.Started.Task,
			roles, want, asked, told)
	}
}

// laid finds the workspaces that steps with files began with on the log, and no others; what these
// brought is no cheating of the agent's. The episode's own is what the agent has left.
func laid(t *testing.T, log *eventlog.Log, r *events.Rollout, steps []said) {
	t.Helper()
	for i, step := range r.Steps {
		next := i+1 < len(steps) && steps[i+1].files != nil &&
			runfile.StepSpec{MinReward: steps[i].least}.Passes(step.Verdict.Components)
		if got := step.Verdict.Workspace; next != (got != nil) || next && r.Laid(r.StepBegin(i+1)) != got {
			t.Errorf("%s: behind step %d the workspace is %+v", r.Started.Task, i, got)
		}
	}
	if last := r.Steps[len(r.Steps)-1]; !reflect.DeepEqual(r.Finished.Workspace, last.Workspace) {
		t.Errorf("%s: ends with workspace %+v, its last step with %+v", r.Started.Task,
			r.Finished.Workspace, last.Workspace)
	}
	if r.Started.Task != "files" {
		return
	}
	if flags := strings.Join(r.Scored.Flags, ", "); flags != "link_outside: given" {
		t.Errorf("files: flags %q", flags)
	}
	if size := r.Steps[1].Verdict.Workspace.Size; size != 0 {
		t.Errorf("files: the snapshot is a change of %d bytes", size)
	}
	data, err := storage.GetBlob(t.Context(), log.Store(), *r.Steps[0].Verdict.Workspace)
	if err != nil {
		t.Fatal(err)
	}
	found, err := sandbox.Contents(sandbox.Bytes(data))
	names := slices.Sorted(maps.Keys(found))
	if want := []string{"a.txt", "conftest.py", "given", "given/b.txt", "made.txt", "out", "tests",
		"tests/x_test.sh"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("files: the second step begins with %q, want %q; %v", names, want, err)
	}
}

// differences recomputes rewards from the verdicts on steps: as they were recorded there is no
// difference, and a planted one is found.
func differences(t *testing.T, log *eventlog.Log, cfg runfile.RunConfig) {
	t.Helper()
	for _, planted := range []bool{false, true} {
		found := 0
		differ := scorer.RewardDifferences(cfg)
		for _, e := range servicetest.All(t, log, run) {
			if planted && e.Type == events.StepScoredType {
				verdict := servicetest.Data[events.StepScored](t, e)
				verdict.Components["reward"] += 0.125
				e.Data, _ = json.Marshal(verdict)
			}
			list, err := differ(e)
			if err != nil {
				t.Fatal(err)
			}
			found += len(list)
		}
		if want := len(tasks) - 1; !planted && found > 0 || planted && found != want {
			t.Errorf("planted %v: %d differences of %d scored rollouts", planted, found, want)
		}
	}
}
