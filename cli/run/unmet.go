package run

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rondo-rl/rondo/books"
	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/sandbox/verifier/grade"
)

// unmetTest is a graded test that did not end as it must.
type unmetTest struct {
	Test    string `json:"test"`
	Times   int    `json:"times"`             // in verdicts
	Message string `json:"message,omitempty"` // of the last of them that has one
}

// unmetOf are those of a task.
type unmetOf struct {
	tests map[string]*unmetTest
	// uncounted are those behind the bound, and those that verdicts have no name of.
	uncounted int
}

// Bounds of the tests that are kept of a task, and of those that are shown of it.
const (
	maxUnmet   = 2000
	shownUnmet = 10
)

// unmetTests are those of a run, by task.
type unmetTests struct {
	books *books.Run
	tasks map[string]*unmetOf
}

// listen reads along with the books.
func (u *unmetTests) listen(e events.Event) (err error) {
	var tests *grade.Tests
	switch e.Type {
	case events.RolloutScoredType:
		var scored events.RolloutScored
		scored, err = events.Data[events.RolloutScored](e)
		tests = scored.Tests
	case events.StepScoredType:
		var scored events.StepScored
		scored, err = events.Data[events.StepScored](e)
		tests = scored.Tests
	}
	if err != nil || tests == nil {
		return err
	}
	r, _ := u.books.Find(e.Entity)
	of := u.tasks[r.Task]
	if of == nil {
		of = &unmetOf{tests: map[string]*unmetTest{}}
		u.tasks[r.Task] = of
	}
	of.uncounted += tests.More()
	for _, test := range tests.Unmet {
		known := of.tests[test.Name]
		if known == nil && len(of.tests) == maxUnmet {
			of.uncounted++
			continue
		}
		if known == nil {
			known = &unmetTest{Test: test.Name}
			of.tests[test.Name] = known
		}
		known.Times++
		known.Message = cmp.Or(test.Message, known.Message)
	}
	return nil
}

// most are the tests of a task that failed most often, and how many are not among them.
func (u *unmetTests) most(task string) (list []unmetTest, others int) {
	of := u.tasks[task]
	if of == nil {
		return nil, 0
	}
	sorted := slices.SortedFunc(maps.Values(of.tests), func(a, b *unmetTest) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Test, b.Test))
	})
	for _, test := range sorted[:min(len(sorted), shownUnmet)] {
		list = append(list, *test)
	}
	return list, len(sorted) - len(list) + of.uncounted
}
