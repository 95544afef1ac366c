package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// section is a part of a report, the same in Markdown and in HTML.
type section struct {
	Title  string
	Of     []string // the names of what it is about
	About  string
	Header []cell
	Rows   [][]cell
	Notes  []string
	// Plots and Marks are of HTML alone, as are sections that are Folded.
	Plots  []plot
	Folded bool
}

// cell is text of ours, or a Name that somebody else chose.
type cell struct {
	Text string
	Name bool
	Mark *mark
}

// mark is an estimate on a small axis within a table.
type mark struct {
	Estimate
	Least, Most float64
}

func text(s string) cell  { return cell{Text: s} }
func named(s string) cell { return cell{Text: plain(s, longestName), Name: true} }
func number(n int) cell   { return text(strconv.Itoa(n)) }

func header(titles ...string) (cells []cell) {
	for _, t := range titles {
		cells = append(cells, text(t))
	}
	return cells
}

// sections of a report, in the order of reading.
func (r Report) sections() (all []section) {
	if len(r.Summaries) > 0 {
		all = append(all, r.results())
	}
	for _, c := range r.Comparisons {
		all = append(all, c.section(), c.tasks())
	}
	if s, ok := r.behaviour(); ok {
		all = append(all, s)
	}
	if len(r.Conditions) > 0 {
		all = append(all, r.conditions())
	}
	if len(r.Curve) > 0 {
		all = append(all, r.versions())
		if s, ok := r.behaviourByVersion(); ok {
			all = append(all, s)
		}
	}
	if r.OffPolicy != nil {
		all = append(all, r.OffPolicy.section())
	}
	for _, s := range r.Summaries {
		all = append(all, s.tasks())
	}
	for _, s := range r.Summaries {
		all = append(all, s.attempts())
	}
	return all
}

// results has a column for each summary.
func (r Report) results() section {
	first := r.Summaries[0]
	s := section{Title: "Results", Header: header(""), Plots: r.plots(),
		About: fmt.Sprintf("Means over tasks with intervals of %s. An attempt passes at a reward of %g.",
			percent(first.Confidence), first.PassReward)}
	for _, summary := range r.Summaries {
		s.Header = append(s.Header, named(summary.Name))
		for _, note := range summary.Notes {
			if len(r.Summaries) > 1 {
				note = plain(summary.Name, longestName) + ": " + note
			}
			s.Notes = append(s.Notes, note)
		}
	}
	add := func(title string, write func(Summary) string) {
		row := []cell{text(title)}
		for _, summary := range r.Summaries {
			row = append(row, text(write(summary)))
		}
		s.Rows = append(s.Rows, row)
	}
	add("tasks", func(s Summary) string { return strconv.Itoa(s.Tasks) })
	add("attempts", func(s Summary) string { return strconv.Itoa(s.Attempts) })
	add("failed attempts", func(s Summary) string { return strconv.Itoa(s.Failed) })
	ended := []cell{text("ended")}
	for _, summary := range r.Summaries {
		ended = append(ended, cell{Text: summary.Ended(), Name: true})
	}
	s.Rows = append(s.Rows, ended)
	var ks []int
	for _, summary := range r.Summaries {
		for _, p := range summary.PassAt {
			ks = append(ks, p.K)
		}
	}
	slices.Sort(ks)
	for _, k := range slices.Compact(ks) {
		add(fmt.Sprintf("pass@%d", k), func(s Summary) string {
			if e, ok := s.Pass(k); ok {
				return intervalText(e, part)
			}
			return "–"
		})
	}
	for _, figure := range []struct {
		title string
		of    func(Summary) Estimate
		write func(float64) string
	}{
		{"reward", func(s Summary) Estimate { return s.Reward }, part},
		{"turns", func(s Summary) Estimate { return s.Turns }, amount},
		{"tokens", func(s Summary) Estimate { return s.Tokens }, amount},
		{"sampled tokens", func(s Summary) Estimate { return s.Sampled }, amount},
		{"tool calls", func(s Summary) Estimate { return s.ToolCalls }, amount},
		{"failed tool calls", func(s Summary) Estimate { return s.ToolFailures }, amount},
		{"seconds", func(s Summary) Estimate { return s.Seconds }, amount},
	} {
		add(figure.title, func(s Summary) string {
			if s.Tasks == 0 {
				return "–"
			}
			return intervalText(figure.of(s), figure.write)
		})
	}
	return s
}

func (c Comparison) section() section {
	s := section{Title: "Comparison", Of: []string{c.A, c.B},
		Header: header("", "first", "second", "difference", "", "p", "ahead", "behind", "tied", "verdict"),
		Notes:  c.Notes,
		About: fmt.Sprintf("Paired over the %s that both have. The difference is the first minus the second, with an interval of %s; p is of a sign-flip test, and "+
			"significant up to %s; the verdict follows p.",
			counted(c.Tasks, "task", "tasks"), percent(c.Confidence), part(1-c.Confidence))}
	for _, d := range append(slices.Clone(c.PassAt), c.Reward) {
		title, m := "reward", (*mark)(nil)
		if d.K > 0 {
			title, m = fmt.Sprintf("pass@%d", d.K), &mark{d.Difference, -1, 1}
		}
		s.Rows = append(s.Rows, []cell{text(title), text(part(d.A)), text(part(d.B)),
			text(intervalText(d.Difference, part)), {Mark: m}, text(pValue(d.P)),
			number(d.Wins), number(d.Losses), number(d.Ties), text(d.Verdict)})
	}
	return s
}

