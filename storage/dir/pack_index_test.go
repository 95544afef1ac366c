package dir

import (
	"fmt"
	"slices"
	"testing"
)

// TestPackIndex: places of names, of one that is packed several times, and of two
// whose digests begin alike.
func TestPackIndex(t *testing.T) {
	x := newPackIndex()
	for i := range uint32(300) {
		x.add(fmt.Sprint("o-", i), place{1 + i%3, i})
	}
	again := place{4, 7}
	x.add("o-7", again)
	if got := x.places("o-7"); !slices.Equal(got, []place{{2, 7}, again}) || x.places("o-300") != nil {
		t.Errorf("%v, and of one that is not there %v", got, x.places("o-300"))
	}
	if got := x.all(); len(got) != 301 ||
		!slices.IsSortedFunc(got, func(a, b place) int {
			return int(a.pack)*1000 +
				int(a.eighth) - int(b.pack)*1000 - int(b.eighth)
		}) {
		t.Errorf("%d places: %v", len(got), got)
	}
	if x.remove("o-8", again) || !x.remove("o-7", place{2, 7}) || x.remove("o-7", place{2, 7}) ||
		!slices.Equal(x.places("o-7"), []place{again}) {
		t.Errorf("without one place: %v", x.places("o-7"))
	}
	x.removePack(4)
	x.removePack(2)
	if x.places("o-7") != nil || x.places("o-1") != nil || len(x.places("o-3")) != 1 ||
		len(x.all()) != 200 || len(x.more) != 0 {
		t.Errorf("without two packs: %d places", len(x.all()))
	}
}

// TestDigestsThatBeginAlike: two names may have one digest, as only 8 bytes of it are kept. Each
// finds its own object, and only that is deleted.
func TestDigestsThatBeginAlike(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for _, name := range []string{"one", "other"} {
		if err := s.PutPacked(t.Context(), "runs/r/"+name, []byte("this is "+name)); err != nil {
			t.Fatal(err)
		}
	}
	p := s.packsOf("runs/r")
	both := append(p.index.places("one"), p.index.places("other")...)
	p.index.set(digestOf("one"), slices.Clone(both))
	p.index.set(digestOf("other"), []place{both[1], both[0]})
	for _, name := range []string{"one", "other"} {
		if data, err := s.Get(t.Context(), "runs/r/"+name); err != nil || string(data) != "this is "+name {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if err := s.Delete(t.Context(), "runs/r/one"); err != nil {
		t.Fatal(err)
	}
	if data, err := s.Get(t.Context(), "runs/r/other"); err != nil || string(data) != "this is other" {
		t.Errorf("behind the deletion of one: %q, %v", data, err)
	}
	if data, err := s.Get(t.Context(), "runs/r/one"); err == nil {
		t.Errorf("it is deleted: %q", data)
	}
}
