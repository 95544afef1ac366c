package events

import "github.com/rondo-rl/rondo/events/runfile"

// What a scored rollout waits for: stages behind those of a single rollout.
const (
	StageGroup = "group" // the other members of its group
	StageFeed  = "feed"  // a batch
)

// Progress is where a rollout is. Everybody who must know folds the rollout's events with it, so that all of them agree; only the checker
// has a fold of its own, to compare.
type Progress struct {
	// Stage has the rollout, or was the last that had it. StageFeed follows from the group's events, which are the caller's to fold.
	Stage string `json:"stage,omitempty"`
	// Since is the sequence of the event that handed the rollout to the stage: the work item that the stage consumes.
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

// Apply folds an event of the rollout, and reports whether it brought the rollout on. A failed try, a remark, or a type that this version does
// not know does not.
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

// Over reports whether the rollout has its outcome.
func (p *Progress) Over() bool { return p.Scored || p.Failed }
