package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/storage"
	"github.com/rondo-rl/rondo/storage/s3"
	"github.com/rondo-rl/rondo/storage/storagetest"
)

// large is the size of an object of three parts.
const large = 33 << 20

// pattern is the content of large objects: each mebibyte is another.
func pattern(first byte) []byte {
	data := make([]byte, 0, large)
	for i := range byte(large >> 20) {
		data = append(data, bytes.Repeat([]byte{first + i}, 1<<20)...)
	}
	return data
}

func wantContent(t *testing.T, s storage.Store, key string, first byte) {
	t.Helper()
	if got, err := s.Get(t.Context(), key); err != nil || !bytes.Equal(got, pattern(first)) {
		t.Errorf("%s: %d bytes, or others than were written; %v", key, len(got), err)
	}
}

// wantNothingUnfinished: no part of an upload that failed takes room.
func wantNothingUnfinished(t *testing.T, s storage.Store) {
	t.Helper()
	if n, err := s.RemoveUnfinished(t.Context(), time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Errorf("%d unfinished uploads were left, %v", n, err)
	}
}

func part(r *http.Request) bool { return r.Method == http.MethodPut && r.URL.Query().Has("partNumber") }
func end(r *http.Request) bool  { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") }

// faulty is a store before which a server breaks the connection of those requests that broken
// chooses: after they were carried out, or in the middle of their bodies.
func faulty(t *testing.T, carriedOut bool, broken func(r *http.Request) bool) *s3.Store {
	endpoint := front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case !broken(r):
			next.ServeHTTP(w, r)
			return
		case carriedOut:
			next.ServeHTTP(httptest.NewRecorder(), r)
		default:
			_, _ = io.CopyN(io.Discard, r.Body, 1000)
		}
		panic(http.ErrAbortHandler)
	})
	return open(t, config(endpoint))
}

func TestPartsAreSentAgain(t *testing.T) {
	t.Parallel()
	for name, carriedOut := range map[string]bool{"answer lost": true, "cut in the middle": false} {
		t.Run(name, func(t *testing.T) {
			var breaks atomic.Int32
			s := faulty(t, carriedOut, func(r *http.Request) bool { return part(r) && breaks.Add(-1) >= 0 })
			breaks.Store(2)
			if err := s.PutReaderIfAbsent(t.Context(), "k", bytes.NewReader(pattern(1)), large); err != nil {
				t.Fatal(err)
			}
			wantContent(t, s, "k", 1)
			wantNothingUnfinished(t, s)
		})
	}
}

// TestLostEndOfAnUpload: the server has made the object of its parts, and nobody hears of it.
func TestLostEndOfAnUpload(t *testing.T) {
	t.Parallel()
	var breaks atomic.Int32
	s := faulty(t, true, func(r *http.Request) bool { return end(r) && breaks.Add(-1) >= 0 })
	for _, lost := range []int32{1, 2, 1 << 20} {
		breaks.Store(lost)
		if err := s.PutReader(t.Context(), "k", bytes.NewReader(pattern(byte(lost))), large); err != nil {
			t.Errorf("PutReader after %d lost answers: %v", lost, err)
		}
		wantContent(t, s, "k", byte(lost))
		breaks.Store(lost)
		key := "absent" + strings.Repeat("x", int(lost%7))
		if err := s.PutReaderIfAbsent(t.Context(), key, bytes.NewReader(pattern(2)), -1); err != nil {
			t.Errorf("PutReaderIfAbsent after %d lost answers: %v", lost, err)
		}
		breaks.Store(0)
		if err := s.PutReaderIfAbsent(t.Context(), key, bytes.NewReader(pattern(3)),
			-1); !errors.Is(err, storage.ErrExists) {
			t.Errorf("another PutReaderIfAbsent: %v, want ErrExists", err)
		}
		wantContent(t, s, key, 2)
	}
	wantNothingUnfinished(t, s)
}

// TestUploadsThatFailLeaveNothing: a part that never arrives, and a caller that gives up.
func TestUploadsThatFailLeaveNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var gone atomic.Bool
	s := faulty(t, false, func(r *http.Request) bool {
		if gone.Load() && part(r) {
			cancel()
		}
		return part(r) && r.URL.Query().Get("partNumber") == "2"
	})
	if err := s.PutReader(ctx, "k", bytes.NewReader(pattern(1)), large); err == nil {
		t.Error("an upload succeeded of which a part never arrived")
	}
	gone.Store(true)
	if err := s.PutReader(ctx, "k", bytes.NewReader(pattern(1)), large); !errors.Is(err, context.Canceled) {
		t.Errorf("an upload whose caller has gone: %v", err)
	}
	if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("there is an object: %v", err)
	}
	wantNothingUnfinished(t, s)
}

