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
	// Tasks are those with scored attempts of both; OnlyA and OnlyB have them of one
	// alone, and do not count.
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
	// NotShown does not say that two policies are equally good, but that
	// these attempts cannot tell.
	NotShown = "no difference shown"
)

// Difference is how far the first policy is ahead of the second.
type Difference struct {
	K          int      `json:"k,omitzero"` // of pass@k; 0 is the reward
	Tasks      int      `json:"tasks"`
	A          float64  `json:"a"` // the mean over these tasks
	B          float64  `json:"b"`
	Difference Estimate `json:"difference"` // A − B
	// P is the two-sided p-value of the sign-flip test; Exact: of all flips, not of a sample of
	// them. MidP counts flips that are exactly as far as what was observed by half: on few tasks P
	// can only be one of few numbers and is too large on average, MidP is not (Lancaster 1961,
	// Journal of the American Statistical Association 56:223).
	P      float64 `json:"p"`
	MidP   float64 `json:"mid_p"`
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

// Compare sets a beside b, task by task: a task that is hard for both then makes no noise.
// Intervals are those of [Summarise] over the tasks' differences, p-values of the
// sign-flip test. Several figures are tested at the same level each; decide by one of
// them, such as pass@1, before looking.
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
		return c, fmt.Errorf("compare %s with %s: no task has a scored attempt in both", nameA, nameB)
	}
	most := math.MaxInt
	for _, p := range pairs {
		most = min(most, p.attempts())
		c.ByTask = append(c.ByTask, TaskDifference{p.a.name, p.a.passAt(1), p.b.passAt(1), p.a.reward, p.b.reward})
	}
	for _, k := range ks(o.K, most) {
		enough := slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return p.attempts() < k })
		if len(enough) == 0 {
			c.Notes = append(c.Notes,
				fmt.Sprintf("pass@%d is left out: no task has so many scored attempts of both", k))
			continue
		}
		if n := len(pairs) - len(enough); n > 0 {
			c.Notes = append(c.Notes,
				fmt.Sprintf("pass@%d is of %d of %d tasks: the others have fewer scored attempts of one", k,
					len(enough), len(pairs)))
		}
		d, differences := difference(enough, func(t *task) float64 { return t.passAt(k) }, o)
		d.K, d.Difference = k, boundedMeans([][]float64{differences}, -1, o)[0]
		c.PassAt = append(c.PassAt, d)
		c.tooFew(d, o)
		c.disagree(d, o)
		if k == 1 {
			c.power(differences, o)
		}
	}
	var differences []float64
	c.Reward, differences = difference(pairs, func(t *task) float64 { return t.reward }, o)
	c.Reward.Difference = means([][]float64{differences}, o)[0]
	c.disagree(c.Reward, o)
	if agree(differences) {
		c.Notes = append(c.Notes,
			"the rewards differ by the same on each task: that interval is a point and says nothing")
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
			c.Notes = append(c.Notes, fmt.Sprintf("%s with scored attempts of %s alone, not counted: %s",
				counted(n, "task", "tasks"), plain(only.name, longestName), some(only.tasks)))
		}
	}
	return pairs
}

// difference is how a figure of the pairs differs, all but its interval, for which it
// returns each task's difference.
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
	d.P, d.MidP, d.Exact = signFlip(differences, o)
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
		c.Notes = append(c.Notes,
			fmt.Sprintf("pass@%d differs on %s only: no outcome on so few is significant, as p is at least %.3g", d.K,
				counted(n, "task", "tasks"), least))
	}
}

// disagree notes where the interval and the test say different things, and why.
func (c *Comparison) disagree(d Difference, o Options) {
	apart := d.Difference.Low > 1e-12 || d.Difference.High < -1e-12
	if shown := d.Verdict != NotShown; apart == shown || d.Wins+d.Losses == 0 {
		return
	}
	name := "the reward"
	if d.K > 0 {
		name = fmt.Sprintf("pass@%d", d.K)
	}
	level := 1 - o.Confidence
	switch {
	case !apart:
		c.Notes = append(c.Notes,
			fmt.Sprintf("%s: the interval holds 0 though p = %.3g is significant. The test asks whether the two sides can be exchanged on each task, "+
				"the interval how other tasks would come out; take the difference as barely shown", name, d.P))
	case d.MidP <= level+1e-12:
		c.Notes = append(c.Notes,
			fmt.Sprintf("%s: the interval leaves 0 out though p = %.3g is not significant. On %s p can only be one of few numbers; the mid-p-value, "+
				"%.3g, is significant. More tasks will tell", name, d.P,
				counted(d.Wins+d.Losses, "task that differs", "tasks that differ"), d.MidP))
	default:
		c.Notes = append(c.Notes,
			fmt.Sprintf("%s: the interval leaves 0 out though neither p = %.3g nor the mid-p-value %.3g is significant. Intervals over few tasks are "+
				"rough; the verdict follows the test, which holds its level on any number of tasks", name, d.P, d.MidP))
	}
}

// power is what a comparison on these tasks could have shown: the difference of pass@1 that is
// found in 80 of 100 comparisons whose tasks scatter as these do.
func (c *Comparison) power(differences []float64, o Options) {
	n := float64(len(differences))
	if len(differences) >= 2*fewTasks || n < 2 || agree(differences) {
		return
	}
	mean, squares := sum(differences)/n, 0.0
	for _, d := range differences {
		squares += (d - mean) * (d - mean)
	}
	const found = 0.8
	shown := (studentQuantile(o.Confidence, len(differences)-1) + normalQuantile(found)) * math.Sqrt(squares/(n-1)/n)
	c.Notes = append(c.Notes,
		fmt.Sprintf("power: on %s like these a true difference of pass@1 of about %.2f is shown in 80 of 100 comparisons, and a smaller one more "+
			"seldom", counted(len(differences), "task", "tasks"), min(shown, 1)))
}
