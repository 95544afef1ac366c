package tokenstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Server is an inference server whose model is "m": vLLM, unless LlamaCPP or
// SGLang makes it another one.
type Server struct {
	*httptest.Server
	Template  Template
	Tokenizer Tokenizer
	// Say is what the model samples behind a prompt, and why it ends; "" is a stop token. "abort"
	// ends what there is, and "paused" takes no request.
	Say func(prompt string) (text, finish string)
	// Refuse answers requests for tokens with a status, as vLLM does without --enable-scale-out
	// (403) and older versions do (404).
	Refuse int
	// Older versions, such as vLLM 0.32, render no parse_context and refuse output_mode "derender";
	// Oldest name tokens of log-probabilities by texts.
	Older, Oldest bool
	// Change changes an answer; path is that of the request.
	Change func(path string, answer map[string]any)
	// Chunk is how many tokens an event of vLLM's streams has, 8 where it is 0. Cut, if set,
	// is asked before each event, once at a time, with how many tokens were sampled and sent;
	// true breaks the connection.
	Chunk int
	Cut   func(sent int) bool
	// Incremental has SGLang's events hold what is new alone.
	Incremental bool
	// Drafts: llama.cpp has a draft model, whose tokens have no probability.
	Drafts bool
	// Streams says what becomes of a request for a stream: the constants below.
	Streams int
	// Context is how many tokens prompt and answer have together; 0 is 1 Mi.
	Context int
	// Adapter is the adapter that SGLang is to be asked for; "" is none.
	Adapter string
	// Silent leaves the context out of the list of models.
	Silent bool
	// Mixture is the model's, where its server lists experts; Masks: it lists the tokens
	// that are left in each place.
	Mixture *Mixture
	Masks   bool

	t        testing.TB
	mux      *http.ServeMux
	engine   string
	cutting  sync.Mutex
	mu       sync.Mutex
	prompts  [][]int32
	sampled  [][]int32
	requests map[string]int
}

// What a server does that is asked for a stream.
const (
	Streaming     = iota
	RefusesStream // 400, in its own words
	IgnoresStream // answers as a whole
)

// Turn is what the model saw, and what it sampled.
type Turn struct{ Prompt, Sampled []int32 }

// New starts a server.
func New(t testing.TB, template string, say func(prompt string) (text, finish string)) *Server {
	t.Helper()
	shape, known := Templates[template]
	if !known {
		t.Fatalf("no template %s", template)
	}
	mux := http.NewServeMux()
	s := &Server{Template: shape, Say: say, requests: map[string]int{}, engine: "vllm", mux: mux, t: t}
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		model := map[string]any{"id": "m", "owned_by": s.engine}
		if !s.Silent {
			model["max_model_len"] = s.context()
		}
		json.NewEncoder(w).Encode(map[string]any{"data": []any{model}})
	})
	for path, answer := range map[string]func(json.RawMessage) map[string]any{
		"/v1/chat/completions/render": s.render, "/inference/v1/generate": s.generate,
		"/v1/chat/completions/derender": s.derender,
	} {
		mux.HandleFunc("POST "+path, s.serve(path, answer))
	}
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// serve answers the requests for a path.
func (s *Server) serve(path string, answer func(json.RawMessage) map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body json.RawMessage
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			s.t.Errorf("request to %s: %v", path, err)
		}
		s.count(path)
		if s.Refuse != 0 {
			w.WriteHeader(s.Refuse)
			fmt.Fprint(w, `{"error":{"message":"Scale-out endpoints are disabled."}}`)
			return
		}
		made := answer(body)
		if refusal, refused := made["refused"]; refused {
			w.WriteHeader(http.StatusBadRequest)
			said := map[string]any{"message": refusal, "code": 400}
			for name, value := range made {
				if name != "refused" {
					said[name] = value
				}
			}
			json.NewEncoder(w).Encode(map[string]any{"error": said})
			return
		}
		if status, fails := made["status"].(int); fails {
			w.WriteHeader(status)
		}
		if s.Change != nil {
			s.Change(path, made)
		}
		if cut, streamed := made["streamed"].(func() []event); streamed {
			s.stream(w, cut())
			return
		}
		json.NewEncoder(w).Encode(made)
	}
}

func (s *Server) count(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[path]++
}

func (s *Server) sampledTurn(prompt, ids []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prompts, s.sampled = append(s.prompts, prompt), append(s.sampled, ids)
}

func (s *Server) context() int {
	if s.Context == 0 {
		return 1 << 20
	}
	return s.Context
}

// Turns are those that were sampled.
func (s *Server) Turns() (turns []Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.prompts {
		turns = append(turns, Turn{s.prompts[i], s.sampled[i]})
	}
	return turns
}

// Requests is how many came for paths; for any but the list of models, where none is named.
func (s *Server) Requests(paths ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, came := range s.requests {
		if len(paths) == 0 || slices.Contains(paths, path) {
			n += came
		}
	}
	return n
}

