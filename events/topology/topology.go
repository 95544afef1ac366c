package topology

import (
	"slices"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// This file is the one table of what is on the NATS server and who uses it. Streams and
// consumers are made from it, dead letters are traced with it, and the diagram in
// ARCHITECTURE.md is drawn from it.

// LeaseBucket is the key-value bucket, in memory, in which deciding services agree on who decides.
const LeaseBucket = "RONDO_LEASE"

// LeaseStream is the stream that holds the leases.
const LeaseStream = "KV_" + LeaseBucket

// RunFilter selects the openings and closings of runs in the catalogue.
const RunFilter = events.SubjectPrefix + events.Catalogue + ".run.>"

// PublishedFilter selects the published weights of all policies in the catalogue.
const PublishedFilter = events.SubjectPrefix + events.Catalogue + ".weights.*.published"

// StreamSpec describes a stream; Name holds RONDO_<run> for the run streams.
type StreamSpec struct {
	Name      string
	Subjects  []string
	WorkQueue bool
	// MaxBytes is the one size limit; a full stream refuses new messages.
	MaxBytes int64
	// Forgets: the archiver may purge what is archived.
	Forgets bool
	// Expires: single messages may be removed after a time of their own.
	Expires bool
	// Duplicates is the window in which a sender's message id is remembered by the server.
	Duplicates time.Duration
	// Tells begins the subjects on which the server tells of each message that it has
	// stored; "" tells of none.
	Tells   string
	Purpose string
}

// FullAt is the fill of a run's stream from which on nothing new begins: what is in flight
// must still find room to end.
const FullAt = 0.7

const runPlaceholder = "<run>"

// intakeDuplicates is the shortest window there is: the intake knows what is on the log however
// long ago, and answers who asks again, which a server that drops the repetition does not.
const intakeDuplicates = 100 * time.Millisecond

// Streams is the table of streams.
var Streams = []StreamSpec{
	{Name: "RONDO_" + runPlaceholder, Subjects: []string{"rondo.v1." + runPlaceholder + ".>"},
		MaxBytes: int64(runfile.DefaultLogBytes), Purpose: "the truth of one run"},
	{Name: events.CatalogueStream, Subjects: []string{"rondo.v1._.>"}, MaxBytes: 1 << 30, Expires: true,
		Purpose: "what outlives a run: weights, openings and closings, dead letters"},
	{Name: events.IntakeStream, Subjects: []string{"rondo.in.>"}, WorkQueue: true, MaxBytes: 1 << 30,
		Duplicates: intakeDuplicates, Tells: WaitingSubject,
		Purpose: "submissions that wait for the intake"},
	// An advisory's subject ends in the stream's name as one token, so run streams cannot be told
	// from foreign ones by a filter.
	{Name: events.DeadStream, Subjects: []string{"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
		"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>"}, MaxBytes: 256 << 20,
		Purpose: "advisories of deliveries that were given up"},
}

// Stream finds the specification of a stream with its run filled in.
func Stream(name string) StreamSpec {
	for _, s := range Streams {
		if s.Name == name {
			return s
		}
	}
	run, _ := events.RunOfStream(name)
	s := Streams[0]
	s.Name = name
	s.Subjects = []string{strings.Replace(s.Subjects[0], runPlaceholder, run, 1)}
	return s
}

// Service names.
const (
	Intake              = "intake"
	QuerySampler        = "querysampler"
	Generator           = "generator"
	ToolRunner          = "toolrunner"
	Scorer              = "scorer"
	Teacher             = "teacher"
	AdvantageCalculator = "advantagecalculator"
	TrainerFeeder       = "trainerfeeder"
	WeightPublisher     = "weightpublisher"
	DeadLetters         = "deadletters"
	Archiver            = "archiver"
	IndexUpdater        = "indexupdater"
)

// Environment is no service: it stands for the workers of users, which pull
// from the consumers below.
const Environment = "environment"

// PurgeSubject begins the subjects on which a stream is purged.
const PurgeSubject = "$JS.API.STREAM.PURGE."

// consumerDelete begins the subjects on which a stream's consumer is removed.
const consumerDelete = "$JS.API.CONSUMER.DELETE."

// ServiceSpec is one service: what it reads and what it may state.
type ServiceSpec struct {
	Name string
	// Deciding services fold whole run streams; effect services have consumers.
	Deciding bool
	Emits    []events.Type
	// Folds is set for effect services that read whole runs too; Follows are types that one
	// follows beside its consumers.
	Folds   bool
	Follows []events.Type
	// Reads are streams beside runs and catalogue whose messages it reads one by one.
	Reads []string
	// Publishes and Subscribes are subjects of core NATS, and of the server's API beyond reading,
	// appending and consuming.
	Publishes  []string
	Subscribes []string
	Purpose    string
}

// AliveSubject begins the subjects on which tool runners tell each other that they live.
const AliveSubject = "rondo.live.toolrunner."

// PresenceSubject begins the subjects on which processes say what they hold, followed by their
// service and their name. Nothing on the log follows from it: it is there to be looked at, and
// tells generators how many they are.
const PresenceSubject = "rondo.present."

// MirrorSubject begins those on which mirrors of weights say how far they are behind, followed by
// their policy and their region. They are outsiders.
const MirrorSubject = PresenceSubject + "mirror."

// Services is the table of services, in the order of a rollout's journey.
var Services = []ServiceSpec{
	// The intake answers outsiders, makes the streams, of which none has a name that a wildcard
	// could tell, and purges submissions for which there is no room.
	{Name: Intake, Emits: append(outsideTypes(), events.DeadLetteredType),
		Publishes: append([]string{inboxPrefix + ">", "$JS.API.STREAM.CREATE.*", PurgeSubject + events.IntakeStream},
			workersConsumers("$JS.API.CONSUMER.CREATE.")...),
		Subscribes: []string{WaitingSubject + ">"},
		Purpose:    "checks submissions of outsiders and appends them to the log"},
	{Name: QuerySampler, Deciding: true, Emits: []events.Type{events.GroupOpenedType, events.RolloutStartedType,
		events.RolloutFailedType, events.RunPausedType,
		events.RunClosedType, events.StageWaitedType}, Purpose: "opens groups, owns deadlines and cancellation"},
	{Name: Generator, Emits: []events.Type{events.RolloutCopiedType, events.PieceSampledType, events.TurnSampledType,
		events.WorkspaceCalledType, events.StepFinishedType, events.RolloutFinishedType,
		events.RolloutFailedType, events.RolloutRetriedType, events.CapacityMeasuredType, events.StageWaitedType},
		Publishes:  []string{PresenceSubject + Generator + ".*"},
		Subscribes: []string{PresenceSubject + Generator + ".*"}, Purpose: "asks the inference server for turns"},
	{Name: ToolRunner, Emits: []events.Type{events.TurnSampledType, events.ToolsCompletedType,
		events.WorkspaceAnsweredType, events.RolloutFinishedType, events.RolloutFailedType,
		events.RolloutRetriedType, events.StageWaitedType},
		Follows:    []events.Type{events.RolloutFinishedType, events.RolloutFailedType},
		Publishes:  []string{AliveSubject + "*", PresenceSubject + ToolRunner + ".*", "$JS.API.CONSUMER.NAMES.*"},
		Subscribes: []string{AliveSubject + "*"},
		Purpose:    "runs tool calls and agents in the rollout's sandbox, and records what agents sample"},
	{Name: Scorer, Emits: []events.Type{events.StepScoredType, events.RolloutScoredType, events.RolloutFailedType,
		events.RolloutRetriedType, events.StageWaitedType},
		Purpose: "runs the task's verifier in a fresh sandbox, or takes feedback as the reward"},
	{Name: Teacher, Emits: []events.Type{events.TeacherScoredType},
		Purpose: "asks the run's teachers how likely they find what was sampled"},
	// A deciding service pauses a run on which it is stuck: the runtime does that for all of them.
	{Name: AdvantageCalculator, Deciding: true, Emits: []events.Type{events.GroupCompletedType, events.RunPausedType},
		Purpose: "computes advantages when a group is complete"},
	{Name: TrainerFeeder, Deciding: true, Emits: []events.Type{events.BatchReadyType, events.GroupDroppedType,
		events.RunPausedType}, Purpose: "composes batches for each feed"},
	{Name: WeightPublisher, Emits: []events.Type{events.WeightsPublishedType, events.WeightsRejectedType},
		Publishes: []string{"$JS.API.STREAM.NAMES"},
		Purpose:   "verifies weights, publishes them, tells the runs"},
	{Name: IndexUpdater, Emits: []events.Type{events.IndexUpdatedType}, Publishes: []string{"$JS.API.STREAM.NAMES"},
		Purpose: "keeps the index of the repositories that it was given, tells the runs"},
	// The dead letters service deletes submissions that will not be delivered again.
	{Name: DeadLetters, Emits: []events.Type{events.DeadLetteredType, events.RolloutFailedType},
		Reads:     []string{events.IntakeStream},
		Publishes: []string{"$JS.API.STREAM.MSG.DELETE." + events.IntakeStream}, Purpose: "records dead letters"},
	{Name: Archiver, Emits: []events.Type{events.SegmentSealedType, events.LogPurgedType}, Folds: true,
		Publishes: []string{PurgeSubject + "*", "$JS.API.CONSUMER.LIST.*", consumerDelete + "*.*"},
		Purpose:   "seals a run's log into Arrow files in the store, purges what is archived and over, and removes the consumers of closed runs"},
}

func outsideTypes() []events.Type {
	var types []events.Type
	for t, d := range events.Definitions {
		if d.Outside {
			types = append(types, t)
		}
	}
	slices.Sort(types)
	return types
}

// ConsumerSpec is one durable pull consumer with one wildcard filter.
type ConsumerSpec struct {
	// Name of the durable. A trailing "<route>" is filled in for routed types, and "<queue>" for a
	// stream that is shared by senders.
	Name    string
	Service string
	// Stream is RONDO_<run> for consumers that every run has.
	Stream string
	// Type is the input type; "" consumes the whole stream.
	Type events.Type
	// Queue is the part of a shared stream that the consumer has, see ForQueue.
	Queue Queue
	// Filters select the queues of a consumer that has several, see ForStrangers.
	Filters []string
	// AckWait is short, and running handlers beat: a lost worker is noticed fast
	// without doubling slow work.
	AckWait time.Duration
	// MaxDeliver bounds deliveries; then the server sends an advisory, and the dead
	// letters service records it.
	MaxDeliver int
	// MaxAckPending bounds the messages in work over the whole fleet.
	MaxAckPending int
}

const (
	routePlaceholder = "<route>"
	queuePlaceholder = "<queue>"
)

// Consumers is the table of durable consumers.
var Consumers = []ConsumerSpec{
	{Name: "intake-v1-" + queuePlaceholder, Service: Intake, Stream: events.IntakeStream, AckWait: 30 * time.Second,
		MaxDeliver: runfile.Deliveries, MaxAckPending: 1024},
	{Name: "intake-closed-v1", Service: Intake, Stream: Streams[0].Name, Type: events.RunClosedType,
		AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
	{Name: "generator-started-v1", Service: Generator, Stream: Streams[0].Name, Type: events.RolloutStartedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "generator-tools-v1", Service: Generator, Stream: Streams[0].Name, Type: events.ToolsCompletedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "generator-observed-v1", Service: Generator, Stream: Streams[0].Name, Type: events.RolloutObservedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	// The two of users' workers are made by the intake with the run's stream. A start is in work
	// for as long as the episode lasts.
	{Name: EpisodesConsumer, Service: Environment, Stream: Streams[0].Name, Type: events.RolloutStartedType,
		AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 16384},
	{Name: RatingsConsumer, Service: Environment, Stream: Streams[0].Name, Type: events.RolloutFinishedType,
		AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "generator-steps-v1", Service: Generator, Stream: Streams[0].Name, Type: events.StepScoredType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "toolrunner-v1-" + routePlaceholder, Service: ToolRunner, Stream: Streams[0].Name,
		Type: events.TurnSampledType, AckWait: 15 * time.Second,
		MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "toolrunner-calls-v1-" + routePlaceholder, Service: ToolRunner, Stream: Streams[0].Name,
		Type: events.WorkspaceCalledType, AckWait: 15 * time.Second,
		MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "scorer-v1", Service: Scorer, Stream: Streams[0].Name, Type: events.RolloutFinishedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "scorer-steps-v1", Service: Scorer, Stream: Streams[0].Name, Type: events.StepFinishedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "scorer-rated-v1", Service: Scorer, Stream: Streams[0].Name, Type: events.RolloutRatedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "scorer-feedback-v1", Service: Scorer, Stream: Streams[0].Name, Type: events.FeedbackRecordedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "teacher-v1", Service: Teacher, Stream: Streams[0].Name, Type: events.RolloutScoredType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "teacher-hints-v1", Service: Teacher, Stream: Streams[0].Name, Type: events.RolloutHintedType,
		AckWait: 15 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 4096},
	{Name: "weightpublisher-v1", Service: WeightPublisher, Stream: events.CatalogueStream,
		Type: events.WeightsSubmittedType, AckWait: 30 * time.Second,
		MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
	{Name: "weightpublisher-runs-v1", Service: WeightPublisher, Stream: events.CatalogueStream,
		Type: events.RunOpenedType, AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
	{Name: "indexupdater-changed-v1", Service: IndexUpdater, Stream: events.CatalogueStream,
		Type: events.RepoChangedType, AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
	{Name: "indexupdater-runs-v1", Service: IndexUpdater, Stream: events.CatalogueStream, Type: events.RunOpenedType,
		AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
	{Name: "archiver-ready-v1", Service: Archiver, Stream: Streams[0].Name, Type: events.BatchReadyType,
		AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
	{Name: "archiver-closed-v1", Service: Archiver, Stream: events.CatalogueStream, Type: events.RunClosedType,
		AckWait: 30 * time.Second, MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
	{Name: "deadletters-v1", Service: DeadLetters, Stream: events.DeadStream, AckWait: 30 * time.Second,
		MaxDeliver: runfile.Deliveries, MaxAckPending: 64},
}

// The consumers from which users' workers take rollouts: those that begin, for environments, and
// those that have finished, for reward functions.
const (
	EpisodesConsumer = "environment-started-v1"
	RatingsConsumer  = "environment-finished-v1"
)

// ConsumersOf lists a service's consumers.
func ConsumersOf(service string) []ConsumerSpec {
	var specs []ConsumerSpec
	for _, c := range Consumers {
		if c.Service == service {
			specs = append(specs, c)
		}
	}
	return specs
}

// For fills in the run and the route.
func (c ConsumerSpec) For(run, route string) ConsumerSpec {
	c.Name = strings.Replace(c.Name, routePlaceholder, route, 1)
	if c.Stream == Streams[0].Name {
		c.Stream = events.RunStream(run)
	}
	return c
}

// Shared reports whether the consumer's stream is shared by senders, of whom each has a queue
// and each queue a consumer.
func (c ConsumerSpec) Shared() bool { return strings.Contains(c.Name, queuePlaceholder) }

// ForQueue fills in the queue of a shared stream.
func (c ConsumerSpec) ForQueue(q Queue) ConsumerSpec {
	c.Name, c.Queue = strings.Replace(c.Name, queuePlaceholder, q.Name, 1), q
	return c
}

// Strangers is the name of the queue that the queues of strangers make
// together: no queue has it alone.
const Strangers = "strangers"

// ForStrangers fills in queues of a shared stream that have one consumer together.
func (c ConsumerSpec) ForStrangers(queues []Queue) ConsumerSpec {
	c = c.ForQueue(Queue{Name: Strangers})
	for _, q := range queues {
		c.Filters = append(c.Filters, q.Filter)
	}
	return c
}

// PerRun reports whether each run stream has this consumer.
func (c ConsumerSpec) PerRun() bool { return c.Stream == Streams[0].Name }

// Filter is the consumer's subject filter; "" is the whole stream. It belongs
// to a consumer made by For.
func (c ConsumerSpec) Filter(route string) string {
	if c.Type == "" {
		return ""
	}
	run, _ := events.RunOfStream(c.Stream)
	f := events.SubjectPrefix + run + "." + c.Type.Kind() + ".*." + c.Type.Name()
	if c.Type.Routed() {
		f += "." + route
	}
	return f
}
