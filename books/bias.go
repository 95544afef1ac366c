package books

import (
	"math"
	"slices"
)

// Distribution describes a figure over some rollouts.
type Distribution struct {
	Rollouts int     `json:"rollouts"` // that have the figure
	Mean     float64 `json:"mean"`
	P10      float64 `json:"p10"`
	P50      float64 `json:"p50"`
	P90      float64 `json:"p90"`
	values   []float64
}

// Measure compares one figure of the dropped rollouts with that of the trained ones.
type Measure struct {
	Name    string       `json:"name"`
	Trained Distribution `json:"trained"`
	Dropped Distribution `json:"dropped"`
	// Superiority is the probability that a dropped rollout, drawn at random, has more than a
	// trained one, ties counting half: 0.5 is no bias. It is absent where one of both is empty.
	Superiority *float64 `json:"superiority,omitempty"`
	// Outcomes divides the dropped.
	Outcomes map[Outcome]Distribution `json:"outcomes"`
	Plot     []Bin                    `json:"plot"`
}

// Bin is a part of a measure's range, with the share of the trained and of the
// dropped rollouts within it.
type Bin struct {
	From    float64 `json:"from"`
	To      float64 `json:"to"`
	Trained float64 `json:"trained"`
	Dropped float64 `json:"dropped"`
}

// Bias says how the rollouts that a feed drops (stale, filtered, failed) differ from
// those that it trains on.
type Bias struct {
	Feed     string    `json:"feed"`
	Measures []Measure `json:"measures"`
}

// measures of a rollout; ok is false where it has none.
var measures = []struct {
	name   string
	figure func(r Rollout, difficulty map[string]float64) (value float64, ok bool)
}{
	{"sampled tokens", func(r Rollout, _ map[string]float64) (float64, bool) { return float64(r.Sampled), r.Finished }},
	{"turns", func(r Rollout, _ map[string]float64) (float64, bool) { return float64(r.Turns), true }},
	{"difficulty", func(r Rollout, difficulty map[string]float64) (float64, bool) {
		d, ok := difficulty[r.Task]
		return d, ok
	}},
}

// Bias compares what a feed drops with what it trains on. Difficulty is 1 − the mean reward of a
// task's scored rollouts; tokens are known of finished rollouts only, and a rollout that failed
// counts the turns that it had.
func (l *Run) Bias(feedName string) Bias {
	difficulty := l.difficulty()
	b := Bias{Feed: feedName, Measures: []Measure{}}
	for _, m := range measures {
		values := map[Outcome][]float64{}
		for r := range l.All() {
			if v, ok := m.figure(r, difficulty); ok {
				o := l.Outcome(feedName, r.ID)
				values[o] = append(values[o], v)
			}
		}
		b.Measures = append(b.Measures, measure(m.name, values))
	}
	return b
}

func measure(name string, values map[Outcome][]float64) Measure {
	m := Measure{Name: name, Trained: distribution(values[Trained]), Outcomes: map[Outcome]Distribution{}}
	var dropped []float64
	for _, o := range []Outcome{Stale, Filtered, Failed} {
		if len(values[o]) > 0 {
			m.Outcomes[o] = distribution(values[o])
			dropped = append(dropped, values[o]...)
		}
	}
	m.Dropped = distribution(dropped)
	if s, ok := superiority(m.Dropped.values, m.Trained.values); ok {
		m.Superiority = &s
	}
	m.Plot = bins(m.Trained.values, m.Dropped.values)
	return m
}

// difficulty is 1 − the mean reward of each task's scored rollouts.
func (l *Run) difficulty() map[string]float64 {
	rewards := map[string][]float64{}
	for r := range l.All() {
		if r.Scored {
			rewards[r.Task] = append(rewards[r.Task], r.Reward)
		}
	}
	difficulty := map[string]float64{}
	for task, list := range rewards {
		difficulty[task] = max(-1e9, min(1e9, 1-mean(list))) // rewards may be any numbers, ranges of them not
	}
	return difficulty
}

// distribution describes values; the percentiles are values that occur (nearest rank).
func distribution(values []float64) Distribution {
	sorted := slices.Sorted(slices.Values(values))
	d := Distribution{Rollouts: len(sorted), Mean: mean(sorted), values: sorted}
	rank := func(p float64) float64 {
		if len(sorted) == 0 {
			return 0
		}
		return sorted[max(0, int(math.Ceil(float64(p*float64(len(sorted)))))-1)]
	}
	d.P10, d.P50, d.P90 = rank(0.1), rank(0.5), rank(0.9)
	return d
}

// superiority is P(a > b) + P(a = b)/2 over all pairs of two sorted lists.
func superiority(a, b []float64) (float64, bool) {
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	var wins float64
	var less, notMore int // values of b below, and not above, the current one of a
	for _, v := range a {
		for less < len(b) && b[less] < v {
			less++
		}
		for notMore < len(b) && b[notMore] <= v {
			notMore++
		}
		wins += float64(less) + float64(notMore-less)/2
	}
	return wins / float64(len(a)) / float64(len(b)), true
}

// plotBins is how many bars a plot has.
const plotBins = 8

// bins divides the common range of two sorted lists evenly; a value on a border belongs
// to the bin that it begins.
func bins(trained, dropped []float64) []Bin {
	all := slices.Sorted(slices.Values(slices.Concat(trained, dropped)))
	if len(all) == 0 {
		return []Bin{}
	}
	low, high := all[0], all[len(all)-1]
	n := plotBins
	if low == high {
		n = 1
	}
	list := make([]Bin, n)
	for i := range list {
		list[i].From, list[i].To = low+(high-low)*float64(i)/float64(n), low+(high-low)*float64(i+1)/float64(n)
	}
	count := func(values []float64, add func(b *Bin, share float64)) {
		for _, v := range values {
			i := 0
			if high > low {
				i = min(n-1, int(float64((v-low)/(high-low)*float64(n))))
			}
			add(&list[i], 1/float64(len(values)))
		}
	}
	count(trained, func(b *Bin, share float64) { b.Trained += share })
	count(dropped, func(b *Bin, share float64) { b.Dropped += share })
	return list
}
