package run

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/audit"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/servicetest"
)

func TestWhere(t *testing.T) {
	l := books.New("r")
	happen := func(seq uint64, typ events.Type, id string, data any) {
		e := servicetest.Event(t, "r", typ, id, "0", data)
		e.Seq = seq
		if err := l.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	for i, r := range []struct {
		id, task string
		reward   float64
	}{{"g1-0", "fix-a", 0}, {"g1-1", "fix-a", 1}, {"g2-0", "fix-b", 0.5}, {"xmine-0", "[odd", -1}} {
		seq := uint64(10 * i)
		happen(seq+1, events.RolloutStartedType, r.id, events.RolloutStarted{Task: r.task, PolicyVersion: int64(i)})
		happen(seq+2, events.RolloutFinishedType, r.id,
			events.RolloutFinished{Turns: i + 1, Tokens: 100 * i, StopReason: events.StopFinished})
		happen(seq+3, events.RolloutScoredType, r.id, events.RolloutScored{Reward: r.reward,
			TaskDigest: "sha256:" + r.task})
	}
	happen(50, events.RolloutStartedType, "g3-0", events.RolloutStarted{Task: "fix-b", PolicyVersion: 9})
	for where, want := range map[string]string{
		"task=fix-a":                        "g1-0 g1-1",
		"task=fix-*":                        "g1-0 g1-1 g2-0 g3-0",
		"task!=fix-*":                       "xmine-0",
		"task=fix-c":                        "",
		"rollout=g1-1":                      "g1-1",
		"group=g1":                          "g1-0 g1-1",
		"group = g1 , reward = 1":           "g1-1",
		"reward>=0.5":                       "g1-1 g2-0",
		"reward>0.5":                        "g1-1",
		"reward<=0":                         "g1-0 xmine-0",
		"reward<0":                          "xmine-0",
		"reward!=1":                         "g1-0 g2-0 xmine-0", // what has no reward is in no such condition
		"reward=-1":                         "xmine-0",
		"turns>2":                           "g2-0 xmine-0",
		"tokens=0":                          "g1-0",
		"policy_version>=3":                 "xmine-0 g3-0",
		"task_digest=sha256:fix-b":          "g2-0",
		"task_digest=sha256:fix-*":          "g1-0 g1-1 g2-0",
		"stop_reason=finished":              "g1-0 g1-1 g2-0 xmine-0",
		"before=13":                         "g1-0", // the second was scored there
		"after=13":                          "g2-0 xmine-0 g3-0",
		"after=3,before=23":                 "g1-1",
		"after=40":                          "g3-0",
		"rollout=*":                         "g1-0 g1-1 g2-0 xmine-0 g3-0",
		"task=fix-a,reward>=1,rollout!=g2*": "g1-1",
	} {
		t.Run(where, func(t *testing.T) {
			conditions, err := parseWhere(where)
			if err != nil {
				t.Errorf("%s: %v", where, err)
				return
			}
			var ids []string
			for _, r := range selected(l, conditions) {
				ids = append(ids, r.ID)
			}
			if got := strings.Join(ids, " "); got != want {
				t.Errorf("%s selects %q, want %q", where, got, want)
			}
		})
	}
	for where, want := range map[string]string{
		"": "is not a condition", "task": "is not a condition", "task=": "is not a condition", "=x": `no ""`,
		"colour=red": "policy_version", "task>a": "= or !=",
		"task=[a": "well formed", "reward=high": `"high"`, "reward=NaN": "NaN", "before=-1": "before=SEQUENCE",
		"after>5": "after=SEQUENCE",
		"task=a,": "is not a condition", "task=a;reward=1": "", "reward!1": "is not a condition", "reward=>1": `">1"`,
	} {
		t.Run(where, func(t *testing.T) {
			_, err := parseWhere(where)
			if want == "" {
				return
			}
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--where") {
				t.Errorf("%q: %v, want %q", where, err, want)
			}
		})
	}
}

