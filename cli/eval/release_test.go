package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/intake"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// circle is a plane whose evaluations and production come out as the test says.
type circle struct {
	*clitest.Recorded
	pack    string
	rewards map[int64]float64 // by version
	played  map[string]bool
	groups  int64 // of production
}

func newCircle(t *testing.T) *circle {
	t.Helper()
	c := &circle{Recorded: clitest.NewRecorded(t, intake.Run), pack: t.TempDir(), rewards: map[int64]float64{},
		played: map[string]bool{}}
	for i := range 6 { // as many as it takes for a significant difference
		for name, text := range map[string]string{
			"task.toml":      "schema_version = \"1.4\"\n[metadata.rondo]\nsnapshot = \"repo\"\n",
			"instruction.md": "Fix it.\n", "repo/a.sh": "echo 1\n",
			"tests/test.sh": "echo 1 > /logs/verifier/reward.txt\n",
		} {
			clitest.Write(t, filepath.Join(c.pack, fmt.Sprintf("task-%d", i), name), text)
		}
	}
	return c
}

func (c *circle) publish(versions ...int64) {
	for _, v := range versions {
		c.Publish(events.Catalogue, v)
	}
}

// released is how a command ended.
type released struct {
	out string
	err error
}

// begin starts the command. Its context ends with the test or by stop.
func (c *circle) begin(args ...string) (done chan released, stop func()) {
	ctx, cancel := context.WithCancel(c.T.Context())
	done = make(chan released, 1)
	root := app.New(NewRelease)
	var out strings.Builder
	root.SetArgs(append([]string{"release", "small", "--dir", c.Dir, "--tasks", c.pack, "--endpoint",
		"http://127.0.0.1:1/v1", "--attempts", "1", "--quiet",
		"--canary-rollouts", "8", "--canary-share", "0.5"}, args...))
	root.SetOut(&out)
	root.SetErr(&out)
	go func() {
		err := root.ExecuteContext(ctx)
		done <- released{out.String(), err}
	}()
	return done, cancel
}

// release runs the command to its end, and plays its evaluations.
func (c *circle) release(args ...string) (string, error) {
	c.T.Helper()
	done, stop := c.begin(args...)
	defer stop()
	return c.end(done)
}

func (c *circle) end(done chan released) (string, error) {
	c.T.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case r := <-done:
			return r.out, r.err
		case <-tick.C:
			c.play()
		}
	}
}

// opened are the evaluations that nobody has played.
func (c *circle) opened() (names []string) {
	c.T.Helper()
	runs, err := c.Log.Runs(c.T.Context())
	if err != nil {
		c.T.Fatal(err)
	}
	return slices.DeleteFunc(runs, func(name string) bool {
		if !strings.HasPrefix(name, "eval-") || c.played[name] {
			return true
		}
		_, err := c.Log.RecordedConfig(c.T.Context(), name)
		return err != nil
	})
}

// play lets every evaluation have the rewards of its version.
func (c *circle) play() {
	c.T.Helper()
	for _, name := range c.opened() {
		cfg, err := c.Log.RecordedConfig(c.T.Context(), name)
		if err != nil {
			c.T.Fatal(err)
		}
		c.played[name] = true
		run := &clitest.Recorded{T: c.T, Dir: c.Dir, Log: c.Log, Run: name}
		for i, task := range cfg.Tasks {
			group, ids := run.Group(int64(i+1), task.Name, cfg.GroupSize, *cfg.PolicyVersion)
			var members []events.Member
			for n, id := range ids {
				run.Score(id, task.Name, *cfg.PolicyVersion, c.rewards[*cfg.PolicyVersion]+0.01*float64(i+n))
				members = append(members, events.Member{Rollout: id})
			}
			run.State(events.GroupCompletedType, group, "0", events.GroupCompleted{Task: task.Name, Members: members})
		}
		run.State(events.RunClosedType, name, "0", events.RunClosed{})
	}
}

