package logs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/services/intake"
)

// TestSentences: each type of event has a sentence, also of an event that says nothing.
func TestSentences(t *testing.T) {
	for _, typ := range events.Types() {
		e := events.Event{Type: typ, Data: []byte("{}")}
		if sentence, err := Sentence(e); err != nil || sentence == "" {
			t.Errorf("%s: %q, %v", typ, sentence, err)
		}
	}
	if _, err := Sentence(events.Event{Type: "rollout.dreamt"}); err == nil {
		t.Error("an unknown type is told")
	}
}

// TestSentencesOfFigures: what nobody knows is said to be unknown, and has no figure. Masked
// tokens were sampled, too.
func TestSentencesOfFigures(t *testing.T) {
	for _, c := range []struct {
		typ        events.Type
		data, want string
	}{
		{events.GroupCompletedType, `{"members": [{"failed": true}, {"failed": true}]}`,
			"the group is complete: none of its rollouts has a reward"},
		{events.TurnSampledType, `{"turn": 2, "policy_version": -1, "completion_tokens": 3, "finish_reason": "stop"}`,
			"turn 2, version unknown, 3 tokens (stop)"},
		{events.RolloutFinishedType, `{"turns": 2, "stop_reason": "finished", "text_only": true}`,
			"the episode ended (finished) behind 2 turns, text only"},
		{events.RolloutFinishedType, `{"turns": 2, "stop_reason": "finished", "sampled": 5, "masked": {"titles": 2}}`,
			"the episode ended (finished) behind 2 turns, 7 tokens sampled"},
	} {
		if said, err := Sentence(events.Event{Type: c.typ, Data: []byte(c.data)}); err != nil || said != c.want {
			t.Errorf("%s: %q, %v", c.typ, said, err)
		}
	}
}

// TestLogs: a run, a group and a rollout are told, each with its events alone, and nothing that is
// said moves the terminal's cursor.
func TestLogs(t *testing.T) {
	r := clitest.NewRecorded(t, intake.Run)
	whole := r.Whole(1, "fix-a", 0, 1, 0)
	r.Group(2, "fix-b", 1, 0)
	r.State(events.RolloutRetriedType, "g000002-0", "0",
		events.RolloutRetried{Stage: "tools", Class: "sandbox", Message: "no\nroom \x1b[2J", Try: 1})
	for _, c := range []struct {
		args       string
		has, lacks []string
	}{
		{"first", []string{"the run was opened", "g000001-0    reward 1", "try 1 failed at stage tools (sandbox)"},
			nil},
		{"first g000001", []string{"the group was opened: 2 rollouts of task fix-a", "g000001-1    reward 0"},
			[]string{"the run was", "g000002"}},
		{"first " + whole[0], []string{"started on task fix-a", "turn 0, version 0",
			"tools of turn 0 · run: exit code 1 after 7ms", "the episode ended"}, []string{"g000001-1", "group"}},
	} {
		out, err := clitest.Run(t, New, append([]string{"logs", "--dir", r.Dir}, strings.Fields(c.args)...)...)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range c.has {
			if !strings.Contains(out, part) {
				t.Errorf("logs %s does not tell %q:\n%s", c.args, part, out)
			}
		}
		for _, part := range append(c.lacks, "\x1b") {
			if strings.Contains(out, part) {
				t.Errorf("logs %s tells %q:\n%s", c.args, part, out)
			}
		}
	}
	out, err := clitest.Run(t, New, "logs", "first", whole[1], "--json", "--dir", r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last toldEvent
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Type != events.RolloutScoredType ||
		last.Sentence != "reward 0" {
		t.Errorf("%+v, %v", last, err)
	}
}
