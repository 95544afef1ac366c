package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/gateway"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// counted are the tokens of a conversation of Anthropic's messages, as both
// providers' clients ask for them.
func (k *talker) counted(said []message) int {
	k.t.Helper()
	var messages struct {
		Tokens *int `json:"input_tokens"`
	}
	k.post("/rollouts/"+k.m.ID+"/v1/messages/count_tokens", map[string]any{"model": "any", "messages": said},
		http.StatusOK, &messages)
	var contents []any
	for _, m := range said {
		role := strings.Replace(m["role"].(string), "assistant", "model", 1)
		contents = append(contents, map[string]any{"role": role, "parts": []any{map[string]any{"text": m["content"]}}})
	}
	var gemini struct {
		Tokens *int `json:"totalTokens"`
	}
	k.post("/rollouts/"+k.m.ID+"/v1beta/models/any:countTokens",
		map[string]any{"generateContentRequest": map[string]any{"model": "models/any", "contents": contents}},
		http.StatusOK, &gemini)
	if messages.Tokens == nil || gemini.Tokens == nil || *messages.Tokens != *gemini.Tokens {
		k.t.Fatalf("counted %v and %v", messages.Tokens, gemini.Tokens)
	}
	return *messages.Tokens
}

// TestCountTokens: a prompt is counted exactly as its turn is then asked with, by tokens behind
// what was sampled, while another turn has the only slot, and leaves nothing on the log and no
// trace in the rollout's tree. A server that cannot count is told as each provider tells it, and so
// is a rollout that is over.
func TestCountTokens(t *testing.T) {
	t.Parallel()
	for _, api := range []string{runfile.APITokens, ""} {
		t.Run("endpoint_api "+api, func(t *testing.T) {
			k := newTalker(t, "Qwen3", func(c *runfile.RunConfig) { c.EndpointAPI = api })
			k.url = k.serve(func(o *gateway.Options) { o.Slots, o.Waiting = 1, 0 })
			said := []message{user("Mend it.")}
			if api == "" { // the template's server answers no chats: what it counts is what its template writes
				want := len(k.s.Tokenizer.Encode("<|im_start|>user\nMend it.<|im_end|>\n<|im_start|>assistant\n",
					false))
				if n := k.counted(said); n != want {
					t.Errorf("counted %d, want %d", n, want)
				}
			} else {
				k.countTurns(said)
			}
			before := k.rollout(k.m).Tail
			k.s.Refuse = http.StatusNotFound
			for path, c := range map[string]struct{ body, want string }{
				"/v1/messages/count_tokens": {`{"messages":[{"role":"user","content":"a"}]}`,
					`{"error":{"message":"the inference server does not count`},
				"/v1beta/models/any:countTokens": {`{"contents":[{"parts":[{"text":"a"}]}]}`,
					`{"error":{"code":404,"message":"the inference server does not count`},
			} {
				if got := k.post("/rollouts/"+k.m.ID+path, c.body, http.StatusNotFound,
					nil); !strings.HasPrefix(string(got.body), c.want) {
					t.Errorf("%s: %s", path, got.body)
				}
				k.post("/rollouts/"+k.m.ID+path, strings.Replace(c.body, "{", `{"odd":1,`, 1),
					http.StatusBadRequest, nil)
				k.post("/rollouts/r.xnobody-0"+path, c.body, http.StatusNotFound, nil)
			}
			if r := k.rollout(k.m); r.Tail != before {
				t.Errorf("counting is on the log: %+v", r)
			}
			if api == runfile.APITokens {
				k.finish(k.m, 1)
				k.post("/rollouts/"+k.m.ID+"/v1/messages/count_tokens", map[string]any{"messages": said},
					http.StatusConflict, nil)
			}
			k.prove(0)
		})
	}
}

