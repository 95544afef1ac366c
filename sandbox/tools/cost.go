package tools

import (
	"math"
	"strings"
)

// maxChecking bounds what checking arguments may cost: the schema's cost,
// times the arguments' bytes.
const maxChecking = 1 << 24

// checkable reports whether arguments can be checked by a schema that a server wrote: one of a
// kilobyte may take hours.
func checkable(schema map[string]any, arguments string) bool {
	c := costs{root: schema, known: map[string]float64{}}
	return c.cost(schema)*float64(len(arguments)+1) <= maxChecking
}

// costs weighs a schema as if every reference in it were written out; infinite is what refers to
// itself, or is not understood.
type costs struct {
	root  any
	known map[string]float64 // by reference
}

func (c costs) cost(node any) float64 {
	cost := 1.0
	switch n := node.(type) {
	case []any:
		for _, each := range n {
			cost += c.cost(each)
		}
	case map[string]any:
		for key, value := range n {
			reference, isText := value.(string)
			switch {
			case key == "$ref" && isText:
				cost += c.ofReference(reference)
			case key == "$dynamicRef" || key == "$recursiveRef" || key == "$id" && isText:
				return math.Inf(1)
			default:
				cost += c.cost(value)
			}
		}
	}
	return cost
}

func (c costs) ofReference(reference string) float64 {
	if cost, ok := c.known[reference]; ok {
		return cost
	}
	c.known[reference] = math.Inf(1) // while it is being weighed: it refers to itself
	node, ok := pointed(c.root, reference)
	if !ok {
		return math.Inf(1)
	}
	c.known[reference] = c.cost(node)
	return c.known[reference]
}

// pointed is what a reference into a schema means, where it is written plainly.
func pointed(root any, reference string) (node any, ok bool) {
	place, ok := strings.CutPrefix(reference, "#")
	if !ok || place != "" && place[0] != '/' || strings.ContainsAny(place, "%~") {
		return nil, false
	}
	node = root
	for _, step := range strings.Split(place, "/")[1:] {
		in, ok := node.(map[string]any)
		if !ok {
			return nil, false
		}
		node = in[step]
	}
	return node, true
}
