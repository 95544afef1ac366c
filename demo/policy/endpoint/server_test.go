package endpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/weights/safetensors"
)

const question = `{"model":"repair","messages":[{"role":"user","content":"Run ` + "`sh test.sh`" + `."}],
	"tools":[{"type":"function","function":{"name":"list_dir"}},{"type":"function","function":{"name":"run_terminal_cmd"}}],
	"temperature":1,"seed":3,"logprobs":true,"return_token_ids":true,"return_meta_info":true}`

// weightsTensor is the tensor of the policy's files.
const weightsTensor = "policy.weights"

func post(t *testing.T, s http.Handler, body string) (int, map[string]any) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	return w.Code, answer
}

func TestAnswerHasWhatTrainingNeeds(t *testing.T) {
	code, answer := post(t, NewServer(nil), question)
	if code != http.StatusOK || answer["weight_version"] != 0.0 || answer["object"] != "chat.completion" {
		t.Fatalf("%d %v", code, answer)
	}
	choice := answer["choices"].([]any)[0].(map[string]any)
	ids, logprobs := choice["token_ids"].([]any), choice["logprobs"].(map[string]any)["content"].([]any)
	if len(ids) == 0 || len(ids) != len(logprobs) || len(answer["prompt_token_ids"].([]any)) == 0 {
		t.Fatalf("%d ids, %d logprobs", len(ids), len(logprobs))
	}
	if first := logprobs[0].(map[string]any); first["logprob"].(float64) >= 0 ||
		!strings.HasPrefix(first["token"].(string), "<|action:") {
		t.Errorf("the first token is %v: want an action", first)
	}
	if choice["meta_info"].(map[string]any)["weight_version"] != "0" {
		t.Errorf("meta_info %v", choice["meta_info"])
	}
	usage := answer["usage"].(map[string]any)
	if usage["completion_tokens"] != float64(len(ids)) {
		t.Errorf("usage %v for %d tokens", usage, len(ids))
	}
	code, plain := post(t, NewServer(nil),
		`{"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]},{"role":"assistant","content":null}]}`)
	choice = plain["choices"].([]any)[0].(map[string]any)
	if code != http.StatusOK || plain["prompt_token_ids"] != nil || choice["token_ids"] != nil ||
		choice["logprobs"] != nil || choice["meta_info"] != nil {
		t.Errorf("%d %v: want nothing that was not asked for", code, plain)
	}
}

func TestSeedDecides(t *testing.T) {
	s := NewServer(nil)
	_, a := post(t, s, question)
	_, b := post(t, s, question)
	if fmt.Sprint(a["choices"]) != fmt.Sprint(b["choices"]) {
		t.Error("the same seed gave two answers")
	}
	seen := map[string]bool{}
	for range 40 {
		_, c := post(t, s, strings.Replace(question, `"seed":3,`, "", 1))
		seen[fmt.Sprint(c["choices"])] = true
	}
	if len(seen) < 2 {
		t.Error("without a seed all answers are the same")
	}
}