// produce makes rollouts of the run in production until either version has n of them.
func (c *circle) produce(n int) {
	c.T.Helper()
	last := c.promoted()
	for had := map[int64]int{}; had[last.Version] < n || had[last.Before] < n; {
		c.groups++
		task := []string{"fix-a", "fix-b"}[c.groups%2]
		_, ids := c.Group(c.groups, task, 8, last.Version)
		for i, id := range ids {
			version := last.VersionFor(c.Run, id)
			had[version]++
			c.Score(id, task, version, c.rewards[version]+0.01*float64(i))
		}
	}
}

func (c *circle) promoted() events.WeightsPromoted {
	c.T.Helper()
	all := c.facts(events.WeightsPromotedType)
	if len(all) == 0 {
		c.T.Fatal("nothing is promoted")
	}
	return servicetest.Data[events.WeightsPromoted](c.T, all[len(all)-1])
}

func (c *circle) facts(t events.Type) []events.Event {
	c.T.Helper()
	return servicetest.All(c.T, c.Log, events.Catalogue, t)
}

// want holds the facts to their numbers and the last promotion to its content.
func (c *circle) want(when string, judged, promoted int, last events.WeightsPromoted) {
	c.T.Helper()
	if n := len(c.facts(events.WeightsJudgedType)); n != judged {
		c.T.Errorf("%s: %d judgements, want %d", when, n, judged)
	}
	if n := len(c.facts(events.WeightsPromotedType)); n != promoted {
		c.T.Errorf("%s: %d promotions, want %d", when, n, promoted)
	}
	is := c.promoted()
	if is.Judgement = ""; is != last {
		c.T.Errorf("%s: %+v is promoted, want %+v", when, is, last)
	}
}

func (c *circle) exit(err error, code int) {
	c.T.Helper()
	var e *app.ExitError
	if found := errors.As(err, &e); code == 0 && err != nil || code != 0 && (!found || e.Code != code) {
		c.T.Errorf("ended with %v, want exit code %d", err, code)
	}
}

// TestRelease: versions go around the circle: a better one is promoted, a worse one does not pass
// its gate, and one that is worse in production is taken back. The same command goes on where the
// last one ended, and all judgements come out the same again.
func TestRelease(t *testing.T) {
	c := newCircle(t)
	c.rewards = map[int64]float64{2: 0.3, 3: 0.6, 4: 0.1, 5: 0.7}
	c.publish(1, 2)
	if _, err := c.release("--once", "--run", "nobody"); err == nil ||
		!strings.Contains(err.Error(), `--run: there is no run "nobody"`) {
		t.Errorf("a run that is not there: %v", err)
	}
	_, first := c.release("--once")
	c.exit(first, 0)
	c.want("without a promotion the newest is taken", 0, 1, events.WeightsPromoted{Version: 2})

	c.publish(3)
	out, err := c.release("--once")
	c.exit(err, 0)
	c.want("a better version", 1, 2, events.WeightsPromoted{Version: 3, Share: 0.5, Before: 2})
	if !strings.Contains(out, "version 3 passed its gate against version 2; reward 0.625") ||
		!strings.Contains(out, "version 3 has 0 outcomes in production") {
		t.Error(out)
	}
	c.produce(8)
	out, err = c.release("--once")
	c.exit(err, 0)
	c.want("better in production", 2, 3, events.WeightsPromoted{Version: 3, Before: 2})
	if !strings.Contains(out, "version 3 passed its canary against version 2") ||
		!strings.Contains(out, "version 3 is promoted") {
		t.Error(out)
	}

	c.publish(4)
	out, err = c.release("--once", "--json")
	c.exit(err, app.ExitFindings)
	c.want("a worse version", 3, 3, events.WeightsPromoted{Version: 3, Before: 2})
	var note releaseNote
	if err := json.Unmarshal([]byte(out[:strings.IndexByte(out, '\n')]), &note); err != nil || note.Event != "judged" ||
		note.Judgement.Verdict != events.JudgedFailed || len(note.Judgement.Figures) != 2 {
		t.Errorf("%v: %s", err, out)
	}
	_, err = c.release("--once")
	c.exit(err, 0)
	c.want("it is judged once", 3, 3, events.WeightsPromoted{Version: 3, Before: 2})

	c.publish(5)
	_, err = c.release("--once")
	c.exit(err, 0)
	c.want("better on the held-out tasks", 4, 4, events.WeightsPromoted{Version: 5, Share: 0.5, Before: 3})
	c.rewards[5] = 0.2 // in production
	c.produce(8)
	out, err = c.release("--once")
	c.exit(err, app.ExitFindings)
	c.want("worse in production", 5, 5, events.WeightsPromoted{Version: 3, RolledBack: 5})
	if !strings.Contains(out, "version 5 is taken back: version 3 gets the rollouts") {
		t.Error(out)
	}

	out, err = clitest.Run(t, NewRelease, "release", "small", "--dir", c.Dir, "--verify")
	c.exit(err, 0)
	if !strings.Contains(out, "5 judgements made again, 0 come out differently") {
		t.Error(out)
	}
	c.forge()
}

