package doctor

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/clitest"
	"github.com/rondo-rl/rondo/inference/probe/probetest"
)

// TestDoctorOfAnEndpoint: a server that is fit gives 0, one of which nothing can be trained on
// gives 2, with what helps.
func TestDoctorOfAnEndpoint(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		lacks probetest.Lacks
		args  []string
		fails bool
		found map[string]string // level by check
		says  string
	}{
		"vLLM": {probetest.VLLM, probetest.Lacks{}, nil, false,
			map[string]string{"endpoint": levelOK, "context": levelOK, "distribution": levelOK, "weights": levelOK},
			"131072 tokens"},
		"a short context": {probetest.SGLang, probetest.Lacks{Context: 8192}, nil, false,
			map[string]string{"context": levelWarning}, "set limits.tokens to 8192"},
		"a short context of llama": {probetest.LlamaCPP, probetest.Lacks{Context: 8192}, nil, true,
			map[string]string{"context": levelWarning, "prompt ids": levelTrouble}, "set limits.tokens to 8192"},
		"OpenAI": {probetest.OpenAI, probetest.Lacks{}, nil, true,
			map[string]string{"sampling": levelWarning, "token ids": levelTrouble}, "evaluations only"},
		"raw": {probetest.VLLM, probetest.Lacks{Raw: true}, nil, false,
			map[string]string{"distribution": levelWarning}, "processed_logprobs"},
		"raw at another temperature": {probetest.VLLM, probetest.Lacks{Raw: true}, []string{"--temperature", "0.7"},
			true, map[string]string{"distribution": levelTrouble}, "processed_logprobs"},
		"a run file's sampling": {probetest.VLLM, probetest.Lacks{Raw: true}, []string{"--file"}, true,
			map[string]string{"distribution": levelTrouble}, "another top_p"},
		"a run file's tokens": {probetest.VLLM, probetest.Lacks{Rewrites: true}, []string{"--by-tokens"}, true,
			map[string]string{"tokens in": levelTrouble, "two turns": ""}, "--enable-scale-out"},
		"another model": {probetest.VLLM, probetest.Lacks{}, []string{"--model", "other"}, false,
			map[string]string{"context": levelWarning}, "does not list the model other"},
	} {
		t.Run(name, func(t *testing.T) {
			url := probetest.Server(t, c.kind, c.lacks).URL + "/v1"
			args := append([]string{"doctor", "--json", "--endpoint", url, "--model", "m"}, c.args...)
			if len(c.args) == 1 {
				lines := map[string]string{"--file": "sampling: {top_p: 0.9}",
					"--by-tokens": "endpoint_api: tokens"}[c.args[0]]
				file := clitest.Write(t, filepath.Join(t.TempDir(), "run.yaml"),
					"policy: m\nendpoint: "+url+"\n"+lines+"\n")
				args = []string{"doctor", "--json", "--file", file}
			}
			out, err := clitest.Run(t, New, args...)
			var exit *app.ExitError
			if errors.As(err, &exit) != c.fails || err != nil && exit == nil {
				t.Fatalf("it ends with %v: %s", err, out)
			}
			var findings []finding
			if err := json.Unmarshal([]byte(out), &findings); err != nil {
				t.Fatal(err)
			}
			levels := map[string]string{}
			for _, f := range findings {
				levels[f.Check] = f.Level
			}
			for check, want := range c.found {
				if levels[check] != want {
					t.Errorf("%s is %q, want %s: %s", check, levels[check], want, out)
				}
			}
			if !strings.Contains(out, c.says) {
				t.Errorf("it does not say %q: %s", c.says, out)
			}
		})
	}
}

// TestDoctorOfNoEndpoint: what is missing, or no address, is said before anybody is asked.
func TestDoctorOfNoEndpoint(t *testing.T) {
	for want, args := range map[string][]string{
		"--model":              {"--endpoint", "http://127.0.0.1:1/v1"},
		"--endpoint":           {"--model", "m"},
		"without credentials":  {"--model", "m", "--endpoint", "http://user:secret@127.0.0.1:1/v1"},
		"sampling.temperature": {"--model", "m", "--endpoint", "http://127.0.0.1:1/v1", "--temperature", "NaN"},
	} {
		t.Run(want, func(t *testing.T) {
			_, err := clitest.Run(t, New, append([]string{"doctor"}, args...)...)
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v: %v, want %q", args, err, want)
			}
		})
	}
}
