package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/verifier"
)

// Stage is one stage of a task that has several: its own instruction, and what it
// is scored and solved by.
type Stage struct {
	Name            string
	Instruction     string // steps/<name>/instruction.md
	AgentTimeout    time.Duration
	VerifierTimeout time.Duration
	VerifierEnv     map[string]string
	MinReward       map[string]float64 // as in events.StepSpec
	Collect         []verifier.Hook
	Healthcheck     *verifier.Hook // nil: the stage has none
	Tests           fs.FS          // the task's tests with those of the stage over them
	Solution        fs.FS          // nil when the stage has none
	// Files are laid over the workspace before the stage begins; nil for none. Those of the first
	// stage are in the task's Snapshot.
	Files fs.FS
}

// InStage is a task as it is in one of its stages, for who runs that alone; "" is the last stage,
// and of a task without stages itself.
func (t *Task) InStage(name string) (*Task, error) {
	if name == "" && len(t.Stages) > 0 {
		name = t.Stages[len(t.Stages)-1].Name
	}
	if name == "" {
		return t, nil
	}
	i := slices.IndexFunc(t.Stages, func(s Stage) bool { return s.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("task %s has no stage %q", t.Name, name)
	}
	s, in := t.Stages[i], *t
	in.Instruction, in.AgentTimeout, in.VerifierTimeout, in.VerifierEnv = s.Instruction, s.AgentTimeout,
		s.VerifierTimeout, s.VerifierEnv
	in.Collect, in.Tests, in.Solution, in.Stages = s.Collect, s.Tests, s.Solution, nil
	return &in, nil
}

// stageTable is an element of [[steps]]. What it leaves out is as the task has it.
type stageTable struct {
	Name        string        `toml:"name"`
	Agent       agentTable    `toml:"agent"`
	Verifier    verifierTable `toml:"verifier"`
	MinReward   any           `toml:"min_reward"`
	Healthcheck *healthcheck  `toml:"healthcheck"`
	Artifacts   []any         `toml:"artifacts"`
}

const (
	maxStages    = 1000
	maxMinReward = 100 // components
)

// setStages reads the stages of a task that has several. Such a task has no instruction and no
// solution of its own, and tests only for its stages to share.
func setStages(task *Task, folder *node, cfg *config) error {
	if len(cfg.Stages) > maxStages {
		return fmt.Errorf("task.toml: steps: %d, the limit is %d", len(cfg.Stages), maxStages)
	}
	switch task.RewardStrategy = cfg.MultiStepRewardStrategy; task.RewardStrategy {
	case "":
		task.RewardStrategy = runfile.StrategyMean
	case runfile.StrategyMean, runfile.StrategyFinal:
	default:
		return fmt.Errorf("task.toml: multi_step_reward_strategy: %.40q: want %s or %s", task.RewardStrategy,
			runfile.StrategyMean, runfile.StrategyFinal)
	}
	for i := range cfg.Stages {
		s := &cfg.Stages[i]
		if !validName.MatchString(s.Name) ||
			slices.ContainsFunc(task.Stages, func(other Stage) bool { return other.Name == s.Name }) {
			return fmt.Errorf("task.toml: steps: %d: name %.120q: want one of its own, %s", i+1, s.Name, validName)
		}
		stage, err := s.settings(task, cfg)
		if err != nil {
			return fmt.Errorf("task.toml: stage %s: %w", s.Name, err)
		}
		if err := stage.read(folder, s, cfg, i == 0); err != nil {
			return err
		}
		task.Stages = append(task.Stages, stage)
	}
	last := task.Stages[len(task.Stages)-1]
	task.Instruction, task.Tests = task.Stages[0].Instruction, last.Tests
	return task.layFiles()
}

// settings checks a stage's table, over those of its task.
func (s *stageTable) settings(task *Task, cfg *config) (stage Stage, err error) {
	stage.Name = s.Name
	if err := errors.Join(s.Agent.refuse("steps.agent"),
		s.Verifier.refuse("steps.verifier", cfg.Environment.Workdir)); err != nil {
		return stage, err
	}
	if stage.AgentTimeout, err = timeout("agent.timeout_sec", s.Agent.TimeoutSec, task.AgentTimeout); err != nil {
		return stage, err
	}
	if stage.VerifierTimeout, err = timeout("verifier.timeout_sec", s.Verifier.TimeoutSec,
		task.VerifierTimeout); err != nil {
		return stage, err
	}
	own, err := s.Verifier.environment("verifier")
	if err != nil {
		return stage, err
	}
	stage.VerifierEnv = maps.Clone(task.VerifierEnv)
	maps.Copy(stage.VerifierEnv, own)
	hooks, err := s.Verifier.hooks("steps.verifier.collect")
	if err != nil {
		return stage, err
	}
	stage.Collect = slices.Concat(task.Collect, hooks)
	if stage.MinReward, err = minReward(s.MinReward); err != nil {
		return stage, err
	}
	if stage.Healthcheck, err = s.Healthcheck.hook("steps.healthcheck"); err != nil {
		return stage, err
	}
	s.warn(task)
	return stage, checkArtifacts("steps.artifacts", s.Artifacts, task.Workdir, task.warn)
}

func (s *stageTable) warn(task *Task) {
	if s.Agent.NetworkMode == "public" || s.Verifier.NetworkMode == "public" {
		task.warn("steps: " + s.Name +
			" asks for a network: a sandbox has the one that its run allows, and a verifier has none")
	}
	s.Verifier.warn("steps.verifier", task)
}

// minReward reads a number, which the component "reward" must reach, or a table
// with one for each component.
func minReward(value any) (map[string]float64, error) {
	table, ok := value.(map[string]any)
	switch {
	case value == nil:
		return nil, nil
	case !ok:
		table = map[string]any{runfile.RewardComponent: value}
	case len(table) > maxMinReward:
		return nil, fmt.Errorf("min_reward: %d components, the limit is %d", len(table), maxMinReward)
	}
	least := map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		switch v := table[name].(type) {
		case float64:
			least[name] = v
		case int64:
			least[name] = float64(v)
		default:
			return nil, fmt.Errorf("min_reward: %.100q: want a number, or a table of numbers", fmt.Sprint(value))
		}
		if math.IsNaN(least[name]) || math.IsInf(least[name], 0) {
			return nil, fmt.Errorf("min_reward: %.100q: want a finite number", name)
		}
	}
	return least, nil
}

