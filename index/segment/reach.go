package segment

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// RootsKept is for how long an index is kept by its root after it was written last: rollouts that
// search it, updaters that build upon it and repositories that adopt it are done by then, or load
// it again. One that a repository points to is kept in any case, and an index that is replaced is
// written once more, so that its time begins then.
const RootsKept = 30 * 24 * time.Hour

// Kinds of objects of an index, as the third segment of their keys.
const (
	kindRepos    = "repos"
	kindRoots    = "roots"
	kindSegments = "segments"
)

// ParseKey reports whether a key is one of an index, and whether it is a pointer: these
// move, and are never garbage.
func ParseKey(key string) (ours, pointer bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 || parts[0] != "index" {
		return false, false
	}
	return parts[2] == kindRepos || parts[2] == kindRoots || parts[2] == kindSegments, parts[2] == kindRepos
}

// Reach tells key of every object that an index of any space needs, without any key to open it:
// what repositories point to, and the roots that are younger than RootsKept, with their segments.
// All else that is not young is garbage: segments are written before any manifest names them. A
// manifest that cannot be read is an error, as nobody could say what it needs.
func Reach(ctx context.Context, store storage.Store, now time.Time, key func(key string) error) error {
	pointed := map[string]bool{} // keys of roots; pointers of a space are listed before its roots
	for info, err := range store.List(ctx, "index/") {
		if err != nil {
			return err
		}
		ours, pointer := ParseKey(info.Key)
		parts := strings.Split(info.Key, "/")
		if !ours || parts[2] == kindSegments {
			continue
		}
		if !pointer && !pointed[info.Key] && !info.Modified.IsZero() && now.Sub(info.Modified) > RootsKept {
			continue
		}
		r, err := clearOf(ctx, store, info.Key)
		if isGone(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("index manifest %s: %w", info.Key, err)
		}
		if pointer {
			pointed[rootKey(parts[1], r.root)] = true
		}
		if err := key(info.Key); err != nil {
			return err
		}
		for _, digest := range r.digests {
			if err := key(segmentKey(parts[1], digest)); err != nil {
				return err
			}
		}
	}
	return nil
}

func clearOf(ctx context.Context, store storage.Store, key string) (references, error) {
	data, _, err := store.Load(ctx, key)
	if err != nil {
		return references{}, err
	}
	r, _, err := decodeClear(data)
	return r, err
}
