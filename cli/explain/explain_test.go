package explain

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// TestMaskedIsSampled: what the run masks was sampled, and does not weigh
// where a batch is normalised.
func TestMaskedIsSampled(t *testing.T) {
	s := &scene{chains: map[string][]events.Event{"g000001-0": {
		servicetest.Event(t, "r", events.RolloutStartedType, "g000001-0", "0", events.RolloutStarted{Group: "g000001"}),
		servicetest.Event(t, "r", events.RolloutFinishedType, "g000001-0",
			"0", events.RolloutFinished{Tokens: 9, Sampled: 3, Masked: map[string]int{"titles": 4}}),
	}}}
	story, err := s.member(books.Rollout{ID: "g000001-0"}, map[int64]bool{})
	if err != nil || story.Sampled != 7 || story.trainable != 3 {
		t.Errorf("%d sampled, %d of them trainable, want 7 and 3: %v", story.Sampled, story.trainable, err)
	}
}

func TestExplainBatch(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	first := r.Publish(events.Catalogue, 1) // by an earlier run of the same policy
	second := r.Publish("first", 2)
	_, members := r.Group(1, "fix-a", 3, 1)
	r.State(events.RolloutFailedType, members[2], "0",
		events.RolloutFailed{Stage: events.StageTools, Class: events.ClassSandbox, Message: "no\nspace"})
	r.Score(members[0], "fix-a", 2, 1) // sampled by a later version than it was dispatched at
	r.Score(members[1], "fix-a", 1, 0)
	ready := r.Batch("trainer", 1)
	r.Consumed("trainer", 1)
	r.State(events.RolloutInvalidatedType, members[1], "x", events.RolloutInvalidated{Reason: "cheated"})

	output, err := clitest.Run(t, New, "explain", "batch", "first", "1", "--dir", r.Dir, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var x batchStory
	if err := json.Unmarshal([]byte(output), &x); err != nil {
		t.Fatal(err)
	}
	if x.Feed != "trainer" || x.State != "consumed" || x.Sequence == 0 || x.Batch.Step != 1 ||
		x.Batch.Files[0] != ready.Files[0] || x.Advantage.Estimator != "mean_centred" || len(x.Groups) != 1 {
		t.Fatalf("batch %+v", x)
	}
	g := x.Groups[0]
	cfg, err := r.Log.Config(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	if g.Task != "fix-a" || g.TaskDigest != "sha256:fix-a" || *g.Snapshot != cfg.Tasks[0].Snapshot ||
		*g.Tests != cfg.Tasks[0].Tests || len(g.Members) != 3 {
		t.Errorf("group %+v", g)
	}
	if len(x.Weights) != 2 || x.Weights[0].Version != 1 || *x.Weights[0].Manifest != first ||
		*x.Weights[1].Manifest != second {
		t.Errorf("weights %+v", x.Weights)
	}
	m := g.Members[0]
	if !m.Trained || m.Outcome != "trained" || m.Reward != 1 || m.Shaped != 1 || m.Advantage != 0.5 ||
		m.PolicyVersion != 1 || m.Trajectory == nil || m.Invalidated || len(m.Turns) != 2 {
		t.Errorf("member %+v", m)
	}
	if v := m.Verdict; v == nil || v.TaskDigest != "sha256:fix-a" || v.Reward != 1 || v.Log == nil {
		t.Errorf("verdict %+v", m.Verdict)
	}
	turn := m.Turns[0]
	if turn.PolicyVersion != 2 || turn.Manifest != second.SHA256 || turn.Sampled != 3 || turn.Runner != "runner-1" ||
		len(turn.ToolCalls) != 1 {
		t.Errorf("turn %+v", turn)
	}
	if c := turn.ToolCalls[0]; c.Name != "run" || !c.Error || c.ExitCode == nil || *c.ExitCode != 1 ||
		c.DurationMS != 7 || !strings.Contains(c.Arguments, "go\ttest") {
		t.Errorf("call %+v", c)
	}
	if m := g.Members[1]; !m.Trained || !m.Invalidated || m.Turns[0].Manifest != first.SHA256 {
		t.Errorf("a rollout that was invalidated later: %+v", m)
	}
	if m := g.Members[2]; m.Trained || m.Outcome != "failed" || m.Reason != "sandbox" ||
		m.Failure.Message != "no\nspace" || len(m.Turns) != 0 {
		t.Errorf("a failed member: %+v", m)
	}

	output, err = clitest.Run(t, New, "explain", "batch", "first", "1", "--dir", r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"batch 1 of feed trainer in run first, consumed", "weights " + first.SHA256[:12],
		"snapshot " + cfg.Tasks[0].Snapshot.SHA256[:12], ready.Files[0].Key,
		"g000001-0  trained  reward 1, advantage 0.5", `run {"command":"go test"}  exit code 1`,
		"on runner-1 (namespaces)", "it is invalidated", "failed: tools, sandbox: no space",
		"g000001-2  failed (sandbox)  no reward  dispatched",
	} {
		if !strings.Contains(output, part) {
			t.Errorf("it does not say %q:\n%s", part, output)
		}
	}
}

// A feed of its own has steps of its own, and members that were masked are shown with the reason.
func TestExplainAnotherFeed(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	_, members := r.Group(1, "fix-b", 2, 0)
	r.Score(members[0], "fix-b", 0, 1)
	r.State(events.RolloutInvalidatedType, members[0], "x", events.RolloutInvalidated{Reason: "cheated"})
	r.Score(members[1], "fix-b", 0, 1)
	r.Batch("shadow", 1)
	r.Batch("trainer", 1)
	output, err := clitest.Run(t, New, "explain", "batch", "first", "1", "--feed", "shadow", "--dir", r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"feed shadow in run first, ready", "g000001-0  masked (invalidated)",
		"g000001-1  trained", "policy version 0: the run began with it"} {
		if !strings.Contains(output, part) {
			t.Errorf("it does not say %q:\n%s", part, output)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"first", "2"}, "no batch 2: it has 1"},
		{[]string{"first", "1", "--feed", "judge"}, `no feed "judge": it has trainer, shadow`},
		{[]string{"second", "1"}, `"second"`}, {[]string{"first", "0"}, `"0"`}, {[]string{"first", "last"}, `"last"`},
		{[]string{"first"}, "STEP is missing"},
	} {
		if _, err := clitest.Run(t, New, append(append([]string{"explain", "batch"}, c.args...),
			"--dir", r.Dir)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// A batch that an outsider's group is in has no turns to tell of, and perhaps a task
// that the run does not know.
func TestExplainExternalGroup(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.State(events.GroupOpenedType, "xmine", "0", events.GroupOpened{Task: "elsewhere", Size: 1})
	r.State(events.RolloutStartedType, "xmine-0", "0", events.RolloutStarted{Group: "xmine", Task: "elsewhere"})
	finished := servicetest.Finished(t, r.Log.Store(), "first",
		"xmine-0", servicetest.Trajectory("first", "xmine-0", "elsewhere"))
	r.State(events.RolloutFinishedType, "xmine-0", "0", finished)
	r.State(events.RolloutScoredType, "xmine-0", "0", events.RolloutScored{Reward: 1, Trajectory: finished.Trajectory})
	r.Batch("trainer", 1)
	output, err := clitest.Run(t, New, "explain", "batch", "first", "1", "--dir", r.Dir)
	if err != nil || !strings.Contains(output, "xmine-0  trained") || !strings.Contains(output, "snapshot none") {
		t.Errorf("%v:\n%s", err, output)
	}
}

// A run whose stream is gone is explained from its archive, and a query by what was asked.
func TestExplainFromTheArchive(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	r.State(events.QuerySubmittedType, "q1", "0", events.QuerySubmitted{Instruction: "Do.", Task: "fix-b",
		Verify: true})
	r.Whole(1, "q1", 0, 1, 0)
	r.Batch("trainer", 1)
	explained := func() string {
		t.Helper()
		output, err := clitest.Run(t, New, "explain", "batch", "first", "1", "--dir", r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return output
	}
	before := explained()
	cfg, err := r.Log.Config(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(before, "task q1 fix-b  snapshot "+cfg.Tasks[1].Snapshot.SHA256[:12]) {
		t.Errorf("the query's task is not told:\n%s", before)
	}
	r.Batch("shadow", 1) // the last thing that happens
	if _, err := r.Log.Appender.Seal(t.Context(), "first", true); err != nil {
		t.Fatal(err)
	}
	if err := r.Log.Streams.DeleteRun(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	if after := explained(); after != before {
		t.Errorf("from the archive:\n%s\nfrom the log:\n%s", after, before)
	}
}

// What the batch made of the advantages is what its file holds.
func TestExplainNormalisedBatch(t *testing.T) {
	least := 0.5
	r := clitest.NewRecordedWith(t, func(cfg *runfile.RunConfig) {
		cfg.Advantage.Estimator = "reinforce_plus_plus"
		cfg.Feeds = []runfile.Feed{{Name: "trainer", GroupsPerBatch: 2},
			{Name: "sft", GroupsPerBatch: 2, MinReward: &least}}
	}, clitest.Deciding...)
	r.Whole(1, "fix-a", 0, 1, 0)
	r.Whole(2, "fix-b", 0, 1, 1)
	for feed, want := range map[string]map[string]float64{
		"trainer": {"g000001-0": 0, "g000001-1": 0, "g000002-0": 0, "g000002-1": 0}, // filled in from the file
		"sft":     {"g000001-0": 1, "g000002-0": 1, "g000002-1": 1},
	} {
		data, err := storage.GetBlob(t.Context(), r.Log.Store(), r.Batch(feed, 1).Files[0])
		if err != nil {
			t.Fatal(err)
		}
		batch, err := storage.DecodeBatch(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range batch.Samples {
			want[s.Rollout] = float64(s.Advantages[slices.Index(s.LossMask, true)])
		}
		output, err := clitest.Run(t, New, "explain", "batch", "first", "1", "--feed", feed, "--dir", r.Dir, "--json")
		if err != nil {
			t.Fatal(err)
		}
		var x batchStory
		if err := json.Unmarshal([]byte(output), &x); err != nil {
			t.Fatal(err)
		}
		for _, g := range x.Groups {
			for _, m := range g.Members {
				a, trained := want[m.Rollout]
				if m.Trained != trained ||
					trained && (m.BatchAdvantage == nil || math.Abs(*m.BatchAdvantage-a) > 1e-6) {
					t.Errorf("feed %s: %+v, want %g", feed, m, a)
				}
				if feed == "trainer" && (a == 0 || a == m.Advantage) {
					t.Errorf("%s is not normalised: %g", m.Rollout, a)
				}
			}
		}
	}
}

func TestForeignTextOnOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\nb\tc": "a b c", "\x1b[31mred": "�[31mred", "": "", "a\u202eb": "a�b", "änderungen": "änderungen",
		"änderungen!": "änderunge…",
	} {
		t.Run(text, func(t *testing.T) {
			if got := app.Line(text, 10); got != want {
				t.Errorf("%q becomes %q, want %q", text, got, want)
			}
		})
	}
}
