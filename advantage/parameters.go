package advantage

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

// Parameter is what a run file may set of an estimator: a number, or one of some words.
type Parameter struct {
	Name    string   `json:"name"`
	Default any      `json:"default"` // float64 or string
	Choices []string `json:"choices,omitempty"`
	Low     float64  `json:"-"`
	High    float64  `json:"-"`
	Whole   bool     `json:"-"`
	About   string   `json:"about"`
}

func ddof(value float64) Parameter {
	return Parameter{Name: "ddof", Default: value, High: 1, Whole: true, About: "the variance divides by n − ddof"}
}

func eps(value float64) Parameter {
	return Parameter{Name: "eps", Default: value, High: 1, About: "keeps the divisor from 0"}
}

func choice(name, value, about string, choices ...string) Parameter {
	return Parameter{Name: name, Default: value, Choices: choices, About: about}
}

var singleton = choice("singleton", SingletonZero, "the advantage of a group of one: 0 or its reward", SingletonZero,
	SingletonRaw)

// values are an estimator's parameters, checked and complete.
type values map[string]any

func (v values) number(name string) float64 { return v[name].(float64) }
func (v values) text(name string) string    { return v[name].(string) }

// values checks what was given against what the estimator takes.
func (d definition) values(given map[string]any) (values, error) {
	v := values{}
	for _, p := range d.parameters {
		v[p.Name] = p.Default
	}
	names := make([]string, 0, len(given))
	for name := range given {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		i := slices.IndexFunc(d.parameters, func(p Parameter) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("it has no parameter %q: %s", name, d.takes())
		}
		value, err := d.parameters[i].read(given[name])
		if err != nil {
			return nil, fmt.Errorf("parameter %s: %w", name, err)
		}
		v[name] = value
	}
	return v, nil
}

func (d definition) takes() string {
	if len(d.parameters) == 0 {
		return "it takes none"
	}
	var names []string
	for _, p := range d.parameters {
		names = append(names, p.Name)
	}
	return "it takes " + strings.Join(names, ", ")
}

// read takes a value as YAML, JSON or a program gives it.
func (p Parameter) read(given any) (any, error) {
	if len(p.Choices) > 0 {
		if s, ok := given.(string); ok && slices.Contains(p.Choices, s) {
			return s, nil
		}
		return nil, fmt.Errorf("%v: must be one of %s", given, strings.Join(p.Choices, ", "))
	}
	n, ok := number(given)
	if !ok || n < p.Low || n > p.High || p.Whole && n != math.Trunc(n) {
		kind := "a number from"
		if p.Whole {
			kind = "a whole number from"
		}
		return nil, fmt.Errorf("%v: must be %s %g to %g", given, kind, p.Low, p.High)
	}
	return n, nil
}

func number(given any) (float64, bool) {
	switch n := given.(type) {
	case float64:
		return n, !math.IsNaN(n)
	case int:
		return float64(n), true
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case json.Number:
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}

// Info describes an estimator to its users.
type Info struct {
	Name       string      `json:"name"`
	Aliases    []string    `json:"aliases,omitempty"`
	Formula    string      `json:"formula"`
	Parameters []Parameter `json:"parameters"`
}

// Estimators describes all estimators.
func Estimators() []Info {
	var list []Info
	for _, d := range definitions {
		info := Info{Name: d.name, Formula: d.formula, Parameters: append([]Parameter{}, d.parameters...)}
		for alias, name := range aliases {
			if name == d.name {
				info.Aliases = append(info.Aliases, alias)
			}
		}
		slices.Sort(info.Aliases)
		list = append(list, info)
	}
	return list
}

// Names lists the estimators' names.
func Names() []string {
	var names []string
	for _, d := range definitions {
		names = append(names, d.name)
	}
	return names
}
