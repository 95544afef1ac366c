package eval

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/opening"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/storage/whole"
)

// report is what is written about one evaluation.
func (e *evaluator) report(m measured) evaluation.Report {
	r := evaluation.Report{
		Title: "Evaluation of " + m.name, Policy: m.cfg.Policy, Endpoint: m.cfg.Endpoint, Pack: e.pack(),
		Run: m.run, When: m.when.UTC(),
		Summaries: []evaluation.Summary{m.summary}, Conditions: []evaluation.Conditions{evaluation.ConditionsOf(m.name,
			m.cfg)},
	}
	if m.cfg.PolicyVersion != nil {
		r.Version = *m.cfg.PolicyVersion
	}
	return r
}

// pack is the name of the task pack.
func (e *evaluator) pack() string {
	switch dir := e.base.TasksDir; {
	case dir != "":
		return filepath.Base(filepath.Clean(dir))
	case e.o.from != "":
		return ""
	}
	return opening.DefaultPack
}

// compare sets an evaluation beside another one.
func (e *evaluator) compare(r evaluation.Report, m, other measured) (evaluation.Report, error) {
	if other.name == m.name {
		other.name += " (" + other.run + ")"
		other.summary.Name = other.name
	}
	c, err := evaluation.Compare(m.attempts, other.attempts, m.name, other.name, e.o.figures())
	if err != nil {
		return r, err
	}
	theirs := evaluation.ConditionsOf(other.name, other.cfg)
	c.CompareConditions(r.Conditions[0], theirs)
	r.Conditions = append(r.Conditions, theirs)
	if other.missing != "" {
		c.Notes = append(c.Notes, other.name+": "+other.missing)
	}
	r.Summaries, r.Comparisons = append(r.Summaries, other.summary), append(r.Comparisons, c)
	return r, nil
}

// Publish prints the report, writes its files, and passes judgement.
func (e *evaluator) Publish(r evaluation.Report, m measured) error {
	if err := e.write(r); err != nil {
		return err
	}
	out := e.cmd.OutOrStdout()
	if e.g.JSON {
		if err := app.PrintJSON(out, r); err != nil {
			return err
		}
	} else {
		printEvaluation(out, r)
	}
	return e.judge(r, m)
}

// judge is the command's exit: an evaluation that is no result passes no gate.
func (e *evaluator) judge(r evaluation.Report, m measured) error {
	pass, scored := m.summary.Pass(1)
	switch {
	case m.missing != "":
		return fmt.Errorf("run %s: %s", m.run, m.missing)
	case !scored:
		return fmt.Errorf("run %s: no attempt was scored", m.run)
	case e.given("min-pass") && pass.Value < e.o.minPass-1e-9:
		return &app.ExitError{Code: app.ExitFindings, Err: fmt.Errorf("%s: pass@1 is %.3f, below --min-pass %g", m.name,
			pass.Value, e.o.minPass)}
	}
	for _, c := range r.Comparisons {
		if d := c.PassAt[0]; d.Verdict == evaluation.Worse {
			return &app.ExitError{Code: app.ExitFindings,
				Err: fmt.Errorf("%s: pass@1 is significantly worse than that of %s, by %.3f (p = %.3g)", c.A, c.B,
					-d.Difference.Value, d.P)}
		}
	}
	return nil
}

