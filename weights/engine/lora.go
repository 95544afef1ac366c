package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// LoRA is a vLLM server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 whose versions are adapters of its model. Each is loaded under a name of its own, beside those before it and
// those of other policies: requests in flight end with the adapter that they began with, and nothing is paused.
type LoRA struct {
	*client
	policy string
	dir    string // of the versions: the server's adapters from elsewhere are somebody else's
	most   int    // how many of them are loaded at once

	mu   sync.Mutex
	last int64   // the version that was loaded last
	ours []int64 // from dir, as the server listed them last; nil where it was not asked yet
}

// NewLoRA is the server at an address, with at most so many adapters of a policy from the folder dir at once. key and transport are as for [NewVLLM].
func NewLoRA(base, key, policy, dir string, most int, transport http.RoundTripper) (*LoRA, error) {
	if most < 2 {
		return nil, fmt.Errorf("%d adapters at once: want 2 or more, since requests in flight hold the one before", most)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c, err := newClient(base, key, transport)
	return &LoRA{client: c, policy: policy, dir: dir, most: most}, err
}

// AdapterName is the name under which a version of a policy is loaded.
func AdapterName(policy string, version int64) string { return fmt.Sprintf("%s@%d", policy, version) }

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
			ID   string `json:"id"`
			Root string `json:"root"`
		} `json:"data"`
	}
	if err := e.ask(ctx, controlTime, "/v1/models", nil, &answer); err != nil {
		return nil, err
	}
	have, ours := map[int64]string{}, []int64{}
	for _, m := range answer.Data {
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
	e.ours = ours
	return have, nil
}

// Label implements [Engine]: the version that was loaded last, as long as the server lists it, and else the newest that it lists.
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
	request := map[string]string{"lora_name": AdapterName(e.policy, v.Version), "lora_path": v.Dir}
	if err := e.ask(ctx, loadTime, "/v1/load_lora_adapter", request, nil); err != nil {
		if missing(err) {
			err = fmt.Errorf("%w (start vLLM with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)", err)
		}
		return err
	}
	_, err = e.adapters(ctx)
	return err
}

