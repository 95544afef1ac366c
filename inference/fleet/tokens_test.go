package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// TestFullPromptsAreNoFailures: prompts that are counted and do not fit say nothing of their
// server, however many there are.
func TestFullPromptsAreNoFailures(t *testing.T) {
	s := tokenstest.New(t, "Qwen3", nil)
	s.Say = func(string) (string, string) { return s.Template.Answer("Hm.", "Done.", ""), "" }
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(context int) (*Answer, error) {
		cfg := runfile.DefaultRunConfig()
		cfg.Policy, cfg.Endpoint, cfg.EndpointAPI, cfg.Limits.Context = "m", s.URL+"/v1", runfile.APITokens, context
		return f.Complete(t.Context(), Call{
			Run: "r", Config: &cfg, Affinity: "a", Fit: true, Sampling: cfg.Sampling, Until: time.Now(),
			Tokens: func(model string) inference.Conversation {
				return inference.Conversation{Request: inference.Request{
					Model: model, Messages: []inference.Message{{Role: "user", Content: "Mend it."}},
					Sample: inference.NewSample(cfg.Sampling), Logprobs: true,
				}}
			},
		})
	}
	for range 2 * tripAfter {
		var full *inference.Failure
		if _, err := ask(5); !errors.As(err, &full) || full.Overflow == nil || full.Overflow.Limit != 5 ||
			full.Overflow.Prompt < 5 || !full.Permanent {
			t.Fatalf("a prompt that does not fit: %v", err)
		}
	}
	answer, err := ask(0)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Done()
	if turn := s.Turns(); len(turn) != 1 || answer.Turn.PromptTokens != len(turn[0].Prompt) ||
		answer.ContextLimit != 0 {
		t.Errorf("the server sampled %d turns, and the last is %+v", len(turn), answer.Turn)
	}
}

// TestBegunElsewhere: what a server of another kind has begun cannot be gone on with, which says
// nothing of the server that is asked for the rest.
func TestBegunElsewhere(t *testing.T) {
	s := tokenstest.New(t, "Qwen3", func(string) (string, string) { return "Done.", "" })
	f, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	var begun *events.UnderWay
	ask := func(caller int) error {
		cfg := runfile.DefaultRunConfig()
		cfg.Policy, cfg.Endpoint, cfg.EndpointAPI = "m", s.URL+"/v1", runfile.APITokens
		answer, err := f.Complete(t.Context(), Call{
			Run: "r", Config: &cfg, Affinity: fmt.Sprint(caller), Sampling: cfg.Sampling, Until: time.Now(),
			Tokens: func(model string) inference.Conversation {
				return inference.Conversation{Begun: begun,
					Request: inference.Request{Model: model, Sample: inference.NewSample(cfg.Sampling), Logprobs: true,
						Messages: []inference.Message{{Role: "user", Content: "Mend it."}}},
					Piece: func(context.Context, events.PieceSampled) error { return nil }}
			},
		})
		if err == nil {
			answer.Done()
		}
		return err
	}
	if err := ask(0); err != nil {
		t.Fatal(err)
	}
	if begun, err = begun.Add(events.PieceSampled{
		Prompt: events.PromptDigest(s.Turns()[0].Prompt), Engine: inference.EngineSGLang,
		TokenIDs: []int32{9}, Logprobs: []float32{-1}, StartedAt: time.Unix(1, 0),
		VersionSpans: []events.VersionSpan{{Version: 4, End: 1}},
	}); err != nil {
		t.Fatal(err)
	}
	for caller := range 2 * tripAfter {
		if err := ask(caller); !errors.Is(err, inference.ErrBegun) {
			t.Fatalf("begun elsewhere: %v", err)
		}
	}
	if r := f.replicas[s.URL+"/v1"]; r == nil || r.failures != 0 || r.inFlight != 0 || r.open {
		t.Errorf("the server is remembered as %+v", r)
	}
}

