// Package teacher asks a run's teachers and reference models how likely they find the tokens of
// scored rollouts, and those that take hints how likely they find the tokens of their spans with
// the hint in the context.
package teacher

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/storage"
)

const (
	// slots is how many rollouts are in work at once. A server reads a prompt much faster than it
	// writes one, so few keep it busy.
	slots = 8
	// askTime is how long a server may take for one sample.
	askTime = 10 * time.Minute
)

// teacherHTTP follows no redirects: a server that sends its clients elsewhere would get
// them to show the key there.
var teacherHTTP = &http.Client{CheckRedirect: func(*http.Request,
	[]*http.Request) error {
	return http.ErrUseLastResponse
}}

// Service consumes rollout_scored and rollout_hinted, and emits teacher_scored.
type Service struct {
	store storage.Store
	keys  fleet.Keys
}

// Run is the service.
func Run(ctx context.Context, env pipeline.Env, keys fleet.Keys) error {
	return pipeline.RunEffect(ctx, env, New(env.Log.Store(), keys).Effect())
}

// New makes the service; keys are shown to the servers that they are for.
func New(store storage.Store, keys fleet.Keys) *Service { return &Service{store, keys} }

// Effect is the service as an effect.
func (s *Service) Effect() pipeline.Effect {
	serves := func(cfg runfile.RunConfig) bool { return len(cfg.Teachers) > 0 }
	return pipeline.Effect{Name: topology.Teacher, Slots: slots, Handle: s.Handle, GiveUp: giveUp, Serves: serves}
}

// Handle asks the next teacher of the run that has not said anything of the rollout, and is called
// again for the one after it. One that cannot be reached does not keep the others from answering.
func (s *Service) Handle(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
	return next(ctx, m, func(t runfile.Teacher, said *events.TeacherScored, w work) error {
		err := s.ask(ctx, m.Event.Run, t, said, w)
		var failed *inference.Failure
		if errors.As(err, &failed) && failed.Permanent || storage.IsUnusable(err) || errors.Is(err, errHints) {
			said.Logprobs, said.Failed = nil, clip(err)
			return nil
		}
		if failed != nil && failed.After > 0 {
			return pipeline.RetryAfter(err, failed.After)
		}
		return err
	})
}

// giveUp states of the teachers that have not answered that they never will.
func giveUp(ctx context.Context, m pipeline.Message, cause error) ([]events.Event, error) {
	return next(ctx, m, func(_ runfile.Teacher, said *events.TeacherScored, _ work) error {
		said.Failed = clip(fmt.Errorf("given up after %d deliveries: %w", m.Delivered, cause))
		return nil
	})
}

// work is what a message asks for: all tokens of a trajectory, or those of the spans of hints.
type work struct {
	trajectory storage.Ref
	hints      *events.RolloutHinted
}

// hinter is whose hints the work is about; "" where it is about whole samples.
func (w work) hinter() string {
	if w.hints == nil {
		return ""
	}
	return w.hints.By
}

// workOf reads what a message asks for; false where that is nothing.
func workOf(ctx context.Context, m pipeline.Message) (w work, ok bool, err error) {
	scored := m.Event
	if m.Event.Type == events.RolloutHintedType {
		hinted, err := events.Data[events.RolloutHinted](m.Event)
		if err != nil {
			return w, false, pipeline.Permanent(err)
		}
		if len(hinted.Hints) == 0 {
			return w, false, nil
		}
		w.hints = &hinted
		if scored, err = m.Log.LastOfType(ctx, m.Event.Run, events.RolloutScoredType, m.Event.Entity); err != nil {
			return w, false, err
		}
	}
	verdict, err := events.Data[events.RolloutScored](scored)
	if err != nil {
		return w, false, pipeline.Permanent(err)
	}
	w.trajectory = verdict.Trajectory
	return w, !verdict.TextOnly, nil // of texts alone there are no tokens
}

