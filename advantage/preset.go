package advantage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rondo-rl/rondo/events/runfile"
)

// preset is the estimator of another system, by our names.
type preset struct {
	estimator string
	params    map[string]any
}

// presets name what each system computes unless it is told otherwise. Two trainers of TRL disagree,
// and so do verl and rLLM, though all of them call it GRPO.
var presets = map[string]preset{
	// verl trainer/ppo/core_algos.py, adv_estimator=grpo
	"verl": {"std_normalised", map[string]any{"ddof": 1.0, "eps": 1e-6, "eps_at": EpsOutside,
		"singleton": SingletonRaw}},
	// TRL trainer/grpo_trainer.py, scale_rewards="group"
	"trl": {"std_normalised", map[string]any{"ddof": 1.0, "eps": 1e-4, "eps_at": EpsOutside,
		"singleton": SingletonZero}},
	// TRL experimental/async_grpo: numpy's standard deviation, which has ddof 0
	"trl_async": {"std_normalised", map[string]any{"ddof": 0.0, "eps": 1e-8, "eps_at": EpsOutside,
		"singleton": SingletonZero}},
	// prime-rl orchestrator/algo/grpo.py
	"prime_rl": {"mean_centred", nil},
	// NeMo-RL algorithms/utils.py, use_leave_one_out_baseline=true and normalize_rewards=true
	"nemo_rl": {"leave_one_out", nil},
	// slime ray/rollout.py, --advantage-estimator grpo
	"slime": {"std_normalised", map[string]any{"ddof": 1.0, "eps": 1e-6, "eps_at": EpsOutside,
		"singleton": SingletonZero}},
	// rLLM trainer/algorithms/rl_algo.py, grpo: numpy's standard deviation
	"rllm": {"std_normalised", map[string]any{"ddof": 0.0, "eps": 1e-6, "eps_at": EpsOutside,
		"singleton": SingletonRaw}},
	// Tinker's cookbook
	"tinker": {"mean_centred", nil},
	// Composer 2 (arXiv:2603.24477)
	"composer2": {"mean_centred", nil},
}

// Preset is the estimator, with all of its parameters, of a system by that name.
func Preset(name string) (estimator string, params map[string]any, err error) {
	p, ok := presets[name]
	if !ok {
		return "", nil, fmt.Errorf("there is no advantage preset %q: use one of %s", name,
			strings.Join(Presets(), ", "))
	}
	return p.estimator, maps.Clone(p.params), nil
}

// Presets lists the presets' names.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// ExpandPreset replaces the name of a system by its estimator and parameters, and an alias of an
// estimator by its name. Parameters that stand beside a system win.
func ExpandPreset(a runfile.Advantage) (runfile.Advantage, error) {
	a.Estimator = Canonical(a.Estimator)
	if a.Preset == "" {
		return a, nil
	}
	estimator, params, err := Preset(a.Preset)
	if err != nil {
		return a, fmt.Errorf("advantage.preset: %w", err)
	}
	if a.Estimator != "" && a.Estimator != estimator {
		return a, fmt.Errorf("advantage: the preset %s is the estimator %s, but the estimator is %q: name only one of them",
			a.Preset, estimator, a.Estimator)
	}
	if params == nil {
		params = map[string]any{}
	}
	maps.Copy(params, a.Params)
	a.Estimator, a.Params, a.Preset = estimator, params, ""
	return a, nil
}
