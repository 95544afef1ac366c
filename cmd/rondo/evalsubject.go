package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// subject is the policy that is evaluated; without a version it is what the endpoint serves.
type subject struct {
	policy  string
	version *int64
}

func (s subject) String() string {
	cfg := events.RunConfig{Policy: s.policy, PolicyVersion: s.version}
	return cfg.Model()
}

// parseSubject reads NAME or NAME@VERSION.
func parseSubject(text string) (subject, error) {
	name, number, versioned := strings.Cut(text, "@")
	if !events.ValidToken(name) {
		return subject{}, fmt.Errorf("policy %q: use letters, digits, - and _, at most 64, and @VERSION for a certain one", text)
	}
	if !versioned {
		return subject{policy: name}, nil
	}
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil || version < 0 {
		return subject{}, fmt.Errorf("policy %q: the version is a number, for example %s@12", text, name)
	}
	return subject{name, &version}, nil
}

// pin finds the version of the built-in policy that an evaluation is about: the named one, which must be published, or the
// current one. Of a policy without any it is 0, the untrained one, which the note says. What other servers serve is theirs.
func (s subject) pin(ctx context.Context, store storage.Store, endpoint string) (pinned subject, note string, err error) {
	if endpoint != events.BuiltinEndpoint {
		return s, "", nil
	}
	current, _, err := weights.Current(ctx, store, s.policy)
	published := !errors.Is(err, storage.ErrNotFound)
	switch {
	case err != nil && published:
		return s, "", err
	case s.version == nil && !published:
		return subject{s.policy, new(int64(0))}, fmt.Sprintf("no weights of policy %s are published: this is the untrained policy", s.policy), nil
	case s.version == nil:
		return subject{s.policy, &current}, "", nil
	case *s.version == 0:
		return s, "", nil
	case !published:
		return s, "", fmt.Errorf("policy %s: no version of it is published; %s@0 is the untrained policy", s.policy, s.policy)
	}
	_, err = weights.FetchManifest(ctx, store, s.policy, *s.version)
	if errors.Is(err, storage.ErrNotFound) {
		err = fmt.Errorf("policy %s has no version %d: the current one is %d", s.policy, *s.version, current)
	}
	return s, "", err
}
