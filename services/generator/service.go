package generator

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/pipeline/outage"
	"github.com/rondo-rl/rondo/pipeline/presence"
	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/sandbox/tools"
	"github.com/rondo-rl/rondo/storage"
)

// Options of the service.
type Options struct {
	// Slots is how many turns are sampled at once, or wait for their server.
	Slots int
}

// DefaultOptions suit a local inference server.
func DefaultOptions() Options { return Options{Slots: 64} }

// Service consumes rollout_started, tools_completed and step_scored, and emits turn_sampled,
// step_finished, rollout_finished, rollout_retried and rollout_failed. In runs with an agent it
// emits workspace_called alone. In runs with `in_flight: auto` it emits capacity_measured.
type Service struct {
	store   storage.Store
	servers *fleet.Fleet
	tools   *tools.Sets
	// capacities are those of the runs that follow them.
	capacities capacities
	peers      *peers
	logger     *slog.Logger
}

// Run is the service, which asks the servers of a fleet.
func Run(ctx context.Context, env pipeline.Env, servers *fleet.Fleet, opts Options) error {
	s := newService(env, servers, opts)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go s.peers.follow(ctx, env, servers)
	go presence.Speak(ctx, env.Log.Conn(), topology.Generator, s.peers.name,
		func() presence.Report { return report(servers, env.Instance, opts.Slots) })
	return pipeline.RunEffect(ctx, env, pipeline.Effect{Name: topology.Generator, Slots: opts.Slots, Handle: s.Handle,
		Serves: samples, Round: s.round, Stage: events.StageGenerator})
}

// samples reports whether a run has turns to sample. An external one has queries and
// forks, where it has a server.
func samples(cfg runfile.RunConfig) bool {
	return !cfg.External || cfg.Endpoint != "" || len(cfg.Endpoints) > 0
}

func newService(env pipeline.Env, servers *fleet.Fleet, opts Options) *Service {
	return &Service{store: env.Log.Store(), servers: servers, tools: tools.NewSets(),
		peers: newPeers(presence.Name(env.Instance), opts.Slots), logger: env.Logger}
}

// Handle does what the rollout of the input needs next. It reads the chain, not the input: a
// delivery that was overtaken finds nothing to do.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	if events.External(m.Event.Entity) {
		return nil, nil // its turns are sampled elsewhere
	}
	cfg, err := m.Log.Config(ctx, m.Event.Run)
	if err != nil {
		return nil, err
	}
	r, err := m.Log.Rollout(ctx, m.Event.Run, m.Event.Entity)
	if err != nil {
		return nil, err
	}
	begun, err := begin(ctx, m.Log, cfg.Limits, &r)
	if err != nil {
		return nil, err
	}
	if len(begun) > 0 { // pieces of its first turn come behind it
		return begun, pipeline.ErrCallAgain
	}
	return s.advance(ctx, cfg, &r, m)
}

// advance does one action.
func (s *Service) advance(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout,
	m pipeline.Message) ([]events.Event, error) {
	if r.Over() || r.Finished != nil {
		return nil, nil
	}
	task, err := m.Log.Task(ctx, r.Run, r.Started.Task)
	if errors.Is(err, runfile.ErrNoTask) {
		return fail(r, err)
	}
	if err != nil {
		return nil, err
	}
	if cfg.Agent != nil {
		return startAgent(cfg, task, r)
	}
	do, stopReason := nextIn(cfg, r, task)
	switch do {
	case nothing:
		return nil, nil
	case endLost:
		fact, err := r.Fail(events.StageEnvironment, events.ClassWorker, errors.New(stopReason))
		return []events.Event{fact}, err
	case sample:
		return s.sample(ctx, cfg, task, r, m)
	}
	return s.end(ctx, cfg, task, r, do, stopReason)
}

