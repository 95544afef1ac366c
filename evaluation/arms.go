package evaluation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
)

// Sides are the rollouts that a promotion has divided between its version and the other one, of
// those that began since then. One that another version has sampled too, as its process had not
// heard of the promotion yet, belongs to neither; a server that names no version is taken at the
// promotion's word. The rollouts of a query count for the task that it works on: each query is
// asked once, so that on its own it could never be compared.
func (f *Recorded) Sides(p events.WeightsPromoted, since time.Time) (version, against []Attempt) {
	all, _ := f.Attempts()
	for _, a := range all {
		r, _ := f.Find(a.Rollout)
		mine := p.VersionFor(f.Name, a.Rollout)
		if r.Began.Before(since) || slices.ContainsFunc(r.Detail.Versions, func(v int64) bool { return v != mine }) {
			continue
		}
		a.Rollout = f.Name + "/" + a.Rollout
		a.Task = cmp.Or(f.asked[a.Task], a.Task)
		if mine == p.Version {
			version = append(version, a)
			continue
		}
		against = append(against, a)
	}
	return version, against
}

// ErrApart means that no task has attempts of both sides, or that there are too few of them.
var ErrApart = errors.New("no task has attempts enough of both")

// CompareArms compares a figure of attempts that chance has divided between two policies, as a
// share of production is, where [Compare] takes two evaluations of the same tasks. P is that of a
// permutation test within the tasks: had the policies the same effect, any other division of a
// task's attempts would be as likely (Fisher's randomisation test, stratified; hits and draws as in
// the sign-flip test). The difference and its interval are those of least squares with an effect of
// each task, so that tasks that one side happens to have more of do not count for it. Attempts of
// tasks that one side alone has are left out.
func CompareArms(a, b []Attempt, figure func(Attempt) float64, o Options) (Difference, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Difference{}, err
	}
	strata := stratify(a, b, figure)
	d := Difference{Tasks: len(strata), Verdict: NotShown}
	n := 0
	var weight, within, observed float64
	for _, s := range strata {
		n += len(s.values)
		w := float64(s.first) * float64(len(s.values)-s.first) / float64(len(s.values))
		weight += w
		meanA, meanB := mean(s.values[:s.first]), mean(s.values[s.first:])
		d.A += w * meanA
		d.B += w * meanB
		switch {
		case tie(meanA - meanB):
			d.Ties++
		case meanA > meanB:
			d.Wins++
		default:
			d.Losses++
		}
		s.centre()
		observed += sum(s.values[:s.first])
		for _, v := range s.values {
			within += v * v
		}
	}
	freedom := n - len(strata) - 1
	if freedom < 1 {
		return d, fmt.Errorf("%w: %d attempts at %d tasks of both", ErrApart, n, len(strata))
	}
	d.A, d.B = d.A/weight, d.B/weight
	value := observed / weight
	half := studentQuantile(o.Confidence, freedom) * math.Sqrt(max(0,
		within-observed*observed/weight)/float64(freedom)/weight)
	d.Difference = Estimate{Value: value, Low: value - half, High: value + half}
	d.P, d.MidP = permuted(strata, observed, o)
	if d.P <= 1-o.Confidence+1e-12 {
		d.Verdict = Worse
		if value > 0 {
			d.Verdict = Better
		}
	}
	return d, nil
}

// stratum is a task's figures: the first ones are of the first side.
type stratum struct {
	values []float64
	first  int
}

// centre takes the mean of the task away, which changes no comparison within it.
func (s stratum) centre() {
	m := mean(s.values)
	for i := range s.values {
		s.values[i] -= m
	}
}

// stratify orders the figures by task and rollout, so that the same attempts
// always give the same draws.
func stratify(a, b []Attempt, figure func(Attempt) float64) (both []stratum) {
	type side struct{ a, b []Attempt }
	byName := map[string]*side{}
	for i, list := range [][]Attempt{a, b} {
		for _, attempt := range list {
			s := byName[attempt.Task]
			if s == nil {
				s = &side{}
				byName[attempt.Task] = s
			}
			if i == 0 {
				s.a = append(s.a, attempt)
			} else {
				s.b = append(s.b, attempt)
			}
		}
	}
	var names []string
	for name, s := range byName {
		if len(s.a) > 0 && len(s.b) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		s := byName[name]
		one := stratum{first: len(s.a)}
		for _, list := range [][]Attempt{s.a, s.b} {
			slices.SortFunc(list, func(a, b Attempt) int { return strings.Compare(a.Rollout, b.Rollout) })
			for _, attempt := range list {
				one.values = append(one.values, figure(attempt))
			}
		}
		both = append(both, one)
	}
	return both
}

// permuted draws other divisions of each task's attempts, and counts those that are as far apart as
// the observed one. It leaves the order of the values changed.
func permuted(strata []stratum, observed float64, o Options) (p, mid float64) {
	var size float64
	for _, s := range strata {
		for _, v := range s.values {
			size += math.Abs(v)
		}
	}
	// sums of another order of the same terms are as far
	far, farther := math.Abs(observed)-1e-9*size, math.Abs(observed)+1e-9*size
	rng := rand.New(rand.NewPCG(uint64(o.Seed), 0x61726d73))
	hits, beyond := 0, 0
	for range o.Resamples {
		var drawn float64
		for _, s := range strata {
			for i := range s.first {
				j := i + rng.IntN(len(s.values)-i)
				s.values[i], s.values[j] = s.values[j], s.values[i]
				drawn += s.values[i]
			}
		}
		if math.Abs(drawn) >= far {
			hits++
		}
		if math.Abs(drawn) >= farther {
			beyond++
		}
	}
	p = float64(hits+1) / float64(o.Resamples+1)
	return p, (p + float64(beyond+1)/float64(o.Resamples+1)) / 2
}

func mean(values []float64) float64 { return sum(values) / float64(len(values)) }
