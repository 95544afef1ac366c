package behaviour

import (
	"cmp"
	"fmt"
	"strings"
	"unicode"

	"github.com/rondo-rl/rondo/books"
)

// Line is one figure of rows that are set beside each other.
type Line struct {
	// Title is short, for the head of a column; About says what the figure is.
	Title, About string
	// Names: the cells have names in them that outsiders may have chosen.
	Names bool
	// Cells has one for each row: "–" where the log does not say.
	Cells []string
}

// Lines are the figures that one of the rows has, without counts that are 0 everywhere.
func Lines(rows ...Row) (lines []Line) {
	for _, figure := range figures {
		line, said := Line{Title: figure.title, About: figure.about, Names: figure.names}, false
		for _, r := range rows {
			cell := figure.of(r)
			said = said || cell != "" && cell != "0"
			line.Cells = append(line.Cells, cmp.Or(cell, "–"))
		}
		if said {
			lines = append(lines, line)
		}
	}
	return lines
}

// figures in the order in which they are read; of gives "" where a row has none.
var figures = []struct {
	title, about string
	of           func(Row) string
	names        bool
}{
	{"scored", "scored rollouts", func(r Row) string { return fmt.Sprint(r.Scored) }, false},
	{"failed", "failed rollouts", func(r Row) string { return fmt.Sprint(r.Failed) }, false},
	{"in flight", "rollouts in flight", func(r Row) string { return fmt.Sprint(r.InFlight) }, false},
	{"reward", "mean reward", func(r Row) string { return number(r.Reward, "%.3f") }, false},
	{"effort", "mean effort (what it changes the reward by)", effort, false},
	{"length", "what the length penalty changes the compared reward by",
		func(r Row) string { return number(r.LengthPenalty, "%+.3f") }, false},
	{"turns", "turns", func(r Row) string { return r.Turns.text() }, false},
	{"tokens", "sampled tokens", func(r Row) string { return r.SampledTokens.text() }, false},
	{"thinking", "turns with reasoning", func(r Row) string { return percent(r.ReasoningTurnShare) }, false},
	{"thoughts", "characters of reasoning", func(r Row) string { return r.ReasoningCharacters.text() }, false},
	{"calls/turn", "tool calls in a turn that has any",
		func(r Row) string { return number(r.CallsPerTurn, "%.2f") }, false},
	{"parallel", "of these turns, those with several calls",
		func(r Row) string { return percent(r.ParallelTurnShare) }, false},
	{"before edit", "tool calls before the first one that changed the workspace",
		func(r Row) string { return r.CallsBeforeEdit.text() }, false},
	{"errors", "failed tool calls", func(r Row) string { return percent(r.FailedCallShare) }, false},
	{"samples", "training samples", func(r Row) string { return r.Samples.text() }, false},
	{"trainable", "of the sampled tokens, those that can be trained on",
		func(r Row) string { return percent(r.TrainableShare) }, false},
	{"masked", "sampled tokens that are not trained on, by the rule of conversations that says so",
		func(r Row) string { return byCount(r.MaskedTokens) }, true},
	{"other models", "sampled tokens of other models than the policy, by the model",
		func(r Row) string { return byCount(r.OtherModels) }, true},
	{"new samples", "why later samples began", func(r Row) string { return byCount(r.NewSamples) }, true},
	{"stopped", "why rollouts stopped", func(r Row) string { return byCount(r.StopReasons) }, true},
}

// Versions names the versions of a row: "3", or "3-5".
func (r Row) Versions() string {
	if r.FirstVersion == r.LastVersion {
		return fmt.Sprint(r.FirstVersion)
	}
	return fmt.Sprintf("%d-%d", r.FirstVersion, r.LastVersion)
}

// text is the mean, and the median in parentheses.
func (f *Figure) text() string {
	if f == nil {
		return ""
	}
	format := "%.1f (%d)"
	if f.Mean >= 100 {
		format = "%.0f (%d)"
	}
	return fmt.Sprintf(format, f.Mean, f.Median)
}

func effort(r Row) string {
	if r.Effort == nil {
		return ""
	}
	return fmt.Sprintf("%.3f (%+.3f)", r.Effort.Mean, r.Effort.RewardChange)
}

func number(v *float64, format string) string {
	if v == nil {
		return ""
	}
	return fmt.Sprintf(format, *v)
}

func percent(share *float64) string {
	if share == nil {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 100**share)
}

// byCount is like "finished 12, max_turns 2", the most frequent name first.
func byCount(counts map[string]int) string {
	names := books.ByCount(counts)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", strings.Map(printable, name), counts[name])
	}
	return strings.Join(names, ", ")
}

// printable keeps names of outsiders in their cell.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return unicode.ReplacementChar
}
