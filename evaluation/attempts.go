package evaluation

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	// largestReward and largestCount keep sums, and the cubes of differences, within a float64.
	largestReward = 1e90
	largestCount  = 1e12
)

// task has the attempts of one task.
type task struct {
	name   string
	scored []Attempt // ordered by rollout
	failed []Attempt
	passed int
	reward float64 // their mean over the scored attempts
}

// byTask groups attempts by task, ordered by name, and refuses what cannot be counted. An attempt
// that is listed twice would count twice, so that is an error.
func byTask(attempts []Attempt, o Options) ([]task, error) {
	if len(attempts) == 0 {
		return nil, errors.New("there are no attempts")
	}
	if len(attempts) > maxAttempts {
		return nil, fmt.Errorf("%d attempts: an evaluation has at most %d", len(attempts), maxAttempts)
	}
	ordered := slices.SortedFunc(slices.Values(attempts), func(a, b Attempt) int {
		return 2*strings.Compare(a.Task, b.Task) + strings.Compare(a.Rollout, b.Rollout)
	})
	seen := make(map[string]bool, len(attempts))
	var tasks []task
	for _, a := range ordered {
		if err := a.validate(); err != nil {
			return nil, fmt.Errorf("rollout %q: %w", a.Rollout, err)
		}
		if seen[a.Rollout] {
			return nil, fmt.Errorf("rollout %q appears twice among the attempts", a.Rollout)
		}
		seen[a.Rollout] = true
		if len(tasks) == 0 || tasks[len(tasks)-1].name != a.Task {
			tasks = append(tasks, task{name: a.Task})
		}
		tasks[len(tasks)-1].add(a, o)
	}
	for i := range tasks {
		tasks[i].reward = tasks[i].mean(func(a Attempt) float64 { return a.Reward })
	}
	return tasks, nil
}

func (t *task) add(a Attempt, o Options) {
	if a.Failed {
		t.failed = append(t.failed, a)
		return
	}
	t.scored = append(t.scored, a)
	if o.passed(a.Reward) {
		t.passed++
	}
}

// mean of a figure over the scored attempts; 0 without any.
func (t *task) mean(figure func(Attempt) float64) float64 {
	var total float64
	for _, a := range t.scored {
		total += figure(a)
	}
	return total / max(1, float64(len(t.scored)))
}

// passAt is the task's pass@k.
func (t *task) passAt(k int) float64 { return PassAtK(len(t.scored), t.passed, k) }

// end says how the attempt ended.
func (a Attempt) end() string {
	switch {
	case a.Failed:
		return cmp.Or(a.Cause, a.StopReason)
	case a.Forfeit != "":
		return strings.TrimPrefix(a.StopReason+", forfeited: "+a.Forfeit, ", ")
	}
	return a.StopReason
}

func (a Attempt) validate() error {
	switch {
	case a.Rollout == "":
		return errors.New("an attempt without the name of its rollout")
	case a.Task == "":
		return errors.New("it has no task")
	case !a.Failed && !(math.Abs(a.Reward) <= largestReward):
		return fmt.Errorf("a reward of %g is not between -%g and %[2]g", a.Reward, largestReward)
	case !(a.Seconds >= 0 && a.Seconds <= largestCount):
		return fmt.Errorf("it took %g seconds", a.Seconds)
	}
	for _, count := range []struct {
		what string
		n    int
	}{{"turns", a.Turns}, {"tokens", a.Tokens}, {"sampled tokens", a.Sampled}, {"tool calls", a.ToolCalls},
		{"tool failures", a.ToolFailures}} {
		if count.n < 0 || float64(count.n) > largestCount {
			return fmt.Errorf("it has %d %s", count.n, count.what)
		}
	}
	return nil
}

// scoredOnly leaves out the tasks without a scored attempt.
func scoredOnly(tasks []task) []task {
	return slices.DeleteFunc(slices.Clone(tasks), func(t task) bool { return len(t.scored) == 0 })
}

// column has a figure of each task.
func column(tasks []task, figure func(t *task) float64) []float64 {
	values := make([]float64, len(tasks))
	for i := range tasks {
		values[i] = figure(&tasks[i])
	}
	return values
}

// each is the figure of a task that is the mean of its attempts' figures.
func each(figure func(Attempt) float64) func(t *task) float64 {
	return func(t *task) float64 { return t.mean(figure) }
}

// ks are the k of pass@k: those asked for and always 1, or by default 1 and the most that all have.
func ks(asked []int, most int) []int {
	if len(asked) == 0 {
		asked = []int{most}
	}
	return slices.Compact(slices.Sorted(slices.Values(append([]int{1}, asked...))))
}

// leastAttempts is the smallest number of scored attempts of these tasks.
func leastAttempts(tasks []task) int {
	least := math.MaxInt
	for _, t := range tasks {
		least = min(least, len(t.scored))
	}
	return least
}
