package probe_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/inference"
	"github.com/rondo-rl/rondo/inference/probe"
	"github.com/rondo-rl/rondo/inference/probe/probetest"
)

// look is what is found of a server.
func look(t *testing.T, url string, s runfile.Sampling) map[string]probe.Finding {
	t.Helper()
	client, plain := &inference.Client{HTTP: http.DefaultClient}, false
	findings := map[string]probe.Finding{}
	for _, f := range probe.Server(t.Context(), func(ctx context.Context,
		request any) (answer *inference.Response, err error) {
		answer, plain, err = client.CompleteAs(ctx, url+"/v1", plain, request)
		return answer, err
	}, "m", s) {
		if _, twice := findings[f.Check]; twice {
			t.Errorf("%s stands twice", f.Check)
		}
		if (f.Do == "") != (f.Level == probe.OK) {
			t.Errorf("%+v: what is wrong has advice, and nothing else has", f)
		}
		findings[f.Check] = f
	}
	return findings
}

// TestServer tries each kind of server, whole and with each lack in turn. All
// that is not named is well.
func TestServer(t *testing.T) {
	warm := func(s *runfile.Sampling) { s.Temperature = 0.7 }
	narrow := func(s *runfile.Sampling) { s.TopP = new(0.9) }
	noTokens := map[string]string{"prompt ids": probe.Trouble, "token ids": probe.Trouble, "weights": probe.Warning}
	for name, c := range map[string]struct {
		kind   string
		lacks  probetest.Lacks
		change func(*runfile.Sampling)
		found  map[string]string // levels by check
		says   string            // by one of them
	}{
		"vLLM":                        {probetest.VLLM, probetest.Lacks{}, nil, nil, ""},
		"vLLM at another temperature": {probetest.VLLM, probetest.Lacks{}, warm, nil, ""},
		"SGLang":                      {probetest.SGLang, probetest.Lacks{}, nil, nil, ""},
		"llama.cpp": {probetest.LlamaCPP, probetest.Lacks{Raw: true}, nil,
			with(noTokens, "distribution", probe.Warning), "llama.cpp"},
		"OpenAI": {probetest.OpenAI, probetest.Lacks{Raw: true}, nil,
			with(noTokens, "distribution", probe.Warning), "prompt_token_ids"},
		"vLLM before 0.10.2": {probetest.VLLM, probetest.Lacks{PromptIDs: true, IDs: true}, nil,
			map[string]string{"prompt ids": probe.Trouble, "token ids": probe.Trouble}, "vLLM 0.10.2"},
		"no prompt ids": {probetest.SGLang, probetest.Lacks{PromptIDs: true}, nil,
			map[string]string{"prompt ids": probe.Trouble}, "prompt_token_ids"},
		"no ids": {probetest.VLLM, probetest.Lacks{IDs: true}, nil,
			map[string]string{"token ids": probe.Trouble}, "(token_ids)"},
		"no logprobs": {probetest.VLLM, probetest.Lacks{Logprobs: true}, nil,
			map[string]string{"logprobs": probe.Trouble, "distribution": probe.Warning}, "(logprobs)"},
		"usage disagrees": {probetest.VLLM, probetest.Lacks{Agreement: true}, nil,
			map[string]string{"tokens": probe.Trouble}, "usage counts"},
		"raw, sampled neutrally": {probetest.VLLM, probetest.Lacks{Raw: true}, nil,
			map[string]string{"distribution": probe.Warning}, "--logprobs-mode processed_logprobs"},
		"raw, another temperature": {probetest.VLLM, probetest.Lacks{Raw: true}, warm,
			map[string]string{"distribution": probe.Trouble}, "another temperature"},
		"raw, truncated": {probetest.SGLang, probetest.Lacks{Raw: true}, narrow,
			map[string]string{"distribution": probe.Trouble}, "another top_p"},
		"no alternatives": {probetest.VLLM, probetest.Lacks{NoTop: true}, warm,
			map[string]string{"distribution": probe.Warning}, "temperature unknown"},
		"tools left in the text": {probetest.VLLM, probetest.Lacks{ToolCalls: true}, nil,
			map[string]string{"tools": probe.Trouble}, "--tool-call-parser"},
		"tools refused": {probetest.VLLM, probetest.Lacks{RefuseTools: true}, nil,
			map[string]string{"tools": probe.Trouble}, "--enable-auto-tool-choice"},
		"no tool called": {probetest.SGLang, probetest.Lacks{NoTools: true}, nil,
			map[string]string{"tools": probe.Warning}, "called no tool"},
		"the template rewrites": {probetest.VLLM, probetest.Lacks{Rewrites: true}, nil,
			map[string]string{"two turns": probe.Warning}, "chat template"},
		"the weights have no label": {probetest.SGLang, probetest.Lacks{Label: true}, nil,
			map[string]string{"weights": probe.Warning}, "which weights"},
	} {
		t.Run(name, func(t *testing.T) {
			s := runfile.NeutralSampling()
			if c.change != nil {
				c.change(&s)
			}
			said := ""
			for check, f := range look(t, probetest.Server(t, c.kind, c.lacks).URL, s) {
				want := c.found[check]
				if want == "" {
					want = probe.OK
				}
				if f.Level != want {
					t.Errorf("%s is %+v, want %s", check, f, want)
				}
				if want != probe.OK {
					said += f.Found + f.Do
				}
			}
			if !strings.Contains(said, c.says) {
				t.Errorf("nothing says %q: %s", c.says, said)
			}
		})
	}
}

func with(m map[string]string, check, level string) map[string]string {
	all := map[string]string{check: level}
	for k, v := range m {
		all[k] = v
	}
	return all
}

// TestNobodyThere: a server that is away, or refuses the key, is one finding.
func TestNobodyThere(t *testing.T) {
	findings := look(t, "http://127.0.0.1:1", runfile.NeutralSampling())
	if f := findings["endpoint"]; len(findings) != 1 || f.Level != probe.Trouble ||
		!strings.Contains(f.Do, "base URL") {
		t.Errorf("found %+v", findings)
	}
}

// TestMeasure tells raw from processed log-probabilities.
func TestMeasure(t *testing.T) {
	for raw, want := range map[bool]probe.Distribution{
		true:  {Temperature: probe.Raw, Truncation: probe.Raw},
		false: {Temperature: probe.Processed, Truncation: probe.Processed},
	} {
		client, url := &inference.Client{HTTP: http.DefaultClient},
			probetest.Server(t, probetest.VLLM, probetest.Lacks{Raw: raw}).URL
		got, err := probe.Measure(t.Context(), func(ctx context.Context, request any) (*inference.Response, error) {
			return client.Complete(ctx, url+"/v1", request)
		}, "m")
		if err != nil || got != want {
			t.Errorf("raw %v: %+v, %v", raw, got, err)
		}
	}
}
