package generator

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/probe/probetest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// fields are those of requests that a server got, beside messages and tools.
type fields struct {
	mu   sync.Mutex
	list []map[string]any
}

// keep remembers a request's fields, and answers.
func (f *fields) keep(t *testing.T, then func(w http.ResponseWriter, body map[string]any)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // it does not tell how long its context is
			http.NotFound(w, r)
			return
		}
		body := map[string]any{}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		f.mu.Lock()
		f.list = append(f.list, body)
		f.mu.Unlock()
		then(w, body)
	})
}

func (f *fields) seen() []map[string]any {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]map[string]any(nil), f.list...)
}

// TestSamplingIsSent: all that a run sets reaches the server under the names of each
// kind of server, so that nothing falls through to the model's
// generation_config.json, and stands in the turn.
func TestSamplingIsSent(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	for name, c := range map[string]struct {
		change func(*runfile.RunConfig)
		want   map[string]any
		absent []string
		system string
	}{
		"neutral": {nil, map[string]any{
			"temperature": 1.0, "max_tokens": 4096.0, "top_p": 1.0, "top_k": -1.0, "min_p": 0.0,
			"repetition_penalty": 1.0, "repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
		}, []string{"stop", "chat_template_kwargs"},
			"You are a coding agent. The repository is your working directory, /app."},
		"set": {func(c *runfile.RunConfig) {
			c.Sampling.TopK, c.Sampling.RepetitionPenalty, c.Sampling.Stop = new(20), new(1.1), []string{"end"}
			c.Sampling.ChatTemplateKwargs = map[string]any{"enable_thinking": false}
			c.SystemPrompt = "Work in {workdir}."
		}, map[string]any{"top_k": 20.0, "repetition_penalty": 1.1, "repeat_penalty": 1.1, "stop": []any{"end"},
			"chat_template_kwargs": map[string]any{"enable_thinking": false}}, nil, "Work in /app."},
		"left-to-the-server": {func(c *runfile.RunConfig) { c.Sampling.TopP = nil }, map[string]any{"top_k": -1.0},
			[]string{"top_p"}, "You are"},
		"all-left-to-the-server": {func(c *runfile.RunConfig) {
			c.Sampling = runfile.Sampling{Temperature: 0.5, MaxTokens: 10}
		}, map[string]any{"temperature": 0.5, "max_tokens": 10.0},
			[]string{"top_p", "top_k", "min_p", "repetition_penalty", "repeat_penalty", "presence_penalty",
				"frequency_penalty"}, "You are a coding agent. The repository is your working directory, /app."},
		"no-system-prompt": {func(c *runfile.RunConfig) { c.SystemPrompt = "" }, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var f fields
			e := serve(t, text(final))
			e.Config.Handler = f.keep(t, func(w http.ResponseWriter, _ map[string]any) { w.Write([]byte(final)) })
			open(t, log, name, e.URL, c.change)
			_, trajectory := finished(t, log, name)
			body := f.seen()[0]
			for field, want := range c.want {
				if !reflect.DeepEqual(body[field], want) {
					t.Errorf("%s: %s is %v, want %v", name, field, body[field], want)
				}
			}
			for _, field := range c.absent {
				if value, ok := body[field]; ok {
					t.Errorf("%s: %s is sent as %v", name, field, value)
				}
			}
			first := body["messages"].([]any)[0].(map[string]any)
			if system := first["role"] == "system"; system != (c.system != "") ||
				system && !strings.HasPrefix(first["content"].(string), c.system) ||
				trajectory.Messages[0].Role != first["role"] || trajectory.Messages[0].Content != first["content"] {
				t.Errorf("%s: the conversation begins with %v, the trajectory with %+v", name,
					first, trajectory.Messages[0])
			}
			cfg, err := log.Config(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			turn := turns(t, log, name, 1)[0]
			if old := name == "from-before"; (turn.Sampling == nil) != old ||
				!old && !reflect.DeepEqual(*turn.Sampling, cfg.Sampling) {
				t.Errorf("%s: the turn was sampled with %+v, the run says %+v", name, turn.Sampling, cfg.Sampling)
			}
		})
	}
}

