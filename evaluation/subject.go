package evaluation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// Subject is the policy that is evaluated; without a version it is what the endpoint serves.
type Subject struct {
	Policy  string
	Version *int64
}

// String is the name by which a server is asked for it.
func (s Subject) String() string {
	cfg := runfile.RunConfig{Policy: s.Policy, PolicyVersion: s.Version}
	return cfg.Model()
}

// ParseSubject reads NAME or NAME@VERSION.
func ParseSubject(text string) (Subject, error) {
	name, number, versioned := strings.Cut(text, "@")
	if !runfile.ValidToken(name) {
		return Subject{},
			fmt.Errorf("policy %q: use letters, digits, - and _, at most 64, and @VERSION for a certain one", text)
	}
	if !versioned {
		return Subject{Policy: name}, nil
	}
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil || version < 0 {
		return Subject{}, fmt.Errorf("policy %q: the version is a number, for example %s@12", text, name)
	}
	return Subject{name, &version}, nil
}

// Pin finds the version of the built-in policy that an evaluation is about: the named one, or the
// current one. It must be published, or be the untrained one, which is named as version 0. Versions
// of other servers are theirs.
func (s Subject) Pin(ctx context.Context, store storage.Store, endpoint string) (Subject, error) {
	if endpoint != runfile.BuiltinEndpoint || s.Version != nil && *s.Version == 0 {
		return s, nil
	}
	current, _, err := weights.Current(ctx, store, s.Policy)
	published := !errors.Is(err, storage.ErrNotFound)
	switch {
	case err != nil && published:
		return s, err
	case !published:
		return s, fmt.Errorf("policy %s: no version of it is published: check the name, or evaluate %s@0, the untrained policy", s.Policy, s.Policy)
	case s.Version == nil:
		return Subject{s.Policy, &current}, nil
	}
	_, err = weights.FetchManifest(ctx, store, s.Policy, *s.Version)
	if errors.Is(err, storage.ErrNotFound) {
		err = fmt.Errorf("policy %s has no version %d: the current one is %d", s.Policy, *s.Version, current)
	}
	return s, err
}
