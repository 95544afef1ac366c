package runfile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Names of reward components. A verifier always reports the first; the second stands alone, where
// users' feedback is the reward.
const (
	RewardComponent   = "reward"
	FeedbackComponent = "feedback"
)

// Names of the flags of RolloutScored. None is a proof: an honest agent may ask
// Git for its history, too.
const (
	FlagProtected = "protected_path" // the change touched a path that is put back for the tests, such as conftest.py
	FlagLink      = "link_outside"   // it made a link that leads out of the workspace
	FlagTestFile  = "test_file"      // it touched a test that is not protected
	FlagGit       = "git_plumbing"   // a command looked for other commits, or the change touched Git's own files
	FlagVerifier  = "verifier_files" // a call was about the verifier's folders, the solution or the reward
	FlagPackages  = "site_packages"  // a call was about the folders of installed packages
	FlagProcess   = "left_process"   // a process got away from the tests before the reward was written
	// the agent's doing left the tests without a verdict: the reward is none of theirs, see Forfeit
	FlagForfeit = "forfeit"
	FlagLost    = "turn_lost" // what a turn left could not be kept, see ToolsCompleted.Lost
)

// Scoring says how a rollout's reward is made of the numbers that its verifier reported.
type Scoring struct {
	// Weights make the reward a weighted sum of components. Without any it
	// is the component "reward".
	Weights map[string]float64 `json:"weights,omitempty" yaml:"weights" absent:"the verifier's reward alone"`
	// Threshold makes what comes out a pass or a failure: 1 at or above it, 0 below.
	Threshold *float64 `json:"threshold,omitempty" yaml:"threshold"`
	// Effort makes the component "effort".
	Effort *Effort `json:"effort,omitempty" yaml:"effort"`
	// Judge makes the component "judge".
	Judge *Judge `json:"judge,omitempty" yaml:"judge"`
	// Function names the reward function of a user's own worker, whose components join those of the
	// verifier, or stand alone where the task has none.
	Function string `json:"function,omitempty" yaml:"function"`
}

// ErrNoComponent means that a component that has a weight was not reported. The rollout has no
// reward then, rather than one that lacks a part.
var ErrNoComponent = errors.New("component is missing")

// MaxReward bounds rewards on both sides: a larger one is a fault, and would drown its group.
const MaxReward = 1e9

// Reward composes a reward. Components are summed in the order of their names and rounded after
// each step, so that the same numbers give the same reward on every machine. Feedback is a reward
// by itself, to which weights do not apply.
func (s Scoring) Reward(components map[string]float64) (float64, error) {
	reward, given := components[FeedbackComponent]
	if !given || len(components) > 1 {
		var err error
		if reward, err = s.sum(components); err != nil {
			return 0, err
		}
	}
	switch {
	case math.IsNaN(reward) || math.IsInf(reward, 0):
		return 0, fmt.Errorf("the reward is %g: must be a finite number", reward)
	case s.Threshold != nil && reward >= *s.Threshold:
		return 1, nil
	case s.Threshold != nil:
		return 0, nil
	case math.Abs(reward) > MaxReward:
		return 0, fmt.Errorf("the reward is %g: must be within ±%g", reward, float64(MaxReward))
	}
	return reward, nil
}

func (s Scoring) sum(components map[string]float64) (float64, error) {
	weights, advice := s.Weights, ""
	if len(weights) == 0 {
		weights, advice = map[string]float64{RewardComponent: 1}, ": weigh them in scorer.weights of the run file"
	}
	var sum float64
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		value, ok := components[name]
		if !ok {
			return 0, fmt.Errorf("%w: %.100q; there are %s%s", ErrNoComponent, name, named(components), advice)
		}
		sum += float64(weights[name] * value) // the conversion forbids a fused operation, which rounds once only
	}
	return sum, nil
}

// named lists components for an error, and not without end.
func named(components map[string]float64) string {
	names := slices.Sorted(maps.Keys(components))
	const most = 10
	text := fmt.Sprintf("%.40q", names[:min(len(names), most)])
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// maxWeights bounds the components of a reward that have a weight.
const maxWeights = 100

func (s Scoring) validate() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(s.Weights) <= maxWeights, "scorer.weights: %d of them, at most %d", len(s.Weights), maxWeights)
	for _, name := range slices.Sorted(maps.Keys(s.Weights)) {
		check(strings.TrimSpace(name) != "" && len(name) <= 100,
			"scorer.weights %.40q: give a component's name, at most 100 bytes", name)
		check(inRange(s.Weights[name], -1e6, 1e6), "scorer.weights.%.40s %g: must be -1000000 to 1000000", name,
			s.Weights[name])
	}
	if s.Threshold != nil {
		check(inRange(*s.Threshold, -1e9, 1e9), "scorer.threshold %g: must be -1e9 to 1e9", *s.Threshold)
	}
	check(s.Function == "" || ValidToken(s.Function), "scorer.function %.80q: use letters, digits, - and _, at most 64",
		s.Function)
	if s.Effort != nil {
		errs = append(errs, s.Effort.validate()...)
	}
	if s.Judge != nil {
		errs = append(errs, s.Judge.validate()...)
	}
	return errs
}

// Forfeited is the reward of a forfeited rollout: what its components make, and never more than 0.
func (s Scoring) Forfeited(components map[string]float64) (float64, error) {
	reward, err := s.Reward(components)
	return min(reward, 0), err
}

// Unreported gives the components that the tests would have reported as 0, so that a reward can
// be composed without them.
func (s Scoring) Unreported(components map[string]float64) map[string]float64 {
	all := map[string]float64{RewardComponent: 0}
	for name := range s.Weights {
		all[name] = 0
	}
	maps.Copy(all, components)
	return all
}