// TestStrictServer: OpenAI's own API refuses fields that it does not know. It is asked again
// without those that ask for nothing, once, and the turn says what it was sampled with. A parameter
// that would change the distribution is never left out in silence.
func TestStrictServer(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	known := []string{"model", "messages", "tools", "temperature", "max_tokens", "top_p", "presence_penalty",
		"frequency_penalty", "stop", "seed", "logprobs", "top_logprobs"}
	strict := func(w http.ResponseWriter, body map[string]any) {
		for field := range body {
			if !strings.Contains(strings.Join(known, " "), field) {
				http.Error(w, `{"error":{"message":"Unrecognized request argument supplied: `+field+
					`","type":"invalid_request_error"}}`, http.StatusBadRequest)
				return
			}
		}
		w.Write([]byte(`{"choices":[{"finish_reason":"stop","message":{"content":"Done."}}],"usage":{"prompt_tokens":30,"completion_tokens":2}}`))
	}
	for name, c := range map[string]struct {
		change func(*runfile.RunConfig)
		fails  string
	}{
		"neutral": {nil, ""},
		"top-k":   {func(c *runfile.RunConfig) { c.Sampling.TopK = new(20) }, "top_k is 20"},
		"template": {func(c *runfile.RunConfig) { c.Sampling.ChatTemplateKwargs = map[string]any{"a": 1} },
			"chat_template_kwargs"},
	} {
		t.Run(name, func(t *testing.T) {
			var f fields
			e := serve(t, text(final))
			e.Config.Handler = f.keep(t, strict)
			open(t, log, name, e.URL, c.change)
			if c.fails != "" {
				failed := servicetest.WaitData[events.RolloutFailed](t, log, name, events.RolloutFailedType, rollout)
				if !strings.Contains(failed.Message, c.fails) || len(f.seen()) != 1 {
					t.Errorf("%s: after %d requests failed as %+v", name, len(f.seen()), failed)
				}
				return
			}
			finished(t, log, name)
			if n := len(f.seen()); n != 2 {
				t.Errorf("%s: the server was asked %d times, want one more without the fields that it refused", name, n)
			}
			turn := turns(t, log, name, 1)[0]
			if s := turn.Sampling; s == nil || s.TopK != nil || s.RepetitionPenalty != nil || *s.TopP != 1 {
				t.Errorf("%s: the turn says that it was sampled with %+v", name, s)
			}
			servicetest.StartRollout(t, log, name, "g000001-1", "a")
			servicetest.WaitData[events.RolloutFinished](t, log, name, events.RolloutFinishedType, "g000001-1")
			if n := len(f.seen()); n != 3 {
				t.Errorf("%s: known as strict, the server was asked %d times in all", name, n)
			}
		})
	}
}

// TestRawLogprobs: the first turn of a run finds out of which distribution the log-probabilities
// are. Where that is another one than was sampled, turns are not trained on, and say why; neutral
// sampling and evaluations are not asked about.
func TestRawLogprobs(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	warm := func(c *runfile.RunConfig) { c.Sampling.Temperature = 0.7 }
	for name, c := range map[string]struct {
		lacks  probetest.Lacks
		change func(*runfile.RunConfig)
		masked bool
	}{
		"raw-and-warm": {probetest.Lacks{Raw: true}, warm, true},
		"raw-and-truncated": {probetest.Lacks{Raw: true},
			func(c *runfile.RunConfig) { c.Sampling.TopP = new(0.9) }, true},
		"raw-and-neutral":    {probetest.Lacks{Raw: true}, nil, false},
		"processed-and-warm": {probetest.Lacks{}, warm, false},
		"unknown-and-warm":   {probetest.Lacks{Raw: true, NoTop: true}, warm, false},
		"an-evaluation": {probetest.Lacks{Raw: true},
			func(c *runfile.RunConfig) { c.Sampling.Temperature, c.Epochs, c.Feeds = 0.7, 1, nil }, false},
		"temperature-alone": {probetest.Lacks{Raw: true},
			func(c *runfile.RunConfig) { c.Sampling = runfile.Sampling{Temperature: 0.7, MaxTokens: 100} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			open(t, log, name, probetest.Server(t, probetest.VLLM, c.lacks).URL, c.change)
			turn := turns(t, log, name, 1)[0]
			if turn.TextOnly != c.masked || slices.Contains(turn.Lacks, events.LackProcessed) != c.masked ||
				(len(turn.TokenIDs) == 0) != c.masked {
				t.Errorf("%s: text only %v, lacks %v, %d tokens", name, turn.TextOnly, turn.Lacks, len(turn.TokenIDs))
			}
		})
	}
}
