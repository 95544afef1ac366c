package runfile

import (
	"maps"
	"math"
	"strings"
	"testing"
)

func TestEffort(t *testing.T) {
	s := Scoring{Weights: map[string]float64{"reward": 1, "effort": -0.5},
		Effort: &Effort{Turns: 1, Tokens: 0.001, ToolSeconds: 0.5, Half: 20}}
	effort := func(turns, tokens, seconds float64) float64 {
		given := map[string]float64{"reward": 1, EffortTurns: turns, EffortTokens: tokens,
			EffortToolSeconds: seconds, EffortComponent: 99}
		before := maps.Clone(given)
		derived := s.Derive(given)
		if !maps.Equal(given, before) {
			t.Errorf("what was given became %v", given)
		}
		if reward, err := s.Reward(derived); err != nil || reward != 1-derived[EffortComponent]/2 {
			t.Errorf("the reward of %v is %g, %v", derived, reward, err)
		}
		return derived[EffortComponent]
	}
	if got := effort(0, 0, 0); got != 0 {
		t.Errorf("nothing costs %g", got)
	}
	if got := effort(10, 5000, 10); got != 0.5 {
		t.Errorf("at half: %g", got)
	}
	// It always rises, and ever less: a turn of a long rollout costs less than one of a short
	// rollout, and none costs more than all.
	last, step := 0.0, math.Inf(1)
	for turns := 1.0; turns <= 1000; turns++ {
		now := effort(turns, 0, 0)
		if now <= last || now-last >= step || now >= 1 {
			t.Fatalf("%g turns cost %g after %g", turns, now, last)
		}
		last, step = now, now-last
	}
	without := map[string]float64{"reward": 1}
	if got := s.Derive(without); len(got) != 1 {
		t.Errorf("of nothing measured: %v", got)
	}
	if got := (Scoring{}).Derive(map[string]float64{EffortTurns: 1}); len(got) != 1 {
		t.Errorf("without its configuration: %v", got)
	}
}

func TestEffortAndJudgeAreValidated(t *testing.T) {
	good := Judge{Endpoint: "http://127.0.0.1:8000/v1", Model: "judge", Rubric: "Is it simple?"}
	with := func(change func(*Judge)) *Judge {
		j := good
		change(&j)
		return &j
	}
	for want, s := range map[string]Scoring{
		"":                           {Effort: &Effort{Turns: 1, Half: 20}, Judge: &good},
		"scorer.effort.half 0":       {Effort: &Effort{Turns: 1}},
		"scorer.effort.turns -1":     {Effort: &Effort{Turns: -1, Half: 1}},
		"scorer.effort.tokens NaN":   {Effort: &Effort{Tokens: math.NaN(), Half: 1}},
		"say what counts":            {Effort: &Effort{Half: 1}},
		"scorer.judge.endpoint":      {Judge: with(func(j *Judge) { j.Endpoint = "http://key@host/v1" })},
		"scorer.judge.endpoint \"b":  {Judge: with(func(j *Judge) { j.Endpoint = BuiltinEndpoint })},
		"scorer.judge.model":         {Judge: with(func(j *Judge) { j.Model = "" })},
		"scorer.judge.rubric":        {Judge: with(func(j *Judge) { j.Rubric = strings.Repeat("x", maxRubric+1) })},
		"scorer.judge.rubric: say w": {Judge: with(func(j *Judge) { j.Rubric = " " })},
	} {
		t.Run(want, func(t *testing.T) {
			cfg := validConfig()
			cfg.Scorer = s
			err := cfg.Validate()
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) ||
				err != nil && strings.Contains(err.Error(), "key@") {
				t.Errorf("%q: %v", want, err)
			}
		})
	}
}
