package evaluation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// Summary is what the attempts of one policy on a set of tasks come to. Every estimate is a mean
// over tasks of each task's own figure, so that a task counts once however many attempts it has,
// with an interval over resampled tasks (a cluster bootstrap): it says what other tasks of the same
// kind would give, not only other attempts. The idea is in Miller 2024, arXiv:2411.00640.
type Summary struct {
	Name     string `json:"name"`
	Tasks    int    `json:"tasks"`    // with a scored attempt
	Attempts int    `json:"attempts"` // all
	Failed   int    `json:"failed"`   // of them without a reward, by the infrastructure's fault
	// PassAt is ordered by k and begins with pass@1; it lacks the k that no task has attempts for.
	// Where no attempt was scored it is empty, and the estimates say nothing.
	PassAt []PassAt `json:"pass_at"`
	Reward Estimate `json:"reward"`
	// The following are means for each attempt.
	Turns        Estimate `json:"turns"`
	Tokens       Estimate `json:"tokens"`
	Sampled      Estimate `json:"sampled"`
	ToolCalls    Estimate `json:"tool_calls"`
	ToolFailures Estimate `json:"tool_failures"`
	Seconds      Estimate `json:"seconds"`
	// ByTask is ordered by name.
	ByTask []TaskSummary `json:"by_task"`
	// TurnCounts and TokenCounts are how the scored attempts are spread over turns and tokens.
	TurnCounts  Histogram `json:"turn_counts"`
	TokenCounts Histogram `json:"token_counts"`
	// StopReasons counts the scored attempts by why they ended.
	StopReasons map[string]int `json:"stop_reasons"`
	// Forfeits counts the scored attempts that have no verdict of their tests by their agent's
	// doing, by its class. They have not passed.
	Forfeits map[string]int `json:"forfeits,omitzero"`
	// Failures counts the failed attempts by stage and class.
	Failures map[string]int `json:"failures,omitzero"`
	// Behaviour is how the agents of the attempts behaved.
	Behaviour *behaviour.Row `json:"behaviour,omitzero"`
	// Versions of the policy that sampled, in order.
	Versions []int64 `json:"versions"`
	// Notes are what a reader should know before believing the figures.
	Notes []string `json:"notes,omitzero"`
	// The options with their defaults.
	PassReward float64 `json:"pass_reward"`
	Confidence float64 `json:"confidence"`
	Resamples  int     `json:"resamples"`
	Seed       int64   `json:"seed"`
}

// PassAt is the probability that at least one of k attempts passes.
type PassAt struct {
	K        int      `json:"k"`
	Tasks    int      `json:"tasks"` // that have k scored attempts or more; the others do not count
	Estimate Estimate `json:"estimate"`
}

// TaskSummary is what a task's attempts come to.
type TaskSummary struct {
	Task   string `json:"task"`
	Scored int    `json:"scored"`
	Failed int    `json:"failed"`
	Passed int    `json:"passed"`
	// Pass is Passed / Scored with the Wilson score interval.
	Pass Estimate `json:"pass"`
	// The means over the scored attempts.
	Reward   float64   `json:"reward"`
	Turns    float64   `json:"turns"`
	Tokens   float64   `json:"tokens"`
	Seconds  float64   `json:"seconds"`
	Attempts []Attempt `json:"attempts"` // ordered by rollout
}

// Pass is pass@k, if it was asked for and there are attempts enough.
func (s Summary) Pass(k int) (Estimate, bool) {
	for _, p := range s.PassAt {
		if p.K == k {
			return p.Estimate, true
		}
	}
	return Estimate{}, false
}

