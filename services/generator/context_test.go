package generator

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/natstest"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// engine is an inference server with a context of its own: each message of a prompt has perMessage
// tokens, and each turn asks for a tool.
type engine struct {
	*httptest.Server
	// refuse answers a request that does not fit, as a kind of server does; nil takes it, and lets
	// its answer end where the context does.
	refuse func(prompt, most, limit int) string
	limit  int
	models string // of /v1/models; "" is not found
	says   func(turn int) (calls bool, tokens int)

	mu    sync.Mutex
	asked []int // max_tokens of each request; 0 where it has none
	turns int
}

const perMessage = 10

func newEngine(t *testing.T, limit int, models string, refuse func(prompt, most, limit int) string) *engine {
	t.Helper()
	e := &engine{limit: limit, models: models, refuse: refuse, says: func(int) (bool, int) { return true, perMessage }}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		if e.models == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, e.models, e.limit)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var in inference.Request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		e.answer(w, in)
	})
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

// ids are the tokens of a prompt of so many: one prompt extends the other.
func ids(from, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = from + i
	}
	return list
}

func (e *engine) answer(w http.ResponseWriter, in inference.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	prompt, most := perMessage*len(in.Messages), in.MaxTokens
	e.asked = append(e.asked, most)
	if e.refuse != nil {
		if text := e.refuse(prompt, most, e.limit); text != "" {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, text)
			return
		}
	}
	calls, want := e.says(e.turns)
	e.turns++
	if most == 0 {
		most = e.limit - prompt
	}
	n, reason := min(want, most, e.limit-prompt), "stop"
	message := map[string]any{"role": "assistant", "content": "Done."}
	switch {
	case n < want:
		reason = "length"
	case calls:
		reason, message["tool_calls"] = "tool_calls", []any{map[string]any{"id": "c1", "type": "function",
			"function": map[string]any{"name": "read_file", "arguments": "{}"}}}
	}
	logprobs := make([]any, n)
	for i := range logprobs {
		logprobs[i] = map[string]any{"logprob": -1}
	}
	json.NewEncoder(w).Encode(map[string]any{
		"prompt_token_ids": ids(0, prompt),
		"choices": []any{map[string]any{"finish_reason": reason, "message": message,
			"token_ids": ids(prompt, n), "logprobs": map[string]any{"content": logprobs}}},
		"usage": map[string]any{"prompt_tokens": prompt, "completion_tokens": n},
	})
}

func (e *engine) seen() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]int(nil), e.asked...)
}

const (
	listVLLM  = `{"object":"list","data":[{"id":"small","object":"model","owned_by":"vllm","max_model_len":%d}]}`
	listLlama = `{"object":"list","data":[{"id":"small.gguf","object":"model","owned_by":"llamacpp","meta":{"n_ctx_train":131072,"n_ctx":%d}}]}`
)

// refuseVLLM refuses as vLLM does that counts the whole prompt.
func refuseVLLM(prompt, most, limit int) string {
	switch {
	case prompt >= limit:
		return fmt.Sprintf(`{"error":{"message":"This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages. None","type":"BadRequestError","param":null,"code":400}}`, limit, prompt)
	case prompt+most > limit:
		return fmt.Sprintf(`{"error":{"message":"'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d). None","type":"BadRequestError","param":null,"code":400}}`,
			most, limit, prompt, most, limit, prompt)
	}
	return ""
}

// refuseNewerVLLM stops counting the prompt behind the longest one that would fit.
func refuseNewerVLLM(prompt, most, limit int) string {
	if prompt+most <= limit && prompt < limit {
		return ""
	}
	return fmt.Sprintf(`{"error":{"message":"You passed %d input tokens and requested %d output tokens. However, the model's context length is only %d tokens, resulting in a maximum input length of %d tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=%d)","type":"BadRequestError","param":"input_tokens","code":400}}`,
		limit-most+1, most, limit, limit-most, limit-most+1)
}

func refuseSGLang(prompt, most, limit int) string {
	switch {
	case prompt >= limit:
		return fmt.Sprintf(`{"object":"error","message":"The input (%d tokens) is longer than the model's context length (%d tokens).","type":"BadRequestError","param":null,"code":400}`, prompt, limit)
	case prompt+most >= limit:
		return fmt.Sprintf(`{"object":"error","message":"Requested token count exceeds the model's maximum context length of %d tokens. You requested a total of %d tokens: %d tokens from the input messages and %d tokens for the completion. Please reduce the number of tokens in the input messages or the completion to fit within the limit.","type":"BadRequestError","param":null,"code":400}`,
			limit, prompt+most, prompt, most)
	}
	return ""
}

func refuseLlama(prompt, _, limit int) string {
	if prompt < limit {
		return ""
	}
	return fmt.Sprintf(`{"error":{"code":400,"message":"request (%d tokens) exceeds the available context size (%d tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":%d,"n_ctx":%d}}`,
		prompt, limit, prompt, limit)
}

