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
	errKilled    = errors.New("a signal ended the tests, which the code under test may have sent to end them with a reward of its own: tests must end by themselves")
)

// formats are the files that hold a reward; the first that is there counts.
var formats = []struct {
	name  string
	parse func([]byte) (map[string]float64, error)
}{
	{"reward.json", parseJSON},
	{"reward.txt", parseText},
}

// readReward reads the reward. It must have been written after detached, the last time at which a process was seen that had
// got away from the tests.
func readReward(ctx context.Context, sb *sandbox.Sandbox, detached time.Time) (map[string]float64, error) {
	for _, format := range formats {
		name := LogsFolder + "/" + format.name
		state, err := sb.Stat(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !detached.IsZero() && !detached.Before(state.Changed) {
			return nil, errTampered
		}
		data, err := sb.ReadFile(ctx, name, maxReward)
		if errors.Is(err, sandbox.ErrClosed) {
			return nil, err
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBadReward, err)
		}
		components, err := format.parse(data)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errBadReward, format.name, err)
		}
		return components, nil
	}
	return nil, errNoReward
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
			return nil, err
		}
		if reward == nil {
			return nil, errors.New("null is not a number")
		}
		return checked(map[string]float64{rewardKey: *reward})
	}
	var found map[string]*float64
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, err
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