func TestHostileRequests(t *testing.T) {
	user := `{"role":"user","content":"x"}`
	for name, c := range map[string]struct {
		body string
		code int
		says string
	}{
		"empty":         {``, 400, "read request"},
		"no JSON":       {`{"messages":`, 400, "read request"},
		"a list":        {`[]`, 400, "read request"},
		"no messages":   {`{"messages":[]}`, 400, "messages"},
		"many messages": {`{"messages":[` + strings.Repeat(user+",", maxMessages) + user + `]}`, 400, "10001"},
		"too large": {`{"messages":[{"role":"user","content":"` + strings.Repeat("x", maxBody) + `"}]}`, 413,
			"larger than"},
		"role":        {`{"messages":[{"role":"wizard","content":"x"}]}`, 400, "messages[0].role"},
		"no call id":  {`{"messages":[{"role":"tool","content":"x"}]}`, 400, "messages[0].tool_call_id"},
		"content":     {`{"messages":[{"role":"user","content":7}]}`, 400, "content"},
		"picture":     {`{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "image_url"},
		"stream":      {`{"stream":true,"messages":[` + user + `]}`, 400, "stream"},
		"n":           {`{"n":3,"messages":[` + user + `]}`, 400, "n: 3"},
		"max tokens":  {`{"max_tokens":-1,"messages":[` + user + `]}`, 400, "max_tokens"},
		"temperature": {`{"temperature":-1,"messages":[` + user + `]}`, 400, "temperature"},
		"many tools": {`{"tools":[` + strings.Repeat(`{"function":{"name":"a"}},`, maxTools) +
			`{"function":{"name":"a"}}],"messages":[` + user + `]}`, 400, "tools"},
		"tool name": {`{"tools":[{"function":{"name":"a\nb"}}],"messages":[` + user + `]}`, 400, "tools[0]"},
		"model": {`{"model":"` + strings.Repeat("m", maxModel+1) + `","messages":[` + user + `]}`, 400,
			"model"},
		"malformed calls": {`{"messages":[` + user +
			`,{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"read_file","arguments":"{{{"}}]},{"role":"tool","tool_call_id":"c","content":"1|x"}]}`, 200, ""},
		"unasked answer": {`{"messages":[` + user +
			`,{"role":"tool","tool_call_id":"zzz","content":"exit code: 99999999999999999999"}]}`, 200, ""},
	} {
		code, answer := post(t, NewServer(nil), c.body)
		if code != c.code {
			t.Errorf("%s: status %d, want %d", name, code, c.code)
			continue
		}
		if c.code == http.StatusOK {
			continue
		}
		failure := answer["error"].(map[string]any)
		if message := failure["message"].(string); !strings.Contains(message, c.says) || len(message) > 500 ||
			failure["type"] != "invalid_request_error" {
			t.Errorf("%s: error %v, want one that says %q", name, failure, c.says)
		}
	}
}

func TestUnknownPath(t *testing.T) {
	for _, path := range []string{"/", "/v1/chat/completions", "/v2/models"} {
		w := httptest.NewRecorder()
		NewServer(nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"error"`) {
			t.Errorf("GET %s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestWeightsAreReplacedWhole: named policies, versions only go up, and while weights change every
// answer fits one version.
func TestWeightsAreReplacedWhole(t *testing.T) {
	s := NewServer(nil)
	files := make([][]byte, 3)
	want := map[float64]string{}
	for version := range files {
		values := make([]float32, policy.Dimension)
		for i := range values {
			values[i] = float32(version) * float32(i%7-3)
		}
		var b bytes.Buffer
		if err := safetensors.Write(&b, []safetensors.Data{safetensors.NewF32(weightsTensor, []int64{policy.Dimension},
			values)}, nil); err != nil {
			t.Fatal(err)
		}
		files[version] = b.Bytes()
		if version > 0 {
			if err := s.Load("repair", int64(version), files[version]); err != nil {
				t.Fatal(err)
			}
		}
		_, answer := post(t, s, question)
		want[float64(version)] = fmt.Sprint(answer["choices"])
		if answer["weight_version"] != float64(version) {
			t.Fatalf("version %v, want %d", answer["weight_version"], version)
		}
	}
	if err := s.Load("repair", 1, files[1]); err != nil || s.policy("repair").version != 2 {
		t.Error("an older version took the place of a newer one")
	}
	if s.policy("other").version != 0 {
		t.Error("another policy has weights")
	}
	fresh := NewServer(nil)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10 {
				code, answer := post(t, fresh, question)
				version := answer["weight_version"].(float64)
				if code != http.StatusOK || fmt.Sprint(answer["choices"]) != want[version] {
					t.Errorf("version %v gave another answer than before", version)
				}
			}
		})
	}
	for version := 1; version < len(files); version++ {
		if err := fresh.Load("repair", int64(version), files[version]); err != nil {
			t.Error(err)
		}
	}
	group.Wait()
}

func TestHostileWeights(t *testing.T) {
	file := func(name string, values []float32) []byte {
		var b bytes.Buffer
		if err := safetensors.Write(&b, []safetensors.Data{safetensors.NewF32(name, []int64{int64(len(values))},
			values)}, nil); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	good := file(weightsTensor, make([]float32, policy.Dimension))
	infinite := make([]float32, policy.Dimension)
	infinite[5] = float32(math.Inf(1))
	for name, data := range map[string][]byte{
		"empty":        nil,
		"truncated":    good[:len(good)-4],
		"other tensor": file("other", make([]float32, policy.Dimension)),
		"too few":      file(weightsTensor, make([]float32, 10)),
		"infinite":     file(weightsTensor, infinite),
		"header lies":  slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, good[8:]),
	} {
		s := NewServer(nil)
		if err := s.Load("repair", 1, data); err == nil || s.policy("repair").version != 0 {
			t.Errorf("%s: was loaded", name)
		}
	}
}

func TestModelsAreListed(t *testing.T) {
	s := NewServer(nil)
	trainer, err := policy.NewTrainer(policy.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	file, err := trainer.Weights()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"b", "a"} {
		if err := s.Load(name, 4, file); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(s)
	defer server.Close()
	response, err := http.Get(server.URL + "/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if want := `{"data":[{"id":"a","object":"model","weight_version":4},{"id":"b","object":"model","weight_version":4}],"object":"list"}`; strings.TrimSpace(
		string(body)) != want {
		t.Errorf("%s, want %s", body, want)
	}
}