// read takes over the files of a stage.
func (s *Stage) read(folder *node, table *stageTable, cfg *config, first bool) error {
	at := "steps/" + s.Name
	dir := folder.find(at)
	if dir == nil || !dir.isDir() {
		return fmt.Errorf("%s: missing: each stage of task.toml has a folder of its name", at)
	}
	var err error
	if s.Files, err = filesIn(dir, at+"/workdir", first); err != nil {
		return err
	}
	if s.Instruction, err = readInstruction(dir); err != nil {
		return fmt.Errorf("%s/%w", at, err)
	}
	tests, own := folder.child("tests"), dir.child("tests")
	switch {
	case tests == nil || !tests.isDir():
		tests = own
	case own != nil && own.isDir():
		tests = tests.overlay(own)
	}
	separate := cfg.Verifier.separate() || table.Verifier.separate()
	if s.Tests, err = testsIn(tests); err != nil {
		return fmt.Errorf("%s/%w", at, err)
	}
	if why := ownImage(tests, separate); why != nil {
		return unsupported(at+"/tests/Dockerfile", "%v: only a task of one stage can have an image for its tests", why)
	}
	if s.Solution, err = solutionIn(dir); err != nil {
		return fmt.Errorf("%s/%w", at, err)
	}
	return nil
}

// overlay is a folder with another one laid over it.
func (n *node) overlay(over *node) *node {
	if !n.isDir() || !over.isDir() {
		return over
	}
	both := newDir(n.name)
	maps.Copy(both.children, n.children)
	for name, child := range over.children {
		if below := both.children[name]; below != nil {
			child = below.overlay(child)
		}
		both.children[name] = child
	}
	return both
}

// warn notes what of task.toml is not honoured, once.
func (t *Task) warn(text string) {
	if text = "task.toml: " + strings.TrimSpace(text); !slices.Contains(t.Warnings, text) {
		t.Warnings = append(t.Warnings, text)
	}
}
