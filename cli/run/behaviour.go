package run

import (
	"fmt"
	"io"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/evaluation/behaviour"
)

// shownVersions bounds the rows of the table for people. --json has every version.
const shownVersions = 20

// printBehaviour prints a row for each version, or for several that follow each other.
func printBehaviour(w io.Writer, rows []behaviour.Row) error {
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "\nno rollout has started: there is no behaviour to show")
		return err
	}
	lines := behaviour.Lines(rows...)
	fmt.Fprintln(w, "\nbehaviour of the scored rollouts, by policy version at dispatch: means, with medians in parentheses")
	t := app.NewColumns(w)
	head := []string{"VERSION"}
	for _, line := range lines {
		head = append(head, strings.ToUpper(line.Title))
	}
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for i, row := range rows {
		cells := []string{row.Versions()}
		for _, line := range lines {
			cells = append(cells, line.Cells[i])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}
