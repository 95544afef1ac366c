package querysampler

import (
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage/projection"
)

// state is what the sampler knows of the run as a whole.
type state struct {
	Opened bool  `json:"opened"`
	Paused bool  `json:"paused"`
	Closed bool  `json:"closed"`
	Pauses int64 `json:"pauses"` // so far
	Groups int64 `json:"groups"` // of the run's own, opened so far
	Drawn  int64 `json:"drawn"`  // those of them on tasks, not queries
	// UnderWay counts the run's own rollouts without an outcome.
	UnderWay int `json:"under_way"`
	// Asking counts those of them that wait for a turn, and Capacity is how many turns the servers
	// can sample at once, 0 while nobody has said so; where that bounds the run.
	Asking   int `json:"asking,omitempty"`
	Capacity int `json:"capacity,omitempty"`
	// Uncovered counts groups that no weights_published{through_step} covers yet and
	// that may still be trained.
	Uncovered int64 `json:"uncovered"`
	// Useful counts groups that were, or may still be, batched.
	Useful        int64 `json:"useful"`
	PolicyVersion int64 `json:"policy_version"`
	Ready         int64 `json:"ready"` // last step of the first feed
	ThroughStep   int64 `json:"through_step"`
	Batches       int64 `json:"batches"` // of the first feed that no weights cover yet
	Bytes         int64 `json:"bytes"`
	// Left is what the run's stream held when archived events had left it for the last time.
	Left int64 `json:"left,omitempty"`
	// Refused counts the rollouts in a row whose first prompt the endpoint refused, while
	// it answered nothing else.
	Refused     int    `json:"refused,omitempty"`
	LastFailure string `json:"last_failure,omitempty"`
	// Outcomes are the latest ones of the run's own rollouts, a letter each, and Failures the
	// last failure of each stage.
	Outcomes window             `json:"outcomes,omitempty"`
	Failures map[string]failing `json:"failures,omitempty"`
	// Lacks are those of the last turn that cannot be trained on; Called: a turn has called a tool.
	Lacks  []string `json:"lacks,omitempty"`
	Called bool     `json:"called,omitempty"`
	// Fates are what became of the latest groups, a letter each.
	Fates window `json:"fates,omitempty"`
	// Spent is how many prompt and completion tokens turns have had since the budget was granted.
	Spent    int64  `json:"spent,omitempty"`
	PausedBy string `json:"paused_by,omitempty"` // the class of the last pause
	// Misfits counts the tasks that do not fit into the inference server's context.
	Misfits int    `json:"misfits,omitempty"`
	Gap     gapped `json:"gap,omitzero"`

	// Running counts the uncovered groups that are not complete. The rest is of feeds
	// that cut batches by tokens.
	Running         int64   `json:"running"`
	UncoveredTokens int64   `json:"uncovered_tokens"` // of the complete ones
	BatchedTokens   int64   `json:"batched_tokens"`   // those of them that stand in a batch
	MeanTokens      float64 `json:"mean_tokens"`      // of a group
	Measured        int64   `json:"measured"`         // groups in that mean
	// Waited is when rollouts at each stage have last waited for the end of an outage.
	Waited map[string]events.Span `json:"waited,omitempty"`
	// Completed is when the last group was.
	Completed time.Time `json:"completed,omitzero"`

	// GroupsBefore and DrawnBefore are those of the runs that this one continues.
	GroupsBefore int64 `json:"groups_before,omitempty"`
	DrawnBefore  int64 `json:"drawn_before,omitempty"`
}

// group is a group whose members are not all started yet.
type group struct {
	ID            string `json:"id"`
	Task          string `json:"task"`
	PolicyVersion int64  `json:"policy_version"`
	Missing       []int  `json:"missing"` // members
	// Origin is where a group of forks begins.
	Origin *events.Origin `json:"origin,omitempty"`
	// Expires is when nobody starts the missing members of an outsider's group any more. Outages
	// since the clock began move it.
	Expires time.Time    `json:"expires,omitzero"`
	Clock   events.Clock `json:"clock,omitzero"`
}

// expireAt lets nobody start the missing members of an outsider's group behind
// a time, but for outages.
func (g *group) expireAt(at, now time.Time) {
	g.Expires, g.Clock = at.UTC(), events.Clock{Began: now}
}

func newGroup(id string, opened events.GroupOpened) group {
	g := group{ID: id, Task: opened.Task, PolicyVersion: opened.PolicyVersion, Origin: opened.Origin}
	for i := range opened.Size {
		g.Missing = append(g.Missing, i)
	}
	return g
}

// inFlight is a rollout without an outcome.
type inFlight struct {
	ID string `json:"id"`
	// Deadline is the one that it was started with.
	Deadline time.Time `json:"deadline"`
	// Failing is the try that failed last, nil when the rollout has gone on since.
	Failing *failing `json:"failing,omitempty"`
	events.Progress
	events.Clock
	// Noted: it is counted as one that cannot be trained on.
	Noted bool `json:"noted,omitempty"`
	// Tokens that a feed would train on.
	Tokens int64 `json:"tokens,omitempty"`
}