func refused(format string, args ...any) map[string]any {
	return map[string]any{"refused": fmt.Sprintf(format, args...)}
}

// render answers with the request for generate, as vLLM's render does: fields
// that nobody set are null.
func (s *Server) render(body json.RawMessage) map[string]any {
	var in struct {
		Model     string            `json:"model"`
		Messages  []Message         `json:"messages"`
		Tools     []json.RawMessage `json:"tools"`
		Prompts   *bool             `json:"add_generation_prompt"`
		MaxTokens int               `json:"max_tokens"`
		Logprobs  bool              `json:"logprobs"`
		Top       *int              `json:"top_logprobs"`
		Seed      *int64            `json:"seed"`
		Stop      []string          `json:"stop"`
		Salt      *string           `json:"cache_salt"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return refused("%v", err)
	}
	ids := s.Tokenizer.Encode(s.Template.Render(in.Messages, in.Prompts == nil || *in.Prompts), false)
	if len(ids)+in.MaxTokens > s.context() {
		return refused("This model's maximum context length is %d tokens. However, your prompt has %d input tokens.",
			s.context(), len(ids))
	}
	params := map[string]any{"max_tokens": in.MaxTokens, "temperature": 1, "seed": in.Seed, "stop": in.Stop,
		"skip_special_tokens": false, "detokenize": true}
	if in.Logprobs {
		params["logprobs"] = in.Top
	}
	calls := 0
	for _, m := range in.Messages {
		calls += len(m.ToolCalls)
	}
	var parse any
	if !s.Older {
		parse = map[string]any{"tools": in.Tools, "tool_choice": "auto", "history_tool_call_cnt": calls}
	}
	return map[string]any{
		"request_id": "chatcmpl-1", "token_ids": ids, "sampling_params": params, "model": in.Model,
		"cache_salt": in.Salt, "priority": 0, "stream": false,
		"token_offsets": nil, "features": nil, "reasoning_ended": nil, "return_token_ids": true,
		"output_mode":   "tokens",
		"parse_context": parse,
	}
}

// generate samples.
func (s *Server) generate(body json.RawMessage) map[string]any {
	var in struct {
		IDs     []int32         `json:"token_ids"`
		Mode    string          `json:"output_mode"`
		Context json.RawMessage `json:"parse_context"`
		Returns bool            `json:"return_token_ids"`
		Stream  bool            `json:"stream"`
		Params  struct {
			MaxTokens *int `json:"max_tokens"`
			Logprobs  *int `json:"logprobs"`
			Experts   int  `json:"routed_experts_prompt_start"`
		} `json:"sampling_params"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return refused("%v", err)
	}
	switch {
	case s.Older && in.Mode != "tokens" && in.Mode != "text":
		return refused("1 validation error:\n  {'type': 'literal_error', 'loc': 'body.output_mode', 'msg': \"Input should be 'tokens' or 'text'\", 'input': '%s'}", in.Mode)
	case in.Stream && s.Streams == RefusesStream:
		return refused("stream=True is not supported by this server")
	case in.Stream && in.Mode != "tokens":
		return refused("output_mode %s does not stream", in.Mode)
	case len(in.IDs) == 0 || slices.Min(in.IDs) < 0:
		return refused("token_ids")
	case in.Params.MaxTokens == nil || in.Params.Logprobs == nil:
		return refused("max_tokens or logprobs are missing")
	case in.Params.Experts < 0 || in.Params.Experts >= len(in.IDs):
		return refused("routed_experts_prompt_start must be smaller than the prompt")
	case in.Mode == "derender" && in.Context == nil:
		return refused("output_mode='derender' requires parse_context on a server with a tool or reasoning parser. Use the one returned by /render.")
	}
	text, finish := s.Say(s.Tokenizer.Decode(in.IDs))
	if finish == "paused" {
		return map[string]any{"status": http.StatusServiceUnavailable}
	}
	if finish == "" {
		finish = "stop"
	}
	ids := s.Tokenizer.Encode(text, true)
	if most := max(0, min(*in.Params.MaxTokens, s.context()-len(in.IDs))); len(ids) > most {
		ids, finish = ids[:most], "length"
	}
	s.sampledTurn(in.IDs, ids)
	message := s.read(ids)
	choice := map[string]any{"index": 0, "token_ids": ids, "finish_reason": finish, "stop_reason": nil,
		"weight_versions": []any{map[string]any{"version": "default", "start": 0, "end": len(ids)}}}
	var entries []any
	for i, id := range ids {
		tops := []any{}
		list, logprobs := Tops(id, i, *in.Params.Logprobs)
		for n := range list {
			if s.Oldest {
				tops = append(tops, map[string]any{"token": fmt.Sprintf("token_id:%d", list[n]),
					"logprob": logprobs[n]})
			} else {
				tops = append(tops, map[string]any{"token_id": list[n], "logprob": logprobs[n], "rank": n + 1})
			}
		}
		entry := map[string]any{"logprob": Logprob(i), "top_logprobs": tops}
		switch {
		case in.Mode == "derender":
			entry["token"] = s.Tokenizer.Decode(ids[i : i+1])
		case s.Oldest:
			entry["token"] = fmt.Sprintf("token_id:%d", id)
		default:
			entry["token_id"] = id
		}
		entries = append(entries, entry)
	}
	choice["logprobs"] = map[string]any{"content": entries}
	if s.Mixture != nil {
		choice["routed_experts"] = s.Mixture.file(slices.Concat(in.IDs, ids), in.Params.Experts)
	}
	if s.Masks {
		choice["sampling_mask"] = masks(ids)
	}
	answer := map[string]any{
		"request_id": "generate-tokens-1", "model": "m", "output_mode": in.Mode, "choices": []any{choice},
		"usage": map[string]any{"prompt_tokens": len(in.IDs), "completion_tokens": len(ids)},
	}
	if in.Stream && s.Streams == Streaming {
		answer["streamed"] = func() []event { return s.events(answer) }
	}
	if in.Returns {
		answer["prompt_token_ids"] = in.IDs
	}
	if in.Mode == "derender" {
		choice["message"], choice["finish_reason"] = message, ending(message, finish)
	}
	return answer
}

