package gateway

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/auth/browser"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/events/yamltext"
	"github.com/rondo-rl/rondo/inference/fleet"
)

// Tenant is somebody who may use the gateway, with what he may take of it. Zero limits are none.
type Tenant struct {
	Name string `yaml:"name"`
	// KeySHA256 is the SHA-256 of the tenant's key in hexadecimal digits: who
	// reads the file has no key.
	KeySHA256 string `yaml:"key_sha256"`
	// Runs are patterns of the names of runs, such as "team-a-*"; none is all runs.
	Runs              []string `yaml:"runs"`
	RequestsPerMinute float64  `yaml:"requests_per_minute"`
	// TokensPerMinute are those of prompts and answers together. They are counted when a call is
	// answered, so that the next calls wait.
	TokensPerMinute float64 `yaml:"tokens_per_minute"`
	// Concurrent calls.
	Concurrent int `yaml:"concurrent"`
	// Priority of those who wait for a slot: the higher one comes first.
	Priority int `yaml:"priority"`
}

// ReadTenants reads a YAML file with the one key "tenants".
func ReadTenants(text []byte) ([]Tenant, error) {
	var file struct {
		Tenants []Tenant `yaml:"tenants"`
	}
	if err := yamltext.Strict(text, &file); err != nil {
		// without the lines around: keys are near
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if len(file.Tenants) == 0 {
		return nil, errors.New("tenants: the list is empty, so nobody could use the gateway")
	}
	_, err := newTenants(file.Tenants)
	return file.Tenants, err
}

// WithKey is a tenant without limits who has a key.
func WithKey(name, key string) Tenant {
	return Tenant{Name: name, KeySHA256: digest(key)}
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// tenant is a Tenant at work.
type tenant struct {
	Tenant
	mu       sync.Mutex
	requests fleet.Bucket
	tokens   fleet.Bucket
	running  int
	agent    *Agent // nil: an outsider
}

// everybody is who uses a gateway without tenants.
var everybody = Tenant{Name: "everybody"}

func newTenants(list []Tenant) ([]*tenant, error) {
	var tenants []*tenant
	names, keys := map[string]bool{}, map[string]bool{}
	for i, t := range list {
		key, err := hex.DecodeString(t.KeySHA256)
		switch {
		case !runfile.ValidToken(t.Name):
			return nil, fmt.Errorf("tenants: %d: name %.80q: use letters, digits, - and _, at most 64", i, t.Name)
		case names[t.Name]:
			return nil, fmt.Errorf("tenants: %s appears twice", t.Name)
		case err != nil || len(key) != sha256.Size:
			return nil, fmt.Errorf("tenants: %s: key_sha256 is not the SHA-256 of a key; `printf %%s KEY | sha256sum` gives it", t.Name)
		case keys[string(key)]:
			return nil, fmt.Errorf("tenants: %s has the key of another one", t.Name)
		case !(t.RequestsPerMinute >= 0) || !(t.TokensPerMinute >= 0) || t.Concurrent < 0:
			return nil, fmt.Errorf("tenants: %s: limits must not be negative", t.Name)
		}
		for _, pattern := range t.Runs {
			if _, err := path.Match(pattern, ""); err != nil {
				return nil, fmt.Errorf("tenants: %s: runs: %q: %w", t.Name, pattern, err)
			}
		}
		names[t.Name], keys[string(key)] = true, true
		t.KeySHA256 = strings.ToLower(t.KeySHA256)
		tenants = append(tenants, newTenant(t))
	}
	return tenants, nil
}

func newTenant(t Tenant) *tenant {
	return &tenant{Tenant: t, requests: fleet.Bucket{PerMinute: t.RequestsPerMinute},
		tokens: fleet.Bucket{PerMinute: t.TokensPerMinute}}
}

// authenticate finds the tenant whose key a request carries, as OpenAI's clients send it or as
// Anthropic's do. Every key is compared, each in constant time.
func (g *Gateway) authenticate(r *http.Request) (*tenant, error) {
	if len(g.tenants) == 0 {
		return newTenant(everybody), nil
	}
	key, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !bearer {
		key = cmp.Or(r.Header.Get("x-api-key"), r.Header.Get("x-goog-api-key"))
	}
	given := []byte(digest(key))
	var found *tenant
	for _, t := range g.tenants {
		if subtle.ConstantTimeCompare(given, []byte(t.KeySHA256)) == 1 {
			found = t
		}
	}
	if found == nil {
		return nil, problem(http.StatusUnauthorized, "invalid_api_key",
			"send a key of this gateway: Authorization: Bearer KEY, or x-api-key: KEY, or x-goog-api-key: KEY")
	}
	return found, nil
}

// mayUse reports whether the tenant may use a run.
func (t *tenant) mayUse(run string) bool {
	for _, pattern := range t.Runs {
		if ok, _ := path.Match(pattern, run); ok {
			return true
		}
	}
	return len(t.Runs) == 0
}

// sourcePrefix begins the source of facts that the gateway states, before the tenant's name.
const sourcePrefix = "gateway/"

func (t *tenant) source() string { return sourcePrefix + t.Name }

// owns reports whether the tenant may go on with a rollout that some source has started. What
// others than the gateway started belongs to all who may use the run.
func (t *tenant) owns(source string) bool {
	_, theirs := strings.CutPrefix(source, "outside/"+sourcePrefix)
	return !theirs || source == "outside/"+t.source()
}

// may refuses a call that is beyond the tenant's limits, before its request is read. One that
// counts is none of his concurrent calls.
func (t *tenant) may(now time.Time, counts bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.within(now, counts)
}

// begin takes a call of the tenant in, within his limits; end gives its place back, which
// one that counts has not.
func (t *tenant) begin(now time.Time, counts bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.within(now, counts); err != nil {
		return err
	}
	t.requests.Take(1)
	if !counts {
		t.running++
	}
	return nil
}

// within holds a call against the tenant's limits. The caller holds mu.
func (t *tenant) within(now time.Time, counts bool) error {
	if !counts && t.Concurrent > 0 && t.running >= t.Concurrent {
		return later(time.Second, "rate_limit_exceeded",
			"%s has %d calls under way, as many as he may", t.Name, t.running)
	}
	if wait := t.tokens.Wait(now, 0); wait > 0 {
		return later(wait, "rate_limit_exceeded", "%s has used up his %g tokens a minute", t.Name, t.TokensPerMinute)
	}
	if wait := t.requests.Wait(now, 1); wait > 0 {
		return later(wait, "rate_limit_exceeded", "%s has used up his %g requests a minute", t.Name,
			t.RequestsPerMinute)
	}
	return nil
}

func (t *tenant) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
}

// used counts the tokens of an answer.
func (t *tenant) used(n int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens.Wait(now, 0)
	t.tokens.Take(float64(n))
}

// trusts refuses what a browser brings from a page that is not the gateway's: without tenants
// nothing but the address says who may use the gateway.
func (g *Gateway) trusts(r *http.Request) error {
	if len(g.tenants) > 0 {
		return nil
	}
	if reason := browser.Check(r); reason != "" {
		return problem(http.StatusForbidden, "forbidden", "%s", reason)
	}
	return nil
}
