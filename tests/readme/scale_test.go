package readme

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/bench/scale"
)

// TestScale: the figures of docs/scale.md are those that follow from the recorded measurements.
func TestScale(t *testing.T) {
	m, err := scale.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	p, err := scale.Derive(m, scale.DefaultLoad())
	if err != nil {
		t.Fatal(err)
	}
	var figures, limits strings.Builder
	figures.WriteString("| of | figure | value | unit | from |\n|---|---|---|---|---|\n")
	for _, f := range p.Figures {
		fmt.Fprintf(&figures, "| %s | %s | %s | %s | %s |\n", f.Part, f.Name, f.Text(), f.Unit, f.From)
	}
	limits.WriteString("| limit | rollouts a day | then |\n|---|---|---|\n")
	for _, l := range p.Limits {
		fmt.Fprintf(&limits, "| %s | %s | %s |\n", l.What, scale.Rounded(l.Rollouts), l.Then)
	}
	generated(t, "docs/scale.md", "figures", figures.String())
	generated(t, "docs/scale.md", "limits", limits.String())
}
