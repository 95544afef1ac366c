package memory

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// grows asks for n bytes in the background; the answer comes when they are there.
func grows(ctx context.Context, s *Share, n int64) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Grow(ctx, n) }()
	synctest.Wait()
	return done
}

func there(t *testing.T, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	default:
		t.Fatalf("%s waits", what)
	}
}

func waits(t *testing.T, what string, done <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("%s does not wait: %v", what, err)
	default:
	}
}

// TestAllThatHoldAndWait: where everybody holds some and needs more, one at a time gets it,
// and in the end all have.
func TestAllThatHoldAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100, 40) // 60 for all, 30 of one tenant
		var shares []*Share
		var more []<-chan error
		for _, tenant := range []string{"a", "b", "a", "b"} {
			s := b.Share(tenant)
			there(t, "the first part", grows(t.Context(), s, 15))
			shares = append(shares, s)
		}
		for _, s := range shares {
			more = append(more, grows(t.Context(), s, 25))
		}
		for i, s := range shares {
			there(t, "the share whose turn it is", more[i])
			if i+1 < len(more) && i < 2 {
				waits(t, "the next one", more[i+1])
			}
			s.End()
		}
		if b.used != 0 || b.kept != nil || len(b.tenants) != 0 || len(b.waiting) != 0 {
			t.Errorf("in the end %d bytes are used, by %v", b.used, b.tenants)
		}
	})
}

// TestWaited: a share tells how long it has waited, in all.
func TestWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100, 40)
		first, second := b.Share("a"), b.Share("a")
		there(t, "the first", grows(t.Context(), first, 40))
		there(t, "the kept part", grows(t.Context(), second, 10))
		for range 2 {
			third := b.Share("a")
			there(t, "what is left", grows(t.Context(), third, 20))
			more := grows(t.Context(), third, 20)
			waits(t, "more", more)
			time.Sleep(5 * time.Second)
			third.Shrink(20)
			there(t, "more, where there is room", more)
			if third.Waited() != 5*time.Second {
				t.Errorf("it has waited %s", third.Waited())
			}
			third.End()
		}
	})
}

// TestTenantLeavesHalf: one tenant has at most half, the kept part apart, and
// another one finds room at once.
func TestTenantLeavesHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(100, 40)
		greedy := b.Share("greedy")
		there(t, "half", grows(t.Context(), greedy, 30))
		there(t, "the kept part", grows(t.Context(), b.Share("greedy"), 40))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		third := grows(ctx, b.Share("greedy"), 1)
		waits(t, "a third share of the tenant", third)
		there(t, "another tenant", grows(t.Context(), b.Share("other"), 30))
		time.Sleep(2 * time.Second)
		if err := <-third; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who gives up is told %v", err)
		}
		b.Wait = time.Minute
		began := time.Now()
		if err := b.Share("greedy").Grow(t.Context(), 1); !errors.Is(err, ErrSpent) ||
			time.Since(began) != time.Minute {
			t.Errorf("after %s it is told %v", time.Since(began), err)
		}
		if len(b.waiting) != 0 {
			t.Error("who gave up waits still")
		}
	})
}