// end makes the fact that ends a stage, the episode, or the rollout without one.
func (s *Service) end(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout, what action,
	stopReason string) ([]events.Event, error) {
	var last events.Event
	var err error
	switch what {
	case endStep:
		last, err = stepFinished(r, stopReason)
	case untold:
		last, err = r.Fail(events.StageGenerator, events.ClassUnknownFinish, unknownFinish(r.LastTurn()))
	default:
		last, err = s.finished(ctx, cfg, task, r, stopReason)
	}
	if err != nil {
		return nil, err
	}
	return []events.Event{last}, nil
}

// fail ends a rollout whose log holds what no repetition mends.
func fail(r *events.Rollout, cause error) ([]events.Event, error) {
	fact, err := r.Fail(events.StageGenerator, events.ClassInternal, cause)
	return []events.Event{fact}, err
}

// sample asks for one turn, and ends the stage or the episode with it when it was the last.
// When the plane gives the rollout up it does nothing: the sampler ends the rollout. A turn
// that its agent's time did not suffice for is taken whole: who waits for a server cannot
// tell whether that hangs.
func (s *Service) sample(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout,
	m pipeline.Message) ([]events.Event, error) {
	if err := addWaits(ctx, m.Log, r); err != nil {
		return nil, err
	}
	asking, cancel := untilDue(ctx, r, cfg.Limits)
	defer cancel()
	t, answer, err := s.ask(asking, cfg, task, r, turnPrompt(cfg, task, r), m)
	context.AfterFunc(ctx, answer.Done) // the input is settled: the turn is on the log
	if err != nil && ctx.Err() == nil && asking.Err() != nil {
		return nil, outOfTime(ctx, m, cfg.Limits, r, err)
	}
	if overflow(err) != nil && maySummarise(cfg, r) {
		return s.summarise(ctx, asking, cfg, task, r, m)
	}
	if err != nil && ctx.Err() == nil && overflow(err) != nil {
		return s.full(ctx, cfg, task, r)
	}
	if why := refusal(err); why != nil && ctx.Err() == nil {
		return s.refused(ctx, cfg, task, r, why)
	}
	if err != nil {
		return s.failed(ctx, cfg, r, m.Delivered, err)
	}
	sampled, err := r.Next(events.TurnSampledType, events.Ordinal(t.Turn), t)
	if err != nil {
		return nil, err
	}
	sampled.Route = routeIn(cfg, r, t, task)
	if sampled.Route != runfile.RouteFinal {
		return []events.Event{sampled}, nil
	}
	r.Turns = append(r.Turns, t)
	what, stopReason := nextIn(cfg, r, task)
	last, err := s.end(ctx, cfg, task, r, what, stopReason)
	// the turn is worth keeping: the repetition finds it on the log
	return append([]events.Event{sampled}, last...), err
}

