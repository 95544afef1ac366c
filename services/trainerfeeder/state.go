package trainerfeeder

import (
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
)

// state is what a feed knows of its run as a whole.
type state struct {
	Ready         int64 `json:"ready"`    // last step that was composed
	Consumed      int64 `json:"consumed"` // last step that the trainer has taken
	PolicyVersion int64 `json:"policy_version"`
	ThroughStep   int64 `json:"through_step"` // last step that published weights of this run were trained on
	Closed        bool  `json:"closed"`
	// Moved is the sequence of the last event that a decision may follow from.
	Moved uint64 `json:"moved"`
}

// outcome is what a rollout came to.
type outcome struct {
	Version int64 `json:"version"` // policy version at dispatch
	// of the versions of its tokens, as far as they are known, and at dispatch
	Oldest     int64              `json:"oldest,omitempty"`
	Unknown    bool               `json:"unknown,omitempty"` // sampled tokens are of a version that nobody reported
	Stop       string             `json:"stop"`
	Tokens     int64              `json:"tokens"` // over all samples
	Trajectory storage.Ref        `json:"trajectory"`
	Components map[string]float64 `json:"components,omitempty"`
	TextOnly   bool               `json:"text_only,omitempty"`
	// Unsampled: the model sampled no token that could be trained on.
	Unsampled bool `json:"unsampled,omitempty"`
	// Masked: it did, but in conversations alone that the run does not train on.
	Masked bool `json:"masked,omitempty"`
	// Constrained: all of its sampled tokens were sampled under a constraint.
	Constrained bool `json:"constrained,omitempty"`
	Invalid     bool `json:"invalid,omitempty"`
	Unasked     bool `json:"unasked,omitempty"` // its environment never gave it the word
	Misfit      bool `json:"misfit,omitempty"`  // not even its first prompt fitted into the server's context
	// Hints is how many hints the feed's hinter has stated of it, nil as
	// long as it has said nothing.
	Hints *int `json:"hints,omitempty"`
	// Teachers are what the feed's teachers have said of it, by name: where their log-probabilities
	// are, nil for one that has failed.
	Teachers map[string]*storage.Ref `json:"teachers,omitempty"`
}

// episode is a rollout whose group is not complete yet.
type episode struct {
	events.Progress
	outcome
}

// member is one scored rollout of a pending group.
type member struct {
	Rollout string `json:"rollout"`
	Index   int    `json:"index,omitempty"` // within its group
	// Compared: the group was completed with it. One that was invalidated before has no advantage.
	Compared  bool    `json:"compared"`
	Reward    float64 `json:"reward"`
	Shaped    float64 `json:"shaped"`
	Advantage float64 `json:"advantage"`
	outcome
}

// pending is a completed group that waits for its batch.
type pending struct {
	ID              string   `json:"id"`
	Mean            float64  `json:"mean"`             // reward of the compared members
	DispatchVersion int64    `json:"dispatch_version"` // the oldest of the members'
	Oldest          int64    `json:"oldest,omitempty"` // version of the members' tokens
	Completed       uint64   `json:"completed"`        // sequence of group_completed
	Members         []member `json:"members"`
	// Until is when the feed stops to wait for its teachers; zero of a feed without any.
	Until time.Time `json:"until,omitzero"`
}

func (g pending) compared() (n int) {
	for _, m := range g.Members {
		if m.Compared {
			n++
		}
	}
	return n
}

// openGroup is an open group. Only feeds that wait for old groups keep them.
type openGroup struct {
	Version int64  `json:"version"`
	Opened  uint64 `json:"opened"` // sequence of group_opened
	Size    int    `json:"size"`
	Started int    `json:"started"`
	Ended   int    `json:"ended"`
}

// remarks are what was said about a rollout that may still be batched.
type remarks struct {
	Notes []events.RolloutAnnotated `json:"notes"`
	Bytes int                       `json:"bytes"`
	Left  int                       `json:"left"` // out, because there are too many
}

// maxRemarks bounds the remarks about one rollout, in bytes of their facts.
const maxRemarks = 256 << 10

// Keys of the projection. A group's entries go when it is batched or dropped.
const (
	stateKey = "state"
	episodes = "rollout/"
	waiting  = "group/" // in the order in which groups are taken
	placeOf  = "place/" // group id → its key among the waiting
	flights  = "flight/"
	remarked = "remarks/" // by rollout
	hinted   = "hints/"   // what the feed's hinter has stated, by rollout
)