// tasks has a row for each task on which the two differ, those first on which the
// first is ahead the most.
func (c Comparison) tasks() section {
	s := section{Title: "Task by task", Of: []string{c.A, c.B},
		Header: header("task", "first", "second", "difference", "", "reward", "reward of the second")}
	differ := slices.DeleteFunc(slices.Clone(c.ByTask),
		func(t TaskDifference) bool { return tie(t.PassA-t.PassB) && tie(t.RewardA-t.RewardB) })
	slices.SortStableFunc(differ, func(a, b TaskDifference) int {
		return cmp.Or(cmp.Compare(b.PassA-b.PassB, a.PassA-a.PassB),
			cmp.Compare(b.RewardA-b.RewardB, a.RewardA-a.RewardB))
	})
	s.About = fmt.Sprintf("Pass@1 and mean rewards of %d of %s; on the others both have the same.", len(differ),
		counted(c.Tasks, "task", "tasks"))
	for _, t := range differ {
		d := t.PassA - t.PassB
		s.Rows = append(s.Rows, []cell{named(t.Task), text(part(t.PassA)), text(part(t.PassB)), text(part(d)),
			{Mark: &mark{Estimate{d, min(d, 0), max(d, 0)}, -1, 1}},
			text(part(t.RewardA)), text(part(t.RewardB))})
	}
	return s
}

// tasks has a row for each task, the hardest first.
func (s Summary) tasks() section {
	table := section{Title: "By task", Of: []string{s.Name},
		Header: header("task", "passed", "pass@1", "", "reward", "turns", "tokens", "seconds", "failed"),
		About: fmt.Sprintf("The hardest first. These intervals (Wilson, %s) are of the task's own attempts.",
			percent(s.Confidence))}
	hardest := slices.SortedStableFunc(slices.Values(s.ByTask), func(a, b TaskSummary) int {
		return cmp.Or(cmp.Compare(a.Pass.Value, b.Pass.Value), cmp.Compare(a.Reward, b.Reward))
	})
	for _, t := range hardest {
		row := []cell{named(t.Task)}
		if t.Scored == 0 {
			row = append(row, text("–"), text("no attempt was scored"), text(""), text("–"),
				text("–"), text("–"), text("–"))
		} else {
			row = append(row, text(fmt.Sprintf("%d of %d", t.Passed, t.Scored)), text(intervalText(t.Pass, part)),
				cell{Mark: &mark{t.Pass, 0, 1}},
				text(part(t.Reward)), text(amount(t.Turns)), text(amount(t.Tokens)), text(amount(t.Seconds)))
		}
		table.Rows = append(table.Rows, append(row, number(t.Failed)))
	}
	return table
}

func (s Summary) attempts() section {
	table := section{Title: "Attempts", Of: []string{s.Name}, Folded: true,
		Header: header("rollout", "task", "reward", "turns", "tokens", "sampled", "tool calls", "failed calls",
			"seconds", "end", "version", "trajectory")}
	for _, t := range s.ByTask {
		for _, a := range t.Attempts {
			reward := part(a.Reward)
			if a.Failed {
				reward = "failed"
			}
			table.Rows = append(table.Rows, []cell{named(a.Rollout), named(a.Task), text(reward), number(a.Turns),
				number(a.Tokens), number(a.Sampled),
				number(a.ToolCalls), number(a.ToolFailures), text(amount(a.Seconds)), named(a.end()),
				text(strconv.FormatInt(a.Version, 10)), named(a.Trajectory)})
		}
	}
	return table
}

func (r Report) versions() section {
	s := section{Title: "By version", Header: header("version", "run", "tasks", "attempts", "failed", "pass@1",
		"reward"), Plots: curves(r.Curve)}
	for _, p := range r.Curve {
		pass, reward := intervalText(p.Pass, part), intervalText(p.Reward, part)
		if p.Tasks == 0 {
			pass, reward = "–", "–"
		}
		s.Rows = append(s.Rows, []cell{text(strconv.FormatInt(p.Version, 10)), named(p.Run), number(p.Tasks),
			number(p.Attempts), number(p.Failed), text(pass), text(reward)})
	}
	return s
}

func (v OffPolicy) section() section {
	s := section{Title: "Off-policy value", Header: header("", "value"), Notes: v.Warnings,
		About: fmt.Sprintf("What the candidate's mean reward would be, by importance sampling of %s of another policy, with intervals of %s.",
			counted(v.Rollouts, "recorded rollout", "recorded rollouts"), percent(v.Confidence))}
	optional := func(e *Estimate) string {
		if e == nil {
			return "too large for a number"
		}
		return intervalText(*e, part)
	}
	for _, row := range [][2]string{
		{"reward of the recorded policy", intervalText(v.Recorded, part)},
		{"the candidate, self-normalised", intervalText(v.Weighted, part)},
		{"the candidate, ordinary", optional(v.Ordinary)},
		{"effective sample size", amount(v.EffectiveSampleSize)},
		{"mean weight (1 is expected)", optional(v.MeanWeight)},
		{"largest share of one rollout", part(v.LargestShare)},
	} {
		s.Rows = append(s.Rows, []cell{text(row[0]), text(row[1])})
	}
	return s
}

// facts are the lines below the title: what was evaluated.
func (r Report) facts() (lines [][2]cell) {
	for _, fact := range [][2]string{{"policy", r.Policy}, {"endpoint", r.Endpoint},
		{"tasks", r.Pack}, {"run", r.Run}} {
		if fact[1] == "" {
			continue
		}
		lines = append(lines, [2]cell{text(fact[0]), named(fact[1])})
		if fact[0] == "policy" && r.Version > 0 {
			lines = append(lines, [2]cell{text("version"), text(strconv.FormatInt(r.Version, 10))})
		}
	}
	if !r.When.IsZero() {
		lines = append(lines, [2]cell{text("when"), text(r.When.UTC().Format("2006-01-02 15:04 UTC"))})
	}
	return lines
}
