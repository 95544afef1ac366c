package fetch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rondo-rl/rondo/retry"
	"github.com/rondo-rl/rondo/storage"
)

const (
	// nearTime bounds one read of a near store.
	nearTime = time.Minute
	// lookNear is how often a near store is asked again for what it lacks.
	lookNear = 2 * time.Second
)

// NearStore is a store that is nearer than the origin, such as one that
// `rondo weights mirror` fills.
type NearStore struct {
	Name string // for messages
	storage.Store
}

// ReadFrom lets Fetch read files and deltas from the first of these stores that has them. What
// all of them lack, still after a wait that begins with the fetch, comes from the origin. So does
// what they give wrong: manifests are read from the origin alone, and nothing counts that has not
// the digest which they name.
func (f *Folder) ReadFrom(wait time.Duration, near ...NearStore) { f.wait, f.near = wait, near }

func (f *Folder) sources(origin storage.Store) *sources {
	return &sources{Store: origin, near: f.near, until: time.Now().Add(f.wait), away: make([]bool, len(f.near)),
		gave: map[string]int{}, refused: map[string]bool{}}
}

// sources reads the objects of one version from the nearest store that has
// them, and counts the bytes.
type sources struct {
	storage.Store // the origin
	near          []NearStore
	until         time.Time // when nothing is waited for any more
	read, lent    atomic.Int64

	mu      sync.Mutex
	away    []bool          // near stores that failed
	gave    map[string]int  // which near store gave a part of an object
	refused map[string]bool // objects that are read from the origin
	wrong   string
}

// GetRange reads from the nearest store that has the object.
func (s *sources) GetRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	data := s.nearest(ctx, key, offset, length)
	if s.lent.Add(int64(len(data))); data == nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		if data, err = s.Store.GetRange(ctx, key, offset, length); err != nil {
			return nil, err
		}
	}
	s.read.Add(int64(len(data)))
	return data, nil
}

// nearest reads from the near stores; nil where none has the object.
func (s *sources) nearest(ctx context.Context, key string, offset, length int64) []byte {
	for {
		absent := false
		for i, n := range s.near {
			if !s.asks(i, key) {
				continue
			}
			data, err := readNear(ctx, n, key, offset, length)
			switch {
			case errors.Is(err, storage.ErrNotFound):
				absent = true
			case ctx.Err() != nil:
				return nil
			default:
				s.note(i, key, err)
			}
			if err == nil {
				return data
			}
		}
		if !absent || !time.Now().Before(s.until) || !retry.Sleep(ctx, lookNear) {
			return nil
		}
	}
}

func readNear(ctx context.Context, n NearStore, key string, offset, length int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, nearTime)
	defer cancel()
	data, err := n.GetRange(ctx, key, offset, length)
	if err == nil && int64(len(data)) != length {
		err = storage.ErrCorrupt
	}
	return data, err
}

// asks reports whether a near store is asked for an object.
func (s *sources) asks(i int, key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.away[i] && !s.refused[key]
}

// note notes what came of reading from a near store. One that fails is left
// alone until the next version.
func (s *sources) note(i int, key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.gave[key] = i
	case storage.IsUnusable(err), errors.Is(err, storage.ErrRange):
		s.refuse(i, key)
	default:
		s.away[i] = true
	}
}

func (s *sources) refuse(i int, key string) {
	s.refused[key] = true
	s.wrong = fmt.Sprintf("%s gives other bytes than were published: %s is read from the origin", s.near[i].Name, key)
}

// distrust lets an object be read from the origin that is wrong, and reports whether a near
// store gave a part of it.
func (s *sources) distrust(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, gave := s.gave[key]
	if gave {
		delete(s.gave, key)
		s.refuse(i, key)
	}
	return gave
}
