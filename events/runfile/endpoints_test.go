package runfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestServers(t *testing.T) {
	cfg := validConfig()
	if got := cfg.Servers(); len(got) != 1 || got[0] != (Endpoint{URL: BuiltinEndpoint, Model: "repair"}) {
		t.Errorf("one endpoint is %+v", got)
	}
	cfg.Endpoint, cfg.PolicyVersion = "", new(int64(4))
	cfg.Endpoints = []Endpoint{{URL: "http://a/v1", Slots: 8}, {URL: "https://b/v1", Model: "org/Name-7B"}}
	want := []Endpoint{{URL: "http://a/v1", Model: "repair@4", Slots: 8}, {URL: "https://b/v1", Model: "org/Name-7B"}}
	if got := cfg.Servers(); !slices.Equal(got, want) {
		t.Errorf("two are %+v", got)
	}
	if cfg.Endpoints[0].Model != "" {
		t.Error("the configuration was changed")
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if none := (&RunConfig{External: true}); len(none.Servers()) != 0 {
		t.Errorf("none are %+v", none.Servers())
	}
}

func TestValidateEndpoints(t *testing.T) {
	many := make([]Endpoint, maxEndpoints+1)
	for i := range many {
		many[i].URL = fmt.Sprintf("http://host%d/v1", i)
	}
	for name, c := range map[string]struct {
		change func(*RunConfig)
		want   string
	}{
		"and one endpoint": {func(c *RunConfig) { c.Endpoint = BuiltinEndpoint }, "give one of them"},
		"the built-in one": {func(c *RunConfig) { c.Endpoints[0].URL = BuiltinEndpoint }, "cannot be one of several"},
		"no URL":           {func(c *RunConfig) { c.Endpoints[1].URL = "" }, `endpoints: 1: url ""`},
		"a key in the URL": {func(c *RunConfig) { c.Endpoints[1].URL = "http://user:secret@b/v1" },
			"without credentials"},
		"a fragment":      {func(c *RunConfig) { c.Endpoints[1].URL = "http://b/v1#" }, "without credentials"},
		"a long fragment": {func(c *RunConfig) { c.Endpoints[1].URL = "http://b/v1#secret" }, "without credentials"},
		"an empty query":  {func(c *RunConfig) { c.Endpoints[1].URL = "http://b/v1?" }, "without credentials"},
		"an empty user":   {func(c *RunConfig) { c.Endpoints[1].URL = "http://@b/v1" }, "without credentials"},
		"a way up": {func(c *RunConfig) { c.Endpoints[1].URL = "http://b/v1/../admin" },
			"without credentials"},
		"an encoded way up": {func(c *RunConfig) { c.Endpoints[1].URL = "http://b/v1/%2e%2e/admin" },
			"without credentials"},
		"a port alone": {func(c *RunConfig) { c.Endpoints[1].URL = "http://:80/v1" }, "without credentials"},
		"a long URL": {func(c *RunConfig) { c.Endpoints[1].URL = "http://b/" + strings.Repeat("x", 3000) },
			"without credentials"},
		"a key as a query": {func(c *RunConfig) { c.Endpoints[1].URL = "http://b/v1?key=secret" },
			"without credentials"},
		"one twice":        {func(c *RunConfig) { c.Endpoints[1].URL = "http://a/v1/" }, "appears twice"},
		"too many":         {func(c *RunConfig) { c.Endpoints = many }, "at most 64"},
		"negative slots":   {func(c *RunConfig) { c.Endpoints[0].Slots = -1 }, "slots -1"},
		"a model of lines": {func(c *RunConfig) { c.Endpoints[0].Model = "a\nb" }, "endpoints: 0: model"},
		"a long model": {func(c *RunConfig) { c.Endpoints[0].Model = strings.Repeat("m", 257) },
			"endpoints: 0: model"},
		"no tokens to have": {func(c *RunConfig) { c.Limits.TokensPerMinute = -1 }, "tokens_per_minute -1"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := validConfig()
			cfg.Endpoint, cfg.Endpoints = "", []Endpoint{{URL: "http://a/v1"}, {URL: "http://b/v1"}}
			c.change(&cfg)
			if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			} else if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: the error tells the key: %v", name, err)
			}
		})
	}
}
