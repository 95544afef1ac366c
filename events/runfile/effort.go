package runfile

import (
	"fmt"
	"maps"
	"strings"
)

// Names of components that the scorer makes, beside those of verifiers. Weights say what they
// count, most of them less than 0.
const (
	EffortComponent = "effort"
	// What effort is made of.
	EffortTurns       = "effort.turns"
	EffortTokens      = "effort.tokens"       // that were sampled
	EffortToolSeconds = "effort.tool_seconds" // of all calls together
	// HygienePrefix is that of components about the change itself, made where
	// one of them has a weight.
	HygienePrefix = "hygiene."
	// HygieneLines counts added and deleted lines, HygieneWhitespace is the share of them that
	// change white space alone, and HygieneLitter counts files that tools and editors leave behind.
	HygieneLines      = "hygiene.lines"
	HygieneWhitespace = "hygiene.whitespace"
	HygieneLitter     = "hygiene.litter"
	// JudgeComponent is what a model made of the change, 0 to 1.
	JudgeComponent = "judge"
)

// Effort is a penalty for long rollouts that asks for quick answers to easy tasks, and forbids no
// long work on hard ones. With
//
//	x = Turns·turns + Tokens·sampled tokens + ToolSeconds·seconds of tools
//
// it is x / (x + Half): 0 for nothing, one half at Half, never more than 1, and the longer a
// rollout is the less its next turn costs. The Composer 2 technical report (arXiv
// 2603.24477) has a nonlinear length penalty over the same quantities. This one is
// k·((1+kx)^(1-q) - 1) / (k(1-q)) with q = 2 and k = 1/Half, which needs no powers: those
// differ between machines in their last bit.
type Effort struct {
	Turns       float64 `json:"turns,omitempty" yaml:"turns"`
	Tokens      float64 `json:"tokens,omitempty" yaml:"tokens"`
	ToolSeconds float64 `json:"tool_seconds,omitempty" yaml:"tool_seconds"`
	Half        float64 `json:"half" yaml:"half"`
}

// penalty computes the penalty of what was measured; conversions forbid fused operations, so every
// machine has the same bits.
func (e Effort) penalty(components map[string]float64) float64 {
	x := float64(e.Turns * components[EffortTurns])
	x += float64(e.Tokens * components[EffortTokens])
	x += float64(e.ToolSeconds * components[EffortToolSeconds])
	return x / (x + e.Half)
}

// Derive sets the components that follow from others, as the configuration says. Those that
// were given stay as they are.
func (s Scoring) Derive(components map[string]float64) map[string]float64 {
	if _, measured := components[EffortTurns]; s.Effort == nil || !measured {
		return components
	}
	components = maps.Clone(components)
	components[EffortComponent] = s.Effort.penalty(components)
	return components
}

// Hygiene reports whether a component about the change itself has a weight.
func (s Scoring) Hygiene() bool {
	for name := range s.Weights {
		if strings.HasPrefix(name, HygienePrefix) {
			return true
		}
	}
	return false
}

func (e Effort) validate() (errs []error) {
	const most = 1e9
	for name, v := range map[string]float64{"turns": e.Turns, "tokens": e.Tokens, "tool_seconds": e.ToolSeconds} {
		if !inRange(v, 0, most) {
			errs = append(errs, fmt.Errorf("scorer.effort.%s %g: must be 0 to %g", name, v, most))
		}
	}
	if !inRange(e.Half, 1e-9, most) {
		errs = append(errs,
			fmt.Errorf("scorer.effort.half %g: must be above 0: it is the effort whose penalty is one half", e.Half))
	}
	if e.Turns == 0 && e.Tokens == 0 && e.ToolSeconds == 0 {
		errs = append(errs, fmt.Errorf("scorer.effort: turns, tokens and tool_seconds are 0: say what counts"))
	}
	return errs
}

// Judge is a model that says how good a change is.
type Judge struct {
	// Endpoint is the base URL of an OpenAI-compatible server. What key it is
	// shown follows from the URL.
	Endpoint string `json:"endpoint" yaml:"endpoint"`
	Model    string `json:"model" yaml:"model"`
	// Rubric says what it is to look at.
	Rubric string `json:"rubric" yaml:"rubric"`
}

const maxRubric = 16 << 10 // bytes

func (j Judge) validate() (errs []error) {
	if !validEndpoint(j.Endpoint) || j.Endpoint == BuiltinEndpoint {
		errs = append(errs,
			fmt.Errorf("scorer.judge.endpoint %q: give the base URL of an inference server, for example http://127.0.0.1:8000/v1",
				withoutSecrets(j.Endpoint)))
	}
	if j.Model == "" || len(j.Model) > maxModel {
		errs = append(errs, fmt.Errorf("scorer.judge.model %.40q: name the model, with at most %d bytes", j.Model,
			maxModel))
	}
	if strings.TrimSpace(j.Rubric) == "" || len(j.Rubric) > maxRubric {
		errs = append(errs, fmt.Errorf("scorer.judge.rubric: say what the judge looks at, in at most %d bytes",
			maxRubric))
	}
	return errs
}

// MadeByScorer reports whether a component is one that the scorer makes, and no verifier's.
func MadeByScorer(name string) bool {
	return name == JudgeComponent || name == EffortComponent || strings.HasPrefix(name, EffortComponent+".") ||
		strings.HasPrefix(name, HygienePrefix)
}
