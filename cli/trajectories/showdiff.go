package trajectories

import (
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
)

// maxDiffLines bounds what is compared line by line: the comparison takes the product of both sides.
const maxDiffLines = 1000

// DiffRows shows how one text became another: lines that went, that came, and that stayed.
func DiffRows(before, after string) (rows []app.Row) {
	a, b := diffLines(before), diffLines(after)
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	rows = marked(rows, "  ", a[:head], app.Faint)
	rows = append(rows, changedRows(a[head:len(a)-tail], b[head:len(b)-tail])...)
	return marked(rows, "  ", a[len(a)-tail:], app.Faint)
}

func diffLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(app.Clean(text), "\n"), "\n")
}

func marked(rows []app.Row, mark string, lines []string, st app.Style) []app.Row {
	for _, line := range lines {
		rows = append(rows, app.Row{{Text: mark + app.Untab(line), Style: st}})
	}
	return rows
}

// changedRows aligns two lists of lines along a longest common subsequence.
func changedRows(a, b []string) (rows []app.Row) {
	if len(a) > maxDiffLines || len(b) > maxDiffLines {
		return marked(marked(nil, "- ", a, app.Red), "+ ", b, app.Green)
	}
	common := commonLengths(a, b)
	i, k := 0, 0
	for i < len(a) && k < len(b) {
		switch {
		case a[i] == b[k]:
			rows = marked(rows, "  ", a[i:i+1], app.Faint)
			i, k = i+1, k+1
		case common[i+1][k] >= common[i][k+1]:
			rows = marked(rows, "- ", a[i:i+1], app.Red)
			i++
		default:
			rows = marked(rows, "+ ", b[k:k+1], app.Green)
			k++
		}
	}
	return marked(marked(rows, "- ", a[i:], app.Red), "+ ", b[k:], app.Green)
}

// commonLengths holds at [i][k] the length of a longest common subsequence of a[i:] and b[k:].
func commonLengths(a, b []string) [][]int32 {
	all := make([]int32, (len(a)+1)*(len(b)+1))
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = all[i*(len(b)+1) : (i+1)*(len(b)+1)]
	}
	for i, line := range slices.Backward(a) {
		for k := len(b) - 1; k >= 0; k-- {
			if line == b[k] {
				common[i][k] = common[i+1][k+1] + 1
			} else {
				common[i][k] = max(common[i+1][k], common[i][k+1])
			}
		}
	}
	return common
}

// patchRows colours a patch that was written as one.
func patchRows(patch string) (rows []app.Row) {
	for _, line := range diffLines(patch) {
		st := app.Faint
		switch {
		case strings.HasPrefix(line, "***"), strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"), strings.HasPrefix(line, "@@"):
			st = app.Cyan
		case strings.HasPrefix(line, "+"):
			st = app.Green
		case strings.HasPrefix(line, "-"):
			st = app.Red
		}
		rows = append(rows, app.Row{{Text: app.Untab(line), Style: st}})
	}
	return rows
}
