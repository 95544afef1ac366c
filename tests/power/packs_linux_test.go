package power

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/dir"
	"github.com/rondo-rl/rondo/tests/power/forgetful"
	"github.com/rondo-rl/rondo/tests/program"
)

// TestPacksAreCut: small objects are packed and deleted by two processes while the power is cut,
// again and again. What was answered is so when the store is opened again, and no object is torn.
func TestPacksAreCut(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	disk, known := forgetful.NewDisk(), &answered{there: map[string]bool{}}
	for life := range 6 {
		mount := t.TempDir()
		unmount, err := forgetful.Mount(disk, mount)
		if err != nil {
			program.Missing(t, "%v", err)
		}
		path := filepath.Join(mount, "some", "where", "objects")
		known.check(t, path)
		keeps := chance
		if life%2 == 0 {
			keeps = nil // this disk keeps nothing that was not synced
		}
		disk = known.live(t, path, life, disk, keeps)
		if err := unmount(); err != nil {
			t.Fatal(err)
		}
	}
	if len(known.there) == 0 {
		t.Error("nothing was answered")
	}
}

// answered is what a store has answered: objects that are there, or deleted. What was begun and
// not answered may be either.
type answered struct {
	mu    sync.Mutex
	there map[string]bool
}

func (a *answered) note(key string, there bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.there[key] = there
}

func (a *answered) begin(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.there, key)
}

const (
	packers  = 16
	packedBy = 40
)

// live packs and deletes, and gives the disk that a cut leaves in the middle of it.
func (a *answered) live(t *testing.T, path string, life int, disk *forgetful.Disk, keeps *rand.Rand) *forgetful.Disk {
	t.Helper()
	stores := make([]*dir.Store, 2)
	for i := range stores {
		s, err := dir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		stores[i] = s
	}
	enough := make(chan struct{}, packers*packedBy)
	var all sync.WaitGroup
	for worker := range packers {
		all.Go(func() {
			for i := range packedBy {
				s, key := stores[(worker+i)%2], fmt.Sprintf("runs/r/trajectories/%d-%d-%d", life, worker, i)
				if err := s.PutPacked(t.Context(), key, packedContent(key)); err != nil {
					t.Error(err)
					return
				}
				a.note(key, true)
				enough <- struct{}{}
				if i%4 == 3 {
					key := fmt.Sprintf("runs/r/trajectories/%d-%d-%d", life, worker, i-2)
					a.begin(key)
					if err := s.Delete(t.Context(), key); err != nil {
						t.Error(err)
						return
					}
					a.note(key, false)
				}
			}
		})
	}
	for range packers * packedBy / 3 {
		select {
		case <-enough:
		case <-t.Context().Done():
		}
	}
	a.mu.Lock() // nothing is answered between the cut and what is known of it
	left, there := disk.Cut(keeps), maps.Clone(a.there)
	a.mu.Unlock()
	all.Wait()
	for _, s := range stores {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	a.there = there
	return left
}

func packedContent(key string) []byte { return bytes.Repeat([]byte(key), 300) }

// check compares a store that is opened again with what was answered.
func (a *answered) check(t *testing.T, path string) {
	t.Helper()
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, key := range slices.Sorted(maps.Keys(a.there)) {
		data, err := s.Get(context.Background(), key)
		switch {
		case a.there[key] && (err != nil || !bytes.Equal(data, packedContent(key))):
			t.Errorf("%s was answered: %d bytes, %v", key, len(data), err)
		case !a.there[key] && !errors.Is(err, storage.ErrNotFound):
			t.Errorf("%s was deleted, and is there: %v", key, err)
		}
	}
	for info, err := range s.List(t.Context(), "runs/") {
		if err != nil {
			t.Fatal(err)
		}
		if data, err := s.Get(t.Context(), info.Key); err != nil || !bytes.Equal(data, packedContent(info.Key)) {
			t.Errorf("%s is listed: %d bytes, %v", info.Key, len(data), err)
		}
	}
}
