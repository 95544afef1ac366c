package events

import (
	"maps"
	"slices"
	"strings"
)

// Type names what happened to which kind of entity: "rollout.started".
type Type string

// The event types, in the order in which an entity meets them.
const (
	RunOpenedType  Type = "run.opened"
	RunPausedType  Type = "run.paused"
	RunResumedType Type = "run.resumed"
	RunClosedType  Type = "run.closed"

	GroupOpenedType    Type = "group.opened"
	GroupCompletedType Type = "group.completed"
	GroupDroppedType   Type = "group.dropped"

	RolloutStartedType     Type = "rollout.started"
	PieceSampledType       Type = "rollout.piece_sampled"
	TurnSampledType        Type = "rollout.turn_sampled"
	ToolsCompletedType     Type = "rollout.tools_completed"
	RolloutObservedType    Type = "rollout.observed"
	StepFinishedType       Type = "rollout.step_finished"
	StepScoredType         Type = "rollout.step_scored"
	RolloutFinishedType    Type = "rollout.finished"
	RolloutRatedType       Type = "rollout.rated"
	RolloutScoredType      Type = "rollout.scored"
	RolloutFailedType      Type = "rollout.failed"
	RolloutRetriedType     Type = "rollout.retried"
	RolloutInvalidatedType Type = "rollout.invalidated"
	RolloutAnnotatedType   Type = "rollout.annotated"
	RolloutForkedType      Type = "rollout.forked"
	RolloutCopiedType      Type = "rollout.copied"
	RolloutHintedType      Type = "rollout.hinted"
	TeacherScoredType      Type = "rollout.teacher_scored"
	WorkspaceCalledType    Type = "rollout.workspace_called"
	WorkspaceAnsweredType  Type = "rollout.workspace_answered"

	CaptureBegunType      Type = "capture.begun"
	CaptureRecordedType   Type = "capture.recorded"
	CaptureIncompleteType Type = "capture.incomplete"
	CaptureRetiredType    Type = "capture.retired"

	QuerySubmittedType   Type = "query.submitted"
	FeedbackRecordedType Type = "feedback.recorded"
	MarkRecordedType     Type = "mark.recorded"

	BatchReadyType        Type = "batch.ready"
	BatchConsumedType     Type = "batch.consumed"
	BatchCheckpointedType Type = "batch.checkpointed"
	BatchRewoundType      Type = "batch.rewound"

	WeightsSubmittedType Type = "weights.submitted"
	WeightsPublishedType Type = "weights.published"
	WeightsRejectedType  Type = "weights.rejected"
	WeightsActivatedType Type = "weights.activated"
	WeightsPromotedType  Type = "weights.promoted"
	WeightsJudgedType    Type = "weights.judged"

	CapacityMeasuredType Type = "capacity.measured"

	StageWaitedType Type = "stage.waited"

	RepoChangedType  Type = "repo.changed"
	IndexUpdatedType Type = "repo.index_updated"

	DeadLetteredType  Type = "log.dead_lettered"
	SegmentSealedType Type = "log.segment_sealed"
	LogForgottenType  Type = "log.forgotten"
	LogPurgedType     Type = "log.purged"
)

// Kind is the entity's kind: "rollout".
func (t Type) Kind() string { kind, _, _ := strings.Cut(string(t), "."); return kind }

// Name is the event's name within its kind: "started".
func (t Type) Name() string { _, name, _ := strings.Cut(string(t), "."); return name }

// CloudEvent is the ce-type attribute, which carries the major version of the payload.
func (t Type) CloudEvent() string { return cloudEvent(t, dataVersion) }

// definition describes a type once for the codec, the intake and the schemas.
type definition struct {
	payload func() any
	// outside: an outsider may submit this fact to the intake.
	Outside bool
	// external: an outsider may state it of External groups and rollouts alone.
	external bool
	// routed: the subject ends in a route.
	routed bool
	// place is where facts of the type stand; in runs alone, unless it says otherwise.
	place place
}

// place is where facts stand.
type place int

const (
	inRuns place = iota
	inCatalogue
	inBoth
)

