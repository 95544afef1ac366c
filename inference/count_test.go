package inference_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/tokenstest"
)

// count counts the tokens of the next turn's prompt.
func (k *talk) count(conv inference.Conversation) int {
	k.t.Helper()
	n, err := k.client.Count(k.t.Context(), k.server.URL+"/v1", conv)
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

// TestCount: a prompt is counted as it is then sampled, by tokens behind what was sampled before,
// and as messages as the template writes them. Nothing is sampled meanwhile.
func TestCount(t *testing.T) {
	for engine, as := range engines {
		t.Run(engine, func(t *testing.T) {
			s := as(tokenstest.New(t, "Qwen3", nil))
			s.Say = func(string) (string, string) {
				return s.Template.Answer("I think of all of it.", "I read.", "a"),
					""
			}
			k := newTalk(t, s)
			for i := range 3 {
				conv := k.conversation()
				chat := conv
				chat.Chat, chat.Known, chat.Samples = true, nil, nil
				counted, plain := k.count(conv), k.count(chat)
				messages := make([]tokenstest.Message, len(k.messages))
				for i, m := range k.messages {
					text, err := json.Marshal(m)
					if err != nil || json.Unmarshal(text, &messages[i]) != nil {
						t.Fatal(err)
					}
					messages[i].Reasoning = cmp.Or(m.Reasoning, m.ReasoningContent)
				}
				if want := len(s.Tokenizer.Encode(s.Template.Render(messages, true), false)); plain != want {
					t.Errorf("the chat before turn %d has %d tokens, the template writes %d", i, plain, want)
				}
				if n := len(s.Turns()); n != i {
					t.Errorf("%d turns were sampled, of which %d nobody asked for", n, n-i)
				}
				k.turn(tool("file"))
				if asked := s.Turns()[i].Prompt; counted != len(asked) || i > 0 && counted == plain {
					t.Errorf("turn %d was counted as %d tokens, and asked with %d; as a chat it has %d", i,
						counted, len(asked), plain)
				}
			}
		})
	}
}

// TestCountSendsAll: what a template reads beside the messages is sent. A server that renders chats
// gets the chat as it would be asked for, one that only counts what it can be told of it.
func TestCountSendsAll(t *testing.T) {
	var got struct {
		Messages []map[string]any `json:"messages"`
		Tools    []any            `json:"tools"`
		Kwargs   map[string]any   `json:"chat_template_kwargs"`
		Effort   string           `json:"reasoning_effort"`
		Template string           `json:"chat_template"`
		Prompts  *bool            `json:"add_generation_prompt"`
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.Write([]byte(`{"tokens":[1,2,3],"token_ids":[1,2,3,4]}`))
	}))
	t.Cleanup(s.Close)
	k := newTalk(t, tokenstest.New(t, "Qwen3", nil))
	conv := k.conversation()
	conv.Chat, conv.Request.TemplateKwargs, conv.Request.Extra = true, map[string]any{"a": 1},
		map[string]any{"reasoning_effort": "low", "user": "u", "min_tokens": 3}
	conv.Request.Written = inference.Written{Messages: len(conv.Request.Messages),
		JSON: []byte(`{"role":"user","content":null,"odd":1}`)}
	ask := func(want int) {
		t.Helper()
		got.Tools, got.Kwargs, got.Messages = nil, nil, nil
		n, err := k.client.Count(t.Context(), s.URL+"/v1", conv)
		if err != nil || n != want || len(got.Tools) != 1 || got.Kwargs["a"] != 1.0 ||
			len(got.Messages) != 1 || got.Messages[0]["odd"] != 1.0 {
			t.Errorf("%s: counted %d, %v, asked with %+v", conv.Engine, n, err, got)
		}
	}
	ask(4)
	conv.Request.Model = "gpt-oss"
	conv.Request.Extra["chat_template"], conv.Request.Extra["tool_choice"] = "T", "none"
	conv.Request.Extra["add_generation_prompt"] = false
	for engine, want := range map[string]int{inference.EngineVLLM: 4, inference.EngineLlamaCPP: 3} {
		conv.Engine, got.Prompts, got.Template = engine, nil, ""
		if ask(want); got.Template != "T" || got.Effort != "low" || got.Prompts == nil || *got.Prompts {
			t.Errorf("%s renders a chat as %+v", engine, got)
		}
	}
	conv.Engine, conv.Request.Model, conv.Request.Extra = inference.EngineSGLang, "m",
		map[string]any{"user": "u", "min_tokens": 3}
	ask(3)
}

