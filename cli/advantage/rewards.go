package advantage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/rondo-rl/rondo/advantage"
)

// rewardGroups is the input of `rondo advantage`.
type rewardGroups struct {
	Groups [][]float64 // NaN: a member without a reward
	tokens [][]int     // sampled by each member; 1 where the input does not say
}

// maxRewards bounds the input.
const maxRewards = 256 << 20

// readRewards reads {"groups": [[…], …], "tokens": [[…], …]} strictly; tokens may be left out.
func readRewards(r io.Reader) (rewardGroups, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxRewards+1))
	if err != nil {
		return rewardGroups{}, fmt.Errorf("read rewards: %w", err)
	}
	if len(data) > maxRewards {
		return rewardGroups{}, fmt.Errorf("read rewards: more than %d MiB", maxRewards>>20)
	}
	in, err := ParseRewards(data)
	if err != nil {
		return rewardGroups{}, fmt.Errorf(`read rewards, for example {"groups":[[1,0,null],[0.5,1]]}: %w`, err)
	}
	return in, nil
}

// ParseRewards reads the groups of rewards that a user gives as JSON.
func ParseRewards(data []byte) (in rewardGroups, err error) {
	var body map[string]json.RawMessage
	if len(bytes.TrimSpace(data)) == 0 {
		return in, errors.New("the input is empty")
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return in, err
	}
	for key := range body {
		if key != "groups" && key != "tokens" {
			return in, fmt.Errorf("unknown key %q", key)
		}
	}
	var groups [][]*float64
	if body["groups"] == nil || string(body["groups"]) == "null" {
		return in, errors.New(`it has no "groups"`)
	}
	if err := json.Unmarshal(body["groups"], &groups); err != nil {
		return in, fmt.Errorf(`"groups" must be a list of lists of numbers and nulls: %w`, err)
	}
	var tokens [][]int
	if given, ok := body["tokens"]; ok {
		if err := json.Unmarshal(given, &tokens); err != nil {
			return in, fmt.Errorf(`"tokens" must be a list of lists of whole numbers: %w`, err)
		}
		if len(tokens) != len(groups) {
			return in, fmt.Errorf(`"tokens" has %d groups, "groups" has %d`, len(tokens), len(groups))
		}
	}
	for g, members := range groups {
		if members == nil {
			return in, fmt.Errorf("group %d is null: write [] for a group without members", g)
		}
		if tokens != nil && len(tokens[g]) != len(members) {
			return in, fmt.Errorf(`group %d has %d members, but "tokens" of %d`, g, len(members), len(tokens[g]))
		}
		if err := in.add(members, tokens); err != nil {
			return in, fmt.Errorf("group %d: %w", g, err)
		}
	}
	return in, nil
}

// add takes the next group.
func (in *rewardGroups) add(members []*float64, tokens [][]int) error {
	g := len(in.Groups)
	rewards, sampled := make([]float64, len(members)), make([]int, len(members))
	for i, r := range members {
		rewards[i], sampled[i] = math.NaN(), 1
		if r != nil {
			rewards[i] = *r
		}
		if tokens == nil {
			continue
		}
		if sampled[i] = tokens[g][i]; sampled[i] < 0 {
			return fmt.Errorf("member %d sampled %d tokens", i, sampled[i])
		}
	}
	in.Groups, in.tokens = append(in.Groups, rewards), append(in.tokens, sampled)
	return nil
}

// Advantages estimates group by group, and then over all of them; nil is a member without a reward.
func (in rewardGroups) Advantages(e advantage.Estimator) [][]*float64 {
	var flat, estimated []float64
	var tokens []int
	var baseline float64
	for g, rewards := range in.Groups {
		estimated, baseline = e.Group(rewards, baseline)
		flat, tokens = append(flat, estimated...), append(tokens, in.tokens[g]...)
	}
	flat = e.Batch(flat, tokens)
	out := make([][]*float64, len(in.Groups))
	for g, rewards := range in.Groups {
		out[g] = make([]*float64, len(rewards))
		for i := range rewards {
			if a := flat[0] + 0; advantage.Scored(a) { // + 0: no negative zeros
				out[g][i] = &a
			}
			flat = flat[1:]
		}
	}
	return out
}
