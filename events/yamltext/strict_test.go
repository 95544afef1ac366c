package yamltext

import (
	"strings"
	"testing"
)

type Limits struct {
	Turns int      `yaml:"turns"`
	Topk  *int     `yaml:"top_k"`
	Gap   *float64 `yaml:"gap"`
}

type settings struct {
	Limits `yaml:",inline"`
	Name   string           `yaml:"name"`
	Seed   int64            `yaml:"seed"`
	Models []Limits         `yaml:"models"`
	Env    map[string]int32 `yaml:"env"`
	Params map[string]any   `yaml:"params"`
}

// TestStrict: a value that its field would hold only in part is an error that names the field.
func TestStrict(t *testing.T) {
	for text, want := range map[string]string{
		"turns: 8":                            "",
		"turns: 8.0":                          "",
		"turns: 1e3":                          "",
		"turns: null":                         "",
		"turns: 0o10":                         "",
		"gap: 8.7":                            "",
		"seed: 9007199254740993":              "",
		"name: '1.10'":                        "",
		"params: {a: 1.5, b: true, c: [x]}":   "",
		"turns: 8.7":                          "turns: must be an integer",
		"turns: '8.7'":                        "turns: must be an integer",
		"turns: 15e-1":                        "turns: must be an integer",
		"seed: 9007199254740993.0":            "seed: must be an integer",
		"top_k: -0.5":                         "top_k: must be an integer",
		"top_k: .nan":                         "top_k",
		"models: [{turns: 1}, {turns: 2.5}]":  "models.1.turns: must be an integer",
		"env: {a: 0.5}":                       "env.a: must be an integer",
		"a: &a {turns: 2.5}\nmodels: [*a]":    `unknown field "a"`,
		"models: [&a {turns: 2.5}, {<<: *a}]": "models.0.turns: must be an integer",
		"name: 1.10":                          "name: must be a text: put it into quotes",
		"name: true":                          "name: must be a text",
		"name: 7":                             "name: must be a text",
		"turns: 010":                          "line 1: a number that begins with 0 is octal",
		"name: a\nseed: -010":                 "line 2: a number that begins with 0 is octal",
		"turn: 1":                             `unknown field "turn", did you mean "turns"?`,
		"models: [{turns: 1}, {gaps: 2}]":     `unknown field "gaps", did you mean "gap"?`,
		"models: [{seed: 1}]":                 `unknown field "seed"` + "\n", // another mapping reads it
		"something_else: 1":                   `unknown field "something_else"` + "\n",
		"params: {turn: 1}\nturn: 1":          `unknown field "turn", did you mean "turns"?`,
	} {
		var s settings
		err := Strict([]byte(text), &s)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
