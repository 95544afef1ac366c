package trajectories

import (
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/sandbox/netaccess"
)

// networkHead is how many requests of a turn are shown, unless all are asked for; what was
// refused is shown in any case.
const networkHead = 4

// networkRows say what a turn's programs asked of the network; nothing where they did not.
func networkRows(use *netaccess.Use, full bool) []app.Row {
	if use == nil {
		return nil
	}
	head := fmt.Sprintf("network: %d requests, %s received, %s sent", use.Requests,
		amount(use.Received), amount(use.Sent))
	if use.Refused > 0 {
		head += fmt.Sprintf(", %d refused", use.Refused)
	}
	rows := []app.Row{{{Text: head, Style: app.Faint}}}
	left, shown := 0, 0
	for _, f := range use.Fetches {
		if !full && f.Refused == "" && shown == networkHead {
			left++
			continue
		}
		if f.Refused == "" {
			shown++
		}
		rows = append(rows, fetchRow(f))
	}
	if left += use.Requests - len(use.Fetches); left > 0 {
		text := fmt.Sprintf("  and %d more", left)
		if use.All != nil {
			text += ": " + app.Line(use.All.Key, 120)
		}
		rows = append(rows, app.Row{{Text: text, Style: app.Faint}})
	}
	return rows
}

func fetchRow(f netaccess.Fetch) app.Row {
	text := app.Line(f.Method, 16) + " " + app.Line(f.URL, 300)
	if f.Refused != "" {
		return app.Row{{Text: "  ✗ ", Style: app.Red}, {Text: text + "  " + app.Line(f.Refused, 300), Style: app.Faint}}
	}
	facts := []string{fmt.Sprint(f.Status), amount(f.Bytes)}
	if f.SHA256 != "" {
		facts = append(facts, app.Line(f.SHA256, 12))
	}
	if f.Kept {
		facts = append(facts, "kept")
	}
	return app.Row{{Text: "  ↓ ", Style: app.Faint}, {Text: text + "  " + strings.Join(facts, " · "), Style: app.Faint}}
}

// amount writes bytes in the unit that they fill.
func amount(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
