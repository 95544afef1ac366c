package events

import (
	"maps"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
)

// RolloutRated is what the run's reward function says of a finished rollout. A rollout has one.
type RolloutRated struct {
	// By is the function's name, as the run's scorer.function has it.
	By         string             `json:"by" jsonschema:"pattern=^[A-Za-z0-9_-]{1\\,64}$"`
	Components map[string]float64 `json:"components,omitempty"`
	// Failed says why there are none: a failure of the machine, and never a reward of 0.
	Failed     string  `json:"failed,omitempty" jsonschema:"maxLength=1000"`
	Worker     string  `json:"worker,omitempty" jsonschema:"maxLength=128"`
	DurationMS float64 `json:"duration_ms,omitempty"`
}

// Bounds of what an environment says at once.
const (
	MaxObserved = 1 << 20 // bytes of all messages together
	MaxState    = 1 << 20 // bytes
)

// RolloutObserved is what the run's environment says: its opening, or its answer to a turn. Each
// turn of such a rollout has one, also the last.
type RolloutObserved struct {
	// Turn is the turn that it answers, -1 for the opening.
	Turn int `json:"turn" jsonschema:"minimum=-1"`
	// Messages follow in the conversation. Those of an opening take the place
	// of the task's instruction.
	Messages []Observation `json:"messages,omitempty" jsonschema:"maxItems=64"`
	// Reward is added to the rollout's component "reward"; the last value of
	// every other component counts.
	Reward     float64            `json:"reward,omitempty"`
	Components map[string]float64 `json:"components,omitempty"`
	// Done ends the episode.
	Done bool `json:"done,omitempty"`
	// Failed ends the rollout without an outcome: a failure of the machine,
	// and never a reward of 0.
	Failed string `json:"failed,omitempty" jsonschema:"maxLength=1000"`
	// Next names another role of the episode, which has the word before this turn is answered:
	// nothing is said here yet. A turn has one follower: either this or its answer.
	Next string `json:"next,omitempty" jsonschema:"pattern=^([A-Za-z0-9_-]{1\\,64})?$"`
	// Held marks a word that follows from what is settled behind another turn of the episode: an
	// answer that had to wait, or the opening of a role that is not the first.
	Held bool `json:"held,omitempty"`
	// State is all that another worker needs to go on behind this fact, as text of the
	// environment's own; absent where it needs the recorded turns alone.
	State      string    `json:"state,omitempty" jsonschema:"maxLength=1048576"`
	Worker     string    `json:"worker,omitempty" jsonschema:"maxLength=128"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	DurationMS float64   `json:"duration_ms,omitempty"`
}

// RoleOf is the role of a group's member, "" where the run's episodes have one rollout. Groups of
// outsiders have no roles.
func RoleOf(cfg runfile.RunConfig, group string, member int) string {
	roles := RolesIn(cfg, group)
	if len(roles) == 0 {
		return ""
	}
	return roles[member%len(roles)]
}

// RolesIn are the roles of a group's episodes, nil where these have one rollout. The rollouts of an
// episode are neighbours, in the order of the roles.
func RolesIn(cfg runfile.RunConfig, group string) []string {
	if External(group) || cfg.Environment == nil {
		return nil
	}
	return cfg.Environment.Roles
}

// Settles reports whether the environment's next word settles what follows the last turn: an
// answer that had to wait, and the opening of a role that is not its episode's first, follow from
// what is settled elsewhere.
func (r *Rollout) Settles(cfg runfile.RunConfig) bool {
	return !r.Passed && (len(r.Turns) > 0 || r.Started.Role == RoleOf(cfg, r.Started.Group, 0))
}

// Observation is one message of an environment: a user's, or a tool's that answers a call.
type Observation struct {
	Role       string `json:"role" jsonschema:"enum=user,enum=tool"`
	Content    string `json:"content"`
	ToolCallID string `json:"tool_call_id,omitempty" jsonschema:"maxLength=256"`
	Name       string `json:"name,omitempty" jsonschema:"maxLength=256"`
	Error      bool   `json:"error,omitempty"`
}

// MessagesOf are the messages of a role.
func (o RolloutObserved) MessagesOf(role string) []Observation {
	var said []Observation
	for _, m := range o.Messages {
		if m.Role == role {
			said = append(said, m)
		}
	}
	return said
}

// tools is the answer to the turn's calls as a tool runner would state it.
func (o RolloutObserved) tools() ToolsCompleted {
	t := ToolsCompleted{Turn: o.Turn, Runner: o.Worker}
	for _, m := range o.MessagesOf("tool") {
		t.Results = append(t.Results, ToolResult{CallID: m.ToolCallID, Name: m.Name, Content: m.Content, Error: m.Error,
			StartedAt: o.StartedAt, DurationMS: o.DurationMS})
	}
	return t
}

// observed folds what an environment says.
func (r *Rollout) observed(o RolloutObserved) {
	if o.Next != "" {
		r.Passed = true
		return
	}
	r.Passed = false
	r.Observed = append(r.Observed, o)
	if o.Turn >= 0 {
		r.Tools = r.Tools.Add(o.tools())
	}
}

// LastObserved is what the environment said last, nil before its opening.
func (r *Rollout) LastObserved() *RolloutObserved {
	if len(r.Observed) == 0 {
		return nil
	}
	return &r.Observed[len(r.Observed)-1]
}

// AwaitsEnvironment reports whether the environment has the next word in a
// rollout that belongs to one.
func (r *Rollout) AwaitsEnvironment() bool { return len(r.Observed) <= len(r.Turns) }

// ObservedAfter are the environment's messages of a role behind a turn, -1 for its opening.
func (r *Rollout) ObservedAfter(turn int, role string) []Observation {
	if turn+1 >= len(r.Observed) {
		return nil
	}
	return r.Observed[turn+1].MessagesOf(role)
}

// ObservedComponents are those of the reward as the environment has stated them so far: the sum of
// its rewards, and the last value of everything else.
func (r *Rollout) ObservedComponents(reward string) map[string]float64 {
	components := map[string]float64{}
	var sum float64
	for _, o := range r.Observed {
		maps.Copy(components, o.Components)
		sum += float64(o.Reward)
	}
	components[reward] = sum
	return components
}