// forge states judgements that do not follow from what is recorded, each of which must be found.
func (c *circle) forge() {
	c.T.Helper()
	c.publish(6, 7, 8)
	honest := servicetest.Data[events.WeightsJudged](c.T, c.facts(events.WeightsJudgedType)[2])
	for i, forge := range []func(*events.WeightsJudged){
		func(j *events.WeightsJudged) { j.Verdict, j.Reasons = events.JudgedPassed, nil },
		func(j *events.WeightsJudged) { j.Figures[0].P += 0.001 },
		func(j *events.WeightsJudged) { j.Attempts.Scored++ },
		func(j *events.WeightsJudged) { j.Sources[0], j.Sources[1] = j.Sources[1], j.Sources[0] }, // of other versions
	} {
		var j events.WeightsJudged
		text, err := json.Marshal(honest)
		if err == nil {
			err = json.Unmarshal(text, &j)
		}
		if err != nil {
			c.T.Fatal(err)
		}
		forge(&j)
		e := servicetest.Append(c.T, c.Log, servicetest.Event(c.T, events.Catalogue, events.WeightsJudgedType,
			"small", fmt.Sprintf("forged-%d", i), j))
		out, err := clitest.Run(c.T, NewRelease, "release", "small", "--dir", c.Dir, "--verify")
		if i < 3 {
			c.exit(err, app.ExitFindings)
			if !strings.Contains(out, fmt.Sprintf("%d come out differently", i+1)) {
				c.T.Errorf("%s: %s", e.ID, out)
			}
		} else if err == nil || !strings.Contains(err.Error(), "is no evaluation of small@4") {
			c.T.Errorf("%s: %v", e.ID, err)
		}
	}
}