// TestRead: a text is read whole or refused, and its share holds as much as its buffer.
func TestRead(t *testing.T) {
	for _, size := range []int{0, 1, first - 1, first, first + 1, 5 * first, 1 << 20} {
		want := bytes.Repeat([]byte("x"), size)
		for _, said := range []int{-1, 0, size / 2, size, min(2*size, 1<<20)} { // senders are wrong, too
			b := New(10<<20, 4<<20)
			s := b.Share("p")
			got, err := s.Read(t.Context(), io.MultiReader(bytes.NewReader(want)), int64(said), 1<<20)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("of %d bytes, %d by the sender, come %d: %v", size, said, len(got), err)
			}
			if s.size != int64(cap(got)) || b.used != s.size {
				t.Errorf("of %d bytes the share has %d, the budget %d, and the buffer %d", size,
					s.size, b.used, cap(got))
			}
			if said == size && size > 0 && cap(got) > size+1 {
				t.Errorf("of %d bytes, as the sender says, the buffer has %d", size, cap(got))
			}
		}
		for _, said := range []int{0, size} {
			s := New(10<<20, 4<<20).Share("p")
			if _, err := s.Read(t.Context(), strings.NewReader(strings.Repeat("x", size+1)), int64(said),
				int64(size)); !errors.Is(err, ErrLong) {
				t.Errorf("a byte more than %d, of which the sender says %d: %v", size, said, err)
			}
		}
		s := New(10<<20, 4<<20).Share("p")
		if _, err := s.Read(t.Context(), iotest.ErrReader(errors.New("it is read")), int64(size)+1,
			int64(size)); !errors.Is(err, ErrLong) || s.size > 0 {
			t.Errorf("a sender that says %d bytes, where %d are too many: %v, and %d bytes are held", size+1, size+1,
				err, s.size)
		}
	}
	b := New(1<<20, 1<<19)
	if _, err := b.Share("p").Read(t.Context(), strings.NewReader(strings.Repeat("x", 1<<20)), 1<<20,
		1<<20); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a text that no share can hold: %v", err)
	}
}

// TestLines: lines are those of the text, and the share holds as much as their
// buffer, before that is made.
func TestLines(t *testing.T) {
	long := strings.Repeat("x", 5*first)
	want := []string{"a", "", "b", long, strings.Repeat("y", first), "end"}
	text := strings.Replace(strings.Join(want, "\n"), "b\n", "b\r\n", 1)
	for name, r := range map[string]io.Reader{"whole": strings.NewReader(text),
		"halves":       iotest.HalfReader(strings.NewReader(text)),
		"with its end": iotest.DataErrReader(strings.NewReader(text))} {
		s := New(10<<20, 4<<20).Share("p")
		lines := s.Lines(r, int64(len(long)))
		for i, want := range want {
			if line, err := lines.Next(t.Context()); err != nil || string(line) != want {
				t.Fatalf("%s: line %d is %.20q of %d bytes: %v", name, i, line, len(line), err)
			}
			if s.size != int64(len(lines.buf)) {
				t.Errorf("%s: the share has %d bytes, and the buffer %d", name, s.size, len(lines.buf))
			}
		}
		if line, err := lines.Next(t.Context()); !errors.Is(err, io.EOF) || len(lines.buf) > first {
			t.Errorf("%s: behind the end is %q: %v, and the buffer has %d bytes", name, line, err, len(lines.buf))
		}
		if lines.End(); s.size != 0 {
			t.Errorf("%s: in the end %d bytes are held", name, s.size)
		}
	}
	for most, c := range map[int64]struct {
		budget int64
		want   error
	}{int64(len(long)): {4 << 20, nil}, int64(len(long)) - 1: {4 << 20, ErrLong}, 1 << 20: {4 * first, ErrTooLarge}} {
		s := New(10<<20, c.budget).Share("p")
		lines := s.Lines(strings.NewReader(long+"\n"), most)
		if _, err := lines.Next(t.Context()); !errors.Is(err, c.want) ||
			s.size != int64(len(lines.buf)) || s.size > c.budget {
			t.Errorf("a line of %d bytes, where %d are allowed and the share may have %d: %v, and %d bytes are held",
				len(long), most, c.budget, err, s.size)
		}
	}
	broken := errors.New("broken")
	lines := New(10<<20, 4<<20).Share("p").Lines(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)),
		100)
	for _, want := range []error{nil, broken, broken} {
		if _, err := lines.Next(t.Context()); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]int64{
		``: 0, `1`: 0, `[1,2]`: 2, `[{},{}]`: 4, `{"a":"[,{","b":[]}`: 3, `["\",[",1]`: 2,
		`["\\",1]`: 2, `"\\\",",[`: 2,
	} {
		t.Run(text, func(t *testing.T) {
			if got := Values([]byte(text)); got != want {
				t.Errorf("%s has %d values, want %d", text, got, want)
			}
		})
	}
}
