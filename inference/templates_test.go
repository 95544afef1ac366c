package inference

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// published is a conversation as a published template and tokenizer have it:
// `tests/adapters/run templates` records it, and holds it to the package renderers.
type published struct {
	Messages []json.RawMessage
	// Turns are the model's: how many messages they follow, what their prompt adds to the tokens
	// before it, and what was sampled. The last one is a prompt alone.
	Turns []struct {
		Messages int
		Added    []int32
		Sampled  []int32
		Unsure   bool
	}
	// Renderings are those that turns need, each with what it shares with the one before it.
	Renderings []struct {
		Messages int
		Answers  string
		Prompts  bool
		Same     int
		IDs      []int32

		whole []int32
	}
}

// readPublished are the recorded conversations, by the names of their templates.
func readPublished(t *testing.T) map[string]*published {
	t.Helper()
	files, err := filepath.Glob("testdata/templates/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	read := map[string]*published{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p published
		if err := json.Unmarshal(text, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var before []int32
		for i := range p.Renderings {
			r := &p.Renderings[i]
			r.whole = slices.Concat(before[:r.Same], r.IDs)
			before = r.whole
		}
		read[strings.TrimSuffix(filepath.Base(file), ".json")] = &p
	}
	return read
}

// number is that of the rendering of some messages in a request; -1 for none.
func (p *published) number(t *testing.T, asked *http.Request) int {
	var in struct {
		Messages []map[string]any
		Prompts  bool `json:"add_generation_prompt"`
	}
	if err := json.NewDecoder(asked.Body).Decode(&in); err != nil {
		t.Error(err)
	}
	for i, r := range p.Renderings {
		if r.Messages == len(in.Messages) && r.Prompts == in.Prompts &&
			reflect.DeepEqual(in.Messages, p.messages(t, r.Messages, r.Answers)) {
			return i
		}
	}
	t.Errorf("a rendering of %d messages (for an answer: %t) is asked for that is not recorded: record it with `tests/adapters/run templates`",
		len(in.Messages), in.Prompts)
	return -1
}

// messages are the first so many, whose answers are whole, plain (without thoughts)
// or standing (stand-ins).
func (p *published) messages(t *testing.T, n int, answers string) (list []map[string]any) {
	for _, m := range p.Messages[:n] {
		var fields map[string]any
		if err := json.Unmarshal(m, &fields); err != nil {
			t.Error(err)
		}
		if fields["role"] == roleAssistant && answers != "whole" {
			delete(fields, "reasoning")
			fields["content"] = strings.TrimLeft(fields["content"].(string), " \n")
		}
		if fields["role"] == roleAssistant && answers == "standing" {
			fields["content"] = mark
			calls, _ := fields["tool_calls"].([]any)
			for _, c := range calls {
				c.(map[string]any)["function"].(map[string]any)["arguments"] = "{}"
			}
		}
		list = append(list, fields)
	}
	return list
}

// serve renders as servers of all kinds do.
func (p *published) serve(t *testing.T) (url string) {
	mux := http.NewServeMux()
	rendering := func(field string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			i := p.number(t, r)
			if i < 0 {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			answer := map[string]any{field: p.Renderings[i].whole}
			if field == "prompt" {
				answer[field] = strconv.Itoa(i)
			}
			json.NewEncoder(w).Encode(answer)
		}
	}
	mux.HandleFunc("/v1/chat/completions/render", rendering("token_ids"))
	mux.HandleFunc("/v1/tokenize", rendering("tokens"))
	mux.HandleFunc("/apply-template", rendering("prompt"))
	mux.HandleFunc("/tokenize", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Content string }
		json.NewDecoder(r.Body).Decode(&in)
		i, err := strconv.Atoi(in.Content)
		if err != nil {
			t.Error(err)
		}
		json.NewEncoder(w).Encode(map[string]any{"tokens": p.Renderings[i].whole})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/v1"
}

// counting counts the renderings: the end of messages takes one of its own.
type counting struct {
	engine
	n int
}

func (c *counting) render(ctx context.Context, messages []Message, prompts bool) ([]int32, error) {
	c.n++
	return c.engine.render(ctx, messages, prompts)
}

func (c *counting) end(ctx context.Context, messages []Message, whole, sample []int32) (int, bool, error) {
	c.n++
	return c.engine.end(ctx, messages, whole, sample)
}

// TestPublishedTemplates: with the published templates of Qwen3, GLM, Kimi and DeepSeek, a rollout
// that thinks, calls tools and is told something in the middle is one sample. Each prompt is the
// one before, what was sampled, and what the template writes for the new messages, and takes one
// rendering where an answer of the same kind came before.
func TestPublishedTemplates(t *testing.T) {
	for name, p := range readPublished(t) {
		for _, engine := range []string{EngineVLLM, EngineSGLang, EngineLlamaCPP} {
			t.Run(name+" at "+engine, func(t *testing.T) {
				client, url := &Client{HTTP: http.DefaultClient}, p.serve(t)
				var known []int32
				var samples []Sampled
				var taken []int // renderings
				for i, turn := range p.Turns {
					var messages []Message
					for _, m := range p.Messages[:turn.Messages] {
						var message Message
						if err := json.Unmarshal(m, &message); err != nil {
							t.Fatal(err)
						}
						messages = append(messages, message)
					}
					conv := Conversation{Engine: engine, Request: Request{Messages: messages},
						Known: known, Samples: samples}
					share := answers.Share(url)
					e := &counting{engine: client.engine(url, conv, share, nil)}
					prompt, err := promptOf(t.Context(), e, conv)
					share.End()
					if err != nil {
						t.Fatal(err)
					}
					taken = append(taken, e.n)
					if want := slices.Concat(known, turn.Added); !slices.Equal(prompt, want) {
						t.Errorf("prompt %d has %d tokens, want %d, %s", i, len(prompt),
							len(want), differ(prompt, want))
					}
					known = slices.Concat(known, turn.Added, turn.Sampled)
					samples = append(samples, Sampled{len(known) - len(turn.Sampled), len(known),
						turn.Messages, turn.Unsure})
				}
				if want := []int{1, 2, 2, 1, 2, 1, 1, 1, 1, 2}; !slices.Equal(taken, want) {
					t.Errorf("the prompts take %v renderings, want %v: two behind the first answer with a call, with several and with none, and behind a cut one", taken, want)
				}
			})
		}
	}
}

// differ says where two lists differ first.
func differ(a, b []int32) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("which differ at %d: %v and %v", i, a[i:min(i+6, len(a))], b[i:min(i+6, len(b))])
		}
	}
	return fmt.Sprintf("which agree for %d", min(len(a), len(b)))
}
