package runfile

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Endpoint is one of several inference servers of a run. They are interchangeable: any of
// them may sample any turn.
type Endpoint struct {
	// URL is the base URL of the OpenAI-compatible server, for example http://10.0.0.7:8000/v1.
	// Keys are in the environment of the services that ask, never here: a run's configuration
	// is readable by everybody.
	URL string `json:"url" yaml:"url"`
	// Model is the name under which this server knows the policy; "" is RunConfig.Model.
	Model string `json:"model,omitempty" yaml:"model" absent:"the policy's name"`
	// Slots bounds the requests that one process has under way at this server; 0 leaves it to the
	// process. A server with twice the slots is the first choice of twice the rollouts.
	Slots int `json:"slots,omitempty" yaml:"slots" absent:"as many as the process has"`
}

// Bounds of a run's endpoints.
const (
	maxEndpoints = 64
	maxSlots     = 100000
	maxModel     = 256 // bytes of a name
)

// How an endpoint is asked.
const (
	APIChat = "chat" // by messages, which the server renders again for each turn
	// by the tokens of the prompt: those that the model has seen and sampled, and the new messages'
	APITokens = "tokens"
)

// EndpointAPIs are all of them.
var EndpointAPIs = []string{APIChat, APITokens}

// Servers are the inference servers of the run with the names of their models; none
// of a run that asks nobody.
func (c *RunConfig) Servers() []Endpoint {
	if c.Endpoint != "" {
		return []Endpoint{{URL: c.Endpoint, Model: c.Model()}}
	}
	servers := make([]Endpoint, len(c.Endpoints))
	for i, e := range c.Endpoints {
		if e.Model == "" {
			e.Model = c.Model()
		}
		servers[i] = e
	}
	return servers
}

// validateEndpoints checks where the run's turns are sampled, and what that may take.
func (c *RunConfig) validateEndpoints() (errs []error) {
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Limits.TokensPerMinute >= 0, "limits.tokens_per_minute %d: must not be negative", c.Limits.TokensPerMinute)
	check(c.EndpointAPI == "" || slices.Contains(EndpointAPIs, c.EndpointAPI),
		"endpoint_api %.80q: must be one of %v", c.EndpointAPI, EndpointAPIs)
	check(c.EndpointAPI != APITokens || c.Endpoint != BuiltinEndpoint,
		"endpoint_api %s: the built-in policy takes messages alone; leave it out", APITokens)
	if len(c.Endpoints) == 0 {
		check(validEndpoint(c.Endpoint) || c.External && c.Endpoint == "",
			"endpoint %q: give the base URL of the inference server, for example http://127.0.0.1:8000/v1, "+
				"without credentials, query and fragment, or %s", withoutSecrets(c.Endpoint), BuiltinEndpoint)
		return errs
	}
	check(c.Endpoint == "", "endpoint %q and endpoints: give one of them", withoutSecrets(c.Endpoint))
	check(len(c.Endpoints) <= maxEndpoints, "endpoints: %d of them, at most %d", len(c.Endpoints), maxEndpoints)
	seen := map[string]bool{}
	for i, e := range c.Endpoints {
		if err := e.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("endpoints: %d: %w", i, err))
		}
		base := strings.TrimRight(e.URL, "/")
		check(!seen[base], "endpoints: %d: url %q appears twice", i, withoutSecrets(e.URL))
		seen[base] = true
	}
	return errs
}

// Validate says what is wrong with a server's address, without secrets in it.
func (e Endpoint) Validate() error {
	switch {
	case e.URL == BuiltinEndpoint:
		return fmt.Errorf("url %q: the built-in policy cannot be one of several: write endpoint: %s", e.URL,
			BuiltinEndpoint)
	case !validEndpoint(e.URL):
		return fmt.Errorf("url %q: give the base URL of an inference server, for example http://10.0.0.7:8000/v1, without credentials, query and fragment",
			withoutSecrets(e.URL))
	case e.Slots < 0 || e.Slots > maxSlots:
		return fmt.Errorf("slots %d: must be 0 to %d", e.Slots, maxSlots)
	case len(e.Model) > maxModel || strings.ContainsFunc(e.Model, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("model: use at most 256 bytes, and no control characters")
	}
	return nil
}

// maxURL bounds a URL, in bytes.
const maxURL = 2048

// validEndpoint accepts base URLs without credentials, query and fragment: a run's configuration is
// readable by everybody, and what is appended to a base URL that ends with # or ? is no path.
func validEndpoint(endpoint string) bool {
	u, err := url.Parse(endpoint)
	plain := err == nil && len(endpoint) <= maxURL && u.User == nil && !strings.ContainsAny(endpoint, "?#\\")
	return endpoint == BuiltinEndpoint ||
		plain && u.Hostname() != "" && (u.Scheme == "http" || u.Scheme == "https") && plainPath(u)
}

// plainPath refuses paths that a server may resolve to another one than the one that is checked.
func plainPath(u *url.URL) bool {
	return u.RawPath == "" && !slices.ContainsFunc(strings.Split(u.Path, "/"),
		func(part string) bool { return part == "." || part == ".." })
}

// withoutSecrets shortens an endpoint to what may be in an error: no credentials, no query.
func withoutSecrets(endpoint string) string {
	if at := strings.LastIndexByte(endpoint, '@'); at >= 0 {
		endpoint = "…" + endpoint[at:]
	}
	base, _, _ := strings.Cut(endpoint, "?")
	base, _, _ = strings.Cut(base, "#")
	if len(base) > maxURL {
		base = base[:maxURL] + "…"
	}
	return base
}