// countTurns counts before each of three turns, the last of which has the only slot meanwhile.
func (k *talker) countTurns(said []message) {
	k.t.Helper()
	for i := range 3 {
		before, sampled := k.rollout(k.m).Tail, len(k.s.Turns())
		n := k.counted(said)
		if k.rollout(k.m).Tail != before || len(k.s.Turns()) != sampled {
			k.t.Errorf("counting before turn %d has left something", i)
		}
		k.think("all of it", "")
		if say := k.s.Say; i == 2 {
			k.s.Say = func(prompt string) (string, string) {
				if again := k.counted(said); again != n {
					k.t.Errorf("counted %d while the turn is sampled, and %d before", again, n)
				}
				return say(prompt)
			}
		}
		var answer struct {
			Content []message `json:"content"`
			Usage   struct {
				Tokens int `json:"input_tokens"`
			} `json:"usage"`
		}
		k.post("/rollouts/"+k.m.ID+"/v1/messages", map[string]any{"model": "any", "max_tokens": 100, "messages": said},
			http.StatusOK, &answer)
		if asked := k.s.Turns()[i].Prompt; n != len(asked) || n != answer.Usage.Tokens {
			k.t.Errorf("turn %d was counted as %d tokens, asked with %d and has %d", i, n,
				len(asked), answer.Usage.Tokens)
		}
		words := answer.Content[len(answer.Content)-1]["text"].(string)
		said = append(said, message{"role": "assistant", "content": words}, user(fmt.Sprint("Step ", i, ".")))
	}
	if n := len(newSegments(k.rollout(k.m).Turns)); n != 1 {
		k.t.Errorf("%d segments, want 1: counting has bound a turn", n)
	}
}

// newSegments are the turns that begin a segment.
func newSegments(turns []events.TurnSampled) []events.TurnSampled {
	return slices.DeleteFunc(slices.Clone(turns), func(t events.TurnSampled) bool { return !t.NewSegment })
}

// TestAgentCounts: what becomes of an agent's counting says nothing of the agent: no count is a
// request of its model. One that the machine fails is the machine's, until one succeeds.
func TestAgentCounts(t *testing.T) {
	t.Parallel()
	b := newBackend(t, counts)
	log := newPlane(t, b.url, nil).log
	cfg := servicetest.Config("theirs")
	cfg.Endpoint, cfg.Agent = b.url, &runfile.Agent{Command: []string{"x"}}
	servicetest.OpenRun(t, log, "agents", cfg)
	servicetest.StartRollout(t, log, "agents", "g000001-0", "theirs")
	env := servicetest.Env(t, log)
	g, err := gateway.New(env, servicetest.Fleet(t, env, nil), gateway.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	a := g.Agent("agents", "g000001-0")
	post := func(path string, body any) (int, string) {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(text)))
		return w.Code, w.Body.String()
	}
	contents := map[string]any{"contents": []any{map[string]any{"parts": []any{map[string]any{"text": "Mend it."}}}}}
	want := fmt.Sprintf(`{"totalTokens":%d}`+"\n", len(promptOf(ask{Messages: []message{user("Mend it.")}})))
	for _, version := range []string{"v1", "v1beta"} {
		if status, text := post("/"+version+"/models/x:countTokens", contents); status != http.StatusOK ||
			text != want {
			t.Errorf("%s: answered %d %s, want %s", version, status, text, want)
		}
	}
	b.uncounts(http.StatusInternalServerError)
	messages := map[string]any{"messages": []any{user("Mend it.")}}
	if status, text := post("/v1/messages/count_tokens", messages); status != http.StatusBadGateway {
		t.Errorf("a server that fails: answered %d %s", status, text)
	}
	if status, text := post("/v1/messages/count_tokens", map[string]any{}); status != http.StatusBadRequest {
		t.Errorf("a wrong request: answered %d %s", status, text)
	}
	if _, failed := a.Ended(1); failed == nil || !strings.Contains(failed.Error(), "500") {
		t.Errorf("the machine failed a count: %v", failed)
	}
	b.uncounts(0)
	if status, text := post("/v1/messages/count_tokens", messages); status != http.StatusOK {
		t.Errorf("a server that is well again: answered %d %s", status, text)
	}
	if ended, failed := a.Ended(1); failed != nil || ended.Requests != 0 || ended.Refused != 0 || ended.WaitedMS == 0 {
		t.Errorf("the agent is said to have ended %+v, %v", ended, failed)
	}
	if status, _ := post("/v1/models/x:embedContent", contents); status != http.StatusNotFound {
		t.Errorf("another method: answered %d", status)
	}
	if ended, _ := a.Ended(1); ended.Requests != 1 || ended.Refused != 1 {
		t.Errorf("a request that was refused is none of the agent's: %+v", ended)
	}
	if turns := servicetest.All(t, log, "agents", events.TurnSampledType); len(turns) != 0 || len(b.seen()) != 0 {
		t.Errorf("counting has made %d turns of %d requests", len(turns), len(b.seen()))
	}
}
