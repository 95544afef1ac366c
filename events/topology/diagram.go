package topology

import (
	"fmt"
	"strings"

	"github.com/rondo-rl/rondo/events"
)

// Diagram draws the topology as a Mermaid flow chart: who reads which facts, and who states them.
func Diagram() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	fmt.Fprintf(&b, "  outside([outside]) -->|rondo.in.>| %s\n", events.IntakeStream)
	for _, s := range Streams {
		fmt.Fprintf(&b, "  %s[(%s)]\n", node(s.Name), strings.ReplaceAll(s.Name, runPlaceholder, "&lt;run&gt;"))
	}
	run := node(Streams[0].Name)
	for _, s := range Services {
		if s.Deciding {
			fmt.Fprintf(&b, "  %s -->|folds| %s\n", run, s.Name)
		}
		for _, c := range ConsumersOf(s.Name) {
			label := string(c.Type)
			if label == "" {
				label = "everything"
			}
			fmt.Fprintf(&b, "  %s -->|%s| %s\n", node(c.Stream), label, s.Name)
		}
		fmt.Fprintf(&b, "  %s -->|%s| %s\n", s.Name, emitted(s), run)
	}
	return b.String()
}

func node(stream string) string {
	return strings.NewReplacer("<", "", ">", "", "-", "_").Replace(stream)
}

func emitted(s ServiceSpec) string {
	if s.Name == Intake {
		return "what outsiders state"
	}
	var names []string
	for _, t := range s.Emits {
		names = append(names, strings.ReplaceAll(string(t), ".", "_"))
	}
	return strings.Join(names, "<br>")
}