// Definitions are the event types with their payloads and the rules about who may append them.
var Definitions = map[Type]definition{
	RunOpenedType:  {payload: payload[RunOpened], Outside: true, place: inBoth},
	RunPausedType:  {payload: payload[RunPaused], Outside: true},
	RunResumedType: {payload: payload[RunResumed], Outside: true},
	RunClosedType:  {payload: payload[RunClosed], Outside: true, place: inBoth},

	GroupOpenedType:    {payload: payload[GroupOpened], Outside: true, external: true},
	GroupCompletedType: {payload: payload[GroupCompleted]},
	GroupDroppedType:   {payload: payload[GroupDropped]},

	RolloutStartedType:     {payload: payload[RolloutStarted], Outside: true, external: true},
	PieceSampledType:       {payload: payload[PieceSampled]},
	TurnSampledType:        {payload: payload[TurnSampled], routed: true, Outside: true, external: true},
	ToolsCompletedType:     {payload: payload[ToolsCompleted]},
	RolloutObservedType:    {payload: payload[RolloutObserved], Outside: true},
	StepFinishedType:       {payload: payload[StepFinished]},
	StepScoredType:         {payload: payload[StepScored]},
	RolloutFinishedType:    {payload: payload[RolloutFinished], Outside: true, external: true},
	RolloutRatedType:       {payload: payload[RolloutRated], Outside: true},
	RolloutScoredType:      {payload: payload[RolloutScored], Outside: true, external: true},
	RolloutFailedType:      {payload: payload[RolloutFailed], Outside: true, external: true},
	RolloutRetriedType:     {payload: payload[RolloutRetried]},
	RolloutInvalidatedType: {payload: payload[RolloutInvalidated], Outside: true},
	RolloutAnnotatedType:   {payload: payload[RolloutAnnotated], Outside: true},
	RolloutForkedType:      {payload: payload[RolloutForked], Outside: true},
	RolloutCopiedType:      {payload: payload[RolloutCopied]},
	RolloutHintedType:      {payload: payload[RolloutHinted], Outside: true},
	TeacherScoredType:      {payload: payload[TeacherScored], Outside: true},
	WorkspaceCalledType:    {payload: payload[WorkspaceCalled], routed: true, Outside: true, external: true},
	WorkspaceAnsweredType:  {payload: payload[WorkspaceAnswered]},

	CaptureBegunType:      {payload: payload[CaptureBegun], Outside: true},
	CaptureRecordedType:   {payload: payload[CaptureRecorded], Outside: true},
	CaptureIncompleteType: {payload: payload[CaptureIncomplete], Outside: true},
	CaptureRetiredType:    {payload: payload[CaptureRetired], Outside: true},

	QuerySubmittedType:   {payload: payload[QuerySubmitted], Outside: true},
	FeedbackRecordedType: {payload: payload[FeedbackRecorded], Outside: true},
	MarkRecordedType:     {payload: payload[MarkRecorded], Outside: true},

	BatchReadyType:        {payload: payload[BatchReady]},
	BatchConsumedType:     {payload: payload[BatchConsumed], Outside: true},
	BatchCheckpointedType: {payload: payload[BatchCheckpointed], Outside: true},
	BatchRewoundType:      {payload: payload[BatchRewound], Outside: true},

	WeightsSubmittedType: {payload: payload[WeightsSubmitted], Outside: true, place: inCatalogue},
	WeightsPublishedType: {payload: payload[WeightsPublished], place: inBoth},
	WeightsRejectedType:  {payload: payload[WeightsRejected], place: inCatalogue},
	WeightsActivatedType: {payload: payload[WeightsActivated], Outside: true, place: inCatalogue},
	WeightsPromotedType:  {payload: payload[WeightsPromoted], Outside: true, place: inCatalogue},
	WeightsJudgedType:    {payload: payload[WeightsJudged], Outside: true, place: inCatalogue},

	CapacityMeasuredType: {payload: payload[CapacityMeasured]},

	StageWaitedType: {payload: payload[StageWaited]},

	RepoChangedType:  {payload: payload[RepoChanged], Outside: true, place: inCatalogue},
	IndexUpdatedType: {payload: payload[IndexUpdated], place: inBoth},

	DeadLetteredType:  {payload: payload[DeadLettered], place: inCatalogue},
	SegmentSealedType: {payload: payload[SegmentSealed], place: inCatalogue},
	LogForgottenType:  {payload: payload[LogForgotten], place: inCatalogue},
	LogPurgedType:     {payload: payload[LogPurged]},
}

func payload[T any]() any { return new(T) }

// Types lists every known type, sorted by name.
func Types() []Type { return sortedTypes }

// IsDefined reports whether this version of Rondo knows the type. A reader
// skips what it does not know.
func (t Type) IsDefined() bool { _, ok := Definitions[t]; return ok }

// FromOutside reports whether an outsider may submit a fact of this type to the intake.
func (t Type) FromOutside() bool { return Definitions[t].Outside }

// ExternalOnly reports whether outsiders may state facts of this type of External
// groups and rollouts alone.
func (t Type) ExternalOnly() bool { return Definitions[t].external }

// Routed reports whether the subject of this type ends in a route.
func (t Type) Routed() bool { return Definitions[t].routed }

var sortedTypes = slices.Sorted(maps.Keys(Definitions))

// Payload makes an empty payload of a type, nil for an unknown one.
func Payload(t Type) any {
	d, ok := Definitions[t]
	if !ok {
		return nil
	}
	return d.payload()
}

// Place says where facts of a type stand: in runs, in the catalogue, or in both.
func (t Type) Place() (runs, catalogue bool) {
	place := Definitions[t].place
	return place != inCatalogue, place != inRuns
}

// CatalogueOnly reports whether facts of the type are in no run.
func (t Type) CatalogueOnly() bool {
	runs, _ := t.Place()
	return !runs
}
