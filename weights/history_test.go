package weights_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
)

// deaf is a store that does what it is asked to and loses some of the answers, as one does whose
// connection times out behind a write.
type deaf struct {
	storage.Store
	writes atomic.Int64
	lost   func(n int64) bool
}

var errNoAnswer = errors.New("no answer")

func (s *deaf) answer(err error) error {
	if err == nil && s.lost(s.writes.Add(1)) {
		return errNoAnswer
	}
	return err
}

func (s *deaf) PutReader(ctx context.Context, key string, r io.Reader, size int64) error {
	return s.answer(s.Store.PutReader(ctx, key, r, size))
}

func (s *deaf) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return s.answer(s.Store.PutIfAbsent(ctx, key, data))
}

func (s *deaf) CompareAndSwap(ctx context.Context, key, etag string, data []byte) (string, error) {
	tag, err := s.Store.CompareAndSwap(ctx, key, etag, data)
	return tag, s.answer(err)
}

// oneHistory checks that what a store shows of a policy is whole: the pointer names a version that
// is there, and each version has all its files.
func oneHistory(t *testing.T, s storage.Store) (versions []weights.Stored) {
	t.Helper()
	versions, err := weights.Versions(t.Context(), s, "repair")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if _, _, err := weights.Fetch(t.Context(), s, "repair", v.Version); err != nil {
			t.Errorf("version %d: %v", v.Version, err)
		}
	}
	current, manifest, err := weights.Current(t.Context(), s, "repair")
	if errors.Is(err, storage.ErrNotFound) {
		return versions
	}
	if err == nil {
		_, err = storage.GetBlob(t.Context(), s, manifest)
	}
	if err != nil || len(versions) == 0 || versions[len(versions)-1].Version < current {
		t.Errorf("the pointer names version %d: %v", current, err)
	}
	return versions
}

// TestAnswersLost: a write that was done and whose answer is lost fails the publication.
// Publishing again finishes it, with the same bytes; other ones are refused from the moment on at
// which the version was visible.
func TestAnswersLost(t *testing.T) {
	for at := int64(1); ; at++ {
		s := store(t)
		publish(t, s, 1, 1)
		_, err := weights.Publish(t.Context(), &deaf{Store: s, lost: func(n int64) bool { return n == at }},
			"repair", 2, files(t, 2)...)
		if err == nil {
			if at != 5 {
				t.Errorf("%d writes, want 4: two files, manifest, pointer", at-1)
			}
			return
		}
		if !errors.Is(err, errNoAnswer) {
			t.Fatalf("write %d: %v", at, err)
		}
		visible := len(oneHistory(t, s)) == 2
		if visible != (at >= 3) {
			t.Errorf("after write %d version 2 is visible: %v", at, visible)
		}
		if _, err := weights.Publish(t.Context(), s, "repair", 2,
			files(t, 7)...); visible != errors.Is(err, storage.ErrExists) {
			t.Errorf("other files after write %d: %v", at, err)
		}
		if visible {
			publish(t, s, 2, 2)
		}
		wantCurrent(t, s, 2)
		oneHistory(t, s)
	}
}

// TestTwoPublishers: two publishers with other files for the same versions, at once, both with
// every third answer lost, and each trying again. Each version has one content, whoever is told
// that it was published finds his own, and the other one is told that it exists.
func TestTwoPublishers(t *testing.T) {
	const versions = 6
	s := store(t)
	var publishing sync.WaitGroup
	var mu sync.Mutex
	owners := map[int64][]string{}
	for _, owner := range []float32{100, 200} {
		own := &deaf{Store: s, lost: func(n int64) bool { return n%3 == 0 }}
		for version := range int64(versions) {
			content := files(t, owner+float32(version))
			publishing.Go(func() {
				for range 50 {
					published, err := weights.Publish(t.Context(), own, "repair", version, content...)
					switch {
					case errors.Is(err, errNoAnswer):
						continue
					case errors.Is(err, storage.ErrExists):
						return
					case err != nil:
						t.Errorf("version %d: %v", version, err)
						return
					}
					mu.Lock()
					owners[version] = append(owners[version], fmt.Sprint(owner, published.Ref.SHA256))
					mu.Unlock()
					return
				}
				t.Errorf("version %d was not published in 50 tries", version)
			})
		}
	}
	publishing.Wait()
	if n := len(oneHistory(t, s)); n != versions {
		t.Errorf("%d versions", n)
	}
	for version := range int64(versions) {
		if len(owners[version]) != 1 {
			t.Errorf("version %d was published by %v", version, owners[version])
		}
	}
	wantCurrent(t, s, versions-1)
}
