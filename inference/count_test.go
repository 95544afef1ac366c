package inference_test

import (
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

// TestCount: a prompt is counted as it is then sampled, by tokens behind what was sampled before, and as messages as the template writes them. Nothing is sampled meanwhile.
func TestCount(t *testing.T) {
	for engine, as := range engines {
		t.Run(engine, func(t *testing.T) {
			s := as(tokenstest.New(t, "Qwen3", nil))
			s.Say = func(string) (string, string) { return s.Template.Answer("I think of all of it.", "I read.", "a"), "" }
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
					messages[i].Reasoning = m.ReasoningContent
				}
				if want := len(s.Tokenizer.Encode(s.Template.Render(messages, true), false)); plain != want {
					t.Errorf("the chat before turn %d has %d tokens, the template writes %d", i, plain, want)
				}
				if n := len(s.Turns()); n != i {
					t.Errorf("%d turns were sampled, of which %d nobody asked for", n, n-i)
				}
				k.turn(tool("file"))
				if asked := s.Turns()[i].Prompt; counted != len(asked) || i > 0 && counted == plain {
					t.Errorf("turn %d was counted as %d tokens, and asked with %d; as a chat it has %d", i, counted, len(asked), plain)
				}
			}
		})
	}
}

// TestCountSendsAll: what a template reads beside the messages is sent.
func TestCountSendsAll(t *testing.T) {
	var got struct {
		Tools  []any          `json:"tools"`
		Kwargs map[string]any `json:"chat_template_kwargs"`
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		w.Write([]byte(`{"tokens":[1,2,3]}`))
	}))
	t.Cleanup(s.Close)
	k := newTalk(t, tokenstest.New(t, "Qwen3", nil))
	conv := k.conversation()
	conv.Chat, conv.Request.TemplateKwargs, conv.Request.Extra = true, map[string]any{"a": 1}, map[string]any{"reasoning_effort": "low"}
	for _, engine := range []string{inference.EngineVLLM, inference.EngineSGLang} {
		got.Tools, got.Kwargs, conv.Engine = nil, nil, engine
		n, err := k.client.Count(t.Context(), s.URL+"/v1", conv)
		if err != nil || n != 3 || len(got.Tools) != 1 || got.Kwargs["a"] != 1.0 || got.Kwargs["reasoning_effort"] != "low" {
			t.Errorf("%s: counted %d, %v, asked with %+v", engine, n, err, got)
		}
	}
}

// TestUncounted: a server that has no path to count at, or would count something else, is told from one that is away and from a request that is wrong.
func TestUncounted(t *testing.T) {
	for name, c := range map[string]struct {
		engine    string
		status    int
		body      string
		extra     map[string]any
		uncounted bool
		want      string
	}{
		"no path":             {"", http.StatusNotFound, `{}`, nil, true, "/tokenize answered 404"},
		"no method":           {"", http.StatusMethodNotAllowed, `{}`, nil, true, "405"},
		"no path, llama.cpp":  {inference.EngineLlamaCPP, http.StatusNotFound, `{}`, nil, true, "/apply-template answered 404"},
		"no path, SGLang":     {inference.EngineSGLang, http.StatusNotFound, `{}`, nil, true, "/v1/tokenize answered 404"},
		"other tools":         {inference.EngineSGLang, http.StatusOK, `{"tokens":[1]}`, map[string]any{"tool_choice": "none"}, true, `tool_choice "none"`},
		"it fails":            {"", http.StatusInternalServerError, `{}`, nil, false, "500"},
		"a wrong request":     {"", http.StatusBadRequest, `{"error":{"message":"roles must alternate"}}`, nil, false, "roles must alternate"},
		"another answer":      {"", http.StatusOK, `{"count":3}`, nil, false, "want token ids"},
		"a number of nothing": {"", http.StatusOK, `{"tokens":[-1]}`, nil, false, "want token ids"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			w.Write([]byte(c.body))
		}))
		k := newTalk(t, tokenstest.New(t, "Qwen3", nil))
		conv := inference.Conversation{Engine: c.engine, Chat: true, Request: inference.Request{Model: "m", Messages: k.messages, Extra: c.extra}}
		n, err := k.client.Count(t.Context(), s.URL+"/v1", conv)
		var f *inference.Failure
		if !errors.As(err, &f) || errors.Is(err, inference.ErrUncounted) != c.uncounted || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "endpoint_api") || n != 0 {
			t.Errorf("%s: counted %d, %v", name, n, err)
		}
		if f.Permanent != (c.status == http.StatusBadRequest) {
			t.Errorf("%s: permanent is %t", name, f.Permanent)
		}
		s.Close()
	}
}