// write writes the report's files, each whole or not at all: a report that is followed is
// read while it is rewritten.
func (e *evaluator) write(r evaluation.Report) error {
	if e.o.out == "" {
		return nil
	}
	for name, write := range map[string]func(io.Writer, evaluation.Report) error{
		"report.json": writeReportJSON, "report.md": evaluation.WriteMarkdown, "report.html": evaluation.WriteHTML,
		"junit.xml": evaluation.WriteJUnit,
	} {
		if err := whole.File(filepath.Join(e.o.out, name), func(w io.Writer) error { return write(w, r) }); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

func writeReportJSON(w io.Writer, r evaluation.Report) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func printEvaluation(w io.Writer, r evaluation.Report) {
	fmt.Fprintf(w, "%s, run %s\n\n", app.Clean(r.Title), r.Run)
	for i, s := range r.Summaries {
		if i > 0 {
			fmt.Fprintf(w, "\n%s\n\n", app.Clean(s.Name))
		}
		printSummary(w, s)
	}
	for _, c := range r.Comparisons {
		printComparison(w, c)
	}
	printBehaviour(w, r)
	if r.OffPolicy != nil {
		printOffPolicy(w, *r.OffPolicy)
	}
	if len(r.Curve) > 0 {
		printCurve(w, r.Curve)
	}
}

func printSummary(w io.Writer, s evaluation.Summary) {
	t := app.NewColumns(w)
	fmt.Fprintln(t, "passed\tfailed\treward\tturns\ttokens\tseconds\t  task")
	for _, task := range s.ByTask {
		if task.Scored == 0 {
			fmt.Fprintf(t, "-\t%d\t-\t-\t-\t-\t  %s\n", task.Failed, app.Clean(task.Task))
			continue
		}
		fmt.Fprintf(t, "%d/%d\t%d\t%.3f\t%.1f\t%.0f\t%.1f\t  %s\n", task.Passed, task.Scored, task.Failed, task.Reward,
			task.Turns, task.Tokens, task.Seconds, app.Clean(task.Task))
	}
	t.Flush()
	fmt.Fprintln(w)
	t = app.NewColumns(w)
	line := func(name string, v evaluation.Estimate) {
		fmt.Fprintf(t, "%s\t%.4g\t[%.4g, %.4g]\n", name, v.Value, v.Low, v.High)
	}
	for _, p := range s.PassAt {
		line(fmt.Sprintf("pass@%d", p.K), p.Estimate)
	}
	if s.Tasks > 0 {
		line("reward", s.Reward)
		line("turns", s.Turns)
		line("tool calls", s.ToolCalls)
		line("of them failed", s.ToolFailures)
		line("tokens", s.Tokens)
		line("seconds", s.Seconds)
	}
	t.Flush()
	fmt.Fprintf(w, "%d attempts at %d tasks, %d failed; intervals of %.0f %%\n", s.Attempts, len(s.ByTask),
		s.Failed, 100*s.Confidence)
	if ended := s.Ended(); ended != "" {
		fmt.Fprintf(w, "ended: %s\n", app.Clean(ended))
	}
	printNotes(w, s.Notes)
}

func printComparison(w io.Writer, c evaluation.Comparison) {
	fmt.Fprintf(w, "\n%s against %s, on %d tasks of both\n\n", app.Clean(c.A), app.Clean(c.B), c.Tasks)
	t := app.NewColumns(w)
	line := func(name string, d evaluation.Difference) {
		fmt.Fprintf(t, "%s\t%.4g - %.4g = %+.4g\t[%+.4g, %+.4g]\tp = %.3g\t%d won, %d lost, %d tied\t%s\n",
			name, d.A, d.B, d.Difference.Value, d.Difference.Low, d.Difference.High, d.P, d.Wins,
			d.Losses, d.Ties, d.Verdict)
	}
	for _, d := range c.PassAt {
		line(fmt.Sprintf("pass@%d", d.K), d)
	}
	line("reward", c.Reward)
	t.Flush()
	printNotes(w, c.Notes)
}

// printBehaviour prints the policies beside each other.
func printBehaviour(w io.Writer, r evaluation.Report) {
	lines := r.Behaviour()
	if len(lines) == 0 {
		return
	}
	fmt.Fprint(w, "\nbehaviour: means for each scored attempt, with medians in parentheses\n\n")
	t := app.NewColumns(w)
	if len(r.Summaries) > 1 {
		for _, s := range r.Summaries {
			fmt.Fprintf(t, "\t%s", app.Clean(s.Name))
		}
		fmt.Fprintln(t)
	}
	for _, line := range lines {
		fmt.Fprintf(t, "%s\t%s\n", line.About, strings.Join(line.Cells, "\t"))
	}
	t.Flush()
}

func printOffPolicy(w io.Writer, v evaluation.OffPolicy) {
	fmt.Fprintf(w, "\nvalue of the candidate, by importance sampling of %d recorded rollouts\n\n", v.Rollouts)
	t := app.NewColumns(w)
	line := func(name string, e *evaluation.Estimate) {
		if e == nil {
			fmt.Fprintf(t, "%s\t-\tthe weights are too large for a number\n", name)
			return
		}
		fmt.Fprintf(t, "%s\t%.4g\t[%.4g, %.4g]\n", name, e.Value, e.Low, e.High)
	}
	line("recorded", &v.Recorded)
	line("ordinary", v.Ordinary)
	line("self-normalised", &v.Weighted)
	line("mean weight", v.MeanWeight)
	t.Flush()
	fmt.Fprintf(w, "effective sample size %.1f of %d; the largest weight is %.0f %% of all\n", v.EffectiveSampleSize,
		v.Rollouts, 100*v.LargestShare)
	printNotes(w, v.Warnings)
}

func printCurve(w io.Writer, points []evaluation.CurvePoint) {
	values := make([]float64, len(points))
	for i, p := range points {
		values[i] = p.Pass.Value
	}
	fmt.Fprintln(w)
	app.Plot(w, fmt.Sprintf("pass@1, versions %d to %d", points[0].Version, points[len(points)-1].Version), values)
}

func printNotes(w io.Writer, notes []string) {
	for _, note := range notes {
		fmt.Fprintf(w, "note: %s\n", app.Clean(note))
	}
}
