package fetch

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/weights"
	"github.com/rondo-rl/rondo/weights/mirror"
)

// mirrored is a store with the version of a policy that the origin has.
func mirrored(t *testing.T, origin storage.Store, version int64) *faulty {
	t.Helper()
	s := newStore(t)
	if _, err := (&mirror.Mirror{From: origin, To: s, Policy: "p"}).Version(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	return s
}

var errAway = errors.New("the store is away")

// TestNear: bytes come from the nearest store that has them. Whatever a near one lacks, fails at or
// gives wrong comes from the origin, and the version is as it was published.
func TestNear(t *testing.T) {
	model, settings := tensors(t, 1, 160<<10), named("config.json", `{"a":1}`)
	size := int64(len(model.Data) + len(settings.Data))
	for name, c := range map[string]struct {
		change  func(t *testing.T, near *faulty)
		lent    int64 // -1: some, of which not all count
		refused bool
	}{
		"has all": {func(*testing.T, *faulty) {}, size, false},
		"lacks a file": {func(t *testing.T, near *faulty) {
			if err := near.Delete(t.Context(), weights.FileKey("p", storage.Digest(settings.Data))); err != nil {
				t.Fatal(err)
			}
		}, int64(len(model.Data)), false},
		"fails": {func(_ *testing.T, near *faulty) { near.fail = func(int) error { return errAway } }, 0, false},
		"fails later": {func(_ *testing.T, near *faulty) {
			near.fail = func(n int) error {
				if n > 1 {
					return errAway
				}
				return nil
			}
		}, -1, false},
		"other bytes": {func(_ *testing.T, near *faulty) {
			near.lie = func(_ string, data []byte) {
				if len(data) > 0 {
					data[0] ^= 1
				}
			}
		}, -1, true},
		"fewer bytes": {func(t *testing.T, near *faulty) {
			if err := near.Put(t.Context(), weights.FileKey("p", storage.Digest(model.Data)),
				model.Data[:100]); err != nil {
				t.Fatal(err)
			}
		}, int64(len(settings.Data)), true},
		"another manifest": {func(t *testing.T, near *faulty) {
			if err := near.Put(t.Context(), weights.ManifestKey("p", 1), []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}, size, false},
	} {
		t.Run(name, func(t *testing.T) {
			origin, at := newStore(t), t.TempDir()
			publish(t, origin, 1, model, settings)
			near := mirrored(t, origin, 1)
			c.change(t, near)
			f := open(t, at)
			// the first is empty
			f.ReadFrom(0, NearStore{Name: "london", Store: newStore(t)}, NearStore{Name: "tokyo", Store: near})
			origin.read = 0
			v, err := f.Fetch(t.Context(), origin, 1, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			same(t, at, 1, model, settings)
			if c.lent >= 0 && (v.Near != c.lent || origin.read != size-c.lent) {
				t.Errorf("%d bytes came from near and %d from the origin, want %d of %d", v.Near,
					origin.read, c.lent, size)
			}
			if v.Read < size || strings.Contains(v.Refused, "tokyo gives other bytes") != c.refused {
				t.Errorf("%d bytes, refused %q", v.Read, v.Refused)
			}
		})
	}
}

// TestNearLiesAboutDeltas: a delta that a near store gives wrong is read from the origin, and still
// saves reading the files.
func TestNearLiesAboutDeltas(t *testing.T) {
	origin, at := newStore(t), t.TempDir()
	first := tensors(t, 1, 2<<20)
	second := weights.Content{Name: first.Name, Data: append([]byte(nil), first.Data...)}
	for i := 1000; i < len(second.Data); i += 400 {
		second.Data[i] ^= 1
	}
	publish(t, origin, 1, first)
	publish(t, origin, 2, second)
	near := mirrored(t, origin, 2)
	near.lie = func(key string, data []byte) {
		if strings.Contains(key, "/from-v") {
			data[len(data)/2] ^= 1
		}
	}
	f := open(t, at)
	if _, err := f.Fetch(t.Context(), origin, 1, "", nil); err != nil {
		t.Fatal(err)
	}
	f.ReadFrom(0, NearStore{Name: "tokyo", Store: near})
	v, err := f.Fetch(t.Context(), origin, 2, "", nil)
	if err != nil || v.Deltas != 1 || v.Whole != "" || !strings.Contains(v.Refused, "from-v") {
		t.Errorf("%+v, %v", v, err)
	}
	same(t, at, 2, second)
}

// TestNearIsWaitedFor: what a mirror has not copied yet is waited for, so that the origin is not
// read meanwhile; not for longer than was said.
func TestNearIsWaitedFor(t *testing.T) {
	origin, later := newStore(t), newStore(t)
	model := tensors(t, 1, 1<<10)
	publish(t, origin, 1, model)
	for _, comes := range []bool{true, false} {
		f := open(t, t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			f.ReadFrom(time.Minute, NearStore{Name: "tokyo", Store: later})
			later.fail = func(n int) error {
				if comes && n == 5 {
					publish(t, later.Store, 1, model)
				}
				return nil
			}
			began := time.Now()
			v, err := f.Fetch(t.Context(), origin, 1, "", nil)
			took := time.Since(began)
			if comes && (err != nil || v.Near == 0 || took != 4*lookNear) ||
				!comes && (err != nil || v.Near != 0 || took != time.Minute) {
				t.Errorf("it comes: %v; %d bytes came from near in %s, %v", comes, v.Near, took, err)
			}
		})
		later = newStore(t)
	}
}

// TestNearGoesOnAfterAnEnd: pieces that a near store gave before a fetch was
// interrupted are found out, too.
func TestNearGoesOnAfterAnEnd(t *testing.T) {
	origin, at := newStore(t), t.TempDir()
	model := tensors(t, 1, 160<<10)
	publish(t, origin, 1, model)
	near := mirrored(t, origin, 1)
	near.lie = func(_ string, data []byte) {
		if len(data) > 0 {
			data[0] ^= 1
		}
	}
	near.fail = func(n int) error {
		if n > 1 {
			return errAway
		}
		return nil
	}
	origin.fail = func(int) error { return errAway }
	f := open(t, at)
	f.ReadFrom(0, NearStore{Name: "tokyo", Store: near})
	if _, err := f.Fetch(t.Context(), origin, 1, "", nil); !errors.Is(err, errAway) {
		t.Fatalf("it was not interrupted: %v", err)
	}
	near.fail, origin.fail = nil, nil
	if _, err := f.Fetch(t.Context(), origin, 1, "", nil); err != nil {
		t.Fatal(err)
	}
	same(t, at, 1, model)
}
