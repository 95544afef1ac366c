package evaluation

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Comparison sets two policies side by side on the tasks that both were tried on.
type Comparison struct {
	A string `json:"a"`
	B string `json:"b"`
	// Tasks are those with scored attempts of both; OnlyA and OnlyB have them of one alone, and do not count.
	Tasks int      `json:"tasks"`
	OnlyA []string `json:"only_a,omitzero"`
	OnlyB []string `json:"only_b,omitzero"`
	// PassAt is ordered by k and begins with pass@1.
	PassAt []Difference     `json:"pass_at"`
	Reward Difference       `json:"reward"`
	ByTask []TaskDifference `json:"by_task"`
	Notes  []string         `json:"notes,omitzero"`
	// Confidence of the intervals. A p-value up to 1 − Confidence is significant.
	Confidence float64 `json:"confidence"`
}

// Verdicts of a difference, from the view of the first policy.
const (
	Better = "better"
	Worse  = "worse"
	// NotShown does not say that two policies are equally good, but that these attempts cannot tell.
	NotShown = "no difference shown"
)

// Difference is how far the first policy is ahead of the second.
type Difference struct {
	K          int      `json:"k,omitzero"` // of pass@k; 0 is the reward
	Tasks      int      `json:"tasks"`
	A          float64  `json:"a"` // the mean over these tasks
	B          float64  `json:"b"`
	Difference Estimate `json:"difference"` // A − B
	// P is the two-sided p-value of the sign-flip test; Exact: of all flips, not of a sample of them.
	P      float64 `json:"p"`
	Exact  bool    `json:"exact"`
	Wins   int     `json:"wins"` // the tasks on which A is ahead
	Losses int     `json:"losses"`
	Ties   int     `json:"ties"`
	// Verdict is Better, Worse or NotShown.
	Verdict string `json:"verdict"`
}

// TaskDifference is one task in both.
type TaskDifference struct {
	Task    string  `json:"task"`
	PassA   float64 `json:"pass_a"`
	PassB   float64 `json:"pass_b"`
	RewardA float64 `json:"reward_a"`
	RewardB float64 `json:"reward_b"`
}

// Compare sets a beside b, task by task: a task that is hard for both then makes no noise. Intervals are those of
// [Summarise] over the tasks' differences, p-values of the sign-flip test. Several figures are tested at the same
// level each; decide by one of them, such as pass@1, before looking.
func Compare(a, b []Attempt, nameA, nameB string, o Options) (Comparison, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Comparison{}, err
	}
	c := Comparison{A: nameA, B: nameB, PassAt: []Difference{}, Confidence: o.Confidence}
	allA, err := byTask(a, o)
	if err != nil {
		return c, fmt.Errorf("compare %s: %w", nameA, err)
	}
	allB, err := byTask(b, o)
	if err != nil {
		return c, fmt.Errorf("compare with %s: %w", nameB, err)
	}
	pairs := c.pair(scoredOnly(allA), scoredOnly(allB))
	if c.Tasks = len(pairs); c.Tasks == 0 {
		return c, fmt.Errorf("compare %s with %s: there is no task that both have a scored attempt of", nameA, nameB)
	}
	most := math.MaxInt
	for _, p := range pairs {
		most = min(most, p.attempts())
		c.ByTask = append(c.ByTask, TaskDifference{p.a.name, p.a.passAt(1), p.b.passAt(1), p.a.reward, p.b.reward})
	}
	for _, k := range ks(o.K, most) {
		enough := slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return p.attempts() < k })
		if len(enough) == 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("pass@%d is left out: no task has so many scored attempts of both", k))
			continue
		}
		if n := len(pairs) - len(enough); n > 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("pass@%d is of %d of %d tasks: the others have fewer scored attempts of one", k, len(enough), len(pairs)))
		}
		d, differences := difference(enough, func(t *task) float64 { return t.passAt(k) }, o)
		d.K, d.Difference = k, boundedMeans([][]float64{differences}, -1, 1, o)[0]
		c.PassAt = append(c.PassAt, d)
		c.tooFew(d, o)
	}
	var differences []float64
	c.Reward, differences = difference(pairs, func(t *task) float64 { return t.reward }, o)
	c.Reward.Difference = means([][]float64{differences}, o)[0]
	if agree(differences) {
		c.Notes = append(c.Notes, "the rewards differ by the same on each task: that interval is a point and says nothing")
	}
	return c, nil
}

// pair is a task that both were tried on.
type pair struct{ a, b task }

func (p pair) attempts() int { return min(len(p.a.scored), len(p.b.scored)) }

// pair matches tasks, both ordered by name, and notes those of one alone.
func (c *Comparison) pair(a, b []task) (pairs []pair) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && strings.Compare(a[0].name, b[0].name) < 0:
			c.OnlyA, a = append(c.OnlyA, a[0].name), a[1:]
		case len(a) == 0 || strings.Compare(a[0].name, b[0].name) > 0:
			c.OnlyB, b = append(c.OnlyB, b[0].name), b[1:]
		default:
			pairs, a, b = append(pairs, pair{a[0], b[0]}), a[1:], b[1:]
		}
	}
	for _, only := range []struct {
		name  string
		tasks []string
	}{{c.A, c.OnlyA}, {c.B, c.OnlyB}} {
		if n := len(only.tasks); n > 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("%s with scored attempts of %s alone, not counted: %s", counted(n, "task", "tasks"), plain(only.name, longestName), some(only.tasks)))
		}
	}
	return pairs
}

// difference is how a figure of the pairs differs, all but its interval, for which it returns each task's difference.
func difference(pairs []pair, figure func(*task) float64, o Options) (Difference, []float64) {
	d := Difference{Tasks: len(pairs), Verdict: NotShown}
	differences := make([]float64, len(pairs))
	for i := range pairs {
		a, b := figure(&pairs[i].a), figure(&pairs[i].b)
		d.A += a / float64(len(pairs))
		d.B += b / float64(len(pairs))
		differences[i] = a - b
		switch {
		case tie(a - b):
			d.Ties++
		case a > b:
			d.Wins++
		default:
			d.Losses++
		}
	}
	d.P, d.Exact = signFlip(differences, o)
	if d.P <= 1-o.Confidence+1e-12 {
		d.Verdict = Worse
		if sum(differences) > 0 {
			d.Verdict = Better
		}
	}
	return d, differences
}

// tooFew notes that a figure differs on so few tasks that no flip of theirs could be significant.
func (c *Comparison) tooFew(d Difference, o Options) {
	n := d.Wins + d.Losses
	if least := math.Pow(2, 1-float64(n)); n > 0 && least > 1-o.Confidence+1e-12 {
		c.Notes = append(c.Notes, fmt.Sprintf("pass@%d differs on %s only: no outcome on so few is significant, as p is at least %.3g", d.K, counted(n, "task", "tasks"), least))
	}
}
