package books

import (
	"math"
	"slices"
	"strings"
)

// TaskRow says what a task teaches: how its rollouts ended, and whether rewards within its groups
// differ, without which no advantage does.
type TaskRow struct {
	Task    string `json:"task"`
	Groups  int    `json:"groups"`  // that are complete
	Signals int    `json:"signals"` // those of them whose rewards differ
	Scored  int    `json:"scored"`
	Passed  int    `json:"passed"` // scored ones with at least the reward that passes
	Failed  int    `json:"failed"`
	// Classes count the failed ones by the class of their failure.
	Classes map[string]int `json:"classes,omitempty"`
	// Mean, First and Last are mean rewards of the scored rollouts: of all, of the first complete
	// group and of the last; nil where there are none.
	Mean  *float64 `json:"mean,omitempty"`
	First *float64 `json:"first,omitempty"`
	Last  *float64 `json:"last,omitempty"`
	// Remark is one of the Remarks, "" for none.
	Remark string `json:"remark,omitempty"`

	sum float64
}

// Remarks on a task that teaches nothing.
const (
	RemarkUntried  = "not tried yet"
	RemarkFails    = "every rollout failed"
	RemarkUnsolved = "never solved"
	RemarkSolved   = "always solved"
	RemarkNoSignal = "no signal: all rewards of a group are equal"
)

// Tasks says what each task of the run teaches, in the order of their names. A rollout passes at
// the reward pass.
func (s *Rollouts) Tasks(pass float64) []TaskRow {
	rows := map[string]*TaskRow{}
	row := func(task string) *TaskRow {
		if rows[task] == nil {
			rows[task] = &TaskRow{Task: task}
		}
		return rows[task]
	}
	for _, task := range s.Config.Tasks {
		row(task.Name)
	}
	for r := range s.All() {
		row(r.Task).count(r, pass)
	}
	for _, g := range s.GroupsOf(0, s.GroupCount()) {
		if g.Completed {
			row(g.Task).group(s, g)
		}
	}
	list := make([]TaskRow, 0, len(rows))
	for _, r := range rows {
		if r.Scored > 0 {
			mean := r.sum / float64(r.Scored)
			r.Mean = &mean
		}
		r.Remark = r.remark()
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b TaskRow) int { return strings.Compare(a.Task, b.Task) })
	return list
}

func (t *TaskRow) count(r Rollout, pass float64) {
	switch {
	case r.Failed:
		t.Failed++
		if t.Classes == nil {
			t.Classes = map[string]int{}
		}
		t.Classes[r.Class]++
	case r.Scored:
		const enough = 1e-9 // sums of components miss a reward by that
		t.Scored++
		t.sum += r.Reward
		if r.Reward >= pass-enough {
			t.Passed++
		}
	}
}

// group counts a complete group.
func (t *TaskRow) group(s *Rollouts, g Group) {
	t.Groups++
	low, high, scored := math.Inf(1), math.Inf(-1), false
	for _, id := range g.Members {
		if r, _ := s.Find(id); r.Compared() {
			low, high, scored = min(low, r.Member.Shaped), max(high, r.Member.Shaped), true
		}
	}
	if !scored {
		return
	}
	if high > low {
		t.Signals++
	}
	if t.First == nil {
		t.First = &g.Mean
	}
	t.Last = &g.Mean
}

func (t *TaskRow) remark() string {
	switch {
	case t.Scored+t.Failed == 0:
		return RemarkUntried
	case t.Scored == 0:
		return RemarkFails
	case t.Passed == 0:
		return RemarkUnsolved
	case t.Passed == t.Scored:
		return RemarkSolved
	case t.Groups > 0 && t.Signals == 0:
		return RemarkNoSignal
	}
	return ""
}
