package projection

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var origin = Identity{Stream: "RONDO_a", Created: time.Date(2026, 5, 1, 12, 0, 0, 123456789, time.UTC),
	FirstSeq: 1, Fold: "counter v1"}

// fold counts an event, and keeps it under a key of its own.
func fold(t testing.TB, d *DB, seq uint64) {
	t.Helper()
	tx := d.Begin()
	count, _, err := Get[uint64](tx, "count")
	if err != nil {
		t.Fatal(err)
	}
	if err := Put(tx, "count", count+1); err != nil {
		t.Fatal(err)
	}
	if err := Put(tx, fmt.Sprintf("event/%06d", seq), seq); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(tx, seq); err != nil {
		t.Fatal(err)
	}
}

// check proves that the state is what folding 1 to Seq gives.
func check(t testing.TB, d *DB) {
	t.Helper()
	count, _, err := Get[uint64](d, "count")
	if err != nil || count != d.Seq() {
		t.Errorf("state holds %d events, and its sequence is %d, %v", count, d.Seq(), err)
	}
	next := uint64(1)
	for seq, err := range Scan[uint64](d, "event/") {
		if err != nil || seq != next {
			t.Fatalf("event %d, want %d, %v", seq, next, err)
		}
		next++
	}
	if next-1 != d.Seq() {
		t.Errorf("state holds events up to %d, and its sequence is %d", next-1, d.Seq())
	}
}

func mustOpen(t testing.TB, dir string, id Identity) *DB {
	t.Helper()
	d, err := Open(dir, id)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustClose(t testing.TB, d *DB) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "projection")
	for round := range uint64(3) {
		d := mustOpen(t, dir, origin)
		if d.Seq() != round*100 {
			t.Errorf("round %d begins at %d", round, d.Seq())
		}
		for seq := range uint64(100) {
			fold(t, d, round*100+seq+1)
		}
		check(t, d)
		mustClose(t, d)
	}
	// The same moment in another zone is the same identity.
	elsewhere := origin
	elsewhere.Created = origin.Created.In(time.FixedZone("far", 3600))
	d := mustOpen(t, dir, elsewhere)
	defer d.Close()
	if d.Seq() != 300 {
		t.Errorf("in another time zone the state is at %d", d.Seq())
	}
}

func TestAnotherIdentityBeginsAgain(t *testing.T) {
	for name, change := range map[string]func(*Identity){
		"stream":         func(i *Identity) { i.Stream = "RONDO_b" },
		"creation":       func(i *Identity) { i.Created = i.Created.Add(time.Nanosecond) },
		"first sequence": func(i *Identity) { i.FirstSeq = 2 },
		"fold":           func(i *Identity) { i.Fold = "counter v2" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := mustOpen(t, dir, origin)
			fold(t, d, 1)
			mustClose(t, d)
			other := origin
			change(&other)
			d = mustOpen(t, dir, other)
			check(t, d)
			if d.Seq() != 0 {
				t.Errorf("the state of another identity is kept, at %d", d.Seq())
			}
			fold(t, d, 1)
			mustClose(t, d)
			d = mustOpen(t, dir, other)
			defer d.Close()
			if d.Seq() != 1 {
				t.Errorf("the new identity was not kept: the state is at %d", d.Seq())
			}
		})
	}
}

func TestDamagedFilesBeginAgain(t *testing.T) {
	for name, damage := range map[string]func(data []byte) []byte{
		"emptied":   func([]byte) []byte { return nil },
		"truncated": func(data []byte) []byte { return data[:len(data)/2] },
		"garbage": func(data []byte) []byte {
			rng := rand.New(rand.NewPCG(1, 2))
			for i := range data {
				data[i] = byte(rng.Uint32())
			}
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := mustOpen(t, dir, origin)
			for seq := range uint64(50) {
				fold(t, d, seq+1)
			}
			mustClose(t, d)
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				path := filepath.Join(dir, f.Name())
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage(data), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			d = mustOpen(t, dir, origin)
			defer d.Close()
			check(t, d) // from the beginning, or from whatever is whole
			fold(t, d, d.Seq()+1)
			check(t, d)
		})
	}
}

// What another process has open is not to be deleted under its feet.
func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	d := mustOpen(t, dir, origin)
	fold(t, d, 1)
	other := origin
	other.Fold = "another"
	for _, id := range []Identity{origin, other} {
		if second, err := Open(dir, id); err == nil {
			second.Close()
			t.Fatal("a directory was opened twice")
		}
	}
	fold(t, d, 2)
	mustClose(t, d)
	d = mustOpen(t, dir, origin)
	defer d.Close()
	check(t, d)
	if d.Seq() != 2 {
		t.Errorf("the state is at %d, want 2", d.Seq())
	}
}

// A power cut keeps any part of what was not synced. State and sequence must go together.
func TestPowerCut(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	kept := map[uint64]bool{}
	for range 20 {
		fs := vfs.NewCrashableMem()
		d, err := openIn(fs, "p", origin)
		if err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(300) {
			fold(t, d, seq+1)
		}
		after := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		mustClose(t, d)
		again, err := openIn(after, "p", origin)
		if err != nil {
			t.Fatal(err)
		}
		check(t, again)
		kept[again.Seq()] = true
		mustClose(t, again)
	}
	if len(kept) < 2 {
		t.Errorf("every cut kept the same: %v; nothing was tested", kept)
	}
}

func TestTransaction(t *testing.T) {
	d, err := Memory()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	tx := d.Begin()
	for _, key := range []string{"a/2", "b", "a/1", "a0", "a/10"} {
		if err := Put(tx, key, key); err != nil {
			t.Fatal(err)
		}
	}
	if v, ok, err := Get[string](tx, "b"); !ok || v != "b" || err != nil {
		t.Errorf("a transaction does not read what it wrote: %q, %v, %v", v, ok, err)
	}
	if _, ok, err := Get[string](d, "b"); ok || err != nil {
		t.Errorf("what is not committed is seen outside, %v", err)
	}
	if err := tx.Delete("a/1"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Delete("never there"); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}
	if err := d.Commit(tx, 1); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for key, err := range Scan[string](d, "a/") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	if want := []string{"a/10", "a/2"}; !slices.Equal(keys, want) {
		t.Errorf("scan gives %v, want %v", keys, want)
	}
	discarded := d.Begin()
	if err := Put(discarded, "b", "other"); err != nil {
		t.Fatal(err)
	}
	discarded.Discard()
	if v, _, err := Get[string](d, "b"); v != "b" || err != nil {
		t.Errorf("a discarded transaction changed b to %q, %v", v, err)
	}
	if _, _, err := Get[int](d, "b"); err == nil {
		t.Error("a string was read as a number")
	}
	for _, err := range Scan[int](d, "a/") {
		if err == nil {
			t.Error("strings were scanned as numbers")
		}
	}
}
