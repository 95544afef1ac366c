package runfile_test

import (
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

func TestTokenColumns(t *testing.T) {
	base := func() runfile.RunConfig {
		c := runfile.DefaultRunConfig()
		c.Policy, c.Endpoint, c.EndpointAPI = "small", "http://10.0.0.9:8000/v1", runfile.APITokens
		c.Tasks = []runfile.TaskSpec{{Name: "a"}}
		k := 50
		c.Sampling.TopK, c.Sampling.MaxTokens = &k, 4096
		c.TokenColumns = &runfile.TokenColumns{RoutedExperts: &runfile.RoutedExperts{Layers: 48, TopK: 8, Experts: 128},
			TopLogprobs: 20, SamplingMask: true}
		return c
	}
	problem := func(c runfile.RunConfig) string {
		if err := c.Validate(); err != nil {
			return err.Error()
		}
		return ""
	}
	c := base()
	harness := base()
	harness.External, harness.EndpointAPI = true, "" // servers of chats may have all of them, too
	for _, c := range []runfile.RunConfig{c, harness} {
		if text := problem(c); strings.Contains(text, "token_columns") {
			t.Error(text)
		}
	}
	if n := c.TokenColumns.AnswerBytes(c.Sampling); n < 40<<20 || n > 64<<20 ||
		(*runfile.TokenColumns)(nil).AnswerBytes(c.Sampling) != 0 {
		t.Errorf("an answer may be %d bytes longer", n)
	}
	for want, change := range map[string]func(*runfile.RunConfig){
		"name at least one of": func(
			c *runfile.RunConfig) {
			c.TokenColumns = &runfile.TokenColumns{Required: true}
		},
		"routed_experts: only the paths of tokens":        func(c *runfile.RunConfig) { c.EndpointAPI = "" },
		"sampling_mask: only the paths of tokens have it": func(c *runfile.RunConfig) { c.EndpointAPI = "" },
		"layers 0: must be 1 to 512": func(
			c *runfile.RunConfig) {
			c.TokenColumns.RoutedExperts.Layers = 0
		},
		"top_k 65: must be 1 to 64": func(
			c *runfile.RunConfig) {
			c.TokenColumns.RoutedExperts.TopK = 65
		},
		"experts 7: must be top_k (8) to 65536": func(
			c *runfile.RunConfig) {
			c.TokenColumns.RoutedExperts.Experts = 7
		},
		"top_logprobs 129: must be 0 to 128": func(
			c *runfile.RunConfig) {
			c.TokenColumns.TopLogprobs = 129
		},
		"top_logprobs -1: must be 0 to 128": func(
			c *runfile.RunConfig) {
			c.TokenColumns.TopLogprobs = -1
		},
		"together at most 524288 entries": func(
			c *runfile.RunConfig) {
			c.Sampling.MaxTokens = 1 << 20
		},
		"allow more than 4194304 ids": func(
			c *runfile.RunConfig) {
			c.Sampling.MaxTokens = 1 << 20
		},
		"set sampling.top_k above 0": func(c *runfile.RunConfig) { c.Sampling.TopK = nil },
		"at temperature 0 one token": func(c *runfile.RunConfig) { c.Sampling.Temperature = 0 },
	} {
		t.Run(want, func(t *testing.T) {
			c := base()
			change(&c)
			if text := problem(c); !strings.Contains(text, want) {
				t.Errorf("got %s", text)
			}
		})
	}
}
