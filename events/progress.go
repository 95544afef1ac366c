package events

import (
	"slices"
	"time"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// What a scored rollout waits for: stages behind those of a single rollout.
const (
	StageGroup = "group" // the other members of its group
	StageFeed  = "feed"  // a batch
)

// Progress is where a rollout is. Everybody who must know folds the rollout's events with it, so
// that all of them agree; only the checker has a fold of its own, to compare.
type Progress struct {
	// Stage has the rollout, or was the last that had it. StageFeed follows from the group's
	// events, which are the caller's to fold.
	Stage string `json:"stage,omitempty"`
	// Since is the sequence of the event that handed the rollout to the stage: the work item
	// that the stage consumes.
	Since uint64 `json:"since,omitempty"`
	// Answered: a turn, or what follows from one, has come.
	Answered bool `json:"answered,omitempty"`
	// Finished: the episode is over.
	Finished bool `json:"finished,omitempty"`
	// Scored and Failed are the two outcomes.
	Scored bool `json:"scored,omitempty"`
	Failed bool `json:"failed,omitempty"`
	// Invalidated is a flag on top of any of them.
	Invalidated bool `json:"invalidated,omitempty"`
}

// Apply folds an event of the rollout, and reports whether it brought the rollout on. A failed try,
// a remark, or a type that this version does not know does not.
func (p *Progress) Apply(e Event) (moved bool) {
	switch e.Type {
	case RolloutStartedType:
		p.handOver(e, StageGenerator)
	case RolloutCopiedType: // nobody consumes it: the generator goes on with the start
	case TurnSampledType:
		p.Answered = true
		if e.Route == runfile.RouteSummary { // the generator goes on with the input that it has
			break
		}
		if e.Route == runfile.RouteFinal { // nobody consumes it: the generator must still end the step or the episode
			p.Stage = StageTools
			break
		}
		p.handOver(e, StageTools)
	case ToolsCompletedType, StepScoredType, RolloutObservedType:
		p.Answered = p.Answered || e.Type != RolloutObservedType // an opening answers nothing
		p.handOver(e, StageGenerator)
	case WorkspaceCalledType:
		p.handOver(e, StageTools)
	case WorkspaceAnsweredType: // the harness goes on, as a generator would
		p.handOver(e, StageGenerator)
	case StepFinishedType:
		p.handOver(e, StageScorer)
	case RolloutFinishedType:
		p.Answered, p.Finished = true, true
		p.handOver(e, StageScorer)
	case RolloutScoredType:
		p.Scored = true
		p.handOver(e, StageGroup)
	case RolloutFailedType:
		p.Failed = true
	case RolloutInvalidatedType:
		p.Invalidated = true
		return false
	default:
		return false
	}
	return true
}

func (p *Progress) handOver(e Event, stage string) { p.Stage, p.Since = stage, e.Seq }

// HasOutcome reports whether the rollout has its outcome.
func (p *Progress) HasOutcome() bool { return p.Scored || p.Failed }

// An agent's time is its own work: its turns while they are sampled, and its tools while they run.
// To wait is the plane's: for a slot, a server, a runner or a sandbox, for a try that failed to be
// made again, for a process to be started again. So the agent's time is folded from what turns and
// answers record, and never read off a clock on the wall.

// AgentTime is how much of its time the agent has used in the step in hand. The turns that a fork
// has of its origin count nothing.
func (r *Rollout) AgentTime() (used time.Duration) {
	for _, turn := range r.Turns[min(max(r.StepBegin(len(r.Steps)), r.Copied), len(r.Turns)):] {
		used += turn.SamplingTime() + r.Tools.Answer(turn.Turn).RunningTime()
	}
	return used
}

// AgentTimeLeft is how much of its time the agent has left in the step in hand, 0 or
// less where that is over.
func (r *Rollout) AgentTimeLeft(task runfile.TaskSpec) time.Duration {
	limit := task.InStep(len(r.Steps)).AgentTimeout
	if limit == 0 {
		return unbounded
	}
	return time.Duration(limit) - r.AgentTime()
}

// ToolTimeLeft is how long the rollout's tools may still run: half of the run's timeout in all, so
// that a rollout whose agent only waits for them ends, and is scored, before the plane makes a
// failure of it. The turns that a fork has of its origin do not count.
func (r *Rollout) ToolTimeLeft(limits runfile.Limits) time.Duration {
	if limits.Timeout == 0 {
		return unbounded
	}
	left := time.Duration(limits.Timeout)/2 - r.toolTime
	for _, turn := range r.Turns[min(max(r.Copied, r.toolsTimed), len(r.Turns)):] {
		left -= r.Tools.Answer(turn.Turn).RunningTime()
	}
	return left
}

// unbounded is the time where there is no limit.
const unbounded = 365 * 24 * time.Hour

// SamplingTime is how long the server took over the turn.
func (t TurnSampled) SamplingTime() time.Duration { return ofMilliseconds(t.LatencyMS) }

// RunningTime is how long the turn's tools ran. While several ran beside each other the time counts
// once. A call that was answered from the cache ran nothing.
func (t ToolsCompleted) RunningTime() (took time.Duration) {
	results := slices.Clone(t.Results)
	slices.SortStableFunc(results, func(a, b ToolResult) int { return a.StartedAt.Compare(b.StartedAt) })
	var until time.Time
	for _, result := range results {
		begin, end := result.StartedAt, result.StartedAt.Add(ofMilliseconds(result.DurationMS))
		if begin.Before(until) {
			begin = until
		}
		if result.Cache == toolset.CacheHit || !end.After(begin) {
			continue
		}
		took, until = took+end.Sub(begin), end
	}
	return took
}

// RunningTime is how long the environment took to answer the calls of a turn.
func (o RolloutObserved) RunningTime() time.Duration { return o.tools().RunningTime() }

// RunningTime is how long the harness's command ran.
func (a WorkspaceAnswered) RunningTime() time.Duration { return ofMilliseconds(a.DurationMS) }

// longest bounds a duration that an event states, in milliseconds, so that sums stay times: nothing
// may take longer than a day.
const longest = float64(24 * time.Hour / time.Millisecond)

func ofMilliseconds(ms float64) time.Duration {
	return time.Duration(float64(min(max(0, ms), longest) * float64(time.Millisecond)))
}

// Clock is what decides how long the plane may take over a rollout.
type Clock struct {
	// Used is how much of its time the agent has used, in all steps.
	Used time.Duration `json:"used,omitempty"`
	// Began is when the rollout was started, as the log has it.
	Began time.Time `json:"began,omitzero"`
	// Moved is when the rollout went on last, as the log has it; zero before its first turn.
	Moved time.Time `json:"moved,omitzero"`
	// Waits are the times since then in which it has waited for the end of an outage, in their
	// order. None touches another.
	Waits []Span `json:"waits,omitempty"`
	// Agent: an agent of the run's own has the rollout. It may wait for a tool runner, and between
	// its turns for its model.
	Agent bool `json:"agent,omitempty"`
	// Waited is how long an outsider's has waited for that before: its
	// deadline is behind all of it.
	Waited time.Duration `json:"waited,omitempty"`
}

// Span is a time from a moment to another.
type Span struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

// Wait notes that a rollout at some stage waits for the end of an outage for that time. What
// another statement has said of it counts once. An outsider's time is the plane's at its tools
// and at the scorer alone.
func (c *Clock) Wait(id, stage string, w Span) {
	since := c.Moved
	if since.IsZero() {
		since = c.Began
	}
	if w.Since.Before(since) {
		w.Since = since
	}
	if !w.Until.After(w.Since) || External(id) && stage == StageGenerator {
		return
	}
	var before, after []Span
	for _, s := range c.Waits {
		switch {
		case s.Until.Before(w.Since):
			before = append(before, s)
		case s.Since.After(w.Until):
			after = append(after, s)
		default:
			w = w.and(s)
		}
	}
	c.Waits = slices.Concat(before, []Span{w}, after) // a new list: copies of the clock keep theirs
}

// and is the time from the beginning of the earlier one to the end of the later one.
func (s Span) and(o Span) Span {
	if o.Since.Before(s.Since) {
		s.Since = o.Since
	}
	if o.Until.After(s.Until) {
		s.Until = o.Until
	}
	return s
}

// waited is how long the rollout has waited until a moment since it went on last.
func (c Clock) waited(until time.Time) (sum time.Duration) {
	for _, s := range c.Waits {
		if s.Until.After(until) {
			s.Until = until
		}
		sum += max(0, s.Until.Sub(s.Since))
	}
	return sum
}

// Move folds an event that brought the rollout on, for which the agent used so much of its time.
func (c *Clock) Move(e Event, used time.Duration) {
	if e.Type == RolloutStartedType {
		c.Began = e.Time
	}
	if e.Type == RolloutStartedType || e.Type == RolloutCopiedType { // the deadline that it is started with holds
		return
	}
	if External(e.Entity) {
		c.Waited += c.waited(e.Time)
	} else if e.Type == WorkspaceCalledType {
		c.Agent = true
	}
	c.Used, c.Moved, c.Waits = c.Used+used, e.Time, nil
}

// Due is when the plane gives a rollout up that has not gone on. The agent has what it has not
// used of limits.timeout, from when the rollout went on last: what it waited for until then costs
// it nothing, and for an outage since then it is due later by as long as that lasted. A scorer
// has all of limits.timeout. So every rollout ends, as the run bounds its turns. An outsider's
// has the deadline that it was started with, since nobody here knows whether it works or waits,
// but for outages; zero is none.
func (c Clock) Due(id string, deadline time.Time, stage string, limits runfile.Limits) time.Time {
	if deadline.IsZero() {
		return deadline
	}
	waited := c.Waited
	for _, s := range c.Waits {
		waited += s.Until.Sub(s.Since)
	}
	deadline = deadline.Add(waited)
	if External(id) || c.Moved.IsZero() {
		return deadline
	}
	left := time.Duration(limits.Timeout)
	if stage != StageScorer {
		left = max(0, left-c.Used)
	}
	// the tool runner ends it when its own time is over, which the log does not have
	if stage != StageScorer && c.Agent {
		left += time.Duration(limits.Timeout)
	}
	if due := c.Moved.Add(left + waited); due.After(deadline) {
		return due
	}
	return deadline
}

// Due is when the plane gives the rollout up, unless it goes on until then.
func (r *Rollout) Due(limits runfile.Limits) time.Time {
	return r.Clock.Due(r.ID, r.Started.Deadline, r.Progress.Stage, limits)
}
