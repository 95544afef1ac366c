package gateway

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/fleet"
	"github.com/rondo-rl/rondo/services/gateway/fields"
)

// chooseSampling decides how a call samples: as the run says, and where the run leaves a parameter
// out, as the harness does.
func (a *ask) chooseSampling(run runfile.Sampling) error {
	s := run
	if a.MaxTokens > 0 {
		s.MaxTokens = min(a.MaxTokens, s.MaxTokens)
	}
	invalid := func(err error) error { return problem(http.StatusBadRequest, "invalid_request_error", "%v", err) }
	h := a.settings
	var wrong error
	s.TopP, s.MinP = or(s.TopP, h, "top_p", &wrong), or(s.MinP, h, "min_p", &wrong)
	s.TopK = or(s.TopK, h, "top_k", &wrong)
	s.RepetitionPenalty = or(s.RepetitionPenalty, h, "repetition_penalty", &wrong)
	s.PresencePenalty, s.FrequencyPenalty = or(s.PresencePenalty, h, "presence_penalty", &wrong),
		or(s.FrequencyPenalty, h, "frequency_penalty", &wrong)
	if s.ChatTemplateKwargs == nil {
		if kwargs := or[map[string]any](nil, h, "chat_template_kwargs", &wrong); kwargs != nil {
			s.ChatTemplateKwargs = *kwargs
		}
	}
	if wrong != nil {
		return invalid(wrong)
	}
	if raw, ok := a.Forward["stop"]; ok {
		a.stops = stops(raw)
		delete(a.Forward, "stop")
	}
	if s.Stop == nil {
		s.Stop = a.stops
	}
	if a.server != nil { // whether it takes them is not known, and nothing depends on them
		s = inference.OnlyOpenAI(s)
	}
	if err := s.Validate(); err != nil {
		return invalid(err)
	}
	a.sampling, a.fields = s, nil
	delete(a.Forward, "chat_template_kwargs")
	text, err := json.Marshal(inference.NewSample(s))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &a.fields)
}

// or is the run's value, or else the harness's, nil where it has none.
func or[T any](run *T, harness map[string]json.RawMessage, name string, wrong *error) *T {
	raw, ok := harness[name]
	if run != nil || !ok || string(raw) == "null" {
		return run
	}
	value := new(T)
	if err := json.Unmarshal(raw, value); err != nil {
		*wrong = fmt.Errorf("%s: %w", name, err)
	}
	return value
}

// stops reads a text, or a list of texts.
func stops(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil && one != "" {
		return []string{one}
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

// noteSampling records how a turn was sampled, and what the harness asked for.
func (a *ask) noteSampling(turn *events.TurnSampled, sampled *fleet.Answer) {
	s := a.sampling
	if turn.ContextLimit = sampled.ContextLimit; turn.ContextLimit > 0 {
		s.MaxTokens = sampled.MaxTokens
	}
	if sampled.Plain {
		s = inference.OnlyOpenAI(s)
	}
	turn.Sampling, turn.Requested, turn.Constrained = &s, a.requested,
		append(fields.Constraints(a.Forward), s.Constraints()...)
}

// seed is what the model samples a call with, until done is called. It follows from the rollout's
// seed, the turns that it has had and the conversation, so that a call that is repeated samples
// the same again, and calls that a harness makes at once do not. Two at once with the same
// conversation are counted.
func (g *Gateway) seed(ro *rollout, a *ask) (seed int64, done func(), err error) {
	text := sha256.New()
	fmt.Fprintf(text, "%s/%d/%d/", name(ro.Run, ro.ID), ro.Started.Seed, len(ro.Turns)-ro.left)
	for _, m := range a.Conversation { // one after the other: all at once are as large as the conversation again
		if err := json.NewEncoder(text).Encode(m); err != nil {
			return 0, nil, err
		}
	}
	about := [sha256.Size]byte(text.Sum(nil))
	twin, done := g.twins.enter(about)
	sum := sha256.Sum256(fmt.Appendf(about[:], "/%d", twin))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 2), done, nil
}

// twins tell calls apart that are the same and under way at once.
type twins struct {
	mu  sync.Mutex
	are map[[sha256.Size]byte]map[int]bool
}

// enter gives the lowest number that none of a call's twins has; leave gives it back.
func (t *twins) enter(about [sha256.Size]byte) (number int, leave func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.are == nil {
		t.are = map[[sha256.Size]byte]map[int]bool{}
	}
	if t.are[about] == nil {
		t.are[about] = map[int]bool{}
	}
	for t.are[about][number] {
		number++
	}
	t.are[about][number] = true
	return number, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if delete(t.are[about], number); len(t.are[about]) == 0 {
			delete(t.are, about)
		}
	}
}
