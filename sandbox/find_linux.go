package sandbox

import (
	"context"
	"maps"
	"strings"

	"github.com/rondo-rl/rondo/sandbox/internal/wire"
)

// Glob answers the paths of the files below a folder that match a pattern, at any depth and
// relative to the folder, newest first, and whether these, at most limit, are all. Hidden files are
// passed over unless the pattern names them. Bad patterns give ErrInvalid.
func (s *Sandbox) Glob(ctx context.Context, dir, pattern string, limit int) (names []string, complete bool, err error) {
	query := wire.Grep{Glob: pattern, HeadLimit: limit, MaxBytes: maxListing, DeadlineSeconds: grepSeconds}
	response, data, err := s.operate(ctx, wire.Request{Op: wire.OpGlob, Path: s.resolve(dir), Grep: &query}, maxListing,
		nil)
	if err != nil || len(data) == 0 {
		return nil, response.Total == 0, err
	}
	names = strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	return names, int64(len(names)) >= response.Total, nil
}

// Remove deletes one file, or a link itself; folders are refused.
func (s *Sandbox) Remove(ctx context.Context, name string) error {
	_, _, err := s.operate(ctx, wire.Request{Op: wire.OpRemove, Path: s.resolve(name)}, 0, nil)
	return err
}

// Env is a copy of the environment in which commands start.
func (s *Sandbox) Env() map[string]string {
	env := maps.Clone(baseEnv)
	maps.Copy(env, s.spec.Env)
	return env
}
