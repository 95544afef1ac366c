package evaluation

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestSummarise has figures by hand: a task counts once, however many attempts it has.
func TestSummarise(t *testing.T) {
	all := []Attempt{
		{Rollout: "b0", Task: "b", Reward: 0.5, Turns: 4, Tokens: 40, Sampled: 4, ToolCalls: 2, ToolFailures: 1,
			Seconds: 2, StopReason: "length", Version: 2},
		{Rollout: "a0", Task: "a", Reward: 1, Turns: 1, Tokens: 10, Sampled: 1, ToolCalls: 1, Seconds: 1,
			StopReason: "stop", Version: 2},
		{Rollout: "a1", Task: "a", Reward: 0, Turns: 3, Tokens: 30, Sampled: 3, ToolCalls: 4, ToolFailures: 4,
			Seconds: 3, StopReason: "stop", Version: 1},
		{Rollout: "a2", Task: "a", Reward: 0, Turns: 5, Tokens: 20, Sampled: 2, Seconds: 5,
			StopReason: "stop", Version: 2},
		// a rounding error below 1
		{Rollout: "a3", Task: "a", Reward: 1 - 1e-12, Turns: 3, Tokens: 20, Sampled: 2, ToolCalls: 3, Seconds: 3,
			StopReason: "stop", Version: 2},
		{Rollout: "b1", Task: "b", Failed: true, Turns: 900, Tokens: 900, Version: 9},
		{Rollout: "c0", Task: "c", Failed: true},
	}
	s, err := Summarise("mine", all, Options{K: []int{4, 2, 2, 7}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Tasks != 2 || s.Attempts != 7 || s.Failed != 2 || len(s.ByTask) != 3 || s.Confidence != 0.95 ||
		s.Resamples != 10_000 || s.PassReward != 1 {
		t.Errorf("%+v", s)
	}
	var ks []int
	for _, p := range s.PassAt {
		ks = append(ks, p.K)
	}
	if !slices.Equal(ks, []int{1, 2, 4}) || s.PassAt[1].Tasks != 1 {
		t.Fatalf("pass@k: %+v", s.PassAt)
	}
	near(t, "pass@1", s.PassAt[0].Estimate.Value, (0.5+0)/2)
	near(t, "pass@2", s.PassAt[1].Estimate.Value, 1-1./6) // of a alone: C(2,2)/C(4,2)
	near(t, "reward", s.Reward.Value, (0.5+0.5)/2)
	near(t, "turns", s.Turns.Value, (3+4)/2.)
	near(t, "tokens", s.Tokens.Value, (20+40)/2.)
	near(t, "sampled", s.Sampled.Value, (2+4)/2.)
	near(t, "tool calls", s.ToolCalls.Value, (2+2)/2.)
	near(t, "tool failures", s.ToolFailures.Value, (1+1)/2.)
	near(t, "seconds", s.Seconds.Value, (3+2)/2.)
	if !reflect.DeepEqual(s.StopReasons, map[string]int{"stop": 4, "length": 1}) ||
		!slices.Equal(s.Versions, []int64{1, 2}) {
		t.Errorf("stop reasons %v, versions %v", s.StopReasons, s.Versions)
	}
	if h := s.TurnCounts; !slices.Equal(h.Edges, []int{1, 2, 3, 4, 5, 6}) ||
		!slices.Equal(h.Counts, []int{1, 0, 2, 1, 1}) {
		t.Errorf("turns: %+v", h)
	}
	a, c := s.ByTask[0], s.ByTask[2]
	if a.Task != "a" || a.Scored != 4 || a.Passed != 2 || a.Pass.Value != 0.5 || a.Reward < 0.49 ||
		len(a.Attempts) != 4 || a.Attempts[3].Rollout != "a3" {
		t.Errorf("task a: %+v", a)
	}
	if c.Scored != 0 || c.Failed != 1 || c.Pass != (Estimate{}) {
		t.Errorf("task c: %+v", c)
	}
	notes := strings.Join(s.Notes, "\n")
	for _, want := range []string{"pass@2 is of 1 of 2 tasks", "pass@7 is left out",
		"not counted: 2 of 7; had none of them passed, or all, pass@1 would be 0.167 or 0.667",
		"without a scored attempt, not counted: 1 of 3: c", "fewer than 10 tasks are rough: these are over 2",
		"2 versions of the policy sampled these attempts, 1 to 2"} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	if e, ok := s.Pass(4); !ok || e.Value != 1 {
		t.Errorf("pass@4: %+v %v", e, ok)
	}
	if _, ok := s.Pass(7); ok {
		t.Error("pass@7 is there")
	}
}

// TestDefaultK is 1 and the most attempts that every task has, failed ones apart.
func TestDefaultK(t *testing.T) {
	all := attempts(rand.New(rand.NewPCG(1, 1)), 12, 5, func(int) float64 { return 0.5 })
	all[7].Failed = true
	s, err := Summarise("mine", all, Options{})
	if err != nil || len(s.PassAt) != 2 || s.PassAt[0].K != 1 || s.PassAt[1].K != 4 || s.PassAt[1].Tasks != 12 {
		t.Errorf("%v: %+v", err, s.PassAt)
	}
	if s, err = Summarise("mine", all[:1], Options{}); err != nil || len(s.PassAt) != 1 {
		t.Errorf("one attempt: %v %+v", err, s.PassAt)
	}
}

// TestNothingScored: an evaluation whose infrastructure failed has no figures, and says so.
func TestNothingScored(t *testing.T) {
	s, err := Summarise("mine", []Attempt{{Rollout: "a", Task: "t", Failed: true}}, Options{})
	if err != nil || s.Tasks != 0 || s.Failed != 1 || len(s.PassAt) != 0 || len(s.Notes) != 1 ||
		!strings.Contains(s.Notes[0], "none of 1 attempt was scored") {
		t.Errorf("%v: %+v", err, s)
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// TestSummaryOfAnyOrder is the same, whatever the order of the attempts and what failed ones
// measured, and another seed moves the ends of intervals alone.
func TestSummaryOfAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 8))
	all := attempts(rng, 15, 3, func(i int) float64 { return float64(i) / 15 })
	all[3].Failed = true
	o := Options{Resamples: 500, Seed: 3}
	want, err := Summarise("mine", all, o)
	if err != nil {
		t.Fatal(err)
	}
	shuffled := slices.Clone(all)
	rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if got, _ := Summarise("mine", shuffled, o); !reflect.DeepEqual(got, want) {
		t.Errorf("shuffled attempts give\n%+v, not\n%+v", got, want)
	}
	all[3].Reward, all[3].Turns, all[3].Seconds = math.NaN(), 50, 1e6
	got, err := Summarise("mine", all, o)
	if err != nil || got.Reward != want.Reward || got.Turns != want.Turns || got.PassAt[0] != want.PassAt[0] {
		t.Errorf("what failed changes figures: %v %+v", err, got.Reward)
	}
	o.Seed = 4
	other, _ := Summarise("mine", shuffled, o)
	if other.Reward.Value != want.Reward.Value || other.Reward.Low == want.Reward.Low ||
		math.Abs(other.Reward.Low-want.Reward.Low) > 0.1 {
		t.Errorf("another seed: %+v, was %+v", other.Reward, want.Reward)
	}
}

// TestRefusedAttempts names what is wrong and where.
func TestRefusedAttempts(t *testing.T) {
	good := Attempt{Rollout: "g1-0", Task: "t"}
	for _, c := range []struct {
		change func(*Attempt)
		o      Options
		want   string
	}{
		{change: func(a *Attempt) { a.Rollout = "" }, want: "without the name of its rollout"},
		{change: func(a *Attempt) { a.Task = "" }, want: `rollout "g1-0": it has no task`},
		{change: func(a *Attempt) { a.Reward = math.NaN() }, want: `rollout "g1-0": a reward of NaN`},
		{change: func(a *Attempt) { a.Reward = math.Inf(-1) }, want: "a reward of -Inf"},
		{change: func(a *Attempt) { a.Reward = 1e300 }, want: "a reward of 1e+300"},
		{change: func(a *Attempt) { a.Turns = -1 }, want: "it has -1 turns"},
		{change: func(a *Attempt) { a.Tokens = math.MaxInt }, want: "tokens"},
		{change: func(a *Attempt) { a.Seconds = math.NaN() }, want: "it took NaN seconds"},
		{change: func(a *Attempt) { a.Rollout, a.Task = "g1-1", "another" }, want: `rollout "g1-1" appears twice`},
		{o: Options{Confidence: 1}, want: "a confidence of 1"},
		{o: Options{Confidence: math.NaN()}, want: "a confidence of NaN"},
		{o: Options{Resamples: 99}, want: "99 resamples: it must be 100 to 1000000"},
		{o: Options{Resamples: 1 << 30}, want: "resamples"},
		{o: Options{K: []int{1, 0}}, want: "pass@0"},
		{o: Options{K: []int{1 << 40}}, want: "k must be"},
		{o: Options{PassAt: math.Inf(1)}, want: "cannot pass at a reward of +Inf"},
	} {
		a := good
		if c.change != nil {
			c.change(&a)
		}
		_, err := Summarise("mine", []Attempt{{Rollout: "g1-1", Task: "t"}, a}, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	if _, err := Summarise("mine", nil, Options{}); err == nil ||
		!strings.Contains(err.Error(), "summarise mine: there are no attempts") {
		t.Errorf("no attempts: %v", err)
	}
}

// TestHugeFiguresStayNumbers: whatever is taken in can be written as JSON.
func TestHugeFiguresStayNumbers(t *testing.T) {
	var all, other []Attempt
	for i := range 30 {
		a := Attempt{Rollout: string(rune('A' + i)), Task: string(rune('A' + i)),
			Reward: largestReward * float64(i%3-1), Tokens: largestCount * (i % 2), Turns: i, Seconds: largestCount}
		all, other = append(all, a), append(other, a)
		other[i].Reward = -a.Reward
	}
	s, err := Summarise("mine", all, Options{Resamples: 200})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Compare(all, other, "a", "b", Options{Resamples: 200})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal([]any{s, c}); err != nil {
		t.Error(err)
	}
}

func TestHistogram(t *testing.T) {
	for _, c := range []struct {
		values        []int
		edges, counts []int
	}{
		{nil, []int{}, []int{}},
		{[]int{0}, []int{0, 1}, []int{1}},
		{[]int{7, 7, 8}, []int{7, 8, 9}, []int{2, 1}},
		{[]int{0, 19}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20},
			[]int{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
	} {
		h := histogram(c.values)
		if !slices.Equal(h.Edges, c.edges) || !slices.Equal(h.Counts, c.counts) {
			t.Errorf("%v: %+v", c.values, h)
		}
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		values := make([]int, 1+rng.IntN(50))
		most := 1 + rng.IntN(1<<rng.IntN(40))
		for i := range values {
			values[i] = rng.IntN(most)
		}
		h := histogram(values)
		total := 0
		for i, count := range h.Counts {
			total += count
			inside := 0
			for _, v := range values {
				if v >= h.Edges[i] && v < h.Edges[i+1] {
					inside++
				}
			}
			if inside != count {
				t.Fatalf("%v: bin %d of %+v has %d", values, i, h, inside)
			}
		}
		if total != len(values) || len(h.Counts) > maxBins || len(h.Edges) != len(h.Counts)+1 || h.Counts[0] == 0 ||
			h.Counts[len(h.Counts)-1] == 0 {
			t.Fatalf("%v: %+v", values, h)
		}
	}
}

// TestForfeitedAttemptsCount: what an agent did to its tests is an attempt that did not pass, and
// only what the machine failed is left out.
func TestForfeitedAttemptsCount(t *testing.T) {
	var attempts []Attempt
	for i, a := range []Attempt{
		{Reward: 1, StopReason: "finished"}, {Forfeit: "timeout", StopReason: "finished"},
		{Forfeit: "timeout", StopReason: "max_turns"}, {Forfeit: "tampered", StopReason: "finished"},
		{Failed: true, Cause: "tools: sandbox"},
	} {
		a.Rollout, a.Task = fmt.Sprintf("g000001-%d", i), "a"
		attempts = append(attempts, a)
	}
	s, err := Summarise("x", attempts, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if pass, _ := s.Pass(1); pass.Value != 0.25 || s.Failed != 1 || s.Forfeits["timeout"] != 2 {
		t.Errorf("pass@1 is %+v with %d failed, forfeits %v", pass, s.Failed, s.Forfeits)
	}
	if got, want := s.Ended(),
		"3 finished, 1 max_turns; forfeited: 2 timeout, 1 tampered; failed: 1 tools: sandbox"; got != want {
		t.Errorf("ended %q, want %q", got, want)
	}
	s, err = Summarise("x", attempts[1:3], Options{})
	if notes := strings.Join(s.Notes, "\n"); err != nil ||
		!strings.Contains(notes, "each attempt at a was forfeited by timeout: look at the task's verifier as well") {
		t.Errorf("notes %q, %v", notes, err)
	}
}