// TestReleaseGoesOn: a command that is killed at any point, or runs twice at once,
// judges and promotes once.
func TestReleaseGoesOn(t *testing.T) {
	c := newCircle(t)
	c.rewards = map[int64]float64{1: 0.3, 2: 0.6, 3: 0.8}
	c.publish(1)
	_, err := c.release("--once")
	c.exit(err, 0)
	c.publish(2)
	killed, kill := c.begin("--once")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for len(c.opened()) == 0 {
		<-tick.C
	}
	first := c.opened()
	kill() // while it evaluates
	if r := <-killed; !errors.Is(r.err, context.Canceled) {
		t.Errorf("killed: %v", r.err)
	}
	a, stopA := c.begin("--once")
	b, stopB := c.begin("--once")
	defer stopA()
	defer stopB()
	_, err = c.end(a)
	c.exit(err, 0)
	_, err = c.end(b)
	c.exit(err, 0)
	c.want("two at once", 1, 2, events.WeightsPromoted{Version: 2, Share: 0.5, Before: 1})
	if len(c.played) != 2 || !c.played[first[0]] {
		t.Errorf("the evaluations are %v, and %v was begun first", c.played, first)
	}

	c.produce(8) // a judgement that nobody acted on, as its command was killed
	j := events.WeightsJudged{Version: 2, Against: 1, Stage: events.JudgedCanary, Verdict: events.JudgedPassed}
	servicetest.Append(t, c.Log, servicetest.Event(t, events.Catalogue, events.WeightsJudgedType,
		"small", j.Ordinal(), j))
	_, err = c.release("--once")
	c.exit(err, 0)
	c.want("a judgement without its promotion", 2, 3, events.WeightsPromoted{Version: 2, Before: 1})

	c.publish(3) // a person decides while the gate is judged
	j = events.WeightsJudged{Version: 3, Against: 2, Stage: events.JudgedGate, Verdict: events.JudgedPassed}
	servicetest.Append(t, c.Log, servicetest.Event(t, events.Catalogue, events.WeightsJudgedType,
		"small", j.Ordinal(), j))
	servicetest.Append(t, c.Log, servicetest.Event(t, events.Catalogue, events.WeightsPromotedType, "small",
		"by-hand", events.WeightsPromoted{Version: 1, RolledBack: 2}))
	_, err = c.release("--once")
	c.exit(err, 0)
	c.want("a person's choice stands", 3, 4, events.WeightsPromoted{Version: 1, RolledBack: 2})
}

// TestReleaseFollows: without --once it judges what is published while it runs, and promotes
// at once without a canary.
func TestReleaseFollows(t *testing.T) {
	was := looksEvery
	looksEvery = 20 * time.Millisecond
	t.Cleanup(func() { looksEvery = was })
	c := newCircle(t)
	c.rewards = map[int64]float64{1: 0.3, 2: 0.4, 3: 0.6}
	c.publish(1)
	done, stop := c.begin("--canary-share", "0")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	wait := func(promotions int) {
		t.Helper()
		for len(c.facts(events.WeightsPromotedType)) < promotions {
			<-tick.C
			c.play()
		}
	}
	wait(1)
	c.publish(2)
	wait(2)
	c.publish(3)
	wait(3)
	c.want("both", 2, 3, events.WeightsPromoted{Version: 3, Before: 2})
	stop()
	if r := <-done; !errors.Is(r.err, context.Canceled) {
		t.Errorf("stopped: %v", r.err)
	}
}

// TestReleaseCanaryEnds: a canary without rollouts enough is taken back when its time is over.
func TestReleaseCanaryEnds(t *testing.T) {
	c := newCircle(t)
	c.rewards = map[int64]float64{1: 0.3, 2: 0.6}
	c.publish(1)
	_, err := c.release("--once")
	c.exit(err, 0)
	c.publish(2)
	out, err := c.release("--once", "--canary-for", "1ns")
	c.exit(err, app.ExitFindings)
	c.want("too few rollouts", 2, 3, events.WeightsPromoted{Version: 1, RolledBack: 2})
	if !strings.Contains(out,
		"version 2 has no result of its canary against version 1: no attempt of version 2 was scored") {
		t.Error(out)
	}
}

func TestReleaseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                         "POLICY is missing",
		"a/b":                      "use letters",
		"p --once --verify":        "give one of them",
		"p --by tokens":            "must be reward or pass@1",
		"p --canary-share 1":       "below 1",
		"p --min-pass 1.5":         "must be 0 to 1",
		"p --max-loss -1":          "at least 0",
		"p --max-loss inf":         "a number",
		"p --min-reward nan":       "must be a number",
		"p --confidence 1":         "between 0 and 1",
		"p --canary-rollouts 1":    "at least 2",
		"p --canary-for 0s":        "above 0",
		"p --attempts 0":           "must be 1 to",
		"p --max-failed 2":         "must be 0 to 1",
		"p --pass-at 0":            "above or below 0",
		"p --every -1h":            "at least 0",
		"p --config /nowhere.yaml": "/nowhere.yaml",
	} {
		if _, err := clitest.Run(t, NewRelease, append([]string{"release"}, strings.Fields(args)...)...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
