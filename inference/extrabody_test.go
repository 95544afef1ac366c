package inference

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestOwnFieldsAreRefused: no field that a request has can be set by a run's extra_body, neither in
// the run file nor in the request.
func TestOwnFieldsAreRefused(t *testing.T) {
	s := runfile.NeutralSampling()
	s.Stop, s.ChatTemplateKwargs = []string{"end"}, map[string]any{"a": 1}
	whole := Request{Model: "m", Messages: []Message{}, Tools: []Tool{{}}, Sample: NewSample(s),
		Seed: NewSeed(s, 7), ToolChoice: "auto"}
	body, err := Encode(whole)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		t.Fatal(err)
	}
	if len(fields) < 18 {
		t.Fatalf("only %d fields", len(fields))
	}
	for name, value := range fields {
		s := runfile.NeutralSampling()
		s.ExtraBody = map[string]any{name: "other"}
		if s.Validate() == nil {
			t.Errorf("a run file may set %s", name)
		}
		whole.Extra = map[string]any{name: "other", "priority": 5}
		body, err := Encode(whole)
		var now map[string]json.RawMessage
		if err != nil || json.Unmarshal(body, &now) != nil || string(now[name]) != string(value) ||
			string(now["priority"]) != "5" {
			t.Errorf("%s is %s, was %s: %v", name, now[name], value, err)
		}
	}
}

// TestExtraBodyBySGLangsTokens: what SGLang takes among the sampling parameters of /generate is
// there, since it drops unknown fields beside them.
func TestExtraBodyBySGLangsTokens(t *testing.T) {
	var asked struct {
		Priority int            `json:"priority"`
		Params   map[string]any `json:"sampling_params"`
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		json.NewDecoder(r.Body).Decode(&asked)
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer server.Close()
	request := Request{Model: "m", Extra: map[string]any{"min_tokens": 3, "regex": "a+", "priority": 5}}
	s := &sglangTurn{turn: turn{Client: &Client{HTTP: server.Client()}, root: server.URL, request: request,
		share: answers.Share(server.URL)}}
	if _, err := s.sample(t.Context(), []int32{1}, 9, -1); err == nil {
		t.Error("a refused request has an answer")
	}
	if asked.Params["min_new_tokens"] != 3.0 || asked.Params["regex"] != "a+" ||
		asked.Params["max_new_tokens"] != 9.0 || asked.Priority != 5 {
		t.Errorf("asked %+v", asked)
	}
}