// Summarise makes a summary of a policy's attempts, which may be of any number for each task. It
// refuses attempts that are listed twice, that have no task, or whose figures are no numbers.
func Summarise(name string, attempts []Attempt, o Options) (Summary, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Summary{}, err
	}
	tasks, err := byTask(attempts, o)
	if err != nil {
		return Summary{}, fmt.Errorf("summarise %s: %w", name, err)
	}
	s := Summary{Name: name, Attempts: len(attempts), PassAt: []PassAt{},
		StopReasons: map[string]int{}, Versions: []int64{},
		PassReward: o.PassAt, Confidence: o.Confidence, Resamples: o.Resamples, Seed: o.Seed}
	var turns, tokens []int
	for i := range tasks {
		t := &tasks[i]
		s.Failed += len(t.failed)
		s.ByTask = append(s.ByTask, t.summary(o))
		for _, a := range t.failed {
			s.Failures = counting(s.Failures, a.Cause)
		}
		for _, a := range t.scored {
			s.Forfeits = counting(s.Forfeits, a.Forfeit)
			turns, tokens = append(turns, a.Turns), append(tokens, a.Tokens)
			s.StopReasons[a.StopReason]++
			s.Versions = append(s.Versions, a.Version)
		}
	}
	s.Behaviour = behaved(attempts)
	s.TurnCounts, s.TokenCounts = histogram(turns), histogram(tokens)
	slices.Sort(s.Versions)
	s.Versions = slices.Compact(s.Versions)
	scored := scoredOnly(tasks)
	if s.Tasks = len(scored); s.Tasks > 0 {
		s.estimate(scored, o)
	}
	s.Notes = append(s.Notes, s.warnings(tasks, scored)...)
	return s, nil
}

// estimate fills in the figures over tasks that all have a scored attempt.
func (s *Summary) estimate(tasks []task, o Options) {
	for _, k := range ks(o.K, leastAttempts(tasks)) {
		enough := slices.DeleteFunc(slices.Clone(tasks), func(t task) bool { return len(t.scored) < k })
		if len(enough) == 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("pass@%d is left out: no task has so many scored attempts", k))
			continue
		}
		if n := len(tasks) - len(enough); n > 0 {
			s.Notes = append(s.Notes, fmt.Sprintf("pass@%d is of %d of %d tasks: the others have fewer scored attempts",
				k, len(enough), len(tasks)))
		}
		values := column(enough, func(t *task) float64 { return t.passAt(k) })
		if agree(values) {
			s.Notes = append(s.Notes,
				fmt.Sprintf("pass@%d is the same on each task: its interval is how many tasks might still do otherwise", k))
		}
		s.PassAt = append(s.PassAt, PassAt{K: k, Tasks: len(enough),
			Estimate: boundedMeans([][]float64{values}, 0, o)[0]})
	}
	figures := []struct {
		to     *Estimate
		figure func(Attempt) float64
	}{
		{&s.Reward, func(a Attempt) float64 { return a.Reward }},
		{&s.Turns, func(a Attempt) float64 { return float64(a.Turns) }},
		{&s.Tokens, func(a Attempt) float64 { return float64(a.Tokens) }},
		{&s.Sampled, func(a Attempt) float64 { return float64(a.Sampled) }},
		{&s.ToolCalls, func(a Attempt) float64 { return float64(a.ToolCalls) }},
		{&s.ToolFailures, func(a Attempt) float64 { return float64(a.ToolFailures) }},
		{&s.Seconds, func(a Attempt) float64 { return a.Seconds }},
	}
	columns := make([][]float64, len(figures))
	for i, f := range figures {
		columns[i] = column(tasks, each(f.figure))
	}
	for i, estimate := range means(columns, o) {
		*figures[i].to = estimate
	}
	if agree(columns[0]) {
		s.Notes = append(s.Notes, "the mean reward is the same on each task: its interval is a point and says nothing")
	}
}

