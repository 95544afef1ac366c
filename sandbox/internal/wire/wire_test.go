package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
)

func atMost(n int64) func() (int64, error) { return func() (int64, error) { return n, nil } }

func TestFrames(t *testing.T) {
	var stream bytes.Buffer
	for i := range 3 {
		if err := Write(&stream, Request{ID: uint64(i), Op: OpExec, Argv: []string{"echo"}}, []byte("bo"), nil,
			[]byte("dy")); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		var got Request
		body, err := Read(&stream, &got, atMost(4))
		if err != nil || got.ID != uint64(i) || got.Op != OpExec || string(body) != "body" {
			t.Errorf("%+v, %q, %v", got, body, err)
		}
	}
	if _, err := Read(&stream, &Request{}, atMost(4)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
}

func frame(header, body uint32, rest string) []byte {
	data := binary.BigEndian.AppendUint32(nil, header)
	data = binary.BigEndian.AppendUint32(data, body)
	return append(data, rest...)
}

func TestHostileFrames(t *testing.T) {
	for name, data := range map[string][]byte{
		"huge header":   frame(1<<32-1, 0, "{}"),
		"huge body":     frame(2, 1<<32-1, "{}"),
		"body too long": frame(2, 101, "{}"+strings.Repeat("x", 101)),
		"no JSON":       frame(2, 0, "no"),
		"other JSON":    frame(2, 0, "[]"),
		"header is cut": frame(20, 0, `{"ID"`),
		"body is cut":   frame(2, 5, "{}abc"),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(bytes.NewReader(data), &Response{}, atMost(100)); !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: %v, want ErrProtocol", name, err)
			}
		})
	}
	if err := Write(io.Discard, Request{Argv: []string{strings.Repeat("x", MaxHeader)}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a header too large to send: %v, want ErrTooLarge", err)
	}
}

// FuzzRead: no bytes may take more memory than was allowed, or panic.
func FuzzRead(f *testing.F) {
	f.Add(frame(2, 3, "{}abc"))
	f.Add(frame(40, 0, `{"ID":1,"Exec":{"ExitCode":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		body, err := Read(bytes.NewReader(data), &Response{}, atMost(64))
		if len(body) > 64 || err == nil && len(data) < 8 {
			t.Errorf("%d bytes, %v", len(body), err)
		}
	})
}

func TestErrorsKeepTheirMeaning(t *testing.T) {
	for _, cause := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOSPC, syscall.EROFS, syscall.EISDIR,
		ErrTooLarge, ErrInvalid, ErrRefused} {
		sent := cause
		if errors.Is(cause, fs.ErrNotExist) {
			sent = syscall.ENOENT // as the system says it
		}
		if errors.Is(cause, fs.ErrPermission) {
			sent = syscall.EACCES
		}
		var stream bytes.Buffer
		if err := Write(&stream, Response{Error: Wrap(fmt.Errorf("open x: %w", sent))}); err != nil {
			t.Fatal(err)
		}
		var got Response
		if _, err := Read(&stream, &got, atMost(0)); err != nil || !errors.Is(got.Error, cause) ||
			got.Error.Error() != fmt.Sprintf("open x: %v", sent) {
			t.Errorf("%v came as %v (%v)", cause, got.Error, err)
		}
	}
	if Wrap(nil) != nil {
		t.Error("no error became one")
	}
	if got := Wrap(errors.New(strings.Repeat("x", 1<<20))).Message; len(got) > maxMessage+10 {
		t.Errorf("a message of %d bytes", len(got))
	}
}
