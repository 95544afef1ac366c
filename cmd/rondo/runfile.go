package main

import (
	"fmt"
	"maps"
	"os"
	"strconv"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events"
)

// runFile is what a run file says beside the run's configuration.
type runFile struct {
	events.RunConfig `yaml:",inline"`
	// TasksDir is the task pack; the sample pack when it is empty.
	TasksDir string `yaml:"tasks"`
}

// readRunFile reads a run file strictly: a key that nothing reads is a mistake.
func readRunFile(path string) (runFile, error) {
	f := runFile{RunConfig: events.DefaultRunConfig()}
	standard := f.Advantage.Estimator
	f.Advantage.Estimator = "" // so that a preset sees whether the file names one beside it
	text, err := os.ReadFile(path)
	if err != nil {
		return f, fmt.Errorf("read run file: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.Strict()); err != nil {
		return f, fmt.Errorf("read run file %s: %w", path, err)
	}
	plainNumbers(f.Advantage.Params)
	if f.Advantage, err = expandPreset(f.Advantage); err != nil {
		return f, fmt.Errorf("read run file %s: %w", path, err)
	}
	if f.Advantage.Estimator == "" {
		f.Advantage.Estimator = standard
	}
	return f, nil
}

// plainNumbers reads what YAML takes for a word: its numbers with an exponent need a point, 1.0e-8, which nobody knows.
func plainNumbers(params map[string]any) {
	for name, v := range params {
		if text, ok := v.(string); ok {
			if n, err := strconv.ParseFloat(text, 64); err == nil {
				params[name] = n
			}
		}
	}
}

// expandPreset replaces the name of a system by its estimator and parameters. Parameters that stand beside it win.
func expandPreset(a events.Advantage) (events.Advantage, error) {
	if a.Preset == "" {
		return a, nil
	}
	estimator, params, err := advantage.Preset(a.Preset)
	if err != nil {
		return a, fmt.Errorf("advantage.preset: %w", err)
	}
	if a.Estimator != "" && a.Estimator != estimator {
		return a, fmt.Errorf("advantage: the preset %s is the estimator %s, but the estimator is %q: name only one of them", a.Preset, estimator, a.Estimator)
	}
	if params == nil {
		params = map[string]any{}
	}
	maps.Copy(params, a.Params)
	a.Estimator, a.Params, a.Preset = estimator, params, ""
	return a, nil
}

// check reports what the intake would refuse.
func (f *runFile) check() error {
	if err := f.Validate(); err != nil {
		return err
	}
	_, err := advantage.New(f.Advantage.Estimator, f.Advantage.Params)
	return err
}
