package policy

import (
	"fmt"
	"math"
	"slices"
)

// placeShare is how far a line's prior follows from what can be done there: 0 treats all
// lines alike, 1 all changes.
const placeShare = 0.5

// places lists the lines that may be changed. In a large repository these are the ones that share
// most words with the failing tests and the instruction.
func (s *state) places() []candidate {
	spots := s.spots()
	out := make([]candidate, 0, len(spots))
	for _, at := range spots {
		if s.exhausted(at.file, at.line) {
			continue
		}
		out = append(out, candidate{
			text:     fmt.Sprintf("At %s:%d", at.file.path, at.line+1),
			offset:   placeShare*at.file.changes(at.line).promise + s.suspicion(at.file, at.line) + s.lead(at.file),
			features: s.placeFeatures(at.file, at.line),
			index:    at.order<<16 | at.line,
		})
	}
	return out
}

// suspicion is the fixed part of a line's logit. All lines are alike until a change of one moves
// what the failing test says without breaking others: such a line takes part in the fault
// (mutation-based fault localisation; Papadakis and Le Traon's Metallaxis, Moon et al.'s MUSE).
func (s *state) suspicion(f *file, line int) float64 {
	switch s.history(f, line).line {
	case otherOutput, improved, passed:
		return 2
	}
	return 0
}

type spot struct {
	file  *file
	order int // of the file
	line  int
	words int // shared with the failing tests and the instruction
}

func (s *state) spots() []spot {
	var spots []spot
	for n, name := range s.order {
		f := s.files[name]
		if s.excluded(f) {
			continue
		}
		for line, mutable := range f.derive().mutable {
			if mutable {
				spots = append(spots, spot{file: f, order: n, line: line})
			}
		}
	}
	if len(spots) <= maxPlaces {
		return spots
	}
	for i := range spots {
		plain := spots[i].file.derive().plain[spots[i].line]
		spots[i].words = overlap(plain, s.failWords) + overlap(plain, s.words)
	}
	slices.SortStableFunc(spots, func(a, b spot) int { return b.words - a.words })
	return spots[:maxPlaces]
}

func (s *state) hasPlaces() bool {
	for _, name := range s.order {
		if f := s.files[name]; !s.excluded(f) && len(f.derive().mutable) > 0 {
			return true
		}
	}
	return false
}

func (s *state) place(c *candidate) (*file, int) {
	return s.files[s.order[c.index>>16]], c.index & 0xffff
}

// exhausted tells whether all changes of a line were tried. It is asked only about
// lines that were tried at all.
func (s *state) exhausted(f *file, line int) bool {
	if s.triesAt(f, line) == 0 {
		return false
	}
	for _, m := range f.changes(line).list {
		if !s.wasTried(f, m) {
			return false
		}
	}
	return true
}

func (s *state) triesAt(f *file, line int) (count int) {
	for i := range s.tries {
		t := &s.tries[i]
		if t.path == f.path && t.kept == s.kept && t.change.start == line {
			count++
		}
	}
	return count
}

// wasTried tells whether a change was tried on the present state; a change that has no
// unique text cannot be made.
func (s *state) wasTried(f *file, m mutation) bool {
	after := m.change.apply(f.lines)
	_, tried := s.tried[s.changeKey(f.path, difference(f.lines, after), f.lines)]
	return tried
}

// changes lists what can be done at a line. The prior damps operators with many variants by
// the root of their number.
func (s *state) changes(f *file, line int) ([]mutation, []candidate) {
	mutations := f.changes(line).list
	variants := map[string]float64{}
	for _, m := range mutations {
		variants[m.op]++
	}
	out := make([]candidate, 0, len(mutations))
	for i, m := range mutations {
		if s.wasTried(f, m) {
			continue
		}
		out = append(out, candidate{
			text:     fmt.Sprintf("Change %d (%s): %s", i+1, m.op, m.detail),
			offset:   operatorOffset(m.op, variants[m.op]),
			features: s.changeFeatures(f, line, m),
			index:    i,
		})
	}
	return mutations, out
}

// operatorOffset is the prior of one change by an operator that has so many variants at a line.
func operatorOffset(op string, variants float64) float64 {
	return likelihood[op] - 0.5*math.Log(variants)
}

// likelihood is the fixed part of an operator's logit: how often small faults are of its kind.
// Studies of one-line fixes (Karampatsis and Sutton 2020, ManySStuBs4J; Just et al. 2014,
// Defects4J) find wrong operators, numbers and names far ahead of missing statements.
var likelihood = map[string]float64{
	"compare": 2, "logical": 1.5, "arithmetic": 1, "number": 1, "quote": 1.5, "position": 1.5, "name": 0.5,
}
