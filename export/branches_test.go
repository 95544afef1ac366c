package export

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/services/servicetest"
	"github.com/rondo-rl/rondo/storage"
)

// branched is a harness's rollout: after two turns it goes back behind the first and tries again,
// then begins anew with a rewritten history.
func branched(run, rollout string) (*storage.Trajectory, []turnShape) {
	said := func(turn, segment int32, text string) storage.Message {
		return storage.Message{Role: "assistant", Content: text, Turn: turn, Segment: segment, TokenIDs: []int32{1},
			Logprobs: []float32{-1}, LossMask: []bool{true}, PolicyVersion: 1}
	}
	asked := func(role string, turn, segment int32, text string) storage.Message {
		return storage.Message{Role: role, Content: text, Turn: turn, Segment: segment, PolicyVersion: -1}
	}
	t := &storage.Trajectory{Run: run, Group: "xg", Rollout: rollout, Task: "fix-a", Messages: []storage.Message{
		asked("user", 0, 0, "mend it"), said(0, 0, "first"),
		asked("user", 1, 0, "go on"), said(1, 0, "second"),
		asked("user", 2, 1, "no, so"), asked(events.RolePrompt, 2, 1, ""), said(2, 1, "third"),
		asked("user", 3, 2, "mend it, in short"), said(3, 2, "fourth"),
	}}
	for i := range t.Messages {
		t.Messages[i].Index = int32(i)
	}
	return t, []turnShape{{-1, 1}, {0, 1}, {0, 1}, {-1, 1}}
}

func spelledBranches(found []branch) string {
	var all []string
	for _, b := range found {
		var texts []string
		for _, m := range b.messages {
			if m.Role != events.RolePrompt {
				texts = append(texts, m.Content)
			}
		}
		all = append(all, fmt.Sprintf("%d+%d: %s", b.leaf, b.copied, strings.Join(texts, ", ")))
	}
	return strings.Join(all, "; ")
}