// TestUncounted: a server that has no path to count at, or would count something else, is told from
// one that is away and from a request that is wrong.
func TestUncounted(t *testing.T) {
	tools := []inference.Tool{{Raw: json.RawMessage(`{"type":"function","function":{"name":"f"}}`)}}
	for name, c := range map[string]struct {
		engine    string
		status    int
		body      string
		request   inference.Request
		uncounted bool
		want      string
	}{
		"no path":   {"", http.StatusNotFound, `{}`, inference.Request{}, true, "/render answered 404"},
		"no method": {"", http.StatusMethodNotAllowed, `{}`, inference.Request{}, true, "405"},
		"no path, llama.cpp": {inference.EngineLlamaCPP, http.StatusNotFound, `{}`, inference.Request{}, true,
			"/apply-template answered 404"},
		"no path, SGLang": {inference.EngineSGLang, http.StatusNotFound, `{}`, inference.Request{}, true,
			"/v1/tokenize answered 404"},
		"no tools": {inference.EngineSGLang, http.StatusOK, `{"tokens":[1]}`,
			inference.Request{Tools: tools, Extra: map[string]any{"tool_choice": "none"}}, true, `tool_choice none`},
		"a template, SGLang": {inference.EngineSGLang, http.StatusOK, `{"tokens":[1]}`,
			inference.Request{Extra: map[string]any{"chat_template": "T"}}, true, "chat_template"},
		"nobody knows it": {inference.EngineSGLang, http.StatusOK, `{"tokens":[1]}`,
			inference.Request{Extra: map[string]any{"odd": 1}}, true, "odd"},
		"thoughts": {inference.EngineSGLang, http.StatusOK, `{"tokens":[1]}`,
			inference.Request{Extra: map[string]any{"reasoning_effort": json.RawMessage(`"low"`)}},
			true, "reasoning_effort"},
		"harmony": {inference.EngineSGLang, http.StatusOK, `{"tokens":[1]}`,
			inference.Request{Model: "openai/GPT-OSS-20b"}, true, "GPT-OSS"},
		"a cut prompt": {"", http.StatusOK, `{"token_ids":[1],"tokens":[1]}`,
			inference.Request{Extra: map[string]any{"truncate_prompt_tokens": -1}}, true, "truncate_prompt_tokens"},
		"no model": {"", http.StatusNotFound, `{"error":{"message":"The model m does not exist."}}`,
			inference.Request{}, false, "does not exist"},
		"it fails": {"", http.StatusInternalServerError, `{}`, inference.Request{}, false, "500"},
		"a wrong request": {"", http.StatusBadRequest, `{"error":{"message":"roles must alternate"}}`,
			inference.Request{}, false, "roles must alternate"},
		"another answer":      {"", http.StatusOK, `{"count":3}`, inference.Request{}, false, "token_ids"},
		"a number of nothing": {"", http.StatusOK, `{"token_ids":[-1]}`, inference.Request{}, false, "want token ids"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			w.Write([]byte(c.body))
		}))
		k := newTalk(t, tokenstest.New(t, "Qwen3", nil))
		c.request.Messages = k.messages
		conv := inference.Conversation{Engine: c.engine, Chat: true, Request: c.request}
		n, err := k.client.Count(t.Context(), s.URL+"/v1", conv)
		var f *inference.Failure
		if !errors.As(err, &f) || errors.Is(err, inference.ErrUncounted) != c.uncounted ||
			!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "endpoint_api") || n != 0 {
			t.Errorf("%s: counted %d, %v", name, n, err)
		}
		if f.Permanent != (c.status == http.StatusBadRequest) {
			t.Errorf("%s: permanent is %t", name, f.Permanent)
		}
		s.Close()
	}
}