// ask asks for one turn. What was sampled must be known exactly to be trained on: tokens that
// cannot be are an error, which the next try may mend.
func (s *Service) ask(ctx context.Context, cfg runfile.RunConfig, task runfile.TaskSpec, r *events.Rollout, p prompt,
	m pipeline.Message) (events.TurnSampled, *fleet.Answer, error) {
	offered, err := s.toolDefinitions(cfg, task)
	if err != nil {
		return events.TurnSampled{}, nil, err
	}
	request := func(model string, most int) inference.Request {
		sample := inference.NewSample(cfg.Sampling)
		sample.MaxTokens = most
		request := inference.Request{
			Model: model, Messages: p.messages, Written: p.written, Tools: offered,
			Sample:   sample,
			Seed:     inference.NewSeed(cfg.Sampling, r.Started.Seed+int64(len(r.Turns))),
			Extra:    cfg.Sampling.ExtraBody,
			Logprobs: true, ReturnTokenIDs: true, ReturnPromptTokenIDs: true, ReturnMetaInfo: true,
			ReturnWeightVersions: true,
			Columns:              cfg.TokenColumns,
		}
		if cfg.TokenColumns != nil {
			request.TopLogprobs = cfg.TokenColumns.TopLogprobs
			request.ReturnTokensAsIDs = request.TopLogprobs > 0 && cfg.EndpointAPI != runfile.APITokens
		}
		return request
	}
	call := fleet.Call{
		Run: r.Run, Config: &cfg, Affinity: r.ID, Turn: len(r.Turns), Version: cfg.AssumedVersion(),
		Sampling: cfg.Sampling,
		Fit:      true, Prompt: p.least, Spare: p.spare, TellContext: cfg.Limits.TellRoom,
		Request: func(model string, most int) any { return request(model, most) },
		Until:   patience(r, cfg.Limits, time.Now()), Patient: true,
		Answered: func(ctx context.Context) bool { return hasAnswered(ctx, m.Log, r.Run) },
	}
	asking, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if cfg.EndpointAPI == runfile.APITokens {
		byTokens(&call, r, request, recording(cfg, r, m, stop))
	}
	answer, err := s.servers.Complete(asking, call)
	if err != nil {
		if cause := context.Cause(asking); cause != nil && ctx.Err() == nil {
			err = cause // a piece could not be recorded
		}
		return events.TurnSampled{}, nil, err
	}
	t := answer.Turn
	if len(offered) == 0 {
		t.ToolCalls = nil // nobody would answer a call of a tool that was not offered
		t.Unoffered()
	}
	if t.ContextLimit = answer.ContextLimit; t.ContextLimit > 0 {
		cfg.Sampling.MaxTokens = answer.MaxTokens
	}
	if cfg.Limits.TellRoom && len(t.ToolCalls) > 0 {
		t.RoomTold = roomTold(cfg.Limits, &t, answer.Context)
	}
	t.Sampling = sampledWith(cfg.Sampling, answer.Plain)
	t.Constrained = cfg.Sampling.Constraints()
	if !t.TextOnly {
		t.PromptDelta, t.NewSegment = delta(r, answer.Prompt)
		if t.NewSegment {
			t.SegmentCause = segmentCause(r, answer.Prompt)
		}
	}
	if err = m.Log.MarkVersions(ctx, cfg.Policy, r.Started.PolicyVersion, &t); err == nil {
		err = outage.Outlast(ctx, func() error {
			kept := t
			// by tokens they were asked for from the last known one on
			err := answer.Keep(ctx, s.store, cfg.TokenColumns, &kept, -1)
			if err == nil {
				t = kept
			}
			return err
		})
	}
	if err != nil {
		answer.Done()
		return events.TurnSampled{}, nil, err
	}
	return t, answer, nil
}

// sampledWith is how a turn was sampled.
func sampledWith(s runfile.Sampling, plain bool) *runfile.Sampling {
	if plain {
		s = inference.OnlyOpenAI(s)
	}
	return &s
}

// failed waits where the server asked for it, else states a failed try, and ends the rollout when
// there is no use in another one.
func (s *Service) failed(ctx context.Context, cfg runfile.RunConfig, r *events.Rollout, delivered uint64,
	cause error) ([]events.Event, error) {
	var f *inference.Failure
	if !errors.As(cause, &f) || ctx.Err() != nil || outage.KindOf(cause) != "" {
		return nil, cause // ours, not the server's: deliver again
	}
	left := time.Until(r.Due(cfg.Limits))
	if f.Throttled {
		return nil, pipeline.RetryAfter(f, putOff(f.After, left, delivered))
	}
	if f.Away && left > throttledSlot { // it comes again early enough to say at the end that the server stayed away
		return nil, pipeline.RetryAfter(f, min(putOff(f.After, left, delivered), left-throttledSlot))
	}
	if f.Permanent || f.Away {
		fact, err := r.Fail(events.StageGenerator, f.Class, f)
		return []events.Event{fact}, err
	}
	fact, final, err := r.Retry(cfg.Limits, events.StageGenerator, f.Class, f)
	if err != nil || final {
		return []events.Event{fact}, err
	}
	rest := max(f.After, pipeline.NextTry.Delay(r.Tries+1))
	if r.Advanced() && retry.Sleep(ctx, rest) { // another delivery would count, however much of the answer there is
		return []events.Event{fact}, pipeline.ErrCallAgain
	}
	return []events.Event{fact}, pipeline.RetryAfter(f, rest)
}
