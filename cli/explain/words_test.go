package explain

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/cli/plane"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// told runs a command of explain, and checks that it says each part.
func told(t *testing.T, r *clitest.Recorded, args []string, parts ...string) string {
	t.Helper()
	output, err := clitest.Run(t, New, append(append([]string{"explain"}, args...), "--dir", r.Dir)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if !strings.Contains(output, part) {
			t.Errorf("%v: it does not say %q:\n%s", args, part, output)
		}
	}
	return output
}

func TestExplainARolloutAndItsGroup(t *testing.T) {
	r := clitest.NewRecorded(t, clitest.Deciding...)
	_, members := r.Group(1, "fix-a", 3, 1)
	r.State(events.RolloutRetriedType, members[2], "0",
		events.RolloutRetried{Stage: events.StageTools, Class: events.ClassSandbox, Message: "no\nroom", Try: 1})
	r.State(events.RolloutFailedType, members[2], "0",
		events.RolloutFailed{Stage: events.StageTools, Class: events.ClassSandbox, Message: "no space"})
	r.Score(members[0], "fix-a", 1, 1)
	r.Score(members[1], "fix-a", 1, 0)
	r.Batch("trainer", 1)
	r.Batch("shadow", 1)
	r.Consumed("trainer", 1)
	r.State(events.RolloutInvalidatedType, members[1], "x", events.RolloutInvalidated{Reason: "cheated"})

	told(t, r, []string{"rollout", "first", members[0]}, "is rollout 1 of 3 in group g000001", "task fix-a",
		"with policy version 1", "had 2 turns", "called tools 1 time: 1 of the calls failed, and 0 commands ended",
		"because the model was done", "Its reward is 1.",
		"The verifier ended with exit code 0 after 0s and printed:\n  | verdict on "+members[0],
		"mean reward 0.5, and the estimator mean_centred gives it the advantage 0.5",
		"Feed trainer trains on it: it is in the batch of step 1",
		"Feed shadow has no decision yet: it is in a batch that the trainer has not taken")
	told(t, r, []string{"rollout", "first", members[1]}, "It is invalidated: cheated")
	told(t, r, []string{"rollout", "first", members[2]},
		"A try failed at stage tools and was made again (sandbox): no room",
		"It failed at stage tools (sandbox), so it has no reward: no space",
		"Its group is complete without it", "Feed trainer does not train on it, because it failed")
	told(t, r, []string{"group", "first", "g000001"}, "has 3 rollouts of task fix-a",
		"2 of them are scored, 1 failed (sandbox)", "The mean reward is 0.5", "2 rollouts: Feed trainer trains on it",
		"1 rollout: Feed trainer does not", "ROLLOUT", "g000001-2       -")
	told(t, r, []string{"batch", "first", "1"},
		"It trains on 2 of the 3 rollouts in 1 group; it leaves out 1 (failed: sandbox).")

	var x tale
	if err := json.Unmarshal([]byte(told(t, r, []string{"rollout", "first", members[2], "--json"})), &x); err != nil {
		t.Fatal(err)
	}
	if x.Rollout != members[2] || x.Evidence == nil || x.VerifierOutput != "" || len(x.Sentences) < 5 ||
		x.Feeds["trainer"][members[2]].Outcome != "failed" {
		t.Errorf("%+v", x)
	}
}