// TestInvalidatedRolloutsStayOutOfBatches: the command's facts are on the log once, and the
// batches behind them do without.
func TestInvalidatedRolloutsStayOutOfBatches(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1, 0)
	r.Batch("trainer", 1)
	r.Batch("shadow", 1)
	r.Whole(2, "fix-a", 0, 1, 0) // waits: one batch is ahead
	_, third := r.Group(3, "fix-a", 3, 0)
	failure := events.RolloutFailed{Stage: events.StageTools, Class: events.ClassSandbox}
	r.State(events.RolloutFailedType, third[2], "0", failure)
	servicetest.Wait(t, r.Log, "first", events.GroupCompletedType, "g000002", 1)

	invalidate := func(more ...string) invalidation {
		t.Helper()
		args := append([]string{"invalidate", "first", "--where", "task=fix-a,rollout!=*-1", "--reason",
			"the verifier is wrong", "--dir", r.Dir, "--json"}, more...)
		output, err := clitest.Run(t, NewInvalidate, args...)
		if err != nil {
			t.Fatal(err)
		}
		var v invalidation
		if err := json.Unmarshal([]byte(output), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	want := []string{"g000001-0", "g000002-0", "g000003-0"}
	dry := invalidate("--dry-run")
	if !dry.DryRun || dry.Matched != 4 || dry.Failed != 1 || dry.Stated != 0 || !slices.Equal(dry.Rollouts, want) ||
		!slices.Equal(dry.Batched["trainer"][1], want[:1]) {
		t.Errorf("dry run: %+v", dry)
	}
	if facts := servicetest.All(t, r.Log, "first", events.RolloutInvalidatedType); len(facts) != 0 {
		t.Errorf("a dry run states %v", servicetest.IDs(facts))
	}
	if v := invalidate(); v.Stated != 3 || v.Already != 0 || !slices.Equal(v.Rollouts, want) {
		t.Errorf("first time: %+v", v)
	}
	if v := invalidate(); v.Stated != 0 || v.Already != 3 || len(v.Rollouts) != 0 {
		t.Errorf("again: %+v", v)
	}
	facts := servicetest.All(t, r.Log, "first", events.RolloutInvalidatedType)
	ids := strings.Join(servicetest.IDs(facts), " ")
	if len(facts) != 3 || servicetest.Data[events.RolloutInvalidated](t, facts[0]).Reason != "the verifier is wrong" {
		t.Errorf("stated %v", servicetest.IDs(facts))
	}
	for _, fact := range facts {
		if _, ordinal, _ := strings.Cut(fact.ID, "/invalidated/"); !strings.HasPrefix(ordinal, "invalidate-") ||
			strings.Count(ids, ordinal) != 1 {
			t.Errorf("%s: the id is not of this rollout alone", fact.ID)
		}
	}

	r.Consumed("trainer", 1)
	if b := r.Batch("trainer", 2); !slices.Equal(b.Rollouts, []string{"g000002-1"}) {
		t.Errorf("a group that waited: %v", b.Rollouts)
	}
	r.Score(third[0], "fix-a", 0, 1)
	r.Score(third[1], "fix-a", 0, 1)
	r.Consumed("trainer", 2)
	if b := r.Batch("trainer", 3); !slices.Equal(b.Rollouts, []string{"g000003-1"}) {
		t.Errorf("a group that was under way: %v", b.Rollouts)
	}
	// What was trained on can be found out even after the run.
	r.State(events.RunClosedType, "first", "0", events.RunClosed{})
	output, err := clitest.Run(t, NewInvalidate, "invalidate", "first", "--where", "rollout=g000001-1",
		"--reason", "late", "--dir", r.Dir)
	if err != nil || !strings.Contains(output, "1 of 1 rollouts that match are invalidated now") ||
		!strings.Contains(output, "batch 1 of feed trainer holds 1 of them") {
		t.Errorf("of a closed run: %v\n%s", err, output)
	}
	output, err = clitest.Run(t, audit.New, "audit", "first", "--quick", "--by", "reason", "--feed",
		"trainer", "--dir", r.Dir)
	if err != nil || !strings.Contains(output, "filtered: invalidated") {
		t.Errorf("the audit does not tell of it: %v\n%s", err, output)
	}
}

func TestMistakesInInvalidate(t *testing.T) {
	r := clitest.NewRecorded(t)
	good := []string{"--where", "task=x", "--reason", "why", "--dir", r.Dir}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no conditions": {[]string{"first", "--reason", "why", "--dir", r.Dir}, "where"},
		"no reason":     {[]string{"first", "--where", "task=x", "--dir", r.Dir}, "reason"},
		"empty reason":  {[]string{"first", "--where", "task=x", "--reason", " ", "--dir", r.Dir}, "--reason"},
		"long reason": {[]string{"first", "--where", "task=x", "--reason", strings.Repeat("x", 1001), "--dir", r.Dir},
			"1000"},
		"no run":        {good, "RUN is missing"},
		"unknown run":   {append([]string{"second"}, good...), `"second"`},
		"nothing is so": {append([]string{"first"}, good...), "no rollout of run first matches --where task=x"},
		"wrong where":   {[]string{"first", "--where", "colour=red", "--reason", "why", "--dir", r.Dir}, `"colour"`},
	} {
		t.Run(name, func(t *testing.T) {
			if output, err := clitest.Run(t, NewInvalidate, append([]string{"invalidate"}, c.args...)...); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q\n%s", name, err, c.want, output)
			}
		})
	}
}
