package replay

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/yamltext"
)

// replayable are the parts of a run file that a replay can change: the rollouts
// themselves stay as they were.
var replayable = []string{"advantage", "shaping", "filters", "staleness", "feeds", ScorerSection}

// ScorerSection is the part of a run file that says how rewards are composed.
const ScorerSection = "scorer"

// Changed is a configuration with settings of the parts changed that a replay can change; see With.
func Changed(cfg runfile.RunConfig, settings []string) (runfile.RunConfig, error) {
	for _, setting := range settings {
		if part, _, _ := strings.Cut(setting, "."); !slices.Contains(replayable, strings.SplitN(part, "=", 2)[0]) {
			return cfg, fmt.Errorf("--set %s: a replay keeps the rollouts as they were recorded; it can change %s",
				setting, strings.Join(replayable, ", "))
		}
	}
	return ChangeSettings(cfg, settings)
}

// ChangeSettings is a configuration with settings of the form path=value changed, where a path is a
// run file's, with numbers for the entries of lists: advantage.estimator=rloo,
// feeds.0.groups_per_batch=4. Values are YAML.
func ChangeSettings(cfg runfile.RunConfig, settings []string) (runfile.RunConfig, error) {
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return cfg, err
	}
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		return cfg, err
	}
	for _, setting := range settings {
		path, value, ok := strings.Cut(setting, "=")
		if !ok {
			return cfg, fmt.Errorf("--set %q: write path=value, for example advantage.estimator=rloo", setting)
		}
		if err := set(file, path, value); err != nil {
			return cfg, fmt.Errorf("--set %s: %w", setting, err)
		}
	}
	if text, err = yaml.Marshal(file); err != nil {
		return cfg, err
	}
	var f runfile.RunConfig
	if err := yamltext.Strict(text, &f); err != nil {
		return cfg, fmt.Errorf("--set: %w", err)
	}
	if f.Advantage, err = advantage.ExpandPreset(f.Advantage); err != nil {
		return cfg, fmt.Errorf("--set: %w", err)
	}
	f.Tasks = cfg.Tasks // no run file says these
	err = f.Validate()
	if err == nil {
		_, err = advantage.New(f.Advantage.Estimator, f.Advantage.Params)
	}
	if err != nil {
		return cfg, fmt.Errorf("--set: %w", err)
	}
	return f, nil
}

func set(file map[string]any, path, value string) error {
	keys := strings.Split(path, ".")
	var v any
	if err := yamltext.Strict([]byte(value), &v); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	// Another estimator has other parameters, and a preset brings its own estimator.
	if section, ok := file["advantage"].(map[string]any); ok &&
		(path == "advantage.estimator" || path == "advantage.preset") {
		delete(section, "params")
		if path == "advantage.preset" {
			delete(section, "estimator")
		}
	}
	if err := runfile.CheckWritten(written(keys, v), &runfile.RunConfig{}); err != nil {
		return err
	}
	_, err := put(file, keys, v)
	return err
}

// written is a run file that says this one setting.
func written(keys []string, v any) any {
	for _, key := range slices.Backward(keys) {
		if _, err := strconv.Atoi(key); err == nil {
			v = []any{v}
		} else {
			v = map[string]any{key: v}
		}
	}
	return v
}

// put gives a copy of a tree with a value at a place.
func put(node any, keys []string, value any) (any, error) {
	if len(keys) == 0 {
		return value, nil
	}
	switch n := node.(type) {
	case nil:
		return put(map[string]any{}, keys, value)
	case map[string]any:
		child, err := put(n[keys[0]], keys[1:], value)
		n[keys[0]] = child
		return n, err
	case []any:
		var at int
		if _, err := fmt.Sscanf(keys[0], "%d", &at); err != nil || at < 0 || at >= len(n) {
			return nil, fmt.Errorf("%q: use a number from 0 to %d", keys[0], len(n)-1)
		}
		child, err := put(n[at], keys[1:], value)
		n[at] = child
		return n, err
	}
	return nil, fmt.Errorf("%q: there is nothing below %v", keys[0], node)
}
