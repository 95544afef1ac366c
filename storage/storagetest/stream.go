package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/rondo-rl/rondo/storage"
)

// content is size bytes that differ from place to place.
func content(size int) []byte {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = random.Read(data)
	return data
}

// severalParts is the size of an object that S3 takes in several parts, the last of them shorter.
const severalParts = 17<<20 + 7

func putReader(t *testing.T, s storage.Store) {
	for _, size := range []int{0, 1, 5 << 20, 16 << 20, severalParts} {
		data := content(size)
		for _, told := range []int64{int64(size), -1} {
			key := fmt.Sprintf("streams/%d", size)
			must(t, s.PutReader(t.Context(), key, bytes.NewReader(data), told))
			wantObject(t, s, key, data)
			info, err := s.Stat(t.Context(), key)
			must(t, err)
			if info.Size != int64(size) {
				t.Errorf("%d bytes, told %d: Stat gives size %d", size, told, info.Size)
			}
		}
	}
	short := content(1000)
	must(t, s.PutReader(t.Context(), "short-reads", iotest.OneByteReader(bytes.NewReader(short)), 1000))
}

func putReaderIfAbsent(t *testing.T, s storage.Store) {
	for _, size := range []int{3, severalParts} {
		key := fmt.Sprintf("absent/%d", size)
		first, second := content(size), content(size+1)
		must(t, s.PutReaderIfAbsent(t.Context(), key, bytes.NewReader(first), int64(size)))
		wantError(t, "second", s.PutReaderIfAbsent(t.Context(), key, bytes.NewReader(second), int64(size+1)),
			storage.ErrExists)
		wantObject(t, s, key, first)
		must(t, s.PutReader(t.Context(), key, bytes.NewReader(second), -1))
		wantObject(t, s, key, second)
	}
}

func putReaderIfAbsentRace(t *testing.T, s storage.Store) {
	for round := range 4 {
		key := fmt.Sprintf("stream-race/%d", round)
		var winner, wins atomic.Int32
		together(8, func(writer int) {
			switch err := s.PutReaderIfAbsent(t.Context(), key, bytes.NewReader([]byte(strconv.Itoa(writer))), -1); {
			case err == nil:
				wins.Add(1)
				winner.Store(int32(writer))
			case !errors.Is(err, storage.ErrExists):
				t.Errorf("writer %d: %v", writer, err)
			}
		})
		if wins.Load() != 1 {
			t.Fatalf("round %d: %d writers won, want 1", round, wins.Load())
		}
		wantObject(t, s, key, []byte(strconv.Itoa(int(winner.Load()))))
	}
}

var errSource = errors.New("the source broke")

// brokenSources: where a source fails, or is not what was said of it, there is no object, and
// what was there before stays.
func brokenSources(t *testing.T, s storage.Store) {
	must(t, s.Put(t.Context(), "present", []byte("before")))
	for _, size := range []int64{2, severalParts} {
		whole := func(n int64) io.Reader { return bytes.NewReader(content(int(n))) }
		sources := map[string]struct {
			source func() io.Reader
			told   int64
			want   error
		}{
			"breaks": {func() io.Reader {
				return io.MultiReader(whole(size),
					iotest.ErrReader(errSource))
			}, size + 1, errSource},
			"breaks at its end": {func() io.Reader {
				return io.MultiReader(whole(size),
					iotest.ErrReader(errSource))
			}, size, errSource},
			"breaks, size unknown": {func() io.Reader {
				return io.MultiReader(whole(size),
					iotest.ErrReader(errSource))
			}, -1, errSource},
			"is too short":     {func() io.Reader { return whole(size - 1) }, size, storage.ErrSource},
			"is too long":      {func() io.Reader { return whole(size + 1) }, size, storage.ErrSource},
			"is much too long": {func() io.Reader { return whole(size) }, 0, storage.ErrSource},
		}
		for name, test := range sources {
			for _, key := range []string{"present", "new"} {
				wantError(t, fmt.Sprintf("%d bytes: a source that %s", size, name),
					s.PutReader(t.Context(), key, test.source(), test.told), test.want)
			}
		}
	}
	_, err := s.Stat(t.Context(), "new")
	wantError(t, "Stat of what was never whole", err, storage.ErrNotFound)
	wantObject(t, s, "present", []byte("before"))
	wantError(t, "more than a store takes", s.PutReader(t.Context(), "new", bytes.NewReader(nil), storage.MaxStream+1),
		storage.ErrTooLarge)
}

func openObject(t *testing.T, s storage.Store) {
	data := content(3 << 20)
	must(t, s.Put(t.Context(), "object", data))
	object, err := s.Open(t.Context(), "object")
	must(t, err)
	if object.Size() != int64(len(data)) {
		t.Errorf("size %d, want %d", object.Size(), len(data))
	}
	must(t, iotest.TestReader(io.NewSectionReader(object, 1000, 40), data[1000:1040]))
	for _, test := range []struct{ offset, length, want int }{{0, len(data), len(data)}, {len(data) - 3, 10, 3},
		{len(data), 1, 0}, {len(data) + 5, 1, 0}, {7, 0, 0}} {
		got := make([]byte, test.length)
		n, err := object.ReadAt(got, int64(test.offset))
		if n != test.want || n < test.length && !errors.Is(err, io.EOF) ||
			n == test.length && err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("ReadAt(%d bytes at %d) = %d, %v; want %d", test.length, test.offset, n, err, test.want)
		}
		if n > 0 && !bytes.Equal(got[:n], data[test.offset:test.offset+n]) {
			t.Errorf("ReadAt(%d bytes at %d) gives other bytes", test.length, test.offset)
		}
	}
	if _, err := object.ReadAt(make([]byte, 1), -1); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("ReadAt at -1: %v", err)
	}
	together(4, func(i int) {
		got := make([]byte, 1<<20)
		if _, err := object.ReadAt(got, int64(i)<<18); err != nil || !bytes.Equal(got, data[i<<18:i<<18+1<<20]) {
			t.Errorf("reader %d: other bytes, %v", i, err)
		}
	})
	must(t, object.Close())
	empty, err := storage.PutBlob(t.Context(), s, nil)
	must(t, err)
	object, err = s.Open(t.Context(), empty.Key)
	must(t, err)
	if n, err := object.ReadAt(make([]byte, 1), 0); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("an empty object gives %d bytes, %v", n, err)
	}
	must(t, object.Close())
	for _, key := range []string{"absent", "blobs", "object/below"} {
		_, err = s.Open(t.Context(), key)
		wantError(t, "Open "+key, err, storage.ErrNotFound)
	}
}