// event is one of a stream, behind so many tokens.
type event struct {
	sent int
	body map[string]any
}

// stream sends events, and then that they are all, as vLLM and SGLang do.
func (s *Server) stream(w http.ResponseWriter, list []event) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	for _, e := range list {
		if s.cut(e.sent) {
			panic(http.ErrAbortHandler)
		}
		text, err := json.Marshal(e.body)
		if err != nil {
			s.t.Error(err)
		}
		fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	if s.engine != "llamacpp" {
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

// events are those of vLLM: the first has the prompt, the last the reason for the end and the
// versions, and usage comes behind it.
func (s *Server) events(answer map[string]any) (list []event) {
	choice := answer["choices"].([]any)[0].(map[string]any)
	ids, entries := choice["token_ids"].([]int32), choice["logprobs"].(map[string]any)["content"].([]any)
	size := s.Chunk
	if size == 0 {
		size = 8
	}
	for sent := 0; ; sent += size {
		end := min(sent+size, len(ids))
		part := map[string]any{"index": 0, "token_ids": ids[sent:end],
			"logprobs": map[string]any{"content": entries[sent:end]}, "finish_reason": nil, "stop_reason": nil}
		body := map[string]any{"request_id": answer["request_id"], "model": answer["model"], "choices": []any{part}}
		if version, labelled := answer["weight_version"]; labelled {
			body["weight_version"] = version
		}
		if prompt, named := answer["prompt_token_ids"]; named && sent == 0 {
			body["prompt_token_ids"] = prompt
		}
		list = append(list, event{min(sent, len(ids)), body})
		if end == len(ids) {
			part["finish_reason"], part["stop_reason"], part["weight_versions"] = choice["finish_reason"],
				choice["stop_reason"], choice["weight_versions"]
			return append(list, event{whole, map[string]any{"request_id": answer["request_id"], "choices": []any{},
				"usage": answer["usage"]}})
		}
	}
}

// whole is how much was sent of an answer that has ended.
const whole = -1

func (s *Server) cut(sent int) bool {
	if sent == whole {
		return false
	}
	s.cutting.Lock()
	defer s.cutting.Unlock()
	return s.Cut != nil && s.Cut(sent)
}

// Logprob is the log-probability of a turn's token.
func Logprob(i int) float32 { return -float32(i%7) / 8 }

func ending(m Message, finish string) string {
	if len(m.ToolCalls) > 0 && finish == "stop" {
		return "tool_calls"
	}
	return finish
}

// read is the message in what was sampled. Where there is no call in it, the text
// of the stop token stays.
func (s *Server) read(ids []int32) Message {
	text := s.Tokenizer.Decode(ids)
	m := s.Template.Read(text)
	for _, stop := range s.Template.Stop {
		if len(m.ToolCalls) == 0 && strings.HasSuffix(text, stop) {
			m.Content += stop
			break
		}
	}
	return m
}

// derender reads the message in what was sampled.
func (s *Server) derender(body json.RawMessage) map[string]any {
	var in struct {
		Response struct {
			Choices []struct {
				IDs    []int32 `json:"token_ids"`
				Finish string  `json:"finish_reason"`
			} `json:"choices"`
		} `json:"generate_response"`
		Chat json.RawMessage `json:"chat_request"`
	}
	if err := json.Unmarshal(body, &in); err != nil || len(in.Response.Choices) != 1 || in.Chat == nil {
		return refused("derender: %v", err)
	}
	choice := in.Response.Choices[0]
	message := s.read(choice.IDs)
	if !s.Older { // 0.32 leaves it as it was sampled
		choice.Finish = ending(message, choice.Finish)
	}
	return map[string]any{"choices": []any{map[string]any{"index": 0, "message": message,
		"finish_reason": choice.Finish}}}
}