// TestContextFull: where the conversation has grown to the server's context, the rollout ends, has
// all of its turns and is no failure. What still fits is asked for, whether the server lists its
// context or only refuses.
func TestContextFull(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	// A prompt begins with two messages, and each turn adds two: turn i has a prompt of 20*(i+1)
	// tokens, and 20*(i+1)+10 with its answer.
	for name, c := range map[string]struct {
		limit  int
		models string
		refuse func(prompt, most, limit int) string
		change func(*runfile.RunConfig)
		turns  int
	}{
		"vllm":                 {75, listVLLM, refuseVLLM, nil, 3},
		"vllm-lists-nothing":   {75, "", refuseVLLM, nil, 3},
		"newer-vllm":           {75, listVLLM, refuseNewerVLLM, nil, 3},
		"sglang":               {75, listVLLM, refuseSGLang, nil, 3},
		"sglang-lists-nothing": {75, "", refuseSGLang, nil, 3},
		"llama":                {75, listLlama, refuseLlama, nil, 3},
		"named-by-the-run":     {1 << 20, "", refuseVLLM, func(c *runfile.RunConfig) { c.Limits.Context = 51 }, 2},
		"cut-within-a-turn":    {85, listVLLM, refuseVLLM, nil, 4},
	} {
		e := newEngine(t, c.limit, c.models, c.refuse)
		open(t, log, name, e.URL, func(cfg *runfile.RunConfig) {
			cfg.Sampling.MaxTokens = 30
			if c.change != nil {
				c.change(cfg)
			}
		})
		var all []events.TurnSampled
		for i := range c.turns {
			all = turns(t, log, name, i+1)
			if turn := all[i]; len(turn.ToolCalls) > 0 {
				answerTools(t, log, name, turn)
			}
		}
		f, trajectory := finished(t, log, name)
		if f.StopReason != events.StopContext || f.Turns != c.turns || f.TextOnly || f.Samples != 1 ||
			trajectory.StopReason != events.StopContext {
			t.Errorf("%s: finished as %+v after requests for %v tokens", name, f, e.seen())
		}
		for _, turn := range all {
			limit := c.limit
			if name == "named-by-the-run" {
				limit = 51
			}
			room := inference.Room(limit, turn.PromptTokens)
			switch {
			case turn.CompletionTokens+turn.PromptTokens > limit:
				t.Errorf("%s: turn %d has more tokens than the context", name, turn.Turn)
			case turn.ContextLimit > 0 && (turn.ContextLimit != limit || turn.Sampling.MaxTokens >= 30):
				t.Errorf("%s: turn %d was cut to %d tokens in a context of %d", name, turn.Turn,
					turn.Sampling.MaxTokens, turn.ContextLimit)
			case turn.ContextLimit == 0 && c.refuse != nil && name != "llama" && room < 30-1:
				t.Errorf("%s: turn %d has %d tokens left, and says nothing of it", name, turn.Turn, room)
			}
		}
		if retried := servicetest.All(t, log, name, events.RolloutRetriedType,
			events.RolloutFailedType); len(retried) != 0 {
			t.Errorf("%s: failures on the log: %v", name, servicetest.IDs(retried))
		}
	}
}

// TestContextLimitIsAsked: what a server lists is asked for from the second turn on, so
// that no request is refused.
func TestContextLimitIsAsked(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	e := newEngine(t, 75, listVLLM, refuseSGLang)
	open(t, log, "r", e.URL, func(c *runfile.RunConfig) { c.Sampling.MaxTokens = 30 })
	for i := range 3 {
		answerTools(t, log, "r", turns(t, log, "r", i+1)[i])
	}
	finished(t, log, "r")
	// The third prompt has 60 tokens, of which 50 and the result's bytes are known: 24 are asked
	// for, and refused with the number that fits. The fourth does not fit, whatever is asked.
	if asked := e.seen(); fmt.Sprint(asked) != "[30 30 24 14 4]" {
		t.Errorf("asked for %v tokens", asked)
	}
}

