package generator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/eventlog"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/topology"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/pipeline"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// writer is a server whose model writes one long answer, and goes on with what it has written of
// it. Its connections break behind so many tokens each, as long as cuts has any.
type writer struct {
	*tokenstest.Server
	text string
	mu   sync.Mutex
	cuts []int
}

func newWriter(t *testing.T, cuts ...int) *writer {
	t.Helper()
	return writerOf(t, tokenstest.New(t, "Qwen3", nil), cuts...)
}

func writerOf(t *testing.T, s *tokenstest.Server, cuts ...int) *writer {
	t.Helper()
	w := &writer{Server: s, text: tokenstest.Templates["Qwen3"].Answer(strings.Repeat("I think of it. ", 120),
		"All is read.", ""), cuts: cuts}
	w.Say = func(prompt string) (string, string) {
		_, begun, _ := strings.Cut(prompt, w.Template.Prompt)
		return w.text[len(begun):], ""
	}
	w.Cut = func(sent int) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.cuts) == 0 || sent < w.cuts[0] {
			return false
		}
		w.cuts = w.cuts[1:]
		return true
	}
	return w
}

// pieces are those of the rollout.
func pieces(t *testing.T, log *eventlog.Log, run string) (list []events.PieceSampled) {
	t.Helper()
	for _, e := range servicetest.All(t, log, run, events.PieceSampledType) {
		list = append(list, servicetest.Data[events.PieceSampled](t, e))
	}
	return list
}

// checkWritten checks the one turn of a writer's rollout: it is the whole answer, and begins with
// what was recorded of it, behind which each further request went on.
func checkWritten(t *testing.T, log *eventlog.Log, w *writer, run string, parts int) {
	t.Helper()
	f, trajectory := finished(t, log, run)
	turn := turns(t, log, run, 1)[0]
	if w.Tokenizer.Decode(turn.TokenIDs) != w.text || turn.Content != "All is read." || turn.Parts != parts ||
		f.Samples != 1 || f.TextOnly {
		t.Errorf("the turn has %d tokens in %d parts, ends with %q, and is %d samples", len(turn.TokenIDs), turn.Parts,
			turn.Content, f.Samples)
	}
	var ids []int32
	var logprobs []float32
	for i, p := range pieces(t, log, run) {
		if p.Offset != len(ids) || p.Prompt != events.PromptDigest(turn.PromptDelta) {
			t.Errorf("piece %d begins at token %d, %d are recorded before", i, p.Offset, len(ids))
		}
		ids, logprobs = append(ids, p.TokenIDs...), append(logprobs, p.Logprobs...)
	}
	if len(ids) == 0 || !slices.Equal(turn.TokenIDs[:len(ids)], ids) ||
		!slices.Equal(turn.Logprobs[:len(ids)], logprobs) {
		t.Errorf("the turn does not begin with the %d tokens that are recorded of it", len(ids))
	}
	if sample := trajectory.Samples()[0]; !slices.Equal(sample.Tokens,
		slices.Concat(turn.PromptDelta, turn.TokenIDs)) ||
		!slices.Equal(sample.SamplerLogprobs[len(turn.PromptDelta):], turn.Logprobs) {
		t.Error("the sample has other tokens than the turn")
	}
	for i, asked := range w.Turns() {
		if n := len(asked.Prompt); n > len(turn.PromptDelta)+len(ids) ||
			!slices.Equal(asked.Prompt, sampleOf(turn)[:n]) {
			t.Errorf("request %d went on behind tokens that are not recorded", i)
		}
	}
}

func sampleOf(t events.TurnSampled) []int32 { return slices.Concat(t.PromptDelta, t.TokenIDs) }

// TestEngineKilled: an engine that dies again and again, more often than a stage is tried, costs no
// token that it has sent, and no other delivery.
func TestEngineKilled(t *testing.T) {
	log := natstest.Log(t)
	for run, as := range map[string]func(*tokenstest.Server) *tokenstest.Server{
		"vllm": func(s *tokenstest.Server) *tokenstest.Server { return s }, "sglang": (*tokenstest.Server).SGLang,
		"llamacpp": (*tokenstest.Server).LlamaCPP,
	} {
		w := writerOf(t, as(tokenstest.New(t, "Qwen3", nil)), 72, 80, 64, 96)
		open(t, log, run, w.URL, byTokensOnly)
		if err := record(t, log, service(t, log), servicetest.All(t, log, run,
			events.RolloutStartedType)[0]); err != nil {
			t.Fatal(err)
		}
		checkWritten(t, log, w, run, 5)
		if n := len(servicetest.All(t, log, run, events.RolloutRetriedType)); n <= tries {
			t.Errorf("%s: only %d failed tries are on the log", run, n)
		}
	}
	short := thinker(t, "Qwen3", 0)
	open(t, log, "short", short.URL, byTokensOnly)
	start(t, log, nil)
	finished(t, log, "short")
	if n := len(pieces(t, log, "short")); n > 0 {
		t.Errorf("a short answer has %d pieces", n)
	}
}

// TestEngineDiesAtOnce: an engine that gives a few tokens in each try and dies is given up
// behind as many tries as any.
func TestEngineDiesAtOnce(t *testing.T) {
	log := natstest.Log(t)
	w := newWriter(t, slices.Repeat([]int{8}, 2*tries)...)
	open(t, log, "r", w.URL, byTokensOnly)
	s, begin := service(t, log), servicetest.All(t, log, "r", events.RolloutStartedType)[0]
	for try := 1; try <= tries; try++ {
		if err := record(t, log, s, begin); (err == nil) != (try == tries) {
			t.Fatalf("try %d: %v", try, err)
		}
	}
	if failed := servicetest.All(t, log, "r", events.RolloutFailedType); len(failed) != 1 ||
		len(pieces(t, log, "r")) != tries {
		t.Errorf("%d pieces, and failures %v", len(pieces(t, log, "r")), servicetest.IDs(failed))
	}
}