func TestExplainWhatIsInFlightOrDropped(t *testing.T) {
	r := clitest.NewRecorded(t)
	_, members := r.Group(1, "fix-a", 2, 0)
	r.State(events.TurnSampledType, members[0], "0", events.TurnSampled{ToolCalls: []events.ToolCall{{ID: "c",
		Name: "run"}}, TokenIDs: []int32{1, 2}})
	told(t, r, []string{"rollout", "first", members[0]}, "had 1 turn and sampled 2 tokens",
		"It is in flight: its tools run.", "Its group is not complete: 2 rollouts without an outcome")
	told(t, r, []string{"group", "first", "g000001"}, "The group is not complete: 2 rollouts")
	rollouts := r.Whole(2, "fix-b", 0, 1, 1)
	r.State(events.GroupCompletedType, "g000002", "0",
		events.GroupCompleted{Mean: 1, Estimator: "mean_centred",
			Members: []events.Member{{Rollout: rollouts[0], Reward: 1}, {Rollout: rollouts[1], Reward: 1}}})
	r.State(events.GroupDroppedType, "g000002", "trainer",
		events.GroupDropped{Feed: "trainer", Reason: events.DropFiltered, Filter: "equal_rewards", Detail: "all are 1"})
	r.State(events.GroupDroppedType, "g000002", "shadow",
		events.GroupDropped{Feed: "shadow", Reason: events.DropStale, Staleness: 3})
	told(t, r, []string{"group", "first", "g000002"}, "All rewards are equal",
		"2 rollouts: Feed trainer dropped its group by the filter equal_rewards (all are 1).",
		"Feed shadow dropped its group as stale: it was 3 versions old")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"rollout", "first", "g000009-0"}, "no rollout g000009-0"},
		{[]string{"group", "first", "g000009"}, "no group g000009"},
		{[]string{"rollout", "first", "a b"}, "give an id"},
		{[]string{"group", "second", "g000001"}, `"second"`},
	} {
		if _, err := clitest.Run(t, New, append(append([]string{"explain"}, c.args...),
			"--dir", r.Dir)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestVerifierOutput: the end of a long output is printed without control characters, JSON has more
// of it, and output that is lost is said to be.
func TestVerifierOutput(t *testing.T) {
	r := clitest.NewRecorded(t)
	long := servicetest.Blob(t, r.Log.Store(), []byte(strings.Repeat("early\n", 20_000)+
		"FAILED\ttest_a\x1b[2J - assert 1 == 2\n"))
	p, s := &plane.Plane{Store: r.Log.Store()}, &source{books: books.New("first")}
	told := s.evidence(t.Context(), p, &events.Rollout{Scored: &events.RolloutScored{ExitCode: 1, DurationMS: 1234,
		Log: &long}})
	var out strings.Builder
	if err := told.print(&out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "exit code 1 after 1.2s") ||
		!strings.Contains(text, "lines before") ||
		!strings.Contains(text, "FAILED") || strings.Contains(text, "\x1b") ||
		strings.Count(text, "\n") != printedLines+2 || len(told.VerifierOutput) != 64<<10 {
		t.Errorf("%d bytes of output; printed:\n%s", len(told.VerifierOutput), text)
	}
	lost := long
	lost.Key = "blobs/00/" + lost.SHA256
	told = s.evidence(t.Context(), p, &events.Rollout{Scored: &events.RolloutScored{Log: &lost}})
	if len(told.Unread) != 1 || !strings.Contains(told.Unread[0], "cannot be read") || told.VerifierOutput != "" {
		t.Errorf("%+v", told)
	}
}

// TestTestsThatFailed: the tests that cost the reward are named, stage by stage, with what they
// failed with, and without control characters.
func TestTestsThatFailed(t *testing.T) {
	r := clitest.NewRecorded(t)
	p, s := &plane.Plane{Store: r.Log.Store()}, &source{books: books.New("first")}
	unmet := []grade.UnmetTest{{Name: "test_a\x1b[2J", State: "failed", Message: "assert 1 == 2\n\x1b[31mmore"},
		{Name: "test_b", State: "missing", Regression: true}}
	told := s.evidence(t.Context(), p, &events.Rollout{
		Steps: []events.EndedStep{{Verdict: &events.StepScored{Tests: &grade.Tests{Graded: 3, Held: 3, BadEnd: true}}},
			{}},
		Scored: &events.RolloutScored{Tests: &grade.Tests{Graded: 9, Held: 4, Unmet: unmet}},
	})
	var out strings.Builder
	if err := told.print(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, part := range []string{
		"Stage 1: 3 of the 3 tests that decide ended as they must. But the test program", "\n4 of the 9 tests",
		"  failed\n  | assert 1 == 2\n  | ",
		"  test_b  not reported, passed before\n", "  … 3 tests more",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing", part)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("control characters: %q", text)
	}
	if data, err := json.Marshal(told); err != nil ||
		!strings.Contains(string(data), `{"stage":1,"graded":3,"held":3,"bad_end":true},{"graded":9,`) {
		t.Errorf("%s, %v", data, err)
	}
}

// TestEvidence: behind the tale of a rollout stand what it changed, its last calls, and where its
// siblings went another way.
func TestEvidence(t *testing.T) {
	r := clitest.NewRecorded(t)
	_, members := r.Group(1, "fix-a", 3, 0)
	one := 1
	turn := func(member string, n int, content string) {
		r.State(events.TurnSampledType, member, events.Ordinal(n), events.TurnSampled{Turn: n, Content: content,
			ToolCalls: []events.ToolCall{{ID: member, Name: "run", Arguments: `{"command":"sh\u001b test.sh"}`}}})
		r.State(events.ToolsCompletedType, member, events.Ordinal(n),
			events.ToolsCompleted{Turn: n, Results: []events.ToolResult{
				{CallID: member, Name: "run", ExitCode: &one, Content: "a\nb\nc\nd\nnot ok - \x1b[2J" + content}}})
	}
	for n, said := range []string{"look", "edit", "test"} {
		turn(members[0], n, said)
	}
	turn(members[1], 0, "look")
	turn(members[1], 1, "think")
	change, err := sandbox.Pack(fstest.MapFS{"main.py": {Data: []byte("# fix-a\nx = \x1b[2J1\n"), Mode: 0o644}})
	if err != nil {
		t.Fatal(err)
	}
	left := servicetest.Blob(t, r.Log.Store(), change)
	finished := servicetest.Finished(t, r.Log.Store(), "first", members[0],
		servicetest.Trajectory("first", members[0], "fix-a"))
	finished.Workspace = &left
	r.State(events.RolloutFinishedType, members[0], "0", finished)

	text := told(t, r, []string{"rollout", "first", members[0]},
		"It changed the workspace:\n  changed main.py", "  |  # fix-a", "  | +x = ", "Its last calls:", "  turn 2: run",
		"exit code 1", "  | not ok",
		"Beside it in its group:", "g000001-1  in flight      2                  1",
		"g000001-2  in flight      0                  0")
	if strings.Contains(text, "\x1b") || strings.Contains(text, "| a\n") {
		t.Errorf("control characters, or more of an output than its end:\n%q", text)
	}
	var x tale
	if err := json.Unmarshal([]byte(told(t, r, []string{"rollout", "first", members[0], "--json"})), &x); err != nil {
		t.Fatal(err)
	}
	if len(x.Changes) != 1 || x.Changes[0].Name != "main.py" || len(x.Calls) != 3 || x.Calls[2].Turn != 2 ||
		len(x.Siblings) != 2 || *x.Siblings[0].DiffersAt != 1 {
		t.Errorf("%+v", x.Evidence)
	}
}

// TestMemoryOfAnAgent: an agent that had no memory left is told of, and no other.
func TestMemoryOfAnAgent(t *testing.T) {
	for _, used := range []bool{true, false} {
		var told tale
		told.work(&events.Rollout{Answers: []events.WorkspaceAnswered{{Agent: &events.AgentEnded{OutOfMemory: used}}}},
			books.Rollout{})
		if said := strings.Join(told.Sentences, "\n"); strings.Contains(said, "`environment.memory_mb`") != used {
			t.Errorf("out of memory: %t, and it says %q", used, said)
		}
	}
}
