// Package opening is what the opening of a run takes: the run file, packed tasks and the
// tools of listed servers.
package opening

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/rondo-rl/rondo/advantage"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/yamltext"
)

// RunFile is what a run file says beside the run's configuration.
type RunFile struct {
	runfile.RunConfig `yaml:",inline"`
	// TasksDir is the task pack; the default pack when it is empty. In a run file it
	// is relative to the file.
	TasksDir string `yaml:"tasks" absent:"the pack small"`
}

// ReadRunFile reads a run file strictly: a key that nothing reads is a mistake.
func ReadRunFile(path string) (RunFile, error) {
	f := RunFile{RunConfig: runfile.DefaultRunConfig()}
	standard := f.Advantage.Estimator
	f.Advantage.Estimator = "" // so that a preset sees whether the file names one beside it
	text, err := yamltext.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, fmt.Errorf("read run file: %w: name one by --file; `rondo init` writes one to begin with", err)
	}
	if err != nil {
		return f, fmt.Errorf("read run file: %w", err)
	}
	if err := yamltext.Strict(text, &f); err != nil {
		return f, fmt.Errorf("read run file %s: %w", path, err)
	}
	if err := checkWritten(text); err != nil {
		return f, fmt.Errorf("read run file %s: %w", path, err)
	}
	if f.TasksDir != "" && !filepath.IsAbs(f.TasksDir) {
		f.TasksDir = filepath.Join(filepath.Dir(path), f.TasksDir)
	}
	PlainNumbers(f.Advantage.Params)
	if f.Advantage, err = advantage.ExpandPreset(f.Advantage); err != nil {
		return f, fmt.Errorf("read run file %s: %w", path, err)
	}
	if f.Advantage.Estimator == "" {
		f.Advantage.Estimator = standard
	}
	return f, nil
}

// checkWritten refuses empty values that would be taken for defaults.
func checkWritten(text []byte) error {
	var written any
	if err := yamltext.Unmarshal(text, &written); err != nil {
		return err
	}
	return runfile.CheckWritten(written, &RunFile{RunConfig: runfile.DefaultRunConfig()})
}

// PlainNumbers reads what YAML takes for a word: its numbers with an exponent need a point,
// 1.0e-8, which nobody knows.
func PlainNumbers(params map[string]any) {
	for name, v := range params {
		if text, ok := v.(string); ok {
			if n, err := strconv.ParseFloat(text, 64); err == nil {
				params[name] = n
			}
		}
	}
}

// Check reports what the intake would refuse.
func (f *RunFile) Check() error {
	if err := f.Validate(); err != nil {
		return err
	}
	return advantage.Check(f.RunConfig)
}