// TestGeneratorKilled: a generator that dies within an answer costs the piece under way, and the
// next one goes on behind those that are recorded.
func TestGeneratorKilled(t *testing.T) {
	log := natstest.Log(t)
	w := newWriter(t)
	open(t, log, "r", w.URL, byTokensOnly)
	begin := servicetest.All(t, log, "r", events.RolloutStartedType)[0]
	dying := service(t, log)
	for _, lives := range []int{0, 1} { // pieces that it states
		stated := 0
		killed := errors.New("killed")
		err := pipeline.Effect{Name: topology.Generator,
			Handle: func(ctx context.Context, m pipeline.Message) ([]events.Event, error) {
				state := m.State
				m.State = func(ctx context.Context, e events.Event) (events.Event, error) {
					if stated++; stated > lives {
						return e, killed
					}
					return state(ctx, e)
				}
				_, err := dying.Handle(ctx, m)
				return nil, errors.Join(killed, err)
			}}.Record(t.Context(), pipeline.Env{Log: log}, messageOf(log, begin))
		if !errors.Is(err, killed) || len(servicetest.All(t, log, "r", events.TurnSampledType)) > 0 ||
			len(pieces(t, log, "r")) != lives {
			t.Fatalf("%d pieces: %v", len(pieces(t, log, "r")), err)
		}
	}
	if err := record(t, log, service(t, log), begin); err != nil {
		t.Fatal(err)
	}
	checkWritten(t, log, w, "r", 2)
}

// TestPieceOvertaken: a rollout that is over in the middle of an answer gets no
// turn, and its request ends.
func TestPieceOvertaken(t *testing.T) {
	log := natstest.Log(t)
	w := newWriter(t)
	open(t, log, "r", w.URL, byTokensOnly)
	begin := servicetest.All(t, log, "r", events.RolloutStartedType)[0]
	s := service(t, log)
	calls := 0
	err := pipeline.Effect{Name: topology.Generator, Handle: func(ctx context.Context,
		m pipeline.Message) ([]events.Event, error) {
		if calls++; calls == 1 {
			servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutAnnotatedType, rollout,
				"x", events.RolloutAnnotated{Text: "seen"}))
		}
		state := m.State
		m.State = func(ctx context.Context, e events.Event) (events.Event, error) {
			if calls == 1 {
				servicetest.Append(t, log, servicetest.Event(t, "r", events.RolloutFailedType, rollout,
					"0", events.RolloutFailed{Stage: events.StageGenerator, Class: events.ClassDeadline}))
			}
			return state(ctx, e)
		}
		return s.Handle(ctx, m)
	}}.Record(t.Context(), pipeline.Env{Log: log}, messageOf(log, begin))
	if err != nil || calls != 2 || len(servicetest.All(t, log, "r", events.TurnSampledType)) > 0 ||
		len(pieces(t, log, "r")) > 0 {
		t.Errorf("%d calls: %v", calls, err)
	}
}

// TestUnresumable: an answer that cannot be gone on with is asked for as a whole.
func TestUnresumable(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	half := 0.5
	for name, c := range map[string]struct {
		change func(*runfile.RunConfig)
		asked  int
	}{
		"resumable":          {func(*runfile.RunConfig) {}, 2}, // the server refuses the stream
		"repetition-penalty": {func(c *runfile.RunConfig) { c.Sampling.RepetitionPenalty = &half }, 2},
		"presence-penalty":   {func(c *runfile.RunConfig) { c.Sampling.PresencePenalty = &half }, 1},
		"frequency-penalty":  {func(c *runfile.RunConfig) { c.Sampling.FrequencyPenalty = &half }, 1},
		"stop-text":          {func(c *runfile.RunConfig) { c.Sampling.Stop = []string{"END"} }, 1},
		"grammar": {func(c *runfile.RunConfig) {
			c.Sampling.ExtraBody = map[string]any{"structured_outputs": map[string]any{}}
		}, 1},
		"repetition-detection": {func(c *runfile.RunConfig) {
			c.Sampling.ExtraBody = map[string]any{"repetition_detection": map[string]any{}}
		}, 1},
		"stop-regex": {func(c *runfile.RunConfig) {
			c.Sampling.ExtraBody = map[string]any{"stop_regex": "END"}
		}, 1},
		"predict-time": {func(c *runfile.RunConfig) {
			c.Sampling.ExtraBody = map[string]any{"t_max_predict_ms": 60_000}
		}, 1},
		"columns": {func(c *runfile.RunConfig) { c.TokenColumns = &runfile.TokenColumns{TopLogprobs: 2} }, 1},
	} {
		s := thinker(t, "Qwen3", 0)
		s.Streams = tokenstest.RefusesStream
		open(t, log, name, s.URL, func(cfg *runfile.RunConfig) {
			byTokensOnly(cfg)
			c.change(cfg)
		})
		finished(t, log, name)
		if n := s.Requests("/inference/v1/generate"); n != c.asked {
			t.Errorf("%s: the server was asked %d times, want %d", name, n, c.asked)
		}
	}
}
