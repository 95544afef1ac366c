package toolrunner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/sandboxtest"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// TestToolsRemember: what a shell and a list of todos were left at is there in the next turn,
// whichever runner makes it, and when the rollout runs again.
func TestToolsRemember(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", func(c *runfile.RunConfig) { c.Tools.Set = toolset.Composer })
	todo := func(id, arguments string) events.ToolCall {
		return events.ToolCall{ID: id, Name: "todo_write", Arguments: arguments}
	}
	first, stop := service(t, log, nil)
	turn(t, log, "r", 0, poolRoute, shell("c0", "mkdir d; cd d; export A=1"),
		todo("c1", `{"merge":false,"todos":[{"id":"1","content":"look","status":"in_progress"}]}`))
	done := answers(t, log, "r", 0)
	if s := done.State; s == nil || s.Shell == nil || s.Shell.Dir != "/app/d" ||
		s.Shell.Env["A"] != "1" || len(s.Todos) != 1 {
		t.Fatalf("remembered is %+v", s)
	}
	turn(t, log, "r", 1, runfile.RunnerRoute(first.runner, runfile.Needs{}), shell("c2", "pwd; echo $A; export A=2"))
	if got := answers(t, log, "r", 1).Results[0].Content; got != "/app/d\n1\nexit code: 0" {
		t.Errorf("by the same runner: %q", got)
	}
	stop()
	second, _ := service(t, log, nil)
	turn(t, log, "r", 2, poolRoute, shell("c3", "pwd; echo $A; cd ..; unset A OLDPWD"),
		todo("c4", `{"merge":true,"todos":[{"id":"1","status":"completed"}]}`))
	done = answers(t, log, "r", 2)
	if done.Runner != second.runner || done.Results[0].Content != "/app/d\n2\nexit code: 0" ||
		done.Results[1].Content != "1 [completed] look\n" || done.State.Shell != nil {
		t.Errorf("by another runner: %+v, remembered %+v", done.Results, done.State)
	}
	r, err := log.Rollout(t.Context(), "r", rollout)
	if err != nil {
		t.Fatal(err)
	}
	if again := repeat(t, log, r); again.Calls != 5 || len(again.Changed) > 0 {
		t.Errorf("run again: %+v", again)
	}
	planted := r.Tools.Answer(1)
	planted.State = &toolset.State{Shell: &toolset.Shell{Dir: "/tmp"}, Todos: planted.State.Todos}
	r.Tools = r.Tools.Add(planted)
	var fields []string
	for _, c := range repeat(t, log, r).Changed {
		fields = append(fields, fmt.Sprint(*c.Turn, " ", c.Field))
	}
	if got := strings.Join(fields, ", "); got != "1 shell, 2 content, 2 shell" {
		t.Errorf("of a state that was changed: %s", got)
	}
}

// TestShellKeepsNoSecrets beyond the turn in a run that wants none on its log: neither in the
// same sandbox nor in another.
func TestShellKeepsNoSecrets(t *testing.T) {
	sandboxtest.Require(t)
	log := natstest.Log(t)
	open(t, log, "r", func(c *runfile.RunConfig) {
		c.Tools.Set, c.Features = toolset.Composer, []string{runfile.FeatureRedactSecrets}
	})
	s, _ := service(t, log, nil)
	turn(t, log, "r", 0, poolRoute, shell("c0", "export KEEP=1 AWS_ACCESS_KEY_ID="+awsKey+"; mkdir "+awsKey+"; cd "+
		awsKey), shell("c1", `[ "$AWS_ACCESS_KEY_ID" = `+awsKey+` ] && echo there`))
	done := answers(t, log, "r", 0)
	if got := done.Results[1].Content; !strings.HasPrefix(got, "there\n") {
		t.Errorf("within the turn: %q", got)
	}
	if shell := done.State.Shell; shell == nil || shell.Env["KEEP"] != "1" || shell.Dir != "" ||
		shell.Env["AWS_ACCESS_KEY_ID"] != "" || done.Redacted["aws-access-token"] < 2 {
		t.Errorf("remembered is %+v, redacted %v", done.State.Shell, done.Redacted)
	}
	turn(t, log, "r", 1, runfile.RunnerRoute(s.runner, runfile.Needs{}),
		shell("c2", `pwd; echo "$KEEP${AWS_ACCESS_KEY_ID-unset}"`))
	if got := answers(t, log, "r", 1).Results[0].Content; got != "/app\n1unset\nexit code: 0" {
		t.Errorf("in the next turn: %q", got)
	}
	for _, e := range completed(t, log) {
		if strings.Contains(string(e.Data), awsKey) {
			t.Errorf("the secret is in %s", e.Data)
		}
	}
}

func completed(t *testing.T, log *eventlog.Log) (found []events.Event) {
	t.Helper()
	for e, err := range log.All(t.Context(), "r", 1) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == events.ToolsCompletedType {
			found = append(found, e)
			if len(found) == 2 {
				break
			}
		}
	}
	return found
}
