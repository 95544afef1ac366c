package evaluation

import (
	"slices"
	"strconv"

	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// behaved is how the agents of attempts behaved, nil where of none that is known.
func behaved(attempts []Attempt) *behaviour.Row {
	var tally behaviour.Tally
	known := 0
	for _, a := range attempts {
		if a.Behaviour == nil {
			continue
		}
		did := *a.Behaviour
		if did.Failed != a.Failed || did.Reward != a.Reward { // it was scored again
			did.Failed, did.Reward, did.Effort = a.Failed, a.Reward, nil
		}
		tally.Start(did.Version)
		tally.Add(did)
		known++
	}
	if known == 0 {
		return nil
	}
	row := tally.Row()
	return &row
}

// elsewhere are the figures of behaviour that a report has with more detail.
var elsewhere = []string{"scored", "failed", "reward", "stopped"}

// Behaviour has the figures of the report's policies beside each other, in the order of the
// summaries; none where nothing is known.
func (r Report) Behaviour() []behaviour.Line {
	var rows []behaviour.Row
	for _, s := range r.Summaries {
		rows = append(rows, orNone(s.Behaviour))
	}
	return behaviourLines(rows)
}

func behaviourLines(rows []behaviour.Row) []behaviour.Line {
	return slices.DeleteFunc(behaviour.Lines(rows...),
		func(l behaviour.Line) bool { return slices.Contains(elsewhere, l.Title) })
}

func orNone(row *behaviour.Row) behaviour.Row {
	if row == nil {
		return behaviour.Row{}
	}
	return *row
}

// behaviour has a column for each policy.
func (r Report) behaviour() (s section, some bool) {
	s = section{Title: "Behaviour", Header: header(""),
		About: "Means for each scored attempt, with medians in parentheses. Every attempt counts once, not every task."}
	for _, summary := range r.Summaries {
		s.Header = append(s.Header, named(summary.Name))
	}
	for _, line := range r.Behaviour() {
		row := []cell{text(line.About)}
		for i := range line.Cells {
			row = append(row, behaviourCell(line, i))
		}
		s.Rows = append(s.Rows, row)
	}
	return s, len(s.Rows) > 0
}

// behaviourByVersion has a row for each version of a curve.
func (r Report) behaviourByVersion() (s section, some bool) {
	s = section{Title: "Behaviour by version", Header: header("version"),
		About: "Means for each scored attempt, with medians in parentheses."}
	var rows []behaviour.Row
	for _, p := range r.Curve {
		rows = append(rows, orNone(p.Behaviour))
		s.Rows = append(s.Rows, []cell{text(strconv.FormatInt(p.Version, 10))})
	}
	lines := behaviourLines(rows)
	for _, line := range lines {
		s.Header = append(s.Header, text(line.About))
		for i := range s.Rows {
			s.Rows[i] = append(s.Rows[i], behaviourCell(line, i))
		}
	}
	return s, len(lines) > 0
}

func behaviourCell(line behaviour.Line, i int) cell {
	if line.Names {
		return named(line.Cells[i])
	}
	return text(line.Cells[i])
}
