package verifier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/sandbox"
	"github.com/rondo-rl/rondo/wording"
)

const (
	rewardKey     = "reward"
	maxReward     = 1 << 20
	maxComponents = 1000
)

var (
	errNoReward  = errors.New("the tests wrote neither reward.json nor reward.txt")
	errBadReward = errors.New("bad reward")
	errTampered  = errors.New("a process that the tests or the code under test left behind was running when the reward was written; tests must end what they start and wait for it")
	errReplaced  = errors.New("the reward's file or folder was linked, replaced or made read-only, which keeps the tests from writing it; tests must leave both as they are")
	errTwo       = errors.New("reward.json and reward.txt hold different rewards; tests must write one of them")
	errExit      = errors.New("the tests give a reward and fail; tests that give a reward must exit with 0")
	errKilled    = errors.New("a signal ended the tests; the code under test may have sent it to leave a reward of its own. Tests must end by themselves")
)

// format is a file that can hold a reward.
type format struct {
	name  string
	parse func([]byte) (map[string]float64, error)
}

// tampering are the errors that code under test makes for a reward of its own.
var tampering = []error{errTampered, errReplaced, errTwo, errExit, errKilled}

// formats are all of them; the components are those of the first that is there.
var formats = []format{
	{"reward.json", parseJSON},
	{"reward.txt", parseText},
}

// makeLogs makes the folder of the reward before the tests begin.
func makeLogs(ctx context.Context, sb *sandbox.Sandbox) (sandbox.FileState, error) {
	if _, err := sb.Exec(ctx, sandbox.Command{Argv: []string{"mkdir", "-p", LogsFolder}, Dir: "/"}); err != nil {
		return sandbox.FileState{}, err
	}
	return sb.Stat(ctx, LogsFolder)
}

// readReward reads the reward of tests that ended with result from the folder that makeLogs made.
// It must have been written after the last time at which a process was seen that had got away from
// them. Whatever could have kept the tests from writing it is tampering.
func readReward(ctx context.Context, sb *sandbox.Sandbox, folder sandbox.FileState,
	result sandbox.Result) (map[string]float64, error) {
	now, err := sb.Stat(ctx, LogsFolder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if now.Inode != folder.Inode || now.Mode != folder.Mode {
		return nil, errReplaced
	}
	var reward map[string]float64
	for _, format := range formats {
		components, err := readFormat(ctx, sb, format, result.Detached)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if reward != nil && reward[rewardKey] != components[rewardKey] {
			return nil, errTwo
		}
		if reward == nil {
			reward = components
		}
	}
	switch {
	case reward == nil:
		return nil, errNoReward
	case reward[rewardKey] > 0 && result.ExitCode != 0:
		return nil, fmt.Errorf("exit %d: %w", result.ExitCode, errExit)
	}
	return reward, nil
}

// readFormat reads one of the files that can hold a reward.
func readFormat(ctx context.Context, sb *sandbox.Sandbox, of format, detached time.Time) (map[string]float64, error) {
	data, err := readWritten(ctx, sb, of.name, detached, maxReward)
	if err != nil {
		return nil, err
	}
	components, err := of.parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errBadReward, of.name, err)
	}
	return components, nil
}

// readWritten reads a file that the tests wrote into the folder that makeLogs made, if no process
// can have written it that had got away from them.
func readWritten(ctx context.Context, sb *sandbox.Sandbox, file string, detached time.Time,
	limit int64) ([]byte, error) {
	name := LogsFolder + "/" + file
	state, err := sb.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if !state.Mode.IsRegular() || state.Mode&0o200 == 0 || state.Links != 1 {
		return nil, errReplaced
	}
	if !detached.IsZero() && !detached.Before(state.Changed) {
		return nil, errTampered
	}
	data, err := sb.ReadFile(ctx, name, limit)
	if err != nil && !errors.Is(err, sandbox.ErrClosed) {
		err = fmt.Errorf("%w: %w", errBadReward, err)
	}
	return data, err
}

// parseJSON takes an object of finite numbers with the key "reward", or one number.
func parseJSON(data []byte) (map[string]float64, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return nil, errors.New("empty file")
	}
	if data[0] != '{' {
		var reward *float64
		if err := json.Unmarshal(data, &reward); err != nil {
			return nil, wording.Plain(err)
		}
		if reward == nil {
			return nil, errors.New("null is not a number")
		}
		return checked(map[string]float64{rewardKey: *reward})
	}
	if name := wording.Twice(data); name != "" {
		return nil, fmt.Errorf("%.100q is there twice", name)
	}
	var found map[string]*float64
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, wording.Plain(err)
	}
	components := make(map[string]float64, len(found))
	for name, value := range found {
		if value == nil {
			return nil, fmt.Errorf("%.100q is null", name)
		}
		components[name] = *value
	}
	return checked(components)
}

// parseText takes one number.
func parseText(data []byte) (map[string]float64, error) {
	text := strings.TrimSpace(string(data))
	if text == "" {
		return nil, errors.New("empty file")
	}
	reward, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("%.100q is not a number", text)
	}
	return checked(map[string]float64{rewardKey: reward})
}

func checked(components map[string]float64) (map[string]float64, error) {
	if len(components) > maxComponents {
		return nil, fmt.Errorf("%d numbers (limit %d)", len(components), maxComponents)
	}
	for name, value := range components {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, fmt.Errorf("%.100q is not finite", name)
		}
	}
	if _, ok := components[rewardKey]; !ok {
		return nil, fmt.Errorf("the key %q is missing", rewardKey)
	}
	return components, nil
}