// next makes the fact of one teacher that is not on the log yet, filled in by the caller. With it
// comes the wish to be called again.
func next(ctx context.Context, m pipeline.Message, fill func(runfile.Teacher, *events.TeacherScored,
	work) error) ([]events.Event, error) {
	cfg, err := m.Log.Config(ctx, m.Event.Run)
	if err != nil || len(cfg.Teachers) == 0 {
		return nil, err
	}
	w, ok, err := workOf(ctx, m)
	if err != nil || !ok {
		return nil, err
	}
	var wrong error
	for _, t := range cfg.Teachers {
		if t.URL == "" || t.Hints != w.hinter() {
			continue // somebody outside states it, or it says nothing of this
		}
		t = server(t, &cfg, m.Event.Entity)
		said := events.TeacherScored{Teacher: t.Name, Trajectory: w.trajectory.SHA256,
			Model: t.Model, Version: t.Version}
		if _, stated, err := link(ctx, m, said); err != nil || stated {
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := fill(t, &said, w); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("ask teacher %s about %s: %w", t.Name, m.Event.Entity, err))
			continue
		}
		fact, stated, err := link(ctx, m, said) // others may have said something of the rollout meanwhile
		if err != nil || stated {
			return nil, errors.Join(err, pipeline.ErrCallAgain)
		}
		return []events.Event{fact}, pipeline.ErrCallAgain
	}
	return nil, wrong
}

// server fills in where a teacher is asked that is the policy itself: one of its servers, the same
// for all samples of a rollout.
func server(t runfile.Teacher, cfg *runfile.RunConfig, rollout string) runfile.Teacher {
	if t.URL != runfile.TeacherPolicy {
		return t
	}
	servers := cfg.Servers()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(rollout))
	one := servers[hash.Sum32()%uint32(len(servers))]
	t.URL, t.Model = one.URL, one.Model
	return t
}

// link links what a teacher says behind the rollout's last fact.
func link(ctx context.Context, m pipeline.Message, said events.TeacherScored) (events.Event, bool, error) {
	fact, err := events.New(m.Event.Run, events.TeacherScoredType, m.Event.Entity, said.Teacher, said)
	if err != nil {
		return fact, false, err
	}
	return m.Log.Behind(ctx, fact, m.Time)
}

// ask has a teacher score each sample of the rollout, or each hint's span, and stores what it says.
func (s *Service) ask(ctx context.Context, run string, t runfile.Teacher, said *events.TeacherScored, w work) error {
	data, err := storage.GetBlob(ctx, s.store, w.trajectory)
	if err != nil {
		return fmt.Errorf("trajectory: %w", err)
	}
	trajectory, err := storage.DecodeTrajectory(data)
	if err != nil {
		return fmt.Errorf("trajectory: %w", err)
	}
	prompts, err := w.prompts(trajectory.Samples())
	if err != nil {
		return err
	}
	client := inference.Client{HTTP: teacherHTTP, APIKey: s.keys.Key(run, t.URL)}
	var all [][]float32
	for _, p := range prompts {
		tokens, err := p.tokens(ctx, client, t)
		if err != nil {
			return err
		}
		score, err := scoreOne(ctx, client, t, tokens)
		if err != nil {
			return err
		}
		values := score.Logprobs[len(score.Logprobs)-p.wanted:]
		all = append(all, values)
		said.Tokens += len(values)
		if score.Model != "" {
			said.Model = score.Model
		}
		if score.Version != "" {
			said.Version = score.Version
		}
	}
	ref, err := storage.PutBlob(ctx, s.store, events.PackLogprobs(all))
	said.Logprobs = &ref
	return err
}

func scoreOne(ctx context.Context, client inference.Client, t runfile.Teacher,
	tokens []int32) (inference.Score, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return client.Score(ctx, t, tokens)
}

// maxFailed bounds the text of a failure, in bytes.
const maxFailed = 900

func clip(err error) string {
	text := err.Error()
	if len(text) > maxFailed {
		text = strings.ToValidUTF8(text[:maxFailed], "") + "…"
	}
	return text
}