// makeRoom unloads the oldest adapters of ours that no request holds, until there is room for one more. The one that is served now stays.
func (e *LoRA) makeRoom(ctx context.Context) error {
	e.mu.Lock()
	ours, last := slices.Clone(e.ours), e.last
	e.mu.Unlock()
	excess := len(ours) - e.most + 1
	if excess <= 0 {
		return nil
	}
	held, err := e.held(ctx)
	if err != nil {
		return err
	}
	for _, version := range ours {
		if excess > 0 && version != last && !held(AdapterName(e.policy, version)) {
			if err := e.unload(ctx, version); err != nil {
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

// unload unloads an adapter. One that is gone already is unloaded.
func (e *LoRA) unload(ctx context.Context, version int64) error {
	err := e.ask(ctx, controlTime, "/v1/unload_lora_adapter", map[string]string{"lora_name": AdapterName(e.policy, version)}, nil)
	if missing(err) {
		return nil
	}
	return err
}

// Names of vLLM's metrics: the adapters of the requests that it has, with the time of the note as the value, and how many requests it has.
const (
	adaptersMetric = "vllm:lora_requests_info"
	runningMetric  = "vllm:num_requests_running"
	waitingMetric  = "vllm:num_requests_waiting"
)

// held tells which adapters the server's requests hold. A server that has requests, and does not say of which adapters, holds all.
func (e *LoRA) held(ctx context.Context) (func(name string) bool, error) {
	var text []byte
	if err := e.ask(ctx, controlTime, "/metrics", nil, &text); err != nil {
		return nil, err
	}
	requests, newest, names, counted := 0.0, map[string]float64{}, map[string]string{}, false
	for line := range strings.Lines(string(text)) {
		metric, rest, _ := strings.Cut(line, "{")
		labels, number, _ := strings.Cut(rest, "} ")
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			continue
		}
		switch metric {
		case runningMetric, waitingMetric:
			requests, counted = requests+value, true
		case adaptersMetric: // one series for each set of adapters that there ever was; the newest of each engine counts
			of := label(labels, "engine")
			if _, known := newest[of]; !known || value > newest[of] {
				newest[of], names[of] = value, label(labels, "running_lora_adapters")+","+label(labels, "waiting_lora_adapters")
			}
		}
	}
	switch {
	case counted && requests == 0:
		return func(string) bool { return false }, nil
	case !counted || len(newest) == 0:
		return func(string) bool { return true }, nil
	}
	all := strings.Split(strings.Join(slices.Collect(maps.Values(names)), ","), ",")
	return func(name string) bool { return slices.Contains(all, name) }, nil
}

// label is the value of one of a metric's labels.
func label(labels, name string) string {
	_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// Refuse implements [Engine]: the adapter is unloaded. Nobody was told of it.
func (e *LoRA) Refuse(ctx context.Context, v Version) error {
	if err := e.unload(ctx, v.Version); err != nil {
		return err
	}
	return errKept
}

// Resume implements [Engine].
func (e *LoRA) Resume(context.Context) error { return nil }

// probes is how many tokens of a fingerprint are asked for.
const probes = 16

// Logprobs implements [Engine], for some of the tokens, each as a sample behind those before it: vLLM on CPU ends when a request with an adapter asks for the
// log-probabilities of its prompt while another one runs.
func (e *LoRA) Logprobs(ctx context.Context, tokens []int32) ([]float64, error) {
	e.mu.Lock()
	name := AdapterName(e.policy, e.last)
	e.mu.Unlock()
	found, salt := make([]float64, len(tokens)-1), rand.Text()
	for i := range found {
		found[i] = math.NaN()
	}
	for n := range min(probes, len(found)) {
		at := (n + 1) * len(found) / min(probes, len(found))
		logprob, err := e.next(ctx, name, salt, tokens[:at], tokens[at])
		if err != nil {
			return nil, err
		}
		found[at-1] = logprob
	}
	return found, nil
}

// next asks for the log-probability of a token behind others.
func (e *LoRA) next(ctx context.Context, name, salt string, before []int32, token int32) (float64, error) {
	type entry struct {
		Token   *int32  `json:"token_id"`
		Logprob float64 `json:"logprob"`
	}
	var answer struct {
		Choices []struct {
			Logprobs struct {
				Content []struct {
					Top []entry `json:"top_logprobs"`
				} `json:"content"`
			} `json:"logprobs"`
		} `json:"choices"`
	}
	// vLLM wants as many logprobs as tokens, and lists no more than these with the one that it samples: another token makes room.
	tokens := []int32{token, (token + 1) % 2}
	sampling := map[string]any{"max_tokens": 1, "temperature": 1, "logprobs": len(tokens), "logprob_token_ids": tokens}
	request := map[string]any{"model": name, "token_ids": before, "sampling_params": sampling, "cache_salt": salt}
	var refused *statusError
	switch err := e.ask(ctx, controlTime, "/inference/v1/generate", request, &answer); {
	case errors.As(err, &refused) && (refused.status == http.StatusForbidden || missing(err) && !strings.Contains(refused.text, name)):
		return 0, ErrNoLogprobs // it was started without --enable-scale-out
	case err != nil:
		return 0, err
	case len(answer.Choices) != 1 || len(answer.Choices[0].Logprobs.Content) != 1:
		return 0, fmt.Errorf("%s: %w", e.base, errProbe)
	}
	for _, of := range answer.Choices[0].Logprobs.Content[0].Top {
		if of.Token != nil && *of.Token == token {
			return of.Logprob, nil
		}
	}
	return 0, fmt.Errorf("%s: no log-probability of the token behind %d of the probe: %w", e.base, len(before), errProbe)
}

// Reads are the versions whose folders the server may read: it does so again for an adapter that had no place meanwhile. known is false before the server was asked.
func (e *LoRA) Reads() (versions []int64, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.ours), e.ours != nil
}