// TestVersionsOfPieces: what is recorded of an answer under way keeps the version that it was asked
// for by name, and the rest has its own. Without a stated version the rest has the one that the run
// pins, as a whole turn has; a server that reports another one in the end is still found out.
func TestVersionsOfPieces(t *testing.T) {
	for name, c := range map[string]struct {
		pinned *int64
		says   string // the server, at the end of an answer
		pieces int64
		want   []events.VersionSpan
		wrong  string
	}{
		"by name": {nil, "7", 2, []events.VersionSpan{{Version: 2, End: 16},
			{Version: 3, Start: 16, End: 1 << 20}}, ""},
		"pinned":         {new(int64(7)), "7", runfile.UnknownVersion, nil, ""},
		"pinned, untold": {new(int64(7)), "default", runfile.UnknownVersion, nil, ""},
		"pinned, another": {new(int64(7)), "8", runfile.UnknownVersion, nil,
			"serves version 7 and then version 8 of p; the run pins version 7"},
	} {
		t.Run(name, func(t *testing.T) {
			s := tokenstest.New(t, "Qwen3", func(string) (string,
				string) {
				return strings.Repeat("so we go ", 10) + ".", ""
			})
			s.Change = func(path string, answer map[string]any) {
				if list, is := answer["choices"].([]any); is && strings.HasSuffix(path, "/generate") {
					choice := list[0].(map[string]any)
					choice["weight_versions"] = []any{map[string]any{"version": c.says, "start": 0,
						"end": len(choice["token_ids"].([]int32))}}
				}
			}
			cuts := []int{16}
			s.Cut = func(sent int) bool {
				if len(cuts) == 0 || sent < cuts[0] {
					return false
				}
				cuts = nil
				return true
			}
			f, err := New(DefaultOptions())
			if err != nil {
				t.Fatal(err)
			}
			isPublished(t, f, 3)
			var begun *events.UnderWay
			ask := func(version int64) (*Answer, error) {
				said(t, f, events.WeightsActivatedType,
					events.WeightsActivated{Version: version, Replica: s.URL + "/v1",
						Model: fmt.Sprintf("p@%d", version)})
				cfg := runfile.DefaultRunConfig()
				cfg.Policy, cfg.Endpoint, cfg.EndpointAPI, cfg.PolicyVersion = "p", s.URL+"/v1",
					runfile.APITokens, c.pinned
				return f.Complete(t.Context(), Call{
					Run: "r", Config: &cfg, Affinity: "a", Sampling: cfg.Sampling,
					Version: cfg.AssumedVersion(), Until: time.Now(),
					Tokens: func(model string) inference.Conversation {
						return inference.Conversation{
							Request: inference.Request{Model: model,
								Messages: []inference.Message{{Role: "user", Content: "Go."}},
								Sample:   inference.NewSample(cfg.Sampling), Logprobs: true},
							Begun: begun, Piece: func(_ context.Context, p events.PieceSampled) (err error) {
								begun, err = begun.Add(p)
								return err
							},
						}
					},
				})
			}
			if _, err := ask(2); err == nil || begun == nil || len(begun.TokenIDs) != 16 || len(begun.Versions) != 1 ||
				begun.Versions[0].Version != c.pieces {
				t.Fatalf("recorded are %+v: %v", begun, err)
			}
			answer, err := ask(3)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%v, want %q", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Done()
			turn := answer.Turn
			for i := range c.want {
				c.want[i].End = min(c.want[i].End, len(turn.TokenIDs))
			}
			if !slices.Equal(turn.VersionSpans, c.want) || c.pinned != nil && turn.PolicyVersion != *c.pinned ||
				len(turn.TokenIDs) <= 16 {
				t.Errorf("%d tokens have the versions %+v, the oldest %d", len(turn.TokenIDs),
					turn.VersionSpans, turn.PolicyVersion)
			}
		})
	}
}
