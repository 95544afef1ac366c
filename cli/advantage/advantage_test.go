package advantage

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/cli/app"
)

// advantages runs `rondo advantage` on an input.
func advantages(t *testing.T, input string, args ...string) (output string, err error) {
	t.Helper()
	var out bytes.Buffer
	root := app.New(New)
	root.SetArgs(append([]string{"advantage"}, args...))
	root.SetIn(strings.NewReader(input))
	root.SetOut(&out)
	root.SetErr(&out)
	err = root.ExecuteContext(t.Context())
	return out.String(), err
}

func TestAdvantageOfRewards(t *testing.T) {
	const eight = `{"groups":[[1,1,1,0,0,0,0,0]]}`
	for name, c := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"whole groups": {`{"groups":[[1,0],[0.5,0.5,0.5]]}`, []string{"--estimator", "mean_centred"},
			`{"groups":[[0.5,-0.5],[0,0,0]]}`},
		"failed members": {`{"groups":[[1,null,0],[null]]}`, []string{"--estimator", "rloo"},
			`{"groups":[[1,null,-1],[null]]}`},
		"no members and no groups": {`{"groups":[[]]}`, []string{"--estimator", "rloo"}, `{"groups":[[]]}`},
		"nothing at all":           {` {"groups": []} `, []string{"--estimator", "rloo"}, `{"groups":[]}`},
		"a preset": {eight, []string{"--preset", "verl"},
			`{"groups":[[1.207612,1.207612,1.207612,-0.724567,-0.724567,-0.724567,-0.724567,-0.724567]]}`},
		"a parameter beside it": {eight, []string{"--preset", "verl", "--param", "ddof=0"},
			`{"groups":[[1.290992,1.290992,1.290992,-0.774595,-0.774595,-0.774595,-0.774595,-0.774595]]}`},
		"words and numbers": {`{"groups":[[3]]}`,
			[]string{"--estimator", "std_normalised", "--param", "singleton=raw", "--param", "eps=1e-4"},
			`{"groups":[[3]]}`},
		"the whole batch": {`{"groups":[[1,0],[null,1]]}`, []string{"--estimator", "reinforce_plus_plus"},
			`{"groups":[[0.577350,-1.154701],[null,0.577350]]}`},
		"the batch by tokens": {`{"groups":[[1,0]],"tokens":[[4,2]]}`,
			[]string{"--estimator", "reinforce_plus_plus"}, `{"groups":[[0.645497,-1.290994]]}`},
		"one task after another": {`{"groups":[[1,1],[1]]}`, []string{"--estimator", "rae", "--param", "decay=0.5"},
			`{"groups":[[1,0.5],[0.25]]}`},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := advantages(t, c.input, c.args...)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			var got, want struct{ Groups [][]*float64 }
			for text, into := range map[string]any{output: &got, c.want: &want} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatalf("%s: %s: %v", name, text, err)
				}
			}
			if !sameAdvantages(got.Groups, want.Groups) {
				t.Errorf("%s: got %s, want %s", name, output, c.want)
			}
			if strings.Contains(output, "-0,") || strings.Count(output, "\n") != 1 {
				t.Errorf("%s: prints %q", name, output)
			}
		})
	}
}

func sameAdvantages(got, want [][]*float64) bool {
	if len(got) != len(want) || got == nil {
		return false
	}
	for g := range got {
		if len(got[g]) != len(want[g]) || got[g] == nil {
			return false
		}
		for i, a := range got[g] {
			if b := want[g][i]; (a == nil) != (b == nil) || a != nil && math.Abs(*a-*b) > 1e-6 {
				return false
			}
		}
	}
	return true
}

func TestMistakesInRewards(t *testing.T) {
	rloo := []string{"--estimator", "rloo"}
	const good = `{"groups":[[1]]}`
	for name, c := range map[string]struct {
		input string
		args  []string
		want  []string
	}{
		"nothing":                  {"", rloo, []string{"empty", `{"groups":[[`}},
		"no JSON":                  {"1 0 1", rloo, []string{"read rewards"}},
		"a list":                   {"[[1,0]]", rloo, []string{"array"}},
		"no groups":                {"{}", rloo, []string{`no "groups"`}},
		"groups that are null":     {`{"groups":null}`, rloo, []string{`no "groups"`}},
		"a group that is null":     {`{"groups":[[1],null]}`, rloo, []string{"group 1 is null"}},
		"a group that is a number": {`{"groups":[1]}`, rloo, []string{"list of lists"}},
		"a reward that is a word":  {`{"groups":[["1"]]}`, rloo, []string{"list of lists", "string"}},
		"a reward that is NaN":     {`{"groups":[[NaN]]}`, rloo, []string{"'N'"}},
		"a reward beyond numbers":  {`{"groups":[[1e999]]}`, rloo, []string{"1e999"}},
		"something behind it":      {good + " x", rloo, []string{"'x'"}},
		"an unknown key":           {`{"groups":[[1]],"rewards":1}`, rloo, []string{`"rewards"`}},
		"a key in capitals":        {`{"Groups":[[1]]}`, rloo, []string{`"Groups"`}},
		"tokens of fewer groups":   {`{"groups":[[1],[1]],"tokens":[[1]]}`, rloo, []string{"1 groups", "2"}},
		"tokens of other members":  {`{"groups":[[1]],"tokens":[[1,2]]}`, rloo, []string{"group 0", "1 members", "2"}},
		"tokens below nothing":     {`{"groups":[[1]],"tokens":[[-1]]}`, rloo, []string{"group 0", "-1"}},
		"half a token":             {`{"groups":[[1]],"tokens":[[0.5]]}`, rloo, []string{"whole", "0.5"}},
		"no estimator":             {good, nil, []string{"--estimator", "--preset", "--list"}},
		"an unknown estimator":     {good, []string{"--estimator", "ppo"}, []string{`"ppo"`, "std_normalised"}},
		"an unknown preset":        {good, []string{"--preset", "grpo"}, []string{`"grpo"`, "prime_rl"}},
		"both": {good, []string{"--preset", "verl", "--estimator", "rloo"},
			[]string{"verl", "rloo"}},
		"an unknown parameter":    {good, append(rloo, "--param", "eps=1"), []string{`"eps"`}},
		"a parameter without one": {good, append(rloo, "--param", "eps"), []string{`"eps"`, "name=value"}},
		"a parameter twice": {good, []string{"--estimator", "maxrl", "--param", "eps=1", "--param", "eps=0"},
			[]string{"eps", "twice"}},
		"a parameter that is NaN": {good, []string{"--estimator", "maxrl", "--param", "eps=nan"},
			[]string{"eps", "NaN"}},
		"an argument": {good, append(rloo, "rewards.json"), []string{"rewards.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := advantages(t, c.input, c.args...)
			if err == nil {
				t.Errorf("%s: it went well: %s", name, output)
				return
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %q: %v", name, part, err)
				}
			}
		})
	}
}

func TestListOfEstimators(t *testing.T) {
	output, err := advantages(t, "", "--list")
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := advantages(t, "", "--list", "--json")
	if err != nil || !json.Valid([]byte(asJSON)) {
		t.Fatalf("%v: %s", err, asJSON)
	}
	for _, name := range append(advantage.Names(), advantage.Presets()...) {
		if !strings.Contains(output, name) || !strings.Contains(asJSON, `"`+name+`"`) {
			t.Errorf("%s is not listed", name)
		}
	}
}
