package gateway

import (
	"net/http"
	"reflect"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestSamplingParameters: what the run sets is sent whatever a harness asks for, what it leaves out
// is the harness's, and both stand in the turn: how it was sampled, and what the harness asked for.
func TestSamplingParameters(t *testing.T) {
	t.Parallel()
	asks := map[string]any{
		"messages": []message{user("a")}, "temperature": 0.2, "top_p": 0.5, "top_k": 7, "repetition_penalty": 1.3,
		"stop": "end", "chat_template_kwargs": map[string]any{"enable_thinking": false},
	}
	requested := map[string]any{"temperature": 0.2, "top_p": 0.5, "top_k": 7.0, "repetition_penalty": 1.3,
		"stop": "end", "chat_template_kwargs": map[string]any{"enable_thinking": false}}
	kwargs := map[string]any{"enable_thinking": false}
	for name, c := range map[string]struct {
		change func(*runfile.Sampling)
		want   func(*runfile.Sampling) // beside neutral sampling
	}{
		"the run's": {func(*runfile.Sampling) {}, func(s *runfile.Sampling) {
			s.Stop,
				s.ChatTemplateKwargs = []string{"end"}, kwargs
		}},
		"forced": {func(s *runfile.Sampling) { s.Stop, s.ChatTemplateKwargs = []string{}, map[string]any{} },
			func(s *runfile.Sampling) {
				s.Stop, s.ChatTemplateKwargs = []string{}, map[string]any{}
			}},
		"left to the harness": {func(s *runfile.Sampling) { s.TopP, s.TopK = nil, nil }, func(s *runfile.Sampling) {
			s.TopP, s.TopK, s.Stop, s.ChatTemplateKwargs = new(0.5), new(7), []string{"end"}, kwargs
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, counts)
			p := newPlane(t, b.url, func(cfg *runfile.RunConfig) { c.change(&cfg.Sampling) })
			m := p.start(nil)
			p.post(m.chat(), asks, http.StatusOK, nil)
			want := runfile.NeutralSampling()
			c.want(&want)
			turn := p.rollout(m).Turns[0]
			if turn.Sampling == nil || !reflect.DeepEqual(*turn.Sampling, want) ||
				!reflect.DeepEqual(turn.Requested, requested) {
				t.Errorf("the turn has %+v, want %+v; requested %v", turn.Sampling, want, turn.Requested)
			}
			a := b.seen()[0]
			if a.Temperature != 1 || !reflect.DeepEqual(a.TopP, want.TopP) || !reflect.DeepEqual(a.TopK, want.TopK) ||
				!reflect.DeepEqual(a.MinP, want.MinP) ||
				!reflect.DeepEqual(a.Repetition, want.RepetitionPenalty) || (a.Stop != nil) != (len(want.Stop) > 0) ||
				(a.Template != nil) != (len(want.ChatTemplateKwargs) > 0) {
				t.Errorf("the server was asked %+v", a)
			}
		})
	}
}

// TestWrongSamplingParameters: what a harness may set is held to the same ranges, and what it may
// not set is only recorded.
func TestWrongSamplingParameters(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	p := newPlane(t, b.url, func(cfg *runfile.RunConfig) { cfg.Sampling.TopP = nil })
	m := p.start(nil)
	for _, wrong := range []any{1.5, "much", []int{1}} {
		p.post(m.chat(), map[string]any{"messages": []message{user("a")}, "top_p": wrong}, http.StatusBadRequest, nil)
	}
	p.post(m.chat(), map[string]any{"messages": []message{user("a")}, "top_k": "seven"}, http.StatusOK, nil)
	if n := len(b.seen()); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}
