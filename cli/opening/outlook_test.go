package opening

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference/fleet"
)

// TestLook: what a run would meet at its servers is said before it is opened.
func TestLook(t *testing.T) {
	server := func(status int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/models" {
				status = http.StatusNotFound
			}
			w.WriteHeader(status)
			w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL + "/v1"
	}
	const gone = "http://127.0.0.1:1" // a port that no server of a test can be given
	for name, c := range map[string]struct{ url, dead, short string }{
		"it serves the model": {url: server(200,
			`{"data": [{"id": "other"}, {"id": "m", "max_model_len": 131072}]}`)},
		"it lists no models":   {url: server(404, "no such page")},
		"it lists none":        {url: server(200, `{"data": []}`)},
		"the built-in policy":  {url: runfile.BuiltinEndpoint},
		"it is gone":           {url: gone + "/v1", dead: "start it"},
		"it is something else": {url: server(200, "<html>"), dead: "correct endpoint"},
		"it wants a key":       {url: server(401, "{}"), dead: "--endpoint-keys"},
		"it serves another model": {url: server(200, `{"data": [{"id": "other"}]}`),
			dead: `not serve the model "m" but "other"`},
		"it has the adapter's versions": {url: server(200, `{"data": [{"id": "base"}, {"id": "m@12"}]}`)},
		"its context is too small": {url: server(200, `{"data": [{"id": "m", "max_model_len": 4096}]}`),
			short: "a context of 4096 tokens"},
		"its context was trained": {url: server(200, `{"data": [{"id": "m", "meta": {"n_ctx_train": 2048}}]}`),
			short: "a context of 2048 tokens"},
		"its context has no length": {url: server(200, `{"data": [{"id": "m", "max_model_len": -1}]}`)},
	} {
		f := RunFile{RunConfig: runfile.DefaultRunConfig()}
		f.Policy, f.Endpoint = "m", c.url
		sees := f.Look(t.Context(), fleet.Keys{})
		for what, said := range map[string][2]string{
			"dead":  {strings.Join(append(sees.Silent, sees.Others...), "\n"), c.dead},
			"short": {strings.Join(sees.Narrow, "\n"), c.short},
		} {
			if (said[0] == "") != (said[1] == "") || !strings.Contains(said[0], said[1]) {
				t.Errorf("%s: %s is %q, want %q", name, what, said[0], said[1])
			}
		}
	}
	rule := RunFile{RunConfig: runfile.DefaultRunConfig()}
	rule.Policy, rule.Endpoint = "m", runfile.BuiltinEndpoint
	for want, e := range map[string]runfile.Endpoint{
		"correct endpoint.url of the rule in conversations": {URL: gone +
			"/v1", Model: "small"},
		`does not serve the model "small" but "other": correct endpoint.model of the rule in conversations`: {URL: server(
			200, `{"data": [{"id": "other", "max_model_len": 1}]}`), Model: "small"},
		"": {URL: server(200, `{"data": [{"id": "small", "max_model_len": 1}]}`), Model: "small"},
	} {
		rule.Conversations = []runfile.ConversationRule{{Name: "titles", System: "title",
			Train: new(false), Endpoint: &e}}
		sees := rule.Look(t.Context(), fleet.Keys{})
		if said := append(sees.Silent, sees.Others...); len(sees.Narrow) > 0 || len(said) > 1 ||
			(want == "") != (len(said) == 0) || !strings.Contains(strings.Join(said, ""), want) {
			t.Errorf("a rule's server: %+v, want %q", sees, want)
		}
	}
	outside := RunFile{RunConfig: runfile.RunConfig{External: true, Endpoint: gone}}
	if sees := outside.Look(t.Context(), fleet.Keys{}); len(sees.Silent)+len(sees.Others)+len(sees.Narrow) > 0 {
		t.Errorf("a run of outsiders: %+v", sees)
	}
	for asked, listed := range map[string]string{"base:m@3": "m@3", "base:m": "base", "m": "m@1"} {
		if !serves(listed, asked) {
			t.Errorf("%s, where %s is listed, is not served", asked, listed)
		}
	}
}
