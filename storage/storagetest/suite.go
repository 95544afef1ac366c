// Package storagetest is the conformance suite that every storage.Store passes.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// Run runs the suite. open returns an empty store that the suite may fill; stores of
// different tests share nothing.
func Run(t *testing.T, open func(t *testing.T) storage.Store) {
	tests := []struct {
		name string
		run  func(t *testing.T, s storage.Store)
	}{
		{"PutAndGet", putAndGet},
		{"Absent", absent},
		{"PutIfAbsent", putIfAbsent},
		{"PutIfAbsentOfManyParts", putIfAbsentOfManyParts},
		{"PutIfAbsentRace", putIfAbsentRace},
		{"GetRange", getRange},
		{"CompareAndSwap", compareAndSwap},
		{"CompareAndSwapCreateRace", compareAndSwapCreateRace},
		{"CompareAndSwapCounter", compareAndSwapCounter},
		{"ReadersSeeWholeObjects", readersSeeWholeObjects},
		{"List", list},
		{"Delete", deleteObject},
		{"InvalidKeys", invalidKeys},
		{"Limits", limits},
		{"Cancelled", cancelled},
		{"Blobs", blobs},
		{"Modified", modified},
		{"PutReader", putReader},
		{"PutReaderIfAbsent", putReaderIfAbsent},
		{"PutReaderIfAbsentRace", putReaderIfAbsentRace},
		{"BrokenSources", brokenSources},
		{"Open", openObject},
		{"OpenThenReplaced", openThenReplaced},
		{"StreamedBlobs", streamedBlobs},
		{"RemoveUnfinished", removeUnfinished},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := open(t)
			test.run(t, s)
			if err := s.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func putAndGet(t *testing.T, s storage.Store) {
	for _, data := range [][]byte{[]byte("one"), {}, bytes.Repeat([]byte("many "), 1<<18), {0, 255, '\n', '\r'}} {
		must(t, s.Put(t.Context(), "runs/a/x", data))
		wantObject(t, s, "runs/a/x", data)
		info, err := s.Stat(t.Context(), "runs/a/x")
		must(t, err)
		if info.Key != "runs/a/x" || info.Size != int64(len(data)) {
			t.Errorf("Stat: %+v, want the key and size %d", info, len(data))
		}
	}
}

func absent(t *testing.T, s storage.Store) {
	must(t, s.Put(t.Context(), "folder/object", []byte("x")))
	for _, key := range []string{"absent", "folder", "folder/absent", "absent/absent", "folder/object/below"} {
		_, err := s.Get(t.Context(), key)
		wantError(t, "Get "+key, err, storage.ErrNotFound)
		_, err = s.GetRange(t.Context(), key, 0, 1)
		wantError(t, "GetRange "+key, err, storage.ErrNotFound)
		_, err = s.GetRange(t.Context(), key, 0, 0)
		wantError(t, "empty GetRange "+key, err, storage.ErrNotFound)
		_, err = s.Stat(t.Context(), key)
		wantError(t, "Stat "+key, err, storage.ErrNotFound)
		_, _, err = s.Load(t.Context(), key)
		wantError(t, "Load "+key, err, storage.ErrNotFound)
		if err != nil && !strings.Contains(err.Error(), key) {
			t.Errorf("the error does not name the key %s: %v", key, err)
		}
	}
}

func putIfAbsent(t *testing.T, s storage.Store) {
	must(t, s.PutIfAbsent(t.Context(), "k", []byte("first")))
	wantError(t, "second", s.PutIfAbsent(t.Context(), "k", []byte("second")), storage.ErrExists)
	wantError(t, "the same again", s.PutIfAbsent(t.Context(), "k", []byte("first")), storage.ErrExists)
	wantObject(t, s, "k", []byte("first"))
	must(t, s.Delete(t.Context(), "k"))
	must(t, s.PutIfAbsent(t.Context(), "k", []byte("third")))
	wantObject(t, s, "k", []byte("third"))
}

// putIfAbsentOfManyParts: a client that splits 20 MiB into parts may lose the condition
// on the way and overwrite.
func putIfAbsentOfManyParts(t *testing.T, s storage.Store) {
	first := bytes.Repeat([]byte{1}, 20<<20)
	must(t, s.PutIfAbsent(t.Context(), "big", first))
	second := bytes.Repeat([]byte{2}, 20<<20)
	wantError(t, "second", s.PutIfAbsent(t.Context(), "big", second), storage.ErrExists)
	wantObject(t, s, "big", first)
	must(t, s.Put(t.Context(), "big", second))
	wantObject(t, s, "big", second)
}

func getRange(t *testing.T, s storage.Store) {
	must(t, s.Put(t.Context(), "k", []byte("0123456789")))
	must(t, s.Put(t.Context(), "empty", nil))
	tests := []struct {
		key            string
		offset, length int64
		want           string
		err            error
	}{
		{"k", 0, 10, "0123456789", nil},
		{"k", 3, 4, "3456", nil},
		{"k", 9, 1, "9", nil},
		{"k", 5, 0, "", nil},
		{"k", 10, 0, "", nil},
		{"empty", 0, 0, "", nil},
		{"k", 10, 1, "", storage.ErrRange},
		{"k", 8, 3, "", storage.ErrRange},
		{"k", 0, 11, "", storage.ErrRange},
		{"k", 11, 0, "", storage.ErrRange},
		{"k", 1 << 40, 1, "", storage.ErrRange},
		{"k", -1, 1, "", storage.ErrRange},
		{"k", 1, -1, "", storage.ErrRange},
		{"k", 1 << 62, 1 << 62, "", storage.ErrRange},
		{"empty", 0, 1, "", storage.ErrRange},
	}
	for _, test := range tests {
		got, err := s.GetRange(t.Context(), test.key, test.offset, test.length)
		if !errors.Is(err, test.err) || string(got) != test.want {
			t.Errorf("GetRange(%s, %d, %d) = %q, %v; want %q, %v", test.key, test.offset, test.length, got,
				err, test.want, test.err)
		}
	}
}

func compareAndSwap(t *testing.T, s storage.Store) {
	swap := func(etag, data string) (string, error) {
		return s.CompareAndSwap(t.Context(), "pointer", etag, []byte(data))
	}
	_, err := swap("0123456789abcdef", "x")
	wantError(t, "swap of an absent object", err, storage.ErrConflict)
	first, err := swap("", "1")
	must(t, err)
	_, err = swap("", "x")
	wantError(t, "create of a present object", err, storage.ErrConflict)
	second, err := swap(first, "2")
	must(t, err)
	_, err = swap(first, "x")
	wantError(t, "swap with an old ETag", err, storage.ErrConflict)
	wantObject(t, s, "pointer", []byte("2"))

	data, etag, err := s.Load(t.Context(), "pointer")
	must(t, err)
	info, err := s.Stat(t.Context(), "pointer")
	must(t, err)
	if string(data) != "2" || etag != second || info.ETag != second || second == first || second == "" {
		t.Errorf("Load %q %q, Stat %q; want \"2\" and the ETag %q of the swap (before: %q)", data, etag,
			info.ETag, second, first)
	}
	must(t, s.Put(t.Context(), "pointer", []byte("3")))
	_, err = swap(second, "x")
	wantError(t, "swap after a Put", err, storage.ErrConflict)
	must(t, s.Delete(t.Context(), "pointer"))
	_, err = swap(second, "x")
	wantError(t, "swap after a Delete", err, storage.ErrConflict)
	_, err = swap("", "4")
	must(t, err)
	wantObject(t, s, "pointer", []byte("4"))
}

func list(t *testing.T, s storage.Store) {
	keys := []string{"a", "b/1", "b/2/x", "b/2/y", "b-1", "b.1", "b0", "c/d/e/f", "runs/r1/t", "runs/r10/t", "Z"}
	for i, key := range keys {
		must(t, s.Put(t.Context(), key, make([]byte, i)))
	}
	slices.Sort(keys)
	prefixes := []string{"", "a", "b", "b/", "b/2", "b/2/", "b-", "c/d", "runs/r1", "runs/r1/", "absent",
		"absent/", "b/1", "b/1/"}
	for _, prefix := range prefixes {
		var want, got []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		for info, err := range s.List(t.Context(), prefix) {
			must(t, err)
			got = append(got, info.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("List(%q) = %q, want %q", prefix, got, want)
		}
	}
	must(t, s.Put(t.Context(), "sized", make([]byte, 1234)))
	for info, err := range s.List(t.Context(), "sized") {
		must(t, err)
		if info.Size != 1234 {
			t.Errorf("List gives size %d, want 1234", info.Size)
		}
	}
	seen := 0
	for range s.List(t.Context(), "b") {
		if seen++; seen == 2 {
			break
		}
	}
	if seen != 2 {
		t.Errorf("saw %d objects before the break, want 2", seen)
	}
}

func deleteObject(t *testing.T, s storage.Store) {
	must(t, s.Put(t.Context(), "folder/k", []byte("x")))
	must(t, s.Put(t.Context(), "folder/l", []byte("y")))
	must(t, s.Delete(t.Context(), "folder/k"))
	must(t, s.Delete(t.Context(), "folder/k"))
	must(t, s.Delete(t.Context(), "folder"))
	must(t, s.Delete(t.Context(), "absent/absent"))
	_, err := s.Get(t.Context(), "folder/k")
	wantError(t, "Get of a deleted object", err, storage.ErrNotFound)
	wantObject(t, s, "folder/l", []byte("y"))
}

func invalidKeys(t *testing.T, s storage.Store) {
	keys := []string{"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".hidden", "a/.b", "a b",
		"a\\b", "a\x00b", "ä", "a:b",
		"a?b", "a%2fb", strings.Repeat("a", 201), strings.Repeat("a/", 300) + "a", ".rondo/tmp/x"}
	for _, key := range keys {
		_, getErr := s.Get(t.Context(), key)
		_, rangeErr := s.GetRange(t.Context(), key, 0, 0)
		_, statErr := s.Stat(t.Context(), key)
		_, _, loadErr := s.Load(t.Context(), key)
		_, openErr := s.Open(t.Context(), key)
		_, swapErr := s.CompareAndSwap(t.Context(), key, "", nil)
		for operation, err := range map[string]error{"Put": s.Put(t.Context(), key, nil),
			"PutIfAbsent": s.PutIfAbsent(t.Context(), key, nil),
			"Delete":      s.Delete(t.Context(), key), "Get": getErr, "GetRange": rangeErr,
			"Stat": statErr, "Load": loadErr,
			"CompareAndSwap": swapErr, "Open": openErr,
			"PutReader":         s.PutReader(t.Context(), key, strings.NewReader(""), 0),
			"PutReaderIfAbsent": s.PutReaderIfAbsent(t.Context(), key, strings.NewReader(""), 0)} {
			wantError(t, fmt.Sprintf("%s of %q", operation, key), err, storage.ErrKey)
		}
	}
	for _, prefix := range []string{"..", "a/../", "/", "a b"} {
		for _, err := range s.List(t.Context(), prefix) {
			wantError(t, fmt.Sprintf("List of %q", prefix), err, storage.ErrKey)
		}
	}
}

func limits(t *testing.T, s storage.Store) {
	big := make([]byte, storage.MaxPointer+1)
	_, err := s.CompareAndSwap(t.Context(), "k", "", big)
	wantError(t, "CompareAndSwap of a large object", err, storage.ErrTooLarge)
	must(t, s.Put(t.Context(), "k", big))
	_, _, err = s.Load(t.Context(), "k")
	wantError(t, "Load of a large object", err, storage.ErrTooLarge)
}

func cancelled(t *testing.T, s storage.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "k")
	wantError(t, "Get", err, context.Canceled)
	wantError(t, "Put", s.Put(ctx, "k", []byte("x")), context.Canceled)
	wantError(t, "PutIfAbsent", s.PutIfAbsent(ctx, "k", []byte("x")), context.Canceled)
	wantError(t, "PutReader", s.PutReader(ctx, "k", strings.NewReader("x"), 1), context.Canceled)
	_, err = s.Open(ctx, "k")
	wantError(t, "Open", err, context.Canceled)
	for _, err := range s.List(ctx, "") {
		wantError(t, "List", err, context.Canceled)
	}
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a cancelled write wrote: %v", err)
	}
}

func blobs(t *testing.T, s storage.Store) {
	data := []byte("content")
	ref, err := storage.PutBlob(t.Context(), s, data)
	must(t, err)
	again, err := storage.PutBlob(t.Context(), s, data)
	must(t, err)
	if again != ref {
		t.Errorf("the same data got %+v, then %+v", ref, again)
	}
	got, err := storage.GetBlob(t.Context(), s, ref)
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Errorf("GetBlob = %q", got)
	}
	must(t, s.Put(t.Context(), ref.Key, []byte("CONTENT")))
	_, err = storage.GetBlob(t.Context(), s, ref)
	wantError(t, "GetBlob of other bytes", err, storage.ErrCorrupt)
	must(t, s.Put(t.Context(), ref.Key, []byte("cont")))
	_, err = storage.GetBlob(t.Context(), s, ref)
	wantError(t, "GetBlob of a part", err, storage.ErrCorrupt)
	must(t, s.Put(t.Context(), ref.Key, []byte("content and more")))
	got, err = storage.GetBlob(t.Context(), s, ref)
	must(t, err)
	if !bytes.Equal(got, data) {
		t.Errorf("GetBlob of what begins with it = %q", got)
	}
	empty, err := storage.PutBlob(t.Context(), s, nil)
	must(t, err)
	got, err = storage.GetBlob(t.Context(), s, empty)
	must(t, err)
	if len(got) != 0 {
		t.Errorf("GetBlob of nothing = %q", got)
	}
	_, err = storage.PutBlob(t.Context(), s, data)
	must(t, err)
	wantObject(t, s, ref.Key, data)
}

// modified: garbage is collected by age.
func modified(t *testing.T, s storage.Store) {
	must(t, s.Put(t.Context(), "k", []byte("x")))
	stated, err := s.Stat(t.Context(), "k")
	must(t, err)
	listed := storage.Info{}
	for info, err := range s.List(t.Context(), "k") {
		must(t, err)
		listed = info
	}
	for _, info := range []storage.Info{stated, listed} {
		if age := time.Since(info.Modified); age < -2*time.Second || age > time.Minute {
			t.Errorf("%+v was written %s ago", info, age)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantObject(t *testing.T, s storage.Store, key string, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("Get %s: %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(want), want)
	}
}

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}