// fork is a group of forks that is asked for.
type fork struct {
	At     string        `json:"at"` // its key
	Task   string        `json:"task"`
	Count  int           `json:"count"`
	Origin events.Origin `json:"origin"`
}

// batch is a batch that no published weights cover yet.
type batch struct {
	Step   int64    `json:"step"`
	Groups []string `json:"groups"`
}

// capacityUse is what a group takes of the capacity.
type capacityUse struct {
	Batched  bool `json:"batched,omitempty"`
	Complete bool `json:"complete,omitempty"`
	// Forked groups begin half way: how many of them pass says little of their task.
	Forked bool `json:"forked,omitempty"`
	// Misfits counts the members whose first prompt did not fit into the server's context.
	Misfits int `json:"misfits,omitempty"`
	// Tokens of the scored members, by rollout; of feeds that cut batches by tokens.
	Tokens map[string]int64 `json:"tokens,omitempty"`
}

// tokens are those of a group, which at most fill a batch: a longer group is one by itself.
func (d *Decider) tokens(p capacityUse) (n int64) {
	for _, t := range p.Tokens {
		n = events.AddTokens(n, t)
	}
	return min(n, d.feed.TokensPerBatch)
}

// Keys of the projection. All but the state itself and the pass rates shrink again when
// what they describe is over.
const (
	stateKey  = "state"
	halfOpen  = "group/"
	flying    = "rollout/"
	due       = "due/" // deadline and rollout in flight → both
	uncovered = "batch/"
	counted   = "counted/" // group → its place
	queries   = "query/"   // sequence → name of a query that waits
	queryAt   = "asked/"   // name of a query that waits → sequence
	forks     = "fork/"    // sequence → fork that waits
	passRates = "passed/"  // task → moving average of its groups' pass rates
	misfits   = "misfit/"  // task that is not drawn until the run is resumed
)

// eventOverhead is what a message costs on disk beside its body: subject,
// headers and record, in bytes.
const eventOverhead = 640

// claimCheck is what the reference to a large body takes, in bytes: the
// body itself is in the store.
const claimCheck = 256

// Apply folds one event.
func (d *Decider) Apply(tx *projection.Tx, e events.Event) error {
	s, _, err := projection.Get[state](tx, stateKey)
	if err != nil {
		return err
	}
	body := len(e.Data)
	if body > events.MaxPayload {
		body = claimCheck
	}
	s.Bytes += int64(body) + eventOverhead
	if err := d.apply(tx, &s, e); err != nil {
		return err
	}
	return projection.Put(tx, stateKey, s)
}

func (d *Decider) apply(tx *projection.Tx, s *state, e events.Event) error {
	switch e.Type {
	case events.RunOpenedType:
		return d.begin(tx, s, e)
	case events.LogPurgedType:
		purged, err := events.Data[events.LogPurged](e)
		s.Bytes, s.Left = purged.Bytes, purged.Bytes
		return err
	case events.RunPausedType:
		return applyPaused(s, e)
	case events.RunResumedType:
		applyResumed(s)
		return forgetMisfits(tx, s)
	case events.RunClosedType:
		s.Closed = true
	case events.QuerySubmittedType:
		return applyQuery(tx, e)
	case events.RolloutForkedType:
		return applyForked(tx, e)
	case events.GroupOpenedType:
		return d.applyOpened(tx, s, e)
	case events.RolloutStartedType:
		return d.applyStarted(tx, s, e)
	case events.TurnSampledType:
		return d.applySampled(tx, s, e)
	case events.CapacityMeasuredType:
		return d.applyCapacity(s, e)
	case events.StageWaitedType:
		return d.applyWaited(tx, s, e)
	case events.ToolsCompletedType:
		return applyAnswered[events.ToolsCompleted](d, tx, s, e)
	case events.WorkspaceCalledType, events.WorkspaceAnsweredType:
		if events.External(e.Entity) {
			return nil // its deadline stands
		}
		return d.noteProgress(tx, s, e, 0)
	case events.RolloutObservedType:
		return applyAnswered[events.RolloutObserved](d, tx, s, e)
	case events.StepFinishedType:
		return d.noteProgress(tx, s, e, 0)
	case events.StepScoredType:
		return d.noteProgress(tx, s, e, 0)
	case events.RolloutRetriedType:
		return d.applyRetried(tx, e)
	case events.RolloutFinishedType:
		return d.applyFinished(tx, s, e)
	case events.RolloutScoredType:
		return d.applyScored(tx, s, e)
	case events.RolloutFailedType:
		return d.applyFailed(tx, s, e)
	case events.RolloutInvalidatedType:
		return d.applyInvalidated(tx, s, e)
	case events.GroupCompletedType:
		return d.applyCompleted(tx, s, e)
	case events.GroupDroppedType:
		return d.applyDropped(tx, s, e)
	case events.BatchReadyType:
		return d.applyReady(tx, s, e)
	case events.BatchConsumedType:
		return d.applyConsumed(s, e)
	case events.WeightsPublishedType:
		return d.applyPublished(tx, s, e)
	}
	return nil
}
