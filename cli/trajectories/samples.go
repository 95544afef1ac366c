package trajectories

import (
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// causeText is why a segment begins.
var causeText = map[string]string{
	events.CauseThoughts: ": the chat template leaves out thoughts",
	events.CauseDrift:    ": an answer came back as other tokens than were sampled",
	events.CauseHistory:  ": an earlier prompt came back as other tokens",
	events.CauseSummary:  ": it has the summary in place of what was said",

	events.CauseTools:     ": the harness offered other tools, or told the template something else",
	events.CauseSystem:    ": the harness changed the words of the system",
	events.CauseRewritten: ": the harness changed what was said before",
	events.CauseCompacted: ": the harness has a shorter history, with none of the answers before",
	events.CauseSibling:   ": another turn went on from there before",
	events.CauseUnrelated: ": the harness began another conversation",
	events.CauseImages:    ": it has an image, and is asked for by messages",
}

// causeOf is why a turn begins a segment, "" where nobody recorded it.
func (s *shownRollout) causeOf(turn int32) string {
	for _, t := range s.Rollout.Turns {
		if t.Turn == int(turn) {
			return t.SegmentCause
		}
	}
	return ""
}

// samples is like "3: new ones began behind 1 summary, as prompts did not repeat
// thoughts 2", how many samples the rollout is and what began the later ones; "" for one
// that is one sample, or none.
func (s *shownRollout) samples() string {
	segments, n, causes := map[int32]bool{}, 0, map[string]int{}
	for _, m := range s.Trajectory.Messages {
		segments[m.Segment] = true
	}
	for i, t := range s.Rollout.Taken() {
		if !t.NewSegment {
			continue
		}
		if n++; i > 0 && t.SegmentCause != "" {
			causes[t.SegmentCause]++
		}
	}
	if len(segments) > 0 { // a turn behind one that was left behind begins one there, too
		n = len(segments)
	}
	if n < 2 {
		return ""
	}
	var began []string
	counted := func(names ...string) string {
		var counts []string
		for _, cause := range names {
			if causes[cause] > 0 {
				counts = append(counts, fmt.Sprintf("%s %d", cause, causes[cause]))
			}
		}
		return strings.Join(counts, ", ")
	}
	switch sums := causes[events.CauseSummary]; sums {
	case 0:
	case 1:
		began = append(began, "behind 1 summary")
	default:
		began = append(began, fmt.Sprintf("behind %d summaries", sums))
	}
	if counts := counted(events.CauseThoughts, events.CauseDrift, events.CauseHistory); counts != "" {
		began = append(began, "as prompts did not repeat "+counts)
	}
	if counts := counted(events.CauseTools, events.CauseSystem, events.CauseRewritten, events.CauseCompacted,
		events.CauseSibling, events.CauseUnrelated); counts != "" {
		began = append(began, "as the harness went another way: "+counts)
	}
	if n := causes[events.CauseImages]; n > 0 {
		began = append(began, fmt.Sprintf("as prompts have images %d", n))
	}
	if len(began) == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d: new ones began %s", n, strings.Join(began, ", "))
}

// summaryOf says of a turn that it is a summary; "" of another one.
func (s *shownRollout) summaryOf(turn int32) string {
	for _, t := range s.Rollout.Turns {
		if t.Turn != int(turn) || t.Summary == nil {
			continue
		}
		text := "summary"
		if t.Summary.Calls > 0 {
			text += fmt.Sprintf(" (%d tool calls not run)", t.Summary.Calls)
		}
		if t.Summary.Withheld {
			text += " (without the last answers of tools)"
		}
		return " · " + text
	}
	return ""
}
