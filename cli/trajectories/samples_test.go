package trajectories

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/export/episode"
	"github.com/rondo-rl/rondo/storage"
)

// TestSamplesAreExplained: a rollout of several samples says how many they are and
// why the later ones began.
func TestSamplesAreExplained(t *testing.T) {
	s := &shownRollout{&episode.Episode{Trajectory: &storage.Trajectory{Rollout: "g1-0"}}}
	for i, cause := range []string{"", events.CauseThoughts, "-", events.CauseDrift, events.CauseThoughts} {
		s.Rollout.Turns = append(s.Rollout.Turns, events.TurnSampled{Turn: i, NewSegment: cause != "-",
			SegmentCause: strings.Trim(cause, "-")})
	}
	if text := fmt.Sprint(s.header()); !strings.Contains(text,
		"4: new ones began as prompts did not repeat thoughts 2, drift 1") {
		t.Errorf("the header is %s", text)
	}
	if s.causeOf(3) != events.CauseDrift || s.causeOf(9) != "" {
		t.Errorf("turn 3 began a segment by %q", s.causeOf(3))
	}
	s.Rollout.Turns = append(s.Rollout.Turns, events.TurnSampled{Turn: 5,
		Summary: &events.Summary{Calls: 2, Withheld: true}},
		events.TurnSampled{Turn: 6, NewSegment: true, SegmentCause: events.CauseSummary})
	if text := fmt.Sprint(s.header()); !strings.Contains(text,
		"5: new ones began behind 1 summary, as prompts did not repeat thoughts 2, drift 1") {
		t.Errorf("the header is %s", text)
	}
	s.Rollout.Turns = append(s.Rollout.Turns, events.TurnSampled{Turn: 7, NewSegment: true,
		SegmentCause: events.CauseSibling})
	if text := fmt.Sprint(s.header()); !strings.Contains(text, "drift 1, as the harness went another way: sibling 1") {
		t.Errorf("the header is %s", text)
	}
	s.Rollout.Turns = append(s.Rollout.Turns, events.TurnSampled{Turn: 8, NewSegment: true,
		SegmentCause: events.CauseImages})
	if text := fmt.Sprint(s.header()); !strings.Contains(text, "sibling 1, as prompts have images 1") {
		t.Errorf("the header is %s", text)
	}
	for _, cause := range events.SegmentCauses {
		if causeText[cause] == "" {
			t.Errorf("nothing explains %s", cause)
		}
	}
	if text := s.summaryOf(5); text != " · summary (2 tool calls not run) (without the last answers of tools)" ||
		s.summaryOf(4) != "" {
		t.Errorf("turn 5 is%s", text)
	}
	s.Rollout.Turns = s.Rollout.Turns[:1]
	if text := fmt.Sprint(s.header()); strings.Contains(text, "samples") {
		t.Errorf("the header of one sample is %s", text)
	}
	s.Rollout.Finished = &events.RolloutFinished{Masked: map[string]int{"titles": 20, "others": 5}}
	if text, want := fmt.Sprint(s.header()),
		"sampled tokens of conversations: 5 by rule others, 20 by rule titles"; !strings.Contains(text, want) {
		t.Errorf("the header is %s, want %q in it", text, want)
	}
}

// TestOtherModelsShown: turns that another model has answered say so, and have
// no version of the policy.
func TestOtherModelsShown(t *testing.T) {
	s := &shownRollout{&episode.Episode{
		Rollout: events.Rollout{Turns: []events.TurnSampled{{},
			{Turn: 1, Conversation: &events.Conversation{Rule: "titles", Masked: true, Model: "small"}}}},
		Trajectory: &storage.Trajectory{Messages: []storage.Message{
			{Role: "assistant", PolicyVersion: 3}, {Role: "assistant", Content: "A title", Turn: 1,
				Segment: 1, PolicyVersion: -1},
		}},
	}}
	var text strings.Builder
	if err := (&view{&app.Screen{W: &text}}).rollout(s, showOptions{turn: -1}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"sampled with version 3\n", "1 turns by small\n",
		"── turn 1 answered by small · 0 tokens"} {
		contains(t, text.String(), want)
	}
}

// TestSamplesOfLeftTurns: what an agent has left behind is no sample and no reason for one; samples
// are those of the trajectory, where what went on behind such a turn begins another.
func TestSamplesOfLeftTurns(t *testing.T) {
	s := &shownRollout{&episode.Episode{Trajectory: &storage.Trajectory{Rollout: "g1-0",
		Messages: []storage.Message{{Segment: 0}, {Segment: 2}, {Segment: 2}, {Segment: 3}}}}}
	s.Rollout.Turns = []events.TurnSampled{{NewSegment: true},
		{Turn: 1, NewSegment: true, SegmentCause: events.CauseSystem},
		{Turn: 2}, {Turn: 3, NewSegment: true, SegmentCause: events.CauseSibling}}
	s.Rollout.Answers = []events.WorkspaceAnswered{{Agent: &events.AgentEnded{Left: []int{1}}}}
	if text, want := s.samples(), "3: new ones began as the harness went another way: sibling 1"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestVersionsText(t *testing.T) {
	for want, m := range map[string]storage.Message{
		"not sampled here": {Turn: 1, PolicyVersion: -1},
		"version unknown":  {Turn: 2, PolicyVersion: -1},
		"version 3":        {Turn: 2, PolicyVersion: 3},
	} {
		if got := versionsText(m, 2); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
