package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation"
	"github.com/rondo-rl/rondo/events/runfile"
)

const (
	// resamples of the intervals: a tenth of those of `rondo eval`, so that a
	// page does not wait for them.
	resamples = 1000
	// maxMeasured bounds the runs whose figures are kept, each as of one sequence.
	maxMeasured = 32
	// reportTasks bounds the rows of a report.
	reportTasks = 100
	// maxNotes bounds the remarks below a table.
	maxNotes = 20
)

// measured is a run as an evaluation, as of a sequence.
type measured struct {
	seq        uint64
	config     runfile.RunConfig
	attempts   []evaluation.Attempt
	summary    evaluation.Summary
	comparison map[string]*compared // with other runs as of their sequences
}

type compared struct {
	evaluation.Comparison
	refused string // why there is none
}

// evaluationPage is the report on a run.
type evaluationPage struct {
	Title, Here, Run, Against string
	Past, Behind              bool
	Seq, Last                 uint64
	Live                      bool // it is not over
	Summary                   evaluation.Summary
	Figures                   []figure
	Tasks                     []evaluation.TaskSummary
	TaskPager                 pager
	Notes                     []string
	Other                     *compared
	Differences               []differenceRow
	OtherNotes                []string
}

type figure struct {
	Name string
	evaluation.Estimate
}

type differenceRow struct {
	Name string
	evaluation.Difference
}

// evaluation shows what the rollouts of a run come to as an evaluation, and
// beside those of another run.
func (d *Dashboard) evaluation(w http.ResponseWriter, r *http.Request) error {
	p := &evaluationPage{Here: "runs", Run: r.PathValue("run"), Against: r.URL.Query().Get("against")}
	p.Title = "Evaluation of " + p.Run
	m, err := d.measure(r, p.Run, p)
	if err != nil {
		return err
	}
	p.Summary, p.Notes = m.summary, m.summary.Notes[:min(len(m.summary.Notes), maxNotes)]
	if p.TaskPager, err = paged(r, "page", len(m.summary.ByTask), reportTasks); err != nil {
		return err
	}
	p.Tasks = m.summary.ByTask[p.TaskPager.From:p.TaskPager.To]
	for _, k := range m.summary.PassAt {
		p.Figures = append(p.Figures, figure{fmt.Sprintf("pass@%d", k.K), k.Estimate})
	}
	if s := m.summary; s.Tasks > 0 {
		p.Figures = append(p.Figures, figure{"reward", s.Reward}, figure{"turns", s.Turns},
			figure{"tool calls", s.ToolCalls}, figure{"of them failed", s.ToolFailures}, figure{"tokens", s.Tokens},
			figure{"seconds", s.Seconds})
	}
	if p.Against != "" {
		if err := d.addComparison(r, p, m); err != nil {
			return err
		}
	}
	return d.page(w, http.StatusOK, "evaluation", p)
}

// measure gives the figures of a run as of what is folded of it; p is nil for a run that
// another one is compared with.
func (d *Dashboard) measure(r *http.Request, run string, p *evaluationPage) (*measured, error) {
	if p == nil { // as it is now, whatever the other one is shown as of
		r = now(r)
	}
	b, in, target, release, err := holdOf(r, d.evals, run)
	if err != nil {
		return nil, err
	}
	defer release()
	if !b.has(in, target) {
		d.evals.follow(b)
		ctx, cancel := context.WithTimeout(r.Context(), d.patience)
		defer cancel()
		b.await(ctx, target)
	}
	b.mu.Lock()
	seq, ended := b.last, b.ended
	if p != nil {
		p.Past, p.Seq, p.Last, p.Behind, p.Live = b.until > 0, seq, max(in.LastSeq, seq), !ended && seq < target,
			b.until == 0 && !b.state.Settled()
	}
	key := fmt.Sprintf("%s %d %d", run, b.until, b.created.UnixNano())
	if m, ok := d.figures.Get(key); ok && m.seq == seq {
		b.mu.Unlock()
		return m, nil
	}
	attempts, notes := b.state.Attempts()
	m := &measured{seq: seq, config: b.state.Config, attempts: attempts, comparison: map[string]*compared{}}
	if b.state.FirstFeed() != books.NoFeed {
		notes = append(notes, "this is a training run: its versions are mixed, and its tasks were chosen as it learnt")
	} else if missing := b.state.Missing(); ended && missing != "" {
		notes = append(notes, missing)
	}
	b.mu.Unlock()
	if len(attempts) > 0 { // of none there are no figures
		if m.summary, err = evaluation.Summarise(run, attempts, evaluation.Options{Resamples: resamples}); err != nil {
			return nil, &refusal{http.StatusNotFound, "The run cannot be measured: " + clip(err.Error(), 300) + "."}
		}
	}
	m.summary.Notes = append(m.summary.Notes, notes...)
	d.figures.Add(key, m)
	return m, nil
}

// addComparison sets another run beside the one of the page.
func (d *Dashboard) addComparison(r *http.Request, p *evaluationPage, m *measured) error {
	other, err := d.measure(r, p.Against, nil)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s %d", p.Against, other.seq)
	d.comparing.Lock()
	p.Other = m.comparison[key]
	d.comparing.Unlock()
	if p.Other == nil {
		p.Other = &compared{}
		nameA, nameB := p.Run, p.Against
		if p.Other.Comparison, err = evaluation.Compare(m.attempts, other.attempts, nameA, nameB,
			evaluation.Options{Resamples: resamples}); err != nil {
			p.Other.refused = clip(err.Error(), 300)
		} else {
			p.Other.CompareConditions(evaluation.ConditionsOf(nameA, m.config),
				evaluation.ConditionsOf(nameB, other.config))
		}
		d.comparing.Lock()
		m.comparison = map[string]*compared{key: p.Other} // the last one is kept
		d.comparing.Unlock()
	}
	for _, diff := range p.Other.PassAt {
		p.Differences = append(p.Differences, differenceRow{fmt.Sprintf("pass@%d", diff.K), diff})
	}
	if p.Other.refused == "" {
		p.Differences = append(p.Differences, differenceRow{"reward", p.Other.Reward})
	}
	p.OtherNotes = p.Other.Notes[:min(len(p.Other.Notes), maxNotes)]
	return nil
}

// Refused is why there is no comparison.
func (c *compared) Refused() string { return c.refused }

// Class is how the page colours a verdict.
func (row differenceRow) Class() string {
	return cmp.Or(map[string]string{evaluation.Better: "trained", evaluation.Worse: "failed"}[row.Verdict], "")
}

// Ended says how attempts ended, clean.
func (p *evaluationPage) Ended() string { return strings.TrimSpace(clip(p.Summary.Ended(), 1000)) }