func TestBranches(t *testing.T) {
	tree, shapes := branched("r", "x1")
	found, err := branches(tree, shapes)
	want := "1+0: mend it, first, go on, second; 2+2: mend it, first, no, so, third; 3+0: mend it, in short, fourth"
	if got := spelledBranches(found); err != nil || got != want {
		t.Errorf("%v:\n got %s\nwant %s", err, got, want)
	}
	for name, wrong := range map[string][]turnShape{
		"a turn less": shapes[:3], "a turn more": append(shapes, turnShape{0, 1}),
		"another prompt":      {{-1, 2}, {0, 1}, {0, 1}, {-1, 1}},
		"a turn after itself": {{-1, 1}, {1, 1}, {0, 1}, {-1, 1}},
	} {
		if _, err := branches(tree, wrong); err == nil || !strings.Contains(err.Error(), "x1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Without turns on the log a file of several segments is refused where a segment does
	// not say its conversation.
	if _, err := branches(tree, nil); err != nil {
		t.Errorf("segments that begin with messages: %v", err)
	}
	tree.Messages[4], tree.Messages[5] = tree.Messages[5], tree.Messages[4]
	if _, err := branches(tree, nil); err == nil || !strings.Contains(err.Error(), "segment 1") {
		t.Errorf("a segment of tokens alone: %v", err)
	}
	tree.Rollout, tree.Messages = "g000001-0", tree.Messages[:7]
	if found, err := branches(tree, nil); err != nil || len(found) != 1 ||
		len(found[0].messages) != len(tree.Messages) {
		t.Errorf("a rollout of the generator: %s, %v", spelledBranches(found), err)
	}
}

// TestBranchesWithoutTurnsLeftBehind: turns that an agent has left behind are in no conversation.
// One that goes on behind such a turn has its words, as its file says.
func TestBranchesWithoutTurnsLeftBehind(t *testing.T) {
	tree, shapes := branched("r", "g000001-0")
	tree.Messages = slices.Delete(slices.Clone(tree.Messages), 2, 4) // turn 1
	found, err := branches(tree, leave(shapes, []int{1}))
	want := "2+0: mend it, first, no, so, third; 3+0: mend it, in short, fourth"
	if got := spelledBranches(found); err != nil || got != want {
		t.Errorf("%v:\n got %s\nwant %s", err, got, want)
	}
	if _, err := branches(tree, shapes); err == nil {
		t.Error("a file without the turn, and a log that does not say why")
	}
	tree, shapes = branched("r", "g000001-0")
	tree.Messages = slices.Concat(tree.Messages[:4:4], tree.Messages[7:])
	tree.Messages[1].Role = "assistant" // turn 0 is left, and its answer is a word of turn 1's prompt
	found, err = branches(tree, leave(shapes, []int{0, 2}))
	if got, want := spelledBranches(found),
		"1+0: mend it, first, go on, second; 3+0: mend it, in short, fourth"; err != nil || got != want {
		t.Errorf("%v:\n got %s\nwant %s", err, got, want)
	}
}

// TestExportsOfBranches: no exporter joins conversations that were none.
func TestExportsOfBranches(t *testing.T) {
	reward := 1.0
	tree, shapes := branched("r", "x1")
	found, err := branches(tree, shapes)
	if err != nil {
		t.Fatal(err)
	}
	var sampled int
	for _, b := range found {
		document, err := encodeATIF(toATIF(tree, b, len(found), Rollout{Run: "r", Rollout: "x1", Reward: &reward}))
		if err != nil {
			t.Fatal(err)
		}
		validATIF(t, document)
		var d atifTrajectory
		if err := json.Unmarshal(document, &d); err != nil {
			t.Fatal(err)
		}
		sampled += d.FinalMetrics.CompletionTokens
		if d.TrajectoryID != fmt.Sprintf("x1-turn%d", b.leaf) ||
			strings.Count(string(document), "second") > 0 && strings.Count(string(document), "third") > 0 {
			t.Errorf("%s", document)
		}
	}
	if sampled != 4 {
		t.Errorf("%d sampled tokens in all documents, want each of the 4 once", sampled)
	}
}

// TestChatOfBranches exports a harness's rollout from a plane.
func TestChatOfBranches(t *testing.T) {
	r := clitest.NewRecorded(t)
	servicetest.OpenRun(t, r.Log, "harness", servicetest.Config("fix-a"))
	tree, shapes := branched("harness", "xa-0")
	servicetest.Append(t, r.Log, servicetest.Event(t, "harness", events.RolloutStartedType, "xa-0",
		"0", events.RolloutStarted{Group: "xa", Task: "fix-a"}))
	for i, shape := range shapes {
		turn := events.TurnSampled{Turn: i, Prompt: make([]events.PromptMessage, shape.prompt), TextOnly: true}
		if shape.after >= 0 {
			turn.After = &shape.after
		}
		servicetest.Append(t, r.Log, servicetest.Event(t, "harness", events.TurnSampledType,
			"xa-0", fmt.Sprint(i), turn))
	}
	finished := servicetest.Finished(t, r.Log.Store(), "harness", "xa-0", tree)
	servicetest.Append(t, r.Log, servicetest.Event(t, "harness", events.RolloutFinishedType, "xa-0", "0", finished))
	servicetest.Append(t, r.Log, servicetest.Event(t, "harness", events.RolloutScoredType, "xa-0",
		"0", events.RolloutScored{Reward: 1, Trajectory: finished.Trajectory}))
	out := filepath.Join(t.TempDir(), "chat.jsonl")
	list, err := Select(t.Context(), r.Log.Reader, []string{"harness"}, Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&Exporter{Store: r.Log.Store(), Out: out}).Write(t.Context(), Chat, list); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 3 || strings.Contains(lines[0], "third") || strings.Contains(lines[1], "second") ||
		!strings.Contains(lines[2], `"turn":3,"branches":3`) {
		t.Errorf("%s", text)
	}
}

// TestMaskedBranches: what the run masks is in no data for fine-tuning.
func TestMaskedBranches(t *testing.T) {
	store := natstest.Store(t)
	export := func(format string, masked ...int32) (lines []string, branching int) {
		t.Helper()
		var list []Rollout
		run := fmt.Sprint(format, len(masked))
		for i, rollout := range []string{"xa-0", "xa-1"} {
			tree, shapes := branched(run, rollout)
			tree.Masked = map[int32]string{}
			for _, segment := range masked {
				tree.Masked[segment] = "titles"
			}
			for i := range tree.Messages {
				if m := &tree.Messages[i]; tree.Masked[m.Segment] != "" {
					m.LossMask = make([]bool, len(m.TokenIDs))
				}
			}
			reward := float64(i)
			finished := servicetest.Finished(t, store, run, rollout, tree)
			list = append(list, Rollout{Run: run, Rollout: rollout, Reward: &reward,
				File: finished.Trajectory, turns: shapes})
		}
		x := &Exporter{Store: store, Out: filepath.Join(t.TempDir(), "lines.jsonl")}
		if _, err := x.Write(t.Context(), format, list); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(x.Out)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n"), x.Branching
	}
	if lines, _ := export(Chat, 1); len(lines) != 4 || strings.Contains(strings.Join(lines, ""), "third") ||
		!strings.Contains(lines[1], `"turn":3,"branches":2`) {
		t.Errorf("chat: %v", lines)
	}
	if lines, left := export(Pairs, 0, 1); left != 0 || len(lines) != 1 || !strings.Contains(lines[0], "fourth") ||
		strings.Contains(lines[0], "first") {
		t.Errorf("pairs: %v, %d left out", lines, left)
	}
	if lines, left := export(Pairs, 0, 1, 2); left != 1 || lines[0] != "" {
		t.Errorf("pairs of which all is masked: %v, %d left out", lines, left)
	}
}

// TestSummaryBeginsAConversation: what was said before a summary is no part of the prompts behind
// it. Where only tokens came back in another way, the conversation goes on.
func TestSummaryBeginsAConversation(t *testing.T) {
	said := func(turn, segment int32, text string) storage.Message {
		return storage.Message{Role: "assistant", Content: text, Turn: turn, Segment: segment, TokenIDs: []int32{9},
			Logprobs: []float32{-1}, LossMask: []bool{true}, PolicyVersion: 1}
	}
	asked := func(role string, turn, segment int32, text string) storage.Message {
		return storage.Message{Role: role, Content: text, Turn: turn, Segment: segment, PolicyVersion: -1,
			TokenIDs: []int32{turn}, Logprobs: []float32{0}, LossMask: []bool{false}}
	}
	tr := &storage.Trajectory{Run: "r", Group: "g000001", Rollout: "g000001-0", Task: "fix-a",
		Messages: []storage.Message{
			asked("user", 0, 0, "mend it"), said(0, 0, "first"),
			asked(events.RolePrompt, 1, 1, ""), said(1, 1, "second"),
			asked("user", 2, 1, "sum up"), said(2, 1, "summary"),
			asked("system", 3, 2, "be kind"), asked("user", 3, 2, "mend it, behind the summary"), said(3, 2, "done"),
		}}
	found, err := branches(tr, nil)
	if got, want := spelledBranches(found),
		"2+0: mend it, first, second, sum up, summary; 3+0: be kind, mend it, behind the summary, done"; err != nil ||
		got != want {
		t.Errorf("%v:\n got %s\nwant %s", err, got, want)
	}
	reward := 1.0
	document, err := encodeATIF(toATIF(tr, found[1], len(found),
		Rollout{Run: "r", Rollout: tr.Rollout, Reward: &reward, Policy: "small"}))
	if err != nil {
		t.Fatal(err)
	}
	validATIF(t, document)
	if !strings.Contains(string(document), `"prompt_token_ids":[3,3]`) || strings.Contains(string(document), "first") {
		t.Errorf("%s", document)
	}
	if found, err := branches(&storage.Trajectory{Rollout: "g000001-0"}, nil); err != nil || len(found) != 1 {
		t.Errorf("without messages: %v, %v", found, err)
	}
}
