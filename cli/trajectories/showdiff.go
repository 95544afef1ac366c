package trajectories

import (
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/sandbox/difference"
)

// DiffRows shows how one text became another: lines that went, that came, and that stayed.
func DiffRows(before, after string) (rows []app.Row) {
	before, after = ended(before), ended(after)
	if before == after {
		return marked("  ", diffLines(before), app.Faint)
	}
	styles := map[rune]app.Style{difference.Came: app.Green, difference.Went: app.Red, difference.Stayed: app.Faint}
	all := strings.Count(before, "\n") + strings.Count(after, "\n")
	lines, _ := difference.Lines(before, after, all, all+1) // one of them says where
	for _, l := range lines {
		if st, ok := styles[l.Mark]; ok {
			rows = append(rows, marked(string(l.Mark)+" ", []string{l.Text}, st)...)
		}
	}
	return rows
}

// ended is a text made fit for a terminal, whose last line ends.
func ended(text string) string {
	if text = app.Clean(text); text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

func diffLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(app.Clean(text), "\n"), "\n")
}

func marked(mark string, lines []string, st app.Style) (rows []app.Row) {
	for _, line := range lines {
		rows = append(rows, app.Row{{Text: mark + app.Untab(line), Style: st}})
	}
	return rows
}

// patchRows colours a patch that was written as one.
func patchRows(patch string) (rows []app.Row) {
	for _, line := range diffLines(patch) {
		st := app.Faint
		switch {
		case strings.HasPrefix(line, "***"), strings.HasPrefix(line, "+++"), strings.HasPrefix(line, "---"),
			strings.HasPrefix(line, "@@"):
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
