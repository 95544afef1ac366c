package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/rondo-rl/rondo/demo/policy"
	"github.com/rondo-rl/rondo/storage"
)

// Fetch reads the safetensors file of a published version of a policy, which is 1 or more;
// storage.ErrNotFound where there is none.
type Fetch func(ctx context.Context, name string, version int64) ([]byte, error)

// pinnedModels bounds the versions that are kept beside the loaded ones, of 1 MiB each.
const pinnedModels = 64

// pinned are versions that were asked for by their number, whatever is loaded meanwhile.
type pinned struct {
	fetch Fetch
	cache *lru.Cache[string, *policy.Model]
	mu    sync.Mutex // held by the one that fetches
}

func newPinned(fetch Fetch) *pinned {
	cache, err := lru.New[string, *policy.Model](pinnedModels)
	if err != nil {
		panic(err) // only for a size below one
	}
	return &pinned{fetch: fetch, cache: cache}
}

// unknownModel: nothing answers to the name of a model.
type unknownModel struct{ error }

// model finds what answers to a model's name: a policy's loaded version, or with NAME@VERSION that
// very version. Version 0 is the initial policy: published ones begin with 1.
func (s *Server) model(ctx context.Context, name string) (loaded, error) {
	of, number, versioned := strings.Cut(name, "@")
	if !versioned {
		return s.policy(name), nil
	}
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil || version < 0 || of == "" {
		return loaded{}, unknownModel{fmt.Errorf("model %.100q: want NAME, or NAME@VERSION with a number", name)}
	}
	if version == 0 {
		return loaded{0, initial}, nil
	}
	if p := s.policy(of); p.version == version {
		return p, nil
	}
	if m, ok := s.pinned.cache.Get(name); ok {
		return loaded{version, m}, nil
	}
	model, err := s.pinned.model(ctx, name, of, version)
	return loaded{version, model}, err
}

// model fetches a version once, however many ask for it.
func (p *pinned) model(ctx context.Context, name, of string, version int64) (*policy.Model, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m, ok := p.cache.Get(name); ok {
		return m, nil
	}
	file, err := []byte(nil), storage.ErrNotFound
	if p.fetch != nil {
		file, err = p.fetch(ctx, of, version)
	}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil, unknownModel{fmt.Errorf("model %.100q: no version %d of policy %s is published", name, version, of)}
	case err != nil:
		return nil, fmt.Errorf("model %.100q: %w", name, err)
	}
	m, err := policy.ReadModel(file)
	if err != nil {
		return nil, unknownModel{fmt.Errorf("model %.100q: the version is of another architecture: %w", name, err)}
	}
	p.cache.Add(name, m)
	return m, nil
}

// refuseModel answers why nothing answers to a model's name. A store that cannot be
// read may be readable soon.
func refuseModel(w http.ResponseWriter, err error) {
	if _, ok := errors.AsType[unknownModel](err); ok {
		refuseWith(w, http.StatusNotFound, err.Error())
		return
	}
	refuseWith(w, http.StatusServiceUnavailable, err.Error())
}
