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

// samples is like "3: new ones began behind 1 summary, as prompts did not repeat thoughts 2", how many samples the rollout is and what began the later ones; "" for one that is
// one sample, or none.
func (s *shownRollout) samples() string {
	n, causes := 0, map[string]int{}
	for _, t := range s.Rollout.Turns {
		if !t.NewSegment {
			continue
		}
		if n++; t.SegmentCause != "" {
			causes[t.SegmentCause]++
		}
	}
	if n < 2 {
		return ""
	}
	var counts, began []string
	for _, cause := range []string{events.CauseThoughts, events.CauseDrift, events.CauseHistory} {
		if causes[cause] > 0 {
			counts = append(counts, fmt.Sprintf("%s %d", cause, causes[cause]))
		}
	}
	switch sums := causes[events.CauseSummary]; sums {
	case 0:
	case 1:
		began = append(began, "behind 1 summary")
	default:
		began = append(began, fmt.Sprintf("behind %d summaries", sums))
	}
	if len(counts) > 0 {
		began = append(began, "as prompts did not repeat "+strings.Join(counts, ", "))
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