// TestKilledUploadsAreFound: a writer that was killed removes nothing. Whoever collects garbage
// finds its parts by their age.
func TestKilledUploadsAreFound(t *testing.T) {
	t.Parallel()
	var alive atomic.Bool
	s := faulty(t, false, func(r *http.Request) bool {
		return r.Method == http.MethodDelete && r.URL.Query().Has("uploadId") && !alive.Load()
	})
	ctx, cancel := context.WithCancel(t.Context())
	kill := readerFunc(func([]byte) (int, error) { cancel(); return 0, ctx.Err() })
	if err := s.PutReader(ctx, "killed", io.MultiReader(bytes.NewReader(pattern(1)), kill), -1); err == nil {
		t.Error("it succeeded")
	}
	alive.Store(true)
	if n, err := s.RemoveUnfinished(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("%d young uploads were removed, %v", n, err)
	}
	if n, err := s.RemoveUnfinished(t.Context(), time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("%d old uploads were removed, %v; want the one that nobody goes on with", n, err)
	}
	wantNothingUnfinished(t, s)
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestOneOfSeveralUploadsWins: the condition is checked when an object of many parts is whole.
func TestOneOfSeveralUploadsWins(t *testing.T) {
	t.Parallel()
	s := open(t, config(storagetest.S3Dev(t)))
	var wins, winner atomic.Int32
	var whole, done sync.WaitGroup
	whole.Add(3)
	for writer := range int32(3) {
		done.Go(func() {
			// All find that there is no object, and have sent all parts but the last
			// before one of them is whole.
			last := readerFunc(func([]byte) (int, error) { whole.Done(); whole.Wait(); return 0, io.EOF })
			switch err := s.PutReaderIfAbsent(t.Context(),
				"k", io.MultiReader(bytes.NewReader(pattern(byte(writer))), last), -1); {
			case err == nil:
				wins.Add(1)
				winner.Store(writer)
			case !errors.Is(err, storage.ErrExists):
				t.Errorf("writer %d: %v", writer, err)
			}
		})
	}
	done.Wait()
	if wins.Load() != 1 {
		t.Errorf("%d of 3 uploads won, want 1", wins.Load())
	}
	wantContent(t, s, "k", byte(winner.Load()))
	wantNothingUnfinished(t, s)
}

// TestUploadsTakeLittleMemory: of a large object no more than its parts that are
// under way are in memory.
func TestUploadsTakeLittleMemory(t *testing.T) {
	const size, most = 160 << 20, 96 << 20           // 64 of parts that are under way
	defer debug.SetGCPercent(debug.SetGCPercent(10)) // or the collector lets the heap grow to twice what is in use
	s := open(t, config(storagetest.S3Dev(t)))
	before, peak := memory(), uint64(0)
	zeros := readerFunc(func(p []byte) (int, error) {
		peak = max(peak, memory())
		clear(p)
		return len(p), nil
	})
	if err := s.PutReader(t.Context(), "k", io.LimitReader(zeros, size), size); err != nil {
		t.Fatal(err)
	}
	object, err := s.Open(t.Context(), "k")
	if err != nil || object.Size() != size {
		t.Fatalf("open: %v", err)
	}
	if _, err := io.Copy(writerFunc(func(p []byte) (int, error) {
		peak = max(peak, memory())
		return len(p), nil
	}), io.NewSectionReader(object, 0, size)); err != nil {
		t.Fatal(err)
	}
	if used := int64(peak) - int64(before); used > most {
		t.Errorf("%d MiB of memory for an object of %d MiB, want at most %d", used>>20, size>>20, most>>20)
	} else {
		t.Logf("%d MiB of memory for an object of %d MiB", used>>20, size>>20)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func memory() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// TestBrokenRangesGoOn: a range whose connection breaks again and again is read to its end, each
// time from where it broke.
func TestBrokenRangesGoOn(t *testing.T) {
	t.Parallel()
	var room atomic.Int64 // bytes that a connection gives before it breaks
	room.Store(1 << 40)
	var asked []string
	endpoint := front(t, memoryServer(t), func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/big") || room.Load() == 1<<40 {
			next.ServeHTTP(w, r)
			return
		}
		asked = append(asked, r.Header.Get("Range"))
		recorded := httptest.NewRecorder()
		next.ServeHTTP(recorded, r)
		for name, values := range recorded.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorded.Code)
		if n, _ := io.CopyN(w, recorded.Body, room.Load()); n == room.Load() {
			panic(http.ErrAbortHandler)
		}
	})
	s := open(t, config(endpoint))
	data := pattern(7)[:1<<20]
	if err := s.Put(t.Context(), "big", data); err != nil {
		t.Fatal(err)
	}
	object, err := s.Open(t.Context(), "big")
	if err != nil {
		t.Fatal(err)
	}
	room.Store(200_000)
	got := make([]byte, 900_000)
	if n, err := object.ReadAt(got, 100_000); n != len(got) || err != nil ||
		!bytes.Equal(got, data[100_000:1_000_000]) {
		t.Errorf("ReadAt = %d bytes, or others, %v", n, err)
	}
	if len(asked) != 5 || asked[1] != "bytes=300000-999999" {
		t.Errorf("asked for %q, want the rest each time", asked)
	}
	room.Store(0)
	if _, err := object.ReadAt(got, 0); err == nil {
		t.Error("ReadAt succeeded where nothing comes")
	}
}
