package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// LoRA is a server whose versions are adapters of its model. Each is loaded under a name of its
// own, beside those before it and those of other policies: requests in flight end with the adapter
// that they began with, and nothing is paused.
type LoRA struct {
	*client
	server adapterServer
	policy string
	dir    string // of the versions: the server's adapters from elsewhere are somebody else's
	most   int    // how many of them are loaded at once

	mu   sync.Mutex
	last int64   // the version that was loaded last
	ours []int64 // from dir, as the server listed them last; nil where it was not asked yet
	base string  // the server's model
}

// adapterServer is what servers with adapters differ in.
type adapterServer interface {
	load(ctx context.Context, name, dir string) error
	// unload unloads an adapter. One that is gone already is unloaded.
	unload(ctx context.Context, name string) error
	// held tells which adapters requests hold. It is nil where the server waits for these
	// requests before it unloads one.
	heldAdapters(ctx context.Context) (func(name string) bool, error)
	// model is the name by which a turn asks for an adapter.
	model(base, name string) string
	// logprobs are those of each token but the first; NaN where it was not asked for.
	logprobs(ctx context.Context, name string, tokens []int32) ([]float64, error)
}

// NewLoRA is the vLLM server at an address, with at most so many adapters of a policy from
// the folder dir at once. It is to run with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. key and
// transport are as for [NewVLLM].
func NewLoRA(base, key, policy, dir string, most int, transport http.RoundTripper) (*LoRA, error) {
	c, err := newClient(base, key, transport)
	if err != nil {
		return nil, err
	}
	return newLoRA(c, vllmAdapters{c}, policy, dir, most)
}

// NewSGLangLoRA is NewLoRA of an SGLang server with --enable-lora.
func NewSGLangLoRA(base, key, policy, dir string, most int, transport http.RoundTripper) (*LoRA, error) {
	c, err := newClient(base, key, transport)
	if err != nil {
		return nil, err
	}
	return newLoRA(c, sglangAdapters{c}, policy, dir, most)
}

func newLoRA(c *client, server adapterServer, policy, dir string, most int) (*LoRA, error) {
	if most < 2 {
		return nil, fmt.Errorf("%d adapters at once: want 2 or more, since requests in flight hold the one before",
			most)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	return &LoRA{client: c, server: server, policy: policy, dir: dir, most: most}, nil
}

// AdapterName is the name under which a version of a policy is loaded.
func AdapterName(policy string, version int64) string { return fmt.Sprintf("%s@%d", policy, version) }

// Model is the name by which turns ask the server for a version.
func (e *LoRA) Model(version int64) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.server.model(e.base, AdapterName(e.policy, version))
}

// adapterConfig is the file that makes a folder an adapter's.
const adapterConfig = "adapter_config.json"

var (
	// errKept means that a server does not serve the version, and serves what it served before.
	errKept = errors.New("the server keeps the version that it has")
	errHeld = errors.New("requests hold all adapters that could be unloaded")
)

// adapters are the versions that the server has loaded, with their folders.
func (e *LoRA) adapters(ctx context.Context) (map[int64]string, error) {
	var answer struct {
		Data []struct {
			ID     string `json:"id"`
			Root   string `json:"root"`
			Parent string `json:"parent"` // the model of an adapter
		} `json:"data"`
	}
	if err := e.ask(ctx, controlTime, "/v1/models", nil, &answer); err != nil {
		return nil, err
	}
	have, ours, base := map[int64]string{}, []int64{}, ""
	for _, m := range answer.Data {
		if base == "" && m.Parent == "" {
			base = m.ID
		}
		text, named := strings.CutPrefix(m.ID, e.policy+"@")
		version, err := strconv.ParseInt(text, 10, 64)
		if !named || err != nil || AdapterName(e.policy, version) != m.ID {
			continue
		}
		have[version] = m.Root
		if filepath.Dir(m.Root) == e.dir {
			ours = append(ours, version)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.Sort(ours)
	e.ours, e.base = ours, base
	return have, nil
}

// Label implements [Engine]: the version that was loaded last, as long as the server lists it, and
// else the newest that it lists.
func (e *LoRA) Label(ctx context.Context) (string, error) {
	have, err := e.adapters(ctx)
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, there := have[e.last]; there {
		return strconv.FormatInt(e.last, 10), nil
	}
	e.last = 0
	if len(have) == 0 {
		return "none", nil
	}
	e.last = slices.Max(slices.Collect(maps.Keys(have)))
	return strconv.FormatInt(e.last, 10), nil
}

// Load implements [Engine]. Where it fails the server serves what it served before.
func (e *LoRA) Load(ctx context.Context, v Version) error {
	if err := e.load(ctx, v); err != nil {
		return fmt.Errorf("%w (%w)", err, errKept)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = v.Version
	return nil
}

func (e *LoRA) load(ctx context.Context, v Version) error {
	if _, err := os.Stat(filepath.Join(v.Dir, adapterConfig)); err != nil {
		return fmt.Errorf("version %d is no adapter: %w", v.Version, err)
	}
	have, err := e.adapters(ctx)
	if err != nil {
		return err
	}
	if _, there := have[v.Version]; there {
		return nil
	}
	if err := e.makeRoom(ctx); err != nil {
		return err
	}
	if err := e.server.load(ctx, AdapterName(e.policy, v.Version), v.Dir); err != nil {
		return err
	}
	_, err = e.adapters(ctx)
	return err
}

// makeRoom unloads the oldest adapters of ours that no request holds, until there is room for one
// more. The one that is served now stays.
func (e *LoRA) makeRoom(ctx context.Context) error {
	e.mu.Lock()
	ours, last := slices.Clone(e.ours), e.last
	e.mu.Unlock()
	excess := len(ours) - e.most + 1
	if excess <= 0 {
		return nil
	}
	held, err := e.server.heldAdapters(ctx)
	if err != nil {
		return err
	}
	for _, version := range ours {
		name := AdapterName(e.policy, version)
		if excess > 0 && version != last && (held == nil || !held(name)) {
			if err := e.server.unload(ctx, name); err != nil {
				return err
			}
			excess--
		}
	}
	if excess > 0 {
		return fmt.Errorf("%s has %d adapters of %s: %w", e.base, len(ours), e.policy, errHeld)
	}
	return nil
}

// Refuse implements [Engine]: the adapter is unloaded. Nobody was told of it.
func (e *LoRA) Refuse(ctx context.Context, v Version) error {
	if err := e.server.unload(ctx, AdapterName(e.policy, v.Version)); err != nil {
		return err
	}
	return errKept
}

// Resume implements [Engine].
func (e *LoRA) Resume(context.Context) error { return nil }

// Logprobs implements [Engine], of the version that was loaded last.
func (e *LoRA) Logprobs(ctx context.Context, tokens []int32) ([]float64, error) {
	e.mu.Lock()
	name := AdapterName(e.policy, e.last)
	e.mu.Unlock()
	return e.server.logprobs(ctx, name, tokens)
}

// Reads are the versions whose folders the server may read: it does so again for an adapter that
// had no place meanwhile. known is false before the server was asked.
func (e *LoRA) Reads() (versions []int64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.ours), e.ours != nil
}
