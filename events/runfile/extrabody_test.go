package runfile

import (
	"fmt"
	"strings"
	"testing"
)

func TestExtraBody(t *testing.T) {
	many := map[string]any{}
	for i := range 33 {
		many[fmt.Sprint("field", i)] = 1
	}
	for name, c := range map[string]struct {
		change func(*RunConfig)
		want   string
	}{
		"no seed": {func(c *RunConfig) { c.Sampling.Seed = SeedNone }, ""},
		"further fields": {func(c *RunConfig) {
			c.Sampling.ExtraBody = map[string]any{"cache_salt": "a",
				"priority": 5}
		}, ""},
		"a seed": {func(c *RunConfig) { c.Sampling.Seed = "7" }, `sampling.seed "7": want none`},
		"a field of ours": {func(c *RunConfig) { c.Sampling.ExtraBody = map[string]any{"stream": true} },
			"sampling.extra_body: stream is Rondo's to set"},
		"many fields": {func(c *RunConfig) { c.Sampling.ExtraBody = many }, "33 fields, at most 32"},
		"a huge field": {func(c *RunConfig) {
			c.Sampling.ExtraBody = map[string]any{"a": strings.Repeat("x",
				5000)}
		}, "at most 4096 bytes"},
		"one that reshapes": {func(c *RunConfig) { c.Sampling.ExtraBody = map[string]any{"min_tokens": 3} }, ""},
		"one of the built-in model": {func(c *RunConfig) {
			c.Endpoint = BuiltinEndpoint
			c.Sampling.ExtraBody = map[string]any{"min_tokens": 3}
		}, "leave out extra_body.min_tokens"},
	} {
		cfg := validConfig()
		cfg.Endpoint = "http://127.0.0.1:8000/v1"
		c.change(&cfg)
		if err := cfg.Validate(); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if names := (Sampling{Temperature: 1, ExtraBody: map[string]any{"cache_salt": "a",
		"logit_bias": map[string]any{"1": 2}}}).Reshaped(); fmt.Sprint(names) != "[extra_body.logit_bias]" {
		t.Errorf("reshaped by %v", names)
	}
	// Samplers and grammars of servers, most of which no list of ours names.
	for _, name := range []string{"watermark", "cfg_scale", "negative_prompt", "grammar_string", "top_p_decay",
		"smoothing_curve", "skew",
		"repeat_last_n", "beam_width", "lora_path", "options", "a_new_word",
	} {
		if !Constraining(name) {
			t.Errorf("%s leaves the model's distribution as it is", name)
		}
	}
}