func (t *task) summary(o Options) TaskSummary {
	s := TaskSummary{Task: t.name, Scored: len(t.scored), Failed: len(t.failed), Passed: t.passed, Reward: t.reward,
		Turns:   t.mean(func(a Attempt) float64 { return float64(a.Turns) }),
		Tokens:  t.mean(func(a Attempt) float64 { return float64(a.Tokens) }),
		Seconds: t.mean(func(a Attempt) float64 { return a.Seconds })}
	if s.Scored > 0 {
		s.Pass = wilson(t.passed, len(t.scored), o.Confidence)
	}
	s.Attempts = slices.SortedFunc(slices.Values(slices.Concat(t.scored, t.failed)),
		func(a, b Attempt) int { return strings.Compare(a.Rollout, b.Rollout) })
	return s
}

// fewTasks: below, intervals hold a little less than they promise (TestCoverage).
const fewTasks = 10

// warnings are what the figures do not show by themselves.
func (s *Summary) warnings(tasks, scored []task) (notes []string) {
	if len(scored) == 0 {
		return []string{fmt.Sprintf("none of %s was scored: there are no figures",
			counted(s.Attempts, "attempt", "attempts"))}
	}
	if s.Failed > 0 {
		low, high := unknown(tasks)
		notes = append(notes,
			fmt.Sprintf("attempts that failed by the infrastructure's fault, not counted: %d of %d; had none of them passed, or all, pass@1 would be %.3f or %.3f",
				s.Failed, s.Attempts, low, high))
	}
	if n := len(tasks) - len(scored); n > 0 {
		var names []string
		for _, t := range tasks {
			if len(t.scored) == 0 {
				names = append(names, t.name)
			}
		}
		notes = append(notes, fmt.Sprintf("tasks without a scored attempt, not counted: %d of %d: %s", n,
			len(tasks), some(names)))
	}
	if len(scored) < fewTasks {
		notes = append(notes, fmt.Sprintf("intervals over fewer than %d tasks are rough: these are over %d", fewTasks,
			len(scored)))
	}
	for _, t := range scored {
		if same := t.scored[0].Forfeit; same != "" && len(t.scored) > 1 &&
			!slices.ContainsFunc(t.scored, func(a Attempt) bool { return a.Forfeit != same }) {
			notes = append(notes,
				fmt.Sprintf("each attempt at %s was forfeited by %s: look at the task's verifier as well",
					plain(t.name, longestName), same))
		}
	}
	if n := len(s.Versions); n > 1 {
		notes = append(notes, fmt.Sprintf("%d versions of the policy sampled these attempts, %d to %d", n,
			s.Versions[0], s.Versions[n-1]))
	}
	return notes
}

// unknown is pass@1 over all tasks if every failed attempt had not passed, and if every one had.
func unknown(tasks []task) (low, high float64) {
	for _, t := range tasks {
		all := float64(len(t.scored)+len(t.failed)) * float64(len(tasks))
		low += float64(t.passed) / all
		high += float64(t.passed+len(t.failed)) / all
	}
	return low, high
}

// counting adds one to a count that begins as nil; "" is nothing to count.
func counting(counts map[string]int, name string) map[string]int {
	if name == "" {
		return counts
	}
	if counts == nil {
		counts = map[string]int{}
	}
	counts[name]++
	return counts
}

// Ended says how the attempts ended, the most frequent end first: "5 finished, 2 max_turns;
// forfeited: 1 timeout; failed: 1 tools: sandbox".
func (s Summary) Ended() string {
	var parts []string
	for _, p := range []struct {
		title  string
		counts map[string]int
	}{{"", s.StopReasons}, {"forfeited: ", s.Forfeits}, {"failed: ", s.Failures}} {
		names := books.ByCount(p.counts)
		for i, name := range names {
			names[i] = fmt.Sprintf("%d %s", p.counts[name], plain(cmp.Or(name, "without a reason"), longestName))
		}
		if len(names) > 0 {
			parts = append(parts, p.title+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// some names the first of many.
func some(names []string) string {
	const most = 5
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, plain(name, longestName))
	}
	if more := len(names) - most; more > 0 {
		shown[most-1] += fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(shown, ", ")
}
