package projection

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestScanFindsAll compares scans with a map, whatever is written, deleted and dropped between
// them, and while transactions are open.
func TestScanFindsAll(t *testing.T) {
	for seed := range uint64(40) {
		chance := rand.New(rand.NewPCG(seed, 1))
		db, err := Memory()
		if err != nil {
			t.Fatal(err)
		}
		held, prefixes := map[string]int{}, []string{"a/", "b/", "c/"}
		check := func(v View, held map[string]int) {
			t.Helper()
			for _, prefix := range prefixes {
				var want, got []int
				for _, key := range slices.Sorted(maps.Keys(held)) {
					if strings.HasPrefix(key, prefix) {
						want = append(want, held[key])
					}
				}
				for value, err := range Scan[int](v, prefix) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, value)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d: %s has %v, not %v", seed, prefix, got, want)
				}
			}
		}
		for step := range 60 {
			tx, next := db.Begin(), maps.Clone(held)
			for range chance.IntN(6) {
				key := fmt.Sprintf("%s%02d", prefixes[chance.IntN(3)], chance.IntN(20))
				if chance.IntN(2) == 0 {
					err, next[key] = Put(tx, key, step), step
				} else {
					err = tx.Delete(key)
					delete(next, key)
				}
				if err != nil {
					t.Fatal(err)
				}
				if chance.IntN(4) == 0 {
					check(db, held)
				}
			}
			check(tx, next)
			if chance.IntN(4) == 0 {
				tx.Discard()
			} else if held, err = next, db.Commit(tx, uint64(step)); err != nil {
				t.Fatal(err)
			}
			check(db, held)
		}
		mustClose(t, db)
	}
}

// TestScanPassesNothingTwice: what was deleted at the front of a queue is behind the place
// where the next scan begins.
func TestScanPassesNothingTwice(t *testing.T) {
	db, err := Memory()
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, db)
	change := func(seq uint64, f func(*Tx) error) {
		t.Helper()
		tx := db.Begin()
		if err := f(tx); err != nil {
			t.Fatal(err)
		}
		if err := db.Commit(tx, seq); err != nil {
			t.Fatal(err)
		}
		for _, err := range Scan[int](db, "due/") {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	for i := range 100 {
		change(uint64(i+1), func(tx *Tx) error { return Put(tx, fmt.Sprintf("due/%03d", i), i) })
	}
	for i := range 100 {
		change(uint64(101+i), func(tx *Tx) error { return tx.Delete(fmt.Sprintf("due/%03d", i)) })
		want := fmt.Sprintf("due/%03d", i+1)
		if i == 99 {
			want = string(endOfPrefix("due/"))
		}
		if from, _ := db.firsts.start("due/"); from != want {
			t.Fatalf("%d are over, and a scan begins at %s", i+1, from)
		}
	}
	change(300, func(tx *Tx) error { return Put(tx, "due/050", 50) })
	if from, _ := db.firsts.start("due/"); from != "due/050" {
		t.Errorf("a scan begins at %s, behind what was written", from)
	}
}
