package events

import (
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
)

// BatchReady is one training batch of a feed: a fact that names immutable files.
type BatchReady struct {
	Step     int64    `json:"step"` // from 1, without gaps
	Groups   []string `json:"groups"`
	Rollouts []string `json:"rollouts"` // in the order of the files' rows; only members that are trained on
	// Masked says of each scored member of the groups that is not trained on why.
	Masked map[string]string `json:"masked,omitempty"`
	// LeftOut says of each sample of a rollout that is trained on why the files do not have it, by
	// ROLLOUT/INDEX among those of its trajectory: none of its tokens is trained on. The indexes in
	// the files count the others.
	LeftOut map[string]string `json:"left_out,omitempty"`
	// Files holds one file for each data-parallel rank.
	Files        []storage.Ref `json:"files,omitempty"`
	MicroBatches int           `json:"micro_batches,omitempty"` // of each rank
	Samples      int           `json:"samples"`
	Tokens       int64         `json:"tokens"`
	Sampled      int64         `json:"sampled"`     // tokens that are trained on
	RewardMean   float64       `json:"reward_mean"` // over the scored members of the groups
	MinVersion   int64         `json:"min_version"` // of the members' dispatch versions
	Staleness    int64         `json:"staleness"`   // policy version at the decision − MinVersion
}

// BatchConsumed says that the trainer has taken the step; the feed may go on. A step may be stated
// again, after a rewind or with what is measured later.
type BatchConsumed struct {
	Step int64 `json:"step" jsonschema:"minimum=1"`
	// LogprobGap is absent where the trainer does not measure it, or has no token to compare.
	LogprobGap *LogprobGap `json:"logprob_gap,omitempty"`
	// Stale are rollouts of the batch that the trainer left out, since its own bound
	// says that they are too old.
	Stale []string `json:"stale,omitempty" jsonschema:"maxItems=100000"`
}

// BatchCheckpointed says that the trainer has saved its state through this step; a
// crash resumes from here.
type BatchCheckpointed struct {
	Step int64 `json:"step" jsonschema:"minimum=0"`
}

// BatchRewound says that the trainer restarted from a checkpoint; steps after ToStep
// come again, byte-identical.
type BatchRewound struct {
	ToStep int64 `json:"to_step" jsonschema:"minimum=0"`
}

// WeightsFile is one file of a set of weights.
type WeightsFile struct {
	Name string      `json:"name" jsonschema:"pattern=^[A-Za-z0-9._-]{1\\,128}$"`
	Blob storage.Ref `json:"blob"`
}

// WeightsSubmitted is a trainer's wish to publish weights whose files it has put into the store.
type WeightsSubmitted struct {
	Version     int64         `json:"version" jsonschema:"minimum=1"`
	Run         string        `json:"run" jsonschema:"pattern=^[A-Za-z0-9_-]{1\\,64}$"`
	ThroughStep int64         `json:"through_step" jsonschema:"minimum=0"`
	Files       []WeightsFile `json:"files" jsonschema:"minItems=1,maxItems=10000"`
	// Delta leads to those of the files that the store does not hold yet: the
	// publisher makes them of it.
	Delta *WeightsDelta `json:"delta,omitempty"`
	// Allow names what the publisher would refuse otherwise; see package weights.
	Allow []string `json:"allow,omitempty" jsonschema:"maxItems=4,enum=not_finite,enum=empty,enum=other_tensors,enum=gap"`
}

// WeightsDelta leads from the files of an older version to new ones; see package weights/delta.
type WeightsDelta struct {
	Base int64       `json:"base" jsonschema:"minimum=0"` // the older version
	Blob storage.Ref `json:"blob"`
}

// WeightsPublished is a policy version that inference servers may load.
type WeightsPublished struct {
	Policy      string      `json:"policy"`
	Version     int64       `json:"version"`
	Run         string      `json:"run"`          // whose batches it was trained on
	ThroughStep int64       `json:"through_step"` // the last of those batches
	Manifest    storage.Ref `json:"manifest"`
}

// WeightsRejected says why submitted weights were not published.
type WeightsRejected struct {
	Version int64  `json:"version"`
	Reason  string `json:"reason"`
}

// WeightsActivated says that a replica of the inference server answers with this version now. A
// replica whose name is the URL by which runs name it gets turns by what is said of it.
type WeightsActivated struct {
	Version int64  `json:"version" jsonschema:"minimum=0"`
	Replica string `json:"replica" jsonschema:"minLength=1,maxLength=128"`
	// Digest is the sha256 of the version's manifest, and Seconds how long the
	// replica took to load it.
	Digest  string  `json:"digest,omitempty" jsonschema:"pattern=^([0-9a-f]{64})?$"`
	Seconds float64 `json:"seconds,omitempty" jsonschema:"minimum=0"`
	// Lost: the replica has served this version and does not any more, and nobody knows which one
	// it serves: it was started again, is away, or a load has failed.
	Lost bool `json:"lost,omitempty"`
	// Model is the name under which the replica serves the version, where each has one of its own:
	// an adapter's. Turns ask for it in place of the policy's.
	Model string `json:"model,omitempty" jsonschema:"maxLength=256"`
}

// CapacityMeasured says how many turns the inference servers of a run can sample at once. A
// generator states it in runs with `in_flight: auto`, at most once in ten seconds, when the
// number has changed noticeably.
type CapacityMeasured struct {
	Turns int `json:"turns" jsonschema:"minimum=1,maximum=100000"`
	// Servers are what that follows from, by the addresses in the run's configuration.
	Servers []ServerCapacity `json:"servers,omitempty"`
}

// Unmeasured are the servers that say nothing of their load, so that their number of turns is
// assumed. The endpoint of the built-in policy is none of them: it has no load to speak of.
func (m CapacityMeasured) Unmeasured() (urls []string) {
	for _, s := range m.Servers {
		if !s.Measured && s.URL != runfile.BuiltinEndpoint {
			urls = append(urls, s.URL)
		}
	}
	return urls
}

// ServerCapacity is what a generator has found of one server.
type ServerCapacity struct {
	URL   string `json:"url"`
	Turns int    `json:"turns"`
	// Measured: it says itself how much it has to do. Of other servers the number is what the
	// generators' ramp allows, or their slots.
	Measured bool    `json:"measured,omitempty"`
	Running  int     `json:"running,omitempty"`  // requests
	Waiting  int     `json:"waiting,omitempty"`  // requests
	KVUsage  float64 `json:"kv_usage,omitempty"` // part of the memory for keys and values, 0 to 1
}