// TestTaskThatDoesNotFit: where not even the first prompt fits, the rollout ends with nothing
// sampled and no failed try, whichever way the server is asked and whether it lists its context.
func TestTaskThatDoesNotFit(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	chat := func(limit int, models string, refuse func(prompt, most, limit int) string) func(*testing.T) (string,
		func() int) {
		return func(t *testing.T) (string, func() int) {
			e := newEngine(t, limit, models, refuse)
			return e.URL, func() int { return e.turns }
		}
	}
	tokens := func(silent bool, as func(*tokenstest.Server) *tokenstest.Server) func(*testing.T) (string, func() int) {
		return func(t *testing.T) (string, func() int) {
			s := as(thinker(t, "Qwen3", 0))
			s.Context, s.Silent = 15, silent
			return s.URL, func() int { return len(s.Turns()) }
		}
	}
	vllm := func(s *tokenstest.Server) *tokenstest.Server { return s }
	for name, c := range map[string]struct {
		server func(*testing.T) (url string, sampled func() int)
		change func(*runfile.RunConfig)
	}{
		"vllm":                 {chat(15, listVLLM, refuseVLLM), nil},
		"newer-vllm":           {chat(15, "", refuseNewerVLLM), nil},
		"sglang":               {chat(15, listVLLM, refuseSGLang), nil},
		"llama":                {chat(15, listLlama, refuseLlama), nil},
		"vllm-tokens":          {tokens(false, vllm), byTokensOnly},
		"vllm-tokens-silent":   {tokens(true, vllm), byTokensOnly},
		"sglang-tokens":        {tokens(false, (*tokenstest.Server).SGLang), byTokensOnly},
		"sglang-tokens-silent": {tokens(true, (*tokenstest.Server).SGLang), byTokensOnly},
		"llama-tokens":         {tokens(false, (*tokenstest.Server).LlamaCPP), byTokensOnly},
		"llama-tokens-silent":  {tokens(true, (*tokenstest.Server).LlamaCPP), byTokensOnly},
		"with-summaries":       {chat(15, listVLLM, refuseVLLM), summarising(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			url, sampled := c.server(t)
			open(t, log, name, url, c.change)
			f, trajectory := finished(t, log, name)
			if f.StopReason != events.StopContext || !f.Misfit() || !f.TextOnly || f.Sampled != 0 || f.Tokens != 0 ||
				!trajectory.TextOnly || len(trajectory.Messages) != 2 {
				t.Errorf("finished as %+v with %d messages", f, len(trajectory.Messages))
			}
			if sampled() != 0 {
				t.Errorf("%d turns were sampled", sampled())
			}
			if retried := servicetest.All(t, log, name, events.RolloutRetriedType,
				events.RolloutFailedType); len(retried) != 0 {
				t.Errorf("failures on the log: %v", servicetest.IDs(retried))
			}
		})
	}
}

// TestStepThatDoesNotFit: a task with steps ends its first one, which is
// scored, and no other follows.
func TestStepThatDoesNotFit(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	e := newEngine(t, 15, listVLLM, refuseVLLM)
	open(t, log, "r", e.URL, func(cfg *runfile.RunConfig) {
		cfg.Tasks[0].Steps = []runfile.StepSpec{{Name: "one", Instruction: "One."}, {Name: "two", Instruction: "Two."}}
	})
	ended := servicetest.WaitData[events.StepFinished](t, log, "r", events.StepFinishedType, rollout)
	servicetest.Append(t, log, servicetest.Event(t, "r", events.StepScoredType, rollout,
		"0", events.StepScored{Components: map[string]float64{"reward": 1}}))
	f, _ := finished(t, log, "r")
	if ended.StopReason != events.StopContext || f.StopReason != events.StopContext || !f.Misfit() ||
		f.Steps != 1 || len(e.seen()) != 1 {
		t.Errorf("the step ended with %s, the rollout as %+v after %d requests", ended.StopReason, f, len(e.seen()))
	}
}

// TestLengthWithinTheContext: a model that runs into the run's own max_tokens ends as it did.
func TestLengthWithinTheContext(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	e := newEngine(t, 1000, listVLLM, refuseVLLM)
	e.says = func(int) (bool, int) { return true, 60 }
	open(t, log, "r", e.URL, func(c *runfile.RunConfig) { c.Sampling.MaxTokens = 50 })
	if f, _ := finished(t, log, "r"); f.StopReason != events.StopLength {
		t.Errorf("finished as %+v", f)
	}
}

// TestContextFullInAStep: the step is scored as it stands, and no other one follows, though it
// passed. One that has no turn yet is not begun.
func TestContextFullInAStep(t *testing.T) {
	log := natstest.Log(t)
	start(t, log, nil)
	for name, c := range map[string]struct {
		says  func(turn int) (calls bool, tokens int)
		turns int
		stop  string // of the first step
	}{
		"within":  {func(int) (bool, int) { return true, perMessage }, 3, events.StopContext},
		"between": {func(turn int) (bool, int) { return turn < 2, perMessage }, 3, events.StopFinished},
	} {
		e := newEngine(t, 75, listVLLM, refuseVLLM)
		e.says = c.says
		open(t, log, name, e.URL, func(cfg *runfile.RunConfig) {
			cfg.Sampling.MaxTokens = 14
			cfg.Tasks[0].Steps = []runfile.StepSpec{{Name: "one", Instruction: "One."},
				{Name: "two", Instruction: "Two."}}
		})
		for i := range c.turns {
			if turn := turns(t, log, name, i+1)[i]; len(turn.ToolCalls) > 0 {
				answerTools(t, log, name, turn)
			}
		}
		ended := servicetest.WaitData[events.StepFinished](t, log, name, events.StepFinishedType, rollout)
		servicetest.Append(t, log, servicetest.Event(t, name, events.StepScoredType, rollout,
			"0", events.StepScored{Components: map[string]float64{"reward": 1}}))
		f, _ := finished(t, log, name)
		if ended.StopReason != c.stop || f.StopReason != events.StopContext || f.Steps != 1 || f.Turns != c.turns {
			t.Errorf("%s: the step ended with %s, the rollout as %+v", name, ended.StopReason, f)
		}
	}
}