// openThenReplaced: a reader sees the object that it opened, or an error.
func openThenReplaced(t *testing.T, s storage.Store) {
	first, second := content(1<<20), content(1<<20+1)
	must(t, s.Put(t.Context(), "object", first))
	object, err := s.Open(t.Context(), "object")
	must(t, err)
	must(t, s.Put(t.Context(), "object", second))
	got := make([]byte, 1<<20)
	if _, err := object.ReadAt(got, 0); err == nil && !bytes.Equal(got, first) ||
		err != nil && !errors.Is(err, storage.ErrConflict) {
		t.Errorf("an object that was replaced gives %v, and the first bytes %v", err, bytes.Equal(got, first))
	}
	must(t, object.Close())
}

// streamedBlobs: what is streamed is verified while it is written and while it is read.
func streamedBlobs(t *testing.T, s storage.Store) {
	for _, size := range []int{0, 5, 5 << 20, severalParts} {
		data := content(size)
		ref, err := storage.PutBlobFrom(t.Context(), s, bytes.NewReader(data), int64(size))
		must(t, err)
		whole, err := storage.PutBlob(t.Context(), s, data)
		must(t, err)
		if ref != whole {
			t.Errorf("streamed %+v, whole %+v", ref, whole)
		}
		var got bytes.Buffer
		n, err := storage.CopyBlob(t.Context(), &got, s, ref)
		must(t, err)
		if n != int64(size) || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("of %d bytes %d came back, or others", size, n)
		}
	}

	// A file that changes between the digest and the upload never becomes an object,
	// nor takes the place of one.
	ref := storage.Ref{Key: storage.BlobKey(storage.Digest(content(severalParts + 1))),
		SHA256: storage.Digest(content(severalParts + 1)), Size: severalParts + 1}
	_, err := storage.PutBlobFrom(t.Context(), s, &changing{first: content(severalParts + 1),
		later: make([]byte, severalParts+1)}, severalParts+1)
	wantError(t, "a source that changes", err, storage.ErrCorrupt)
	wantError(t, "VerifyBlob of what was never written", storage.VerifyBlob(t.Context(), s, ref), storage.ErrNotFound)

	for name, other := range map[string][]byte{"shorter": content(severalParts),
		"changed": make([]byte, severalParts+1)} {
		must(t, s.Put(t.Context(), ref.Key, other))
		wantError(t, "VerifyBlob of one that is "+name, storage.VerifyBlob(t.Context(), s, ref), storage.ErrCorrupt)
	}
	must(t, s.Put(t.Context(), ref.Key, append(content(severalParts+1), "and more"...)))
	must(t, storage.VerifyBlob(t.Context(), s, ref))
}

// changing is a file that somebody writes to while it is read for the second time.
type changing struct {
	first, later []byte
	read         int
}

func (c *changing) ReadAt(p []byte, offset int64) (int, error) {
	source := c.first
	if c.read >= len(c.first) {
		source = c.later
	}
	n, err := bytes.NewReader(source).ReadAt(p, offset)
	c.read += n
	return n, err
}

// removeUnfinished: what is whole stays, whatever its age.
func removeUnfinished(t *testing.T, s storage.Store) {
	must(t, s.PutReader(t.Context(), "whole", bytes.NewReader(content(severalParts)), -1))
	begun := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	half := io.MultiReader(bytes.NewReader(content(severalParts)), signal(begun), untilDone{ctx})
	ended := make(chan error)
	go func() { ended <- s.PutReader(t.Context(), "half", half, -1) }()
	<-begun
	if n, err := s.RemoveUnfinished(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("%d uploads of the last hour removed, %v; want none", n, err)
	}
	if n, err := s.RemoveUnfinished(t.Context(), time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("%d uploads removed, %v; want the one that was begun", n, err)
	}
	cancel()
	if err := <-ended; err != nil {
		_, err := s.Stat(t.Context(), "half")
		wantError(t, "Stat", err, storage.ErrNotFound)
	} else { // its parts came to the server after the removal
		wantObject(t, s, "half", content(severalParts))
	}
	wantObject(t, s, "whole", content(severalParts))
	if n, err := s.RemoveUnfinished(t.Context(), time.Now().Add(time.Hour)); n != 0 || err != nil {
		t.Errorf("afterwards %d uploads are left, %v", n, err)
	}
}

// untilDone is a source that ends with a context.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, io.EOF
}

// signal is a source of nothing that closes a channel when it is read.
func signal(reached chan struct{}) io.Reader {
	return readerFunc(func([]byte) (int, error) {
		close(reached)
		return 0, io.EOF
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
