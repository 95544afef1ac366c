package segment_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/index/segment"
	"github.com/rondo-rl/rondo/index/segmenttest"
	"github.com/rondo-rl/rondo/storage"
)

// TestReach: what repositories point to is needed for ever, what is found by its root for a time;
// and neither takes a key to tell.
func TestReach(t *testing.T) {
	store := open(t)
	first, second := segmenttest.Tree{"a": {"one"}}, segmenttest.Tree{"b": {"two"}}
	b := commit(t, load(t, store, "repo"), first.Change(keys, nil))
	commit(t, b, second.Change(keys, first))
	alone := commit(t, segment.New(store, segmenttest.Key(2), nil),
		segmenttest.Tree{"c": {"three"}}.Change(segmenttest.Key(2), nil))
	unnamed := "index/" + keys.Space() + "/segments/0123"
	if err := store.Put(t.Context(), unnamed, []byte("of an update that was killed")); err != nil {
		t.Fatal(err)
	}
	reach := func(now time.Time) map[string]bool {
		t.Helper()
		all := map[string]bool{}
		if err := segment.Reach(t.Context(), store, now, func(key string) error {
			all[key] = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	var every []string
	for info, err := range store.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		every = append(every, info.Key)
	}
	now := reach(time.Now())
	if len(now) != len(every)-1 || now[unnamed] {
		t.Errorf("reached now: %v\nof %v", now, every)
	}
	later := reach(time.Now().Add(segment.RootsKept + time.Hour))
	for _, key := range slices.Sorted(maps.Keys(now)) {
		// The pointer, its root, and the segment of the second tree; the first one is in none.
		needed := strings.Contains(key, keys.Space()) && !strings.HasSuffix(key, first.Root(keys))
		if needed && strings.Contains(key, "/segments/") {
			continue
		}
		if later[key] != needed {
			t.Errorf("%s is reached later: %t", key, later[key])
		}
	}
	if len(later) != 3 {
		t.Errorf("reached later: %v", later)
	}
	if alone.Root() == "" {
		t.Error("no root")
	}
	for key := range now {
		if !later[key] {
			if err := store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	holds(t, load(t, store, "repo"), second)
	if err := segment.Forget(t.Context(), store, keys, "repo"); err != nil {
		t.Fatal(err)
	}
	if all := reach(time.Now().Add(segment.RootsKept + time.Hour)); len(all) != 0 {
		t.Errorf("reached of what was forgotten: %v", all)
	}
	if err := store.Put(t.Context(), "index/"+keys.Space()+"/repos/x", []byte("damaged")); err != nil {
		t.Fatal(err)
	}
	if err := segment.Reach(t.Context(), store, time.Now(),
		func(string) error { return nil }); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a manifest that cannot be read: %v", err)
	}
}
