package toolrunner

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/tasks"
)

// recorded runs turns of commands in a real tool runner and gives the rollout as the log has it.
func recorded(t *testing.T, log *eventlog.Log, run string, turns ...[]string) events.Rollout {
	t.Helper()
	open(t, log, run, nil)
	s, stop := service(t, log, nil)
	for n, commands := range turns {
		var calls []events.ToolCall
		for i, c := range commands {
			calls = append(calls, shell(fmt.Sprintf("c%d-%d", n, i), c))
		}
		turn(t, log, run, n, runfile.RunnerRoute(s.runner, runfile.Needs{}), calls...)
		answers(t, log, run, n)
	}
	stop()
	r, err := log.Rollout(t.Context(), run, rollout)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func repeat(t *testing.T, log *eventlog.Log, r events.Rollout) Repeated {
	t.Helper()
	task, err := log.Task(t.Context(), r.Run, "a")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := log.Config(t.Context(), r.Run)
	if err != nil {
		t.Fatal(err)
	}
	found, err := Rerun(t.Context(), log.Store(), Options{Machine: tasks.Machine{ToolchainCache: t.TempDir()}}, cfg,
		task, &r)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// places says where something differs.
func places(changed []pipeline.Changed) (list []string) {
	for _, c := range changed {
		list = append(list, fmt.Sprint(*c.Turn, " ", c.Call, " ", c.Field))
	}
	return list
}

// TestAgain: what follows from workspace and calls comes out the same, also what a turn finds
// outside of the workspace.
func TestAgain(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	r := recorded(t, log, "r",
		[]string{"cat a.txt; exit 3", "echo two >> a.txt; ln -s a.txt link; echo kept > /tmp/state"},
		[]string{"mkdir d; cp a.txt d/; chmod 700 d; cat /tmp/state"},
		[]string{"rm a.txt; ls"},
	)
	found := repeat(t, log, r)
	if len(found.Changed) > 0 || found.Turns != 3 || found.Calls != 4 {
		t.Errorf("%+v", found)
	}
}

// TestAgainFindsWhatIsNotTheSame by chance or by the clock, each in its place, and
// nothing in the turns behind it.
func TestAgainFindsWhatIsNotTheSame(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	r := recorded(t, log, "r",
		[]string{"cat a.txt", "echo kept > /tmp/state; od -An -N8 -tx1 /dev/urandom"},
		[]string{"cat /tmp/state"},
		[]string{"date +%s%N > now.txt; mkdir d; od -An -N8 -tx1 /dev/urandom > d/x"},
		[]string{"cat now.txt; wc -c < now.txt"},
		[]string{"exit $(od -An -N1 -tu1 /dev/urandom)"},
	)
	found := repeat(t, log, r)
	want := []string{"0 c0-1 content", "2  workspace/d/x", "2  workspace/now.txt"}
	got := places(found.Changed)
	if len(got) < 3 || !slices.Equal(got[:3], want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, place := range got[min(3, len(got)):] { // an exit code drawn of 256, which is most often another
		if place != "4 c4-0 exit_code" && place != "4 c4-0 error" && place != "4 c4-0 content" {
			t.Errorf("%s is not the same", place)
		}
	}
	for _, c := range found.Changed {
		if c.Recorded == c.Again || c.Rollout != rollout {
			t.Errorf("%+v", c)
		}
	}
}

// TestAgainAfterAnotherRunnerTookOver: what was lost with the first sandbox is no difference.
func TestAgainAfterAnotherRunnerTookOver(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", nil)
	for n, command := range []string{"echo two >> a.txt; echo lost > /tmp/state; cat /tmp/state",
		"cat a.txt; ls /tmp"} {
		turn(t, log, "r", n, poolRoute, shell(fmt.Sprint("c", n), command))
		_, stop := service(t, log, nil)
		answers(t, log, "r", n)
		stop()
	}
	r, err := log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	if found := repeat(t, log, r); len(found.Changed) > 0 {
		t.Errorf("%+v", found.Changed)
	}
}

// TestAgainFindsWhatWasPlanted in a record, field by field.
func TestAgainFindsWhatWasPlanted(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	original := recorded(t, log, "r", []string{"cat a.txt", "echo two > a.txt"}, []string{"cat a.txt"})
	other := servicetest.Blob(t, log.Store(), func() []byte {
		r := recorded(t, log, "other", []string{"echo three > a.txt"})
		data, err := storage.GetBlob(t.Context(), log.Store(), *r.Tools.Answer(0).Workspace)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}())
	another := -1
	for want, plant := range map[string]func(*events.ToolsCompleted){
		"0 c0-0 content":       func(c *events.ToolsCompleted) { c.Results[0].Content = "two\n" },
		"0 c0-0 exit_code":     func(c *events.ToolsCompleted) { c.Results[0].ExitCode = &another },
		"0 c0-1 exit_code":     func(c *events.ToolsCompleted) { c.Results[1].ExitCode = nil },
		"0 c0-0 error":         func(c *events.ToolsCompleted) { c.Results[0].Error = true },
		"0 c0-0 dropped_bytes": func(c *events.ToolsCompleted) { c.Results[0].DroppedBytes = 1 },
		"0 c9 call_id":         func(c *events.ToolsCompleted) { c.Results[0].CallID = "c9" },
		"0  results":           func(c *events.ToolsCompleted) { c.Results = c.Results[:1] },
	} {
		t.Run(want, func(t *testing.T) {
			r := original
			planted := copied(t, original.Tools.Answer(0))
			plant(&planted)
			r.Tools = original.Tools.Add(planted)
			if got := places(repeat(t, log, r).Changed); !slices.Equal(got, []string{want}) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	for name, w := range map[string]*storage.Ref{"another workspace": &other, "none": nil} {
		r := original
		planted := original.Tools.Answer(0)
		planted.Workspace = w
		r.Tools = original.Tools.Add(planted)
		// The next turn begins with the recorded workspace, which was planted: it reads other lines
		// and leaves another workspace.
		if got := places(repeat(t, log, r).Changed); !slices.Contains(got, "0  workspace/a.txt") ||
			!slices.Contains(got, "1 c1-0 content") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func copied(t *testing.T, c events.ToolsCompleted) (out events.ToolsCompleted) {
	t.Helper()
	data, err := json.Marshal(c)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAgainOfLostTurns: a turn that could not be kept is none again, the turns behind it are as
// recorded, and one that could be kept now is named.
func TestAgainOfLostTurns(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	r := recorded(t, log, "r", []string{"echo two > a.txt"},
		[]string{"echo three > a.txt; truncate -s 200M x y"}, []string{"cat a.txt"})
	if first, second := r.Tools.Answer(0), r.Tools.Answer(1); second.Lost == "" || first.Lost != "" ||
		*second.Workspace != *first.Workspace {
		t.Fatalf("recorded %+v", r.Tools)
	}
	if found := repeat(t, log, r); len(found.Changed) > 0 || found.Turns != 3 {
		t.Errorf("%+v", found)
	}
	call := &r.Turns[1].ToolCalls[0]
	*call = shell(call.ID, "echo three > a.txt")
	if found := repeat(t, log, r); !slices.Equal(places(found.Changed), []string{"1  lost"}) {
		t.Errorf("%+v", found.Changed)
	}
}

// TestAgentsAreNotRunAgain: what an agent's own program called is counted and not run,
// and not taken for nothing.
func TestAgentsAreNotRunAgain(t *testing.T) {
	r := events.Rollout{Turns: []events.TurnSampled{{}, {Turn: 1}}}
	found, err := Rerun(t.Context(), nil, Options{}, runfile.RunConfig{Agent: &runfile.Agent{}}, runfile.TaskSpec{}, &r)
	if err != nil || found.Agent != 2 || found.Turns != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}
